"""The replay tool on recordings of the original, and on recordings that were tampered with."""

import copy
import gzip
import json
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

from benchmarks import parity_webshop

pytestmark = pytest.mark.data

CHECKOUT = Path(parity_webshop.__file__).resolve().parents[1]
KINDS = ("synthetic", "human")


@pytest.fixture(scope="module")
def folder(data_dir):
    return data_dir / "webshop"


@pytest.fixture(scope="module", autouse=True)
def shops_stay_open(folder):
    """Environments that keep the loaded shops alive from one replay to the next."""
    arguments = parity_webshop.arguments_of(folder)
    kept = [
        parity_webshop.Replayer(
            arguments | {"goals": str(folder / f"upstream_trace_goals_{kind}.json.gz")}
        )
        for kind in KINDS
    ]
    bare = gym.make("WebShop-v0", compat="upstream", **arguments)
    yield
    for replayer in kept:
        replayer.close()
    bare.close()


@pytest.fixture(scope="module")
def episodes(folder):
    return {
        kind: parity_webshop.read_trace(folder / f"upstream_trace_{kind}.jsonl.gz")
        for kind in KINDS
    }


@pytest.fixture(scope="module")
def reference(folder):
    return parity_webshop.read_json(folder / "lucene_reference_1500_queries.json.gz")


def _write_trace(path, episodes):
    text = "".join(json.dumps(episode) + "\n" for episode in episodes)
    path.write_bytes(gzip.compress(text.encode()))
    return path


def _run(folder, capsys, traces=(), queries=None):
    arguments = ["--data", str(folder)]
    if traces:
        arguments += ["--traces", *map(str, traces)]
    if queries is not None:
        arguments += ["--queries", str(queries)]
    code = parity_webshop.main(arguments)
    return code, capsys.readouterr().out


def test_all_recordings_are_reproduced(folder):
    """The command as people run it."""
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.parity_webshop", "--data", str(folder)),
            *("--traces", *(str(folder / f"upstream_trace_{kind}.jsonl.gz") for kind in KINDS)),
            *("--queries", str(folder / "lucene_reference_1500_queries.json.gz")),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "compared 130 episodes, 1,935 steps, 46 purchases, 1,500 queries" in finished.stdout
    assert "mismatches: 0" in finished.stdout
    assert "0 of 46 differ in text" in finished.stdout


def _with_purchase(episodes):
    return copy.deepcopy(next(e for e in episodes if "info" in e[-1]))


def _alter(mode):
    """Change one character of the page after the first action."""

    def change(episode):
        page = episode[1]["obs"][mode]
        episode[1]["obs"][mode] = page[:-2] + chr(ord(page[-2]) ^ 1) + page[-1:]

    return change


def _set(episode, *path_and_value):
    *path, last, value = path_and_value
    target = episode
    for key in path:
        target = target[key]
    assert target[last] != value
    target[last] = value


CHANGES = {
    "a character of text": _alter("text"),
    "a character of text_rich": _alter("text_rich"),
    "a character of url": _alter("url"),
    "a character of the first page": lambda e: _set(
        e, 0, "obs", "text", e[0]["obs"]["text"].replace("WebShop", "Webshop")
    ),
    "an available action": lambda e: e[1]["obs"]["avail"]["clickables"].pop(),
    "the order of available actions": lambda e: e[1]["obs"]["avail"]["clickables"].reverse(),
    "the search bar": lambda e: _set(e, 1, "obs", "avail", "has_search_bar", True),
    "a reward on the way": lambda e: _set(e, 1, "reward", 0.1),
    "done on the way": lambda e: _set(e, 1, "done", True),
    "the last reward": lambda e: _set(e, -1, "reward", e[-1]["reward"] + 1e-12),
    "the last done": lambda e: _set(e, -1, "done", False),
    "the last url": lambda e: _set(e, -1, "obs", "url", e[-1]["obs"]["url"] + " "),
    "a reward part": lambda e: _set(e, -1, "info", "title_score", 0.123),
    "a missing reward part": lambda e: e[-1]["info"].pop("w_price"),
    "the product bought": lambda e: _set(e, -1, "asin", "B000000000"),
    "the options bought": lambda e: _set(e, -1, "options", {"size": "none"}),
    "the goal": lambda e: _set(e, 0, "reset", e[0]["reset"] + 1),
    "an action": lambda e: _set(e, 1, "action", "search[something else entirely]"),
    "a lost key": lambda e: e[1].pop("reward"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_one_change_is_found(folder, episodes, tmp_path, capsys, kind, change):
    episode = _with_purchase(episodes[kind])
    untouched = [e for e in episodes[kind][:2] if e != episode]
    path = _write_trace(tmp_path / "copy.jsonl.gz", [episode, *untouched])
    assert _run(folder, capsys, [path])[0] == 0
    CHANGES[change](episode)
    _write_trace(path, [episode, *untouched])
    code, out = _run(folder, capsys, [path])
    assert code == 1, out
    assert "copy.jsonl.gz episode 0" in out
    assert "copy.jsonl.gz episode 1" not in out


def test_the_page_after_a_purchase_is_counted_apart(folder, episodes, tmp_path, capsys):
    episode = _with_purchase(episodes["human"])
    episode[-1]["obs"]["text_rich"] += "x"
    code, out = _run(folder, capsys, [_write_trace(tmp_path / "copy.jsonl.gz", [episode])])
    assert code == 0
    assert "1 of 1 differ in text" in out


QUERY_CHANGES = {
    "two ranks": lambda r: r["results"][1].__setitem__(
        slice(0, 2), [r["results"][1][1], r["results"][1][0]]
    ),
    "a score": lambda r: r["results"][1][3].__setitem__(1, r["results"][1][3][1] + 1e-4),
    "a lost result": lambda r: r["results"][1].pop(),
    "a query token": lambda r: r["query_tokens"][1].append("x"),
    "a document token": lambda r: r["doc_tokens"][2].pop(0),
    "a document id": lambda r: r["ids"].__setitem__(4, "B000000000"),
    "a lost key": lambda r: r.pop("query_tokens"),
}


@pytest.mark.parametrize("change", QUERY_CHANGES)
def test_one_change_among_the_queries_is_found(folder, reference, tmp_path, capsys, change):
    part = copy.deepcopy(
        reference | {key: reference[key][:3] for key in ("queries", "query_tokens", "results")}
    )
    path = tmp_path / "queries.json"
    path.write_text(json.dumps(part))
    assert _run(folder, capsys, queries=path)[0] == 0
    QUERY_CHANGES[change](part)
    path.write_text(json.dumps(part))
    assert _run(folder, capsys, queries=path)[0] == 1


def test_a_lone_episode_of_another_instruction_is_found(folder, tmp_path, capsys):
    page = {"text": "?", "text_rich": "?", "url": "?", "avail": {}}
    path = _write_trace(tmp_path / "copy_human.jsonl.gz", [[{"reset": 0, "obs": page}]])
    code, out = _run(folder, capsys, [path])
    assert code == 1
    assert "episode 0 reset" in out


def test_a_folder_without_goals(raw, tmp_path, capsys):
    raw.save(tmp_path)
    path = _write_trace(tmp_path / "t.jsonl.gz", [[{"reset": 0, "obs": {"text_rich": "?"}}]])
    assert parity_webshop.main(["--data", str(tmp_path), "--traces", str(path)]) == 2
    assert "no upstream_trace_goals_*.json to replay" in capsys.readouterr().err


def test_files_that_cannot_be_used(folder, tmp_path, capsys):
    for content, message in (
        (b"", "holds no episode"),
        (b'[{"obs": 1}]\n', "line 1 is no episode"),
        (b"[{", "cannot be read as a trace"),
    ):
        path = tmp_path / "bad.jsonl"
        path.write_bytes(content)
        assert parity_webshop.main(["--data", str(folder), "--traces", str(path)]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parity_webshop.main(["--data", str(folder)])


@pytest.mark.data
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("[5]", "not every element is an object"),
        ('[{"reset": "0", "obs": {"text_rich": ""}}]', "'reset' of its first element is '0'"),
        ('[{"reset": 0, "obs": {}}, {"obs": {}}]', "a step has no text 'action'"),
        ("{}", "not a list that starts at a reset"),
    ],
)
def test_lines_that_are_no_episode(folder, tmp_path, capsys, line, words):
    path = tmp_path / "upstream_trace_human.jsonl"
    path.write_text(line + "\n")
    assert parity_webshop.main(["--data", str(folder), "--traces", str(path)]) == 2
    captured = capsys.readouterr()
    assert words in captured.out + captured.err
