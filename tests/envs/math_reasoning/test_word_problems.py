"""The generator: checked steps, disjoint splits, the same problems everywhere."""

from __future__ import annotations

import re

import pytest
from processes import run_ok

from envs.math_reasoning.word_problems import (
    SPLITS,
    Generator,
    GeneratorConfig,
    Problem,
    check,
    phrases,
)

CONFIGS = {
    "full": GeneratorConfig(),
    "small": GeneratorConfig(difficulty="small"),
    "long": GeneratorConfig(steps=(8, 12), distractors=(3, 6), max_number=10**6),
    "one step": GeneratorConfig(steps=(1, 1), distractors=(0, 0), max_number=50),
    "small long": GeneratorConfig(difficulty="small", steps=(3, 3), distractors=(0, 0)),
}


def made(config: GeneratorConfig, split: str = "train", count: int = 300) -> list[Problem]:
    generator = Generator(config)
    return [generator.make(split, index) for index in range(count)]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("split", SPLITS)
def test_every_step_is_right(name, split):
    config = CONFIGS[name]
    for problem in made(config, split, 150):
        check(problem)
        assert config.step_range[0] <= len(problem.steps) <= config.step_range[1]
        numbers = [int(n) for n in re.findall(r"\d+", problem.question)]
        assert max([*numbers, problem.answer]) <= config.limit
        assert problem.answer not in numbers


@pytest.mark.parametrize("name", CONFIGS)
def test_splits_are_disjoint(name):
    seen = {split: {p.question for p in made(CONFIGS[name], split, 400)} for split in SPLITS}
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or not seen[one] & seen[other]


def test_problems_differ():
    problems = made(CONFIGS["full"], count=1000)
    assert len({p.question for p in problems}) == 1000
    answers = [p.answer for p in problems]
    assert max(answers.count(answer) for answer in set(answers)) <= 20
    kinds = {relation.kind for p in problems for relation in p.plan.relations}
    assert kinds == {"base", "more", "fewer", "times", "half", "both", "together", "compare"}


def test_a_seed_gives_other_problems():
    one = made(GeneratorConfig(seed=1), count=50)
    assert one != made(GeneratorConfig(seed=2), count=50)
    assert one == made(GeneratorConfig(seed=1), count=50)


def test_order_does_not_matter():
    generator = Generator()
    forward = [generator.make("test", i) for i in range(20)]
    assert [generator.make("test", i) for i in reversed(range(20))] == forward[::-1]


def test_another_process_makes_the_same():
    code = """
from envs.math_reasoning.word_problems import Generator
print(Generator().make("train", 17).question)
print(Generator().make("test", 3).question)
"""
    expected = [Generator().make("train", 17).question, Generator().make("test", 3).question]
    for seed in ("0", "1"):
        assert run_ok(code, PYTHONHASHSEED=seed).splitlines() == expected


def test_distractors_do_not_matter():
    generator = Generator(GeneratorConfig(steps=(2, 2), distractors=(2, 2)))
    for index in range(50):
        problem = generator.make("train", index)
        sentences = re.split(r"(?<=[.?]) ", problem.question)
        asked = problem.steps[-1].subject in ("more", "together")
        assert len(sentences) == 2 + 2 + 2 - asked
        used = {*problem.names[: len(problem.names) - 2]}
        idle = set(problem.names) - used
        assert len(idle) == 2
        assert not idle & {step.subject for step in problem.steps}


def test_a_slip_is_carried_on():
    problem = next(p for p in made(CONFIGS["long"]) if len(p.steps) > 8)
    slipped = problem.worked(lambda result: result + 1)
    assert [s.operation for s in slipped] == [s.operation for s in problem.steps]
    assert slipped[1] != problem.steps[1]
    assert problem.worked(lambda result: result) == problem.steps
    with pytest.raises(ValueError, match="is wrong"):
        check(_Broken(problem, slipped))


class _Broken:
    """A problem whose steps are not its own."""

    def __init__(self, problem: Problem, steps: tuple) -> None:
        self.question, self.answer, self.given = problem.question, problem.answer, problem.given
        self.steps = steps


def test_check_sees_every_fault():
    problem = made(CONFIGS["full"])[0]
    steps = problem.steps
    with pytest.raises(ValueError, match="does not give"):
        check(_Broken(problem, steps[:-1]))
    with pytest.raises(ValueError, match="neither given nor computed"):
        check(_Broken(problem, (steps[0]._replace(left=10**7, result=10**7 + 1, right=1,
                                                  operation="+"),)))  # fmt: skip
    with pytest.raises(ValueError, match="remainder"):
        check(_Broken(problem, (steps[0]._replace(left=7, right=2, operation="/", result=3),)))
    told = problem._replace(question=f"{problem.question} Or {problem.answer}?")
    with pytest.raises(ValueError, match="stands in the question"):
        check(told)


def test_the_vocabulary_covers_small_problems():
    words = {word for phrase in phrases("small") for word in re.findall(r"[a-z]+", phrase)}
    for problem in made(CONFIGS["small"], count=500):
        text = problem.question.lower() + " ".join(step.compact() for step in problem.steps)
        assert set(re.findall(r"[a-z]+", text)) <= words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difficulty": "hard"}, "'small' or 'full', got 'hard'"),
        ({"steps": (0, 2)}, "steps must be a pair"),
        ({"steps": (3, 2)}, "steps must be a pair"),
        ({"steps": 3}, "steps must be a pair"),
        ({"distractors": (0, 99)}, "distractors must be a pair"),
        ({"max_number": 5}, "max_number"),
        ({"sizes": (1, 2)}, "sizes"),
        ({"sizes": (1, 2, -3)}, "sizes"),
        ({"sizes": (10**12, 1, 1)}, "sizes"),
        ({"seed": 1.5}, "seed"),
        ({"difficulty": "small", "steps": (8, 8)}, "9 people are needed"),
    ],
)
def test_bad_configurations_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GeneratorConfig(**arguments)


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="'dev'"):
        Generator().make("dev", 0)
