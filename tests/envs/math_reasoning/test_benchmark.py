"""The benchmark's reading of files and counting of verdicts."""

from __future__ import annotations

import json

import pytest

from benchmarks.math_equivalence import CaseError, main, percentile, read_cases, run

CASE = {"kind": "answer", "gold": "7", "candidate": "7", "expected": True}


def written(path, *cases):
    path.write_text("\n".join(json.dumps(case) for case in cases))
    return path


def test_counts(tmp_path):
    file = written(
        tmp_path / "cases.jsonl",
        CASE,
        CASE | {"candidate": "8"},
        CASE | {"expected": False},
        CASE | {"candidate": "8", "expected": False, "policy": "odd"},
        CASE | {"kind": "response", "candidate": "\\boxed{7}", "category": "extract"},
    )
    result = run(read_cases(file))
    assert (result.free.total, result.free.false_positives, result.free.false_negatives) == (
        4,
        1,
        1,
    )
    assert result.free.agreement == 0.5
    assert (result.by_policy.total, result.by_policy.agreement) == (1, 1.0)
    assert result.categories["extract"].total == 1
    assert len(result.seconds) == 5
    assert [case.candidate for case, _ in result.wrong] == ["8", "7"]


@pytest.mark.parametrize(
    ("cases", "status"),
    [
        ([CASE], 0),
        ([CASE, CASE | {"candidate": "8"}], 1),
        ([CASE] * 99 + [CASE | {"candidate": "8"}], 0),
        ([CASE] * 99 + [CASE | {"expected": False}], 1),
        ([CASE, CASE | {"expected": False, "policy": "a convention"}], 0),
    ],
)
def test_exit_status(tmp_path, cases, status, capsys):
    assert main(["--cases", str(written(tmp_path / "cases.jsonl", *cases))]) == status
    assert "false positives" in capsys.readouterr().out


def test_unusable_files(tmp_path, capsys):
    assert main(["--cases", str(tmp_path / "none.jsonl")]) == 2
    with pytest.raises(CaseError, match="line 2"):
        read_cases(written(tmp_path / "a.jsonl", CASE, {"kind": "answer"}))
    with pytest.raises(CaseError, match="expected must be true or false"):
        read_cases(written(tmp_path / "b.jsonl", CASE | {"expected": "yes"}))
    with pytest.raises(CaseError, match="kind"):
        read_cases(written(tmp_path / "c.jsonl", CASE | {"kind": "essay"}))
    with pytest.raises(CaseError, match="no cases"):
        read_cases(written(tmp_path / "d.jsonl"))


def test_percentiles():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0
