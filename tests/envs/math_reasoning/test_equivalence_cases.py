"""The recorded cases, GSM8K and MATH-500 through the grader, and the benchmark that counts."""

from __future__ import annotations

import json
import random

import pytest
from math_rewritings import SAME, equivalents, wrong_neighbours

from benchmarks.math_equivalence import main, read_cases, run
from envs.math_reasoning import Status, check_gold, grade

pytestmark = pytest.mark.data


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def math500(data_dir):
    return rows(data_dir / "math" / "math500" / "test.jsonl")


@pytest.fixture(scope="module")
def gsm8k(data_dir):
    return rows(data_dir / "math" / "gsm8k" / "test.jsonl")


@pytest.fixture(scope="module")
def golds(math500, gsm8k):
    found = [row["answer"] for row in math500]
    found += [row["answer"].rsplit("####", 1)[1].strip() for row in gsm8k]
    return list(dict.fromkeys(found))


def right(candidate, gold, kind="answer"):
    verdict = grade(candidate, gold, kind=kind, verifier="none")
    assert verdict.status is not Status.ERROR, (candidate, gold)
    return verdict.correct


def test_the_figures_are_reached(data_dir):
    result = run(read_cases(data_dir / "math" / "equivalence_cases.jsonl"))
    assert result.free.false_positives == 0
    assert result.free.agreement >= 0.95
    assert result.by_policy.agreement >= 0.95


def test_the_benchmark_passes_and_fails_when_expectations_are_flipped(data_dir, tmp_path, capsys):
    cases = data_dir / "math" / "equivalence_cases.jsonl"
    assert main(["--cases", str(cases)]) == 0
    assert "reached" in capsys.readouterr().out
    flipped = tmp_path / "flipped.jsonl"
    flipped.write_text(
        "\n".join(json.dumps(row | {"expected": not row["expected"]}) for row in rows(cases))
    )
    assert main(["--cases", str(flipped)]) == 1
    assert "NOT reached" in capsys.readouterr().out
    # One false positive is enough.
    one = rows(cases)
    true = next(row for row in one if row["expected"] and not row["policy"])
    true["expected"] = False
    flipped.write_text("\n".join(map(json.dumps, one)))
    assert main(["--cases", str(flipped)]) == 1


def test_math500_golds_and_solutions(math500):
    assert len(math500) == 500
    for row in math500:
        check_gold(row["answer"])
        assert right(row["answer"], row["answer"])
        assert right(row["solution"], row["answer"], "response"), row["unique_id"]


def test_math500_answers_of_other_problems_are_wrong(math500):
    rng = random.Random(0)
    for _ in range(1500):
        one, other = rng.sample(math500, 2)
        if one["answer"] != other["answer"]:
            assert not right(other["answer"], one["answer"]), (other["answer"], one["answer"])


def test_gsm8k_golds_and_solutions(gsm8k):
    assert len(gsm8k) == 1319
    for row in gsm8k:
        gold = row["answer"].rsplit("####", 1)[1].strip()
        check_gold(gold)
        assert right(gold, gold)
        assert right(row["answer"], gold, "response")
        assert not right(str(int(gold.replace(",", "")) + 1), gold)


@pytest.mark.parametrize("name", SAME)
def test_rewritings_keep_the_answer(golds, name):
    for gold in golds:
        assert right(SAME[name](gold), gold), (gold, SAME[name](gold))


def test_equivalent_expressions(golds):
    tried = 0
    for gold in golds:
        for name, other in equivalents(gold):
            tried += 1
            assert right(other, gold), (name, gold, other)
    assert tried > 1500


def test_wrong_neighbours(golds):
    tried = 0
    for gold in golds:
        for name, other in wrong_neighbours(gold):
            tried += 1
            assert not right(other, gold), (name, gold, other)
    assert tried > 3000
