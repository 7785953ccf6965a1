"""Where solutions begin to tell their answer, and that guidance ends before it."""

from __future__ import annotations

import re
from fractions import Fraction

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentgym  # noqa: F401 - registers the environments
from agentgym.guidance import Solution
from envs.math_reasoning.leaks import answer_place
from envs.math_reasoning.prompt import MathPrompt


@pytest.mark.parametrize(
    ("text", "answer", "kept"),
    [
        ("mia 3+4=7; tom 7*2=14;", "14", "mia 3+4=7; tom 7*2="),
        ("She had 48/2 = 24.\nIn all 48+24 = 72.", "72", "She had 48/2 = 24.\nIn all 48+24 = "),
        ("She has $1,200.00 left.", "1200", "She has $"),
        ("That is 1200 in all.", "$1,200$", "That is "),
        ("Of 5 apples 3 rot, 2 stay; so 5.", "5", "Of "),
        ("It grows by 0.5 a day.", "0.50", "It grows by "),
        ("So x = -5.", "-5", "So x = -"),
        ("Then $\\boxed{x^2}$.", "x^2", "Then $"),
        ("So f = x ^ 2 + 1, done.", "x^2+1", "So f = "),
        ("A taxi, then taxis.", "taxis", "A taxi, then "),
        ("We add.\nThe answer is clear.", "x", "We add.\n"),
        ("#### 7 and 8", "9", ""),
        ("We add.\nWe get it.", "y", "We add.\n"),
        ("One line.", "y", ""),
        ("115 and 151", "15", ""),
    ],
)
def test_the_place_at_which_the_answer_begins(text, answer, kept) -> None:
    assert text[: answer_place(text, answer)] == kept


@given(st.lists(st.integers(0, 40), min_size=1, max_size=9), st.integers(0, 40))
def test_no_number_of_the_answers_size_comes_before(numbers, answer) -> None:
    text = " then ".join(map(str, numbers))
    before = text[: answer_place(text, str(answer))]
    assert answer not in [int(number) for number in re.findall(r"\d+", before)]
    if answer in numbers:
        assert text[len(before) :].startswith(str(answer))


@pytest.mark.parametrize("arguments", [{"difficulty": "small"}, {}, {"steps": (4, 6)}], ids=str)
def test_generated_solutions_stop_short_of_the_answer_alone(arguments) -> None:
    env = gym.make("MathReasoning-v0", expert=True, **arguments)
    for number in range(60):
        _, info = env.reset(options={"task_id": f"train-{number}"})
        solution = MathPrompt("bare").solution(info)
        assert isinstance(solution, Solution)
        kept, rest = solution.text[: solution.answer_at], solution.text[solution.answer_at :]
        answer = env.unwrapped.task.answer
        # The generator lets the answer stand nowhere else, so that all steps but the last are kept,
        # and the last one up to its result.
        assert rest.startswith(answer)
        assert kept.count("=") == len(info["reference"])
        assert Fraction(answer) not in [Fraction(n) for n in re.findall(r"\d+", kept)]
    env.close()


def test_info_tells_a_solution_to_experts_only() -> None:
    assert "solution" not in gym.make("MathReasoning-v0").reset(seed=0)[1]["details"]
    rows = [{"question": "What is 1+1?", "answer": "2"}]
    env = gym.make("MathReasoning-v0", data=rows, expert=True)
    _, info = env.reset(seed=0)
    assert info["details"]["solution"] is None
    assert MathPrompt().solution(info) is None


def test_a_response_is_written_as_it_is_in_both_forms() -> None:
    for form in ("tags", "bare"):
        assert MathPrompt(form).written("2+2=4; \\boxed{4}") == "2+2=4; \\boxed{4}"


def test_tasks_are_ranked_by_steps_or_by_level() -> None:
    tasks = gym.make("MathReasoning-v0", steps=(2, 4)).unwrapped.tasks
    ranks = {tasks.difficulty(name) for name in tasks.ids("train")[:50]}
    assert ranks == {2, 3, 4}
    rows = [
        {"problem": f"What is {n}+1?", "answer": str(n + 1), "level": f"Level {n}"} for n in (3, 1)
    ]
    tasks = gym.make("MathReasoning-v0", data=rows).unwrapped.tasks
    assert [tasks.difficulty(name) for name in tasks.ids("train")] == [3.0, 1.0]
    del rows[1]["level"]
    assert gym.make("MathReasoning-v0", data=rows).unwrapped.tasks.difficulty is None
    rows[1]["hardness"] = 7
    rows[0]["hardness"] = 2
    named = gym.make("MathReasoning-v0", data=rows, columns={"level": "hardness"}).unwrapped.tasks
    assert [named.difficulty(name) for name in named.ids("train")] == [2.0, 7.0]
