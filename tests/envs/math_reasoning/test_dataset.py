"""Loading: known file forms, checked golds, repeats, splits."""

from __future__ import annotations

import gzip
import json
import sys
import types
import warnings

import pytest

from envs.math_reasoning.columns import ColumnError, task_from, without_annotations
from envs.math_reasoning.dataset import DataError, load

GSM8K = {
    "question": "Natalia sold 48 clips and half as many again. How many?",
    "answer": "She sold 48/2 = <<48/2=24>>24 more.\nThat is 48+24 = <<48+24=72>>72.\n#### 72",
}
MATH = {
    "problem": "What is $1/2+1/3$?",
    "solution": "We add.\nThe sum is $\\boxed{\\frac{5}{6}}$.",
    "level": "Level 2",
    "type": "Prealgebra",
}
MATH500 = MATH | {"answer": "\\frac{5}{6}", "subject": "Prealgebra", "unique_id": "test/p/1.json"}
AIME = {"ID": "2024-I-1", "Problem": "Find it.", "Solution": "It is 204.", "Answer": 204}
AIME25 = {"problem": "Find it.", "answer": "070"}
DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "system", "content": "Help."}, {"role": "user", "content": "Solve it."}],
    "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4"},
}
FORMS = {
    "gsm8k": (GSM8K, "72", ("She sold 48/2 = 24 more.", "That is 48+24 = 72.")),
    "math": (MATH, "\\frac{5}{6}", ("We add.", "The sum is $\\boxed{\\frac{5}{6}}$.")),
    "math500": (MATH500, "\\frac{5}{6}", ("We add.", "The sum is $\\boxed{\\frac{5}{6}}$.")),
    "aime": (AIME, "204", ("It is 204.",)),
    "aime25": (AIME25, "070", ()),
    "dapo": (DAPO, "34", ()),
}


def write(path, *rows):
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return path


def rows(count: int, split: str = "") -> list[dict[str, str]]:
    return [{"question": f"{split} question {n}?", "answer": str(n)} for n in range(count)]


# Forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_known_forms(form):
    row, answer, reference = FORMS[form]
    (task,) = load([row])["train"]
    assert (task.answer, task.reference) == (answer, reference)
    assert task.question
    assert "<<" not in "".join(task.reference)


def test_ids_and_kinds_come_from_the_row():
    (task,) = load([MATH500])["train"]
    assert (task.id, task.type) == ("test/p/1.json", "Prealgebra")
    (task,) = load([DAPO])["train"]
    assert (task.id, task.question, task.type) == ("train-0", "Solve it.", "math_dapo")


def test_columns_are_mapped():
    row = {"q": "Why?", "meta": {"gold": "7"}, "why": "One.\nTwo.", "key": "k1", "kind": "odd"}
    columns = {
        "question": "q", "answer": "meta.gold", "reference": "why", "id": "key", "type": "kind",
    }  # fmt: skip
    task = task_from(row, "x", columns)
    assert (task.id, task.question, task.answer) == ("k1", "Why?", "7")
    assert (task.reference, task.type) == (("One.", "Two."), "odd")
    with pytest.raises(ColumnError, match=r"'meta\.silver' for answer"):
        task_from(row, "x", columns | {"answer": "meta.silver"})
    with pytest.raises(DataError, match="roles are question"):
        load([row], columns={"title": "q"})


def test_annotations_are_removed_and_nothing_else():
    assert without_annotations("a <<1+1=2>>2 << b >> c <3") == "a 2  c <3"
    assert without_annotations("a <<1+1") == "a <<1+1"


# Files ------------------------------------------------------------------------------------------


def test_files_of_all_kinds(tmp_path):
    expected = [(f"{n}") for n in range(3)]
    write(tmp_path / "a.jsonl", *rows(3))
    write(tmp_path / "a.jsonl.gz", *rows(3))
    (tmp_path / "a.json").write_text(json.dumps(rows(3)))
    (tmp_path / "b.json").write_text(json.dumps({"version": 1, "data": rows(3)}))
    for name in ("a.jsonl", "a.jsonl.gz", "a.json", "b.json"):
        loaded = load(tmp_path / name)
        assert [task.answer for task in loaded["train"]] == expected, name
        assert loaded["validation"] == loaded["test"] == []


@pytest.mark.mathverify
def test_parquet(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "test-00000-of-00001.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(3)), path)
    assert [task.answer for task in load(path)["test"]] == ["0", "1", "2"]


def test_parquet_without_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ImportError, match=r"agentgym-suite\[math\]"):
        load(tmp_path / "a.parquet")


def test_the_split_is_in_the_name(tmp_path):
    for name, split in (
        ("train.jsonl", "train"),
        ("test-00000.jsonl", "test"),
        ("val.jsonl", "validation"),
        ("dev.json", "validation"),
        ("problems.jsonl", "train"),
    ):
        file = tmp_path / name
        file.write_text(json.dumps(rows(2)) if file.suffix == ".json" else "")
        if file.suffix == ".jsonl":
            write(file, *rows(2))
        loaded = load(file)
        assert {key for key, tasks in loaded.items() if tasks} == {split}, name


def test_a_folder_and_a_mapping(tmp_path):
    write(tmp_path / "train.jsonl", *rows(4, "a"))
    write(tmp_path / "test.jsonl", *rows(2, "b"))
    (tmp_path / "README.md").write_text("nothing")
    loaded = load(tmp_path)
    assert {key: len(tasks) for key, tasks in loaded.items()} == {
        "train": 4, "validation": 0, "test": 2,
    }  # fmt: skip
    mapped = load({"train": tmp_path / "train.jsonl", "dev": rows(2, "c")})
    assert len(mapped["validation"]) == 2
    with pytest.raises(DataError, match="'holdout'"):
        load({"holdout": rows(1)})


def test_a_split_column_decides():
    loaded = load([row | {"split": "test"} for row in rows(2)])
    assert (len(loaded["train"]), len(loaded["test"])) == (0, 2)


def test_the_hub_is_asked_lazily(monkeypatch):
    asked = []
    module = types.ModuleType("datasets")

    def load_dataset(path, config):
        asked.append((path, config))
        return {"train": rows(3, "a"), "test": rows(2, "b"), "extra": rows(1)}

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    with pytest.warns(UserWarning, match="'extra' is left out"):
        loaded = load("openai/gsm8k:main")
    assert asked == [("openai/gsm8k", "main")]
    assert (len(loaded["train"]), len(loaded["test"])) == (3, 2)


def test_the_hub_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"agentgym-suite\[datasets\]"):
        load("openai/gsm8k")


# Faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([*rows(1), {"question": "x?", "answer": "\\frac{1}{"}], "row 2: the gold answer"),
        ([{"question": "x?", "answer": ""}], "row 1: no answer in a row with the columns"),
        ([{"answer": "1"}], "row 1: no question"),
        ([7], "row 1: expected a mapping"),
        ([], "no rows"),
        ("nowhere.jsonl", "nowhere.jsonl"),
        ("no such thing", "neither a file, nor a folder"),
        ("", "data is empty"),
        ([{"question": "q", "answer": float("nan")}], "row 1"),
        (7, "must be a path"),
    ],
)
def test_faults_are_named(data, message):
    with pytest.raises(DataError, match=message):
        load(data)


def test_broken_files_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "x?", "answer": "1"}\n{"question"\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
        load(tmp_path / "a.jsonl")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(DataError, match="expected a list"):
        load(tmp_path / "b.json")
    (tmp_path / "c.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"c\.jsonl\.gz"):
        load(tmp_path / "c.jsonl.gz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file named after a split"):
        load(tmp_path / "empty")
    write(tmp_path / "d.jsonl", *rows(3), {"question": "y?", "answer": "\\sqrt{"})
    with pytest.raises(DataError, match=r"d\.jsonl, line 4: the gold answer"):
        load(tmp_path / "d.jsonl")


def test_repeats():
    with pytest.warns(UserWarning, match="2 rows repeat"):
        loaded = load([*rows(3), *rows(2)])
    assert len(loaded["train"]) == 3
    # A question of the test split is left out of training.
    with pytest.warns(UserWarning, match="1 rows repeat"):
        loaded = load({"train": rows(3), "test": [{"question": " question  1?", "answer": "1"}]})
    assert [task.answer for task in loaded["train"]] == ["0", "2"]
    assert len(loaded["test"]) == 1
    with pytest.raises(DataError, match="the answers are '1' and '2'"):
        load([{"question": "x?", "answer": "1"}, {"question": "x?", "answer": "2"}])
    with pytest.raises(DataError, match="stands for two questions"):
        load([row | {"id": "same"} for row in rows(2)])


def test_files_may_number_their_rows_alike():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = load({
            "train": [row | {"id": n} for n, row in enumerate(rows(2, "a"))],
            "test": [row | {"id": n} for n, row in enumerate(rows(2, "b"))],
        })  # fmt: skip
    ids = [task.id for tasks in loaded.values() for task in tasks]
    assert sorted(ids) == ["0", "1", "train/0", "train/1"]


@pytest.mark.data
def test_published_files(data_dir):
    gsm8k = load(data_dir / "math" / "gsm8k")
    assert (len(gsm8k["train"]), len(gsm8k["test"])) == (7473, 1319)
    assert all(task.reference for task in gsm8k["test"])
    assert not any("<<" in line for task in gsm8k["train"] for line in task.reference)
    math500 = load(data_dir / "math" / "math500" / "test.jsonl")
    assert len(math500["test"]) == 500
    assert len({task.type for task in math500["test"]}) == 7
