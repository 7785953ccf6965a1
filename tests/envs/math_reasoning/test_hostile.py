"""Answers that try to hang, crash or fool the grader, or to run something."""

from __future__ import annotations

import time

import pytest
from math_hostile import GOLDS, hostile_answers, hostile_responses

from envs.math_reasoning import Status, grade

#: Seconds of processor time in this process; the figure to reach is 1.1 s of wall time.
LIMIT = 1.0
SHORT = 300


@pytest.fixture(scope="module")
def marker(tmp_path_factory):
    return tmp_path_factory.mktemp("injected") / "PWNED"


def graded(text: str, gold: str, kind: str) -> tuple[Status, bool, float]:
    start = time.process_time()
    verdict = grade(text, gold, kind=kind, verifier="none")
    return verdict.status, verdict.correct, time.process_time() - start


def test_there_are_more_than_four_hundred(marker):
    answers, responses = list(hostile_answers(str(marker))), list(hostile_responses())
    assert len(answers) >= 400
    assert len({text for _, text in (*answers, *responses)}) >= 450


def test_answers(marker):
    failed = []
    for name, text in hostile_answers(str(marker)):
        for gold in GOLDS if len(text) < SHORT else GOLDS[:1]:
            status, _, seconds = graded(text, gold, "answer")
            if status is Status.ERROR or seconds > LIMIT:
                failed.append((name, gold, status, seconds))
    assert not failed
    assert not marker.exists()


def test_no_injection_is_correct(marker):
    for name, text in hostile_answers(str(marker)):
        if name.startswith("injection"):
            for gold in GOLDS:
                assert not graded(text, gold, "answer")[1], text
                assert not graded(f"\\boxed{{{text}}}", gold, "response")[1], text
    assert not marker.exists()


def test_responses():
    failed = []
    for name, text in hostile_responses():
        status, _, seconds = graded(text, "7", "response")
        if status is Status.ERROR or seconds > LIMIT:
            failed.append((name, status, seconds))
    assert not failed


@pytest.mark.parametrize(
    "unit",
    ["\\boxed{", "\\boxed{}", "\\boxed{7}", "<think>", "<answer>", "#### ", "{", "}", "\\",
     "answer is ", "$", "\n", "Question:", " and ", "7,"],
)  # fmt: skip
def test_extraction_is_linear(unit):
    """Ten times the text costs about ten times as much; a quadratic pass would cost a hundred."""

    def cost(times: int) -> float:
        best = float("inf")
        for _ in range(3):
            text = unit * times
            start = time.process_time()
            grade(text, "7", kind="response", verifier="none")
            best = min(best, time.process_time() - start)
        return best

    small, large = cost(2_000), cost(20_000)
    assert large < 40 * small + 0.02


def test_a_long_answer_may_still_be_the_gold_answer():
    long = "+".join(f"{n}x^{{{n}}}" for n in range(1, 400))
    assert len(long) > 2000
    assert grade(long, long, verifier="none").correct
    assert grade(f"{long}+1", long, verifier="none").status is Status.TOO_LONG
