"""The official folder: what it holds, and what is said if it is absent, half there or damaged."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from envs.alfworld.dataset import FOLDER, SPLITS, DatasetError, open_dataset
from envs.alfworld.pddl import GameError
from envs.alfworld.world import World

GAME = '{"pddl_problem": "", "solvable": true, "walkthrough": []}'


def add(root, *names, content=GAME):
    for name in names:
        folder = root / FOLDER / name
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(content)


TASK = "pick_and_place_simple-Book-None-Desk-301"


@pytest.fixture
def root(tmp_path):
    add(tmp_path, f"train/{TASK}/trial_2", f"train/{TASK}/trial_1", "train/A-1/trial_9",
        f"valid_unseen/{TASK}/trial_1")  # fmt: skip
    return tmp_path


def test_ids_are_sorted_paths(root):
    dataset = open_dataset(root)
    assert dataset.tasks.splits == ("train", "valid_unseen")
    assert dataset.tasks.train_split == "train"
    assert dataset.tasks.eval_splits == ("valid_unseen",)
    assert dataset.tasks.ids("train") == (
        "train/A-1/trial_9", f"train/{TASK}/trial_1", f"train/{TASK}/trial_2",
    )  # fmt: skip
    assert dataset.path("train/A-1/trial_9") == (
        root.resolve() / FOLDER / "train" / "A-1" / "trial_9" / "game.tw-pddl"
    )
    first = [dataset.tasks.sample(np.random.default_rng(3), "train") for _ in range(5)]
    assert first == [dataset.tasks.sample(np.random.default_rng(3), "train") for _ in range(5)]


def test_the_folder_above_or_itself_is_one_data_set(root, monkeypatch):
    dataset = open_dataset(root)
    assert open_dataset(str(root / FOLDER)) is dataset
    monkeypatch.setenv("ALFWORLD_DATA", str(root))
    assert open_dataset("$ALFWORLD_DATA") is dataset
    monkeypatch.setenv("HOME", str(root))
    assert open_dataset("~/" + FOLDER) is dataset


def test_trials_without_a_game_and_unsupported_ones_are_passed_over(root):
    (root / FOLDER / "train" / TASK / "trial_3").mkdir()
    add(root, "train/pick_and_place_with_movable_recep-A-B-C-1/trial_1",
        "train/pick_and_place_simple-AppleSliced-None-Desk-1/trial_1")  # fmt: skip
    assert len(open_dataset(root).tasks.ids("train")) == 3


def test_a_part_of_the_data_will_do(tmp_path):
    add(tmp_path, f"valid_seen/{TASK}/trial_1")
    dataset = open_dataset(tmp_path)
    assert dataset.tasks.splits == ("train", "valid_seen")
    dataset.check(None)
    dataset.check("valid_seen")
    for split in ("train", "valid_unseen"):
        with pytest.raises(
            DatasetError, match=rf"no games of split '{split}'; it has valid_seen \(1\)"
        ):
            dataset.check(split)


def test_absent_data(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"does not exist; data= takes the folder"):
        open_dataset(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="is a file"):
        open_dataset(tmp_path / "file")
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    with pytest.raises(DatasetError, match=r"'\$NO_SUCH_VARIABLE' names an environment variable"):
        open_dataset("$NO_SUCH_VARIABLE")
    with pytest.raises(DatasetError, match=f"holds none of the folders {', '.join(SPLITS)}"):
        open_dataset(tmp_path)


def test_data_that_was_not_unpacked(tmp_path):
    (tmp_path / "json_2.1.2_tw-pddl.zip").write_text("")
    with pytest.raises(DatasetError, match=r"It holds json_2\.1\.2_tw-pddl\.zip, not unpacked"):
        open_dataset(tmp_path)


def test_data_without_the_text_games(tmp_path):
    for trial in ("trial_1", "trial_2"):
        (tmp_path / FOLDER / "train" / TASK / trial).mkdir(parents=True)
    dataset = open_dataset(tmp_path)
    with pytest.raises(DatasetError, match=r"has 2 trial folders but not one game\.tw-pddl"):
        dataset.check(None)


def test_empty_splits(tmp_path):
    (tmp_path / FOLDER / "train").mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"no folder in .* holds a game"):
        open_dataset(tmp_path).check(None)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is empty"),
        ("\0" * 9000, "is empty"),
        ('{"pddl_domain": "(define (dom', r"is cut short after 29 bytes"),
        (GAME[:-1], "is cut short after 56 bytes"),
        ("version https://git-lfs.github.com/spec/v1\nsize 7\n", "is a pointer of Git LFS"),
        ("<html>404</html>", "is not JSON"),
        ("[1, 2]", "holds a JSON list"),
    ],
)
def test_damaged_game_files(root, content, what):
    add(root, f"valid_seen/{TASK}/trial_1", content=content)
    add(root, f"valid_seen/{TASK}/trial_2")
    with pytest.raises(
        DatasetError,
        match=rf"(?s)1 of 2 game files of split 'valid_seen' in .* are damaged; .*trial_1.*{what}",
    ):
        open_dataset(root).check("valid_seen")


def test_a_game_file_that_is_a_folder(root):
    (root / FOLDER / "train" / TASK / "trial_1" / "game.tw-pddl").unlink()
    (root / FOLDER / "train" / TASK / "trial_1" / "game.tw-pddl").mkdir()
    with pytest.raises(DatasetError, match=r"trial_1.game\.tw-pddl cannot be read: Is a directory"):
        open_dataset(root).check("train")


def test_games_not_marked_solvable_are_passed_over_as_in_the_original(tmp_path):
    marks = {
        "trial_1": '"solvable": true',
        "trial_2": '"solvable":false',
        "trial_3": '"solved": true',
        "trial_4": '"solvable": true, "walkthrough": ["' + "go" * 4000 + '"]',
        "trial_5": '"solvable": false, "walkthrough": ["' + "go" * 4000 + '"]',
        "trial_6": '"solvable": null',
        "trial_7": '"solvable": 1',
    }
    for trial, mark in marks.items():
        add(tmp_path, f"valid_seen/{TASK}/{trial}", content=f'{{"pddl_problem": "", {mark}}}\n')
    tasks = open_dataset(tmp_path).tasks
    trials = [task_id.rpartition("/")[2] for task_id in tasks.ids("valid_seen")]
    assert trials == ["trial_1", "trial_4", "trial_7"]
    other = tmp_path / "other"
    add(other, f"valid_unseen/{TASK}/trial_1", content='{"solvable": false}')
    with pytest.raises(DatasetError, match="has 1 games, none of which is marked as solvable"):
        open_dataset(other).tasks.ids("valid_unseen")


def test_a_game_damaged_later_is_named_and_hurts_no_other(root):
    dataset = open_dataset(root)
    dataset.check("train")
    dataset.path("train/A-1/trial_9").write_text('{"pddl_domain": "(def')
    with pytest.raises(GameError, match=r"A-1.trial_9.game\.tw-pddl is cut short"):
        dataset.world("train/A-1/trial_9")
    with pytest.raises(GameError, match=r"A-1.trial_9.game\.tw-pddl is cut short"):
        dataset.game("train/A-1/trial_9")
    assert dataset.game(f"train/{TASK}/trial_1")["walkthrough"] == []


def test_links_and_odd_ways_of_writing_a_folder(root, tmp_path, monkeypatch):
    dataset = open_dataset(root)
    (tmp_path / "link").symlink_to(root / FOLDER, target_is_directory=True)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "train").symlink_to(root / FOLDER / "train", target_is_directory=True)
    monkeypatch.setenv("ALFWORLD_DATA", f"{root}/")
    monkeypatch.chdir(root)
    for given in (f"{root}/", f"{root}/{FOLDER}/", tmp_path / "link", ".", "$ALFWORLD_DATA/",
                  "${ALFWORLD_DATA}", f"./{FOLDER}/../", str(root).encode()):  # fmt: skip
        assert open_dataset(given) is dataset, given
    assert len(open_dataset(tmp_path / "parts").tasks.ids("train")) == 3
    (tmp_path / "costs $5").mkdir()
    (tmp_path / "costs $5" / "train").symlink_to(root / FOLDER / "train")
    assert len(open_dataset(tmp_path / "costs $5").tasks.ids("train")) == 3


@pytest.mark.parametrize("given", ["", "  ", "$EMPTY"])
def test_an_empty_name(given, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(DatasetError, match="is an empty text; data= takes the folder"):
        open_dataset(given)


@pytest.mark.data
def test_official_games(games):
    assert {name: len(games.tasks.ids(name)) for name in games.tasks.splits} == {
        "train": 1200,
        "valid_seen": 140,
    }
    assert SPLITS["valid_seen"] == 140
    task_id = games.tasks.ids("valid_seen")[7]
    assert games.world(task_id) is games.world(task_id)
    assert isinstance(games.world(task_id), World)


@pytest.mark.data
def test_a_game_cut_in_half(games, tmp_path):
    task_id = games.tasks.ids("valid_seen")[0]
    target = tmp_path / task_id / "game.tw-pddl"
    target.parent.mkdir(parents=True)
    shutil.copyfile(games.path(task_id), target)
    dataset = open_dataset(tmp_path)
    whole = target.read_bytes()
    for cut in (len(whole) // 2, len(whole) - 1):
        target.write_bytes(whole[:cut])
        with pytest.raises(GameError, match=f"cut short after {cut:,} bytes"):
            dataset.world(task_id)
    target.write_bytes(whole)
    assert dataset.world(task_id).task
