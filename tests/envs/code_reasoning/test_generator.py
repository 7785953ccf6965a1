"""Generated functions: what is asked for, what solves it, and what the tests notice."""

from __future__ import annotations

import copy
import re

import pytest
from processes import run_ok

from envs.code_reasoning.generator import Generator, GeneratorConfig, Program, phrases
from envs.code_reasoning.inside.plain import encode
from envs.code_reasoning.operations import CONDITIONS, KINDS, OPERATIONS

CONFIGS = {
    "small": GeneratorConfig(difficulty="small"),
    "full": GeneratorConfig(),
    "long": GeneratorConfig(steps=(4, 6), tests=12, examples=3),
    "one": GeneratorConfig(steps=(1, 1)),
}


def code_of(program: Program, steps=None) -> str:
    return (" " if program.small else "\n").join(program.solution(steps))


def run(code: str, name: str, args: tuple) -> object:
    space: dict = {}
    exec(code, space)
    return space[name](*copy.deepcopy(args))


@pytest.mark.parametrize("name", CONFIGS)
def test_solutions_give_what_operations_compute(name):
    """Operations and code are written down apart; the results agree in value and type."""
    generator = Generator(CONFIGS[name])
    used = set()
    for index in range(250):
        program = generator.make("train", index)
        used |= {step.operation.words for step in program.plan.steps}
        code = code_of(program)
        for args, value in (*program.tests, *program.examples):
            assert encode(run(code, program.name, args)) == encode(value), code
    assert len(used) > (30 if name == "small" else 80)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.takes}-{o.gives} {o.words}")
def test_every_operation_by_itself(operation):
    """Each on many inputs, in both of its notations."""
    from agentgym.dice import Dice
    from envs.code_reasoning.inputs import draw_inputs

    dice = Dice("operations")
    constants = list(operation.letters) or list(range(operation.low, operation.high + 1)) or [None]
    compared = 0
    for (value,) in draw_inputs(operation.takes, None, dice, 60):
        constant = dice.pick(constants)
        try:
            expected = operation.apply(copy.deepcopy(value), constant)
        except ValueError:
            continue
        x, y = KINDS[operation.takes].variable, KINDS[operation.gives].variable
        space = {x: copy.deepcopy(value)}
        exec(operation.code.format(x=x, y=y, a=constant), space)
        assert encode(space[y]) == encode(expected), (value, constant)
        if operation.line:
            space = {"x": copy.deepcopy(value)}
            exec(operation.line.format(a=constant), space)
            assert encode(space["x"]) == encode(expected), (value, constant)
        compared += 1
    assert compared >= 8
    assert bool(operation.short) == bool(operation.line)
    assert "{a}" not in operation.words or operation.has_constant
    assert not re.search(r"\bk\b", operation.code), "the parameter's name is taken"


def test_conditions_are_what_they_say():
    values = {"n": (0, 7, 8, 31), "l": ([], [1, 2], [2, 4, 6, 8, 10, 12]),
              "s": ("", "ab c", "a" * 20), "w": ([], ["a", "b"], ["a"] * 6)}  # fmt: skip
    for condition in CONDITIONS:
        seen = set()
        for value in values[condition.takes]:
            for bound in range(condition.low, max(condition.high, condition.low) + 1):
                held = eval(condition.code.format(x="x", a=bound), {"x": value})
                assert held == condition.holds(value, bound)
                seen.add(held)
        assert seen == {True, False}, condition.words


@pytest.mark.parametrize("name", ["small", "full"])
def test_questions_name_everything(name):
    generator = Generator(CONFIGS[name])
    for index in range(100):
        program = generator.make("train", index)
        question = program.question()
        assert f"{program.name}(" in question
        for step in program.plan.steps:
            words = step.operation.short if program.small else step.operation.words
            assert words.format(a=step.constant) in question
        if not program.small:
            assert KINDS[program.plan.takes].name in question
            assert KINDS[program.plan.gives].name in question
            assert len(re.findall(r"^\w+\(.*\) == ", question, re.MULTILINE)) == 2
        for args, value in program.tests:
            assert f"{args!r} == {value!r}" not in question, "hidden tests are hidden"


@pytest.mark.parametrize("name", ["small", "full"])
def test_leaving_out_a_step_is_noticed(name):
    generator = Generator(CONFIGS[name])
    left_out = 0
    for index in range(120):
        program = generator.make("train", index)
        steps = program.plan.steps
        for place, step in enumerate(steps):
            rest = (*steps[:place], *steps[place + 1 :])
            if step.operation.takes != step.operation.gives or not rest:
                continue
            left_out += 1
            code = code_of(program, rest)
            assert any(_differs(code, program.name, *case) for case in program.tests), code
    assert left_out > 60


def _differs(code, name, args, value) -> bool:
    try:
        return encode(run(code, name, args)) != encode(value)
    except Exception:
        return True


def test_the_identity_and_a_constant_solve_nothing():
    generator = Generator(CONFIGS["full"])
    for index in range(150):
        program = generator.make("train", index)
        values = [repr(value) for _, value in program.tests]
        assert len(set(values)) >= 2
        assert values != [repr(args[0]) for args, _ in program.tests]


def test_splits_share_no_chain_of_operations():
    for config in (CONFIGS["small"], CONFIGS["full"]):
        generator = Generator(config)
        plans = {
            split: {
                (plan.takes, *(step.words() for step in plan.steps))
                for plan in (generator.make(split, index).plan for index in range(150))
            }
            for split in ("train", "validation", "test")
        }
        assert not plans["train"] & plans["test"]
        assert not plans["train"] & plans["validation"]
        assert not plans["validation"] & plans["test"]


def test_another_process_makes_the_same():
    code = """
from envs.code_reasoning.generator import *
for difficulty in ("small", "full"):
    generator = Generator(GeneratorConfig(difficulty=difficulty, seed=3))
    print([generator.make("test", index).task("t") for index in range(12)])
"""
    assert run_ok(code, PYTHONHASHSEED="1") == run_ok(code, PYTHONHASHSEED="2")


def test_seeds_differ():
    one = [Generator().make("train", index).question() for index in range(20)]
    other = Generator(GeneratorConfig(seed=1))
    assert one != [other.make("train", index).question() for index in range(20)]


def test_small_tasks_fit_a_small_policy():
    generator = Generator(CONFIGS["small"])
    for index in range(200):
        program = generator.make("train", index)
        code = code_of(program)
        assert "\n" not in code
        assert len(code) < 130
        assert all(
            not isinstance(step.constant, int) or 0 <= step.constant <= 9
            for step in program.plan.steps
        )


def test_the_vocabulary_holds_the_words():
    known = phrases("small")
    assert "def f(x):" in known
    assert len(known) == len(set(known))
    assert not any(re.fullmatch(r"\d+", phrase) for phrase in known)
    assert len(phrases("full")) > 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difficulty": "hard"}, "difficulty"),
        ({"steps": (0, 2)}, "steps"),
        ({"steps": (3, 2)}, "steps"),
        ({"steps": 2}, "steps"),
        ({"tests": 1}, "tests"),
        ({"examples": 9}, "examples"),
        ({"sizes": (1, 2)}, "sizes"),
        ({"sizes": (10**12, 1, 1)}, "sizes"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        GeneratorConfig(**arguments)


def test_unknown_splits_are_refused():
    with pytest.raises(ValueError, match="dev"):
        Generator().make("dev", 0)
