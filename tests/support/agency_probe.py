"""A scenario in miniature for tests of the environment: write the right number into a file."""

from __future__ import annotations

from collections.abc import Callable

from agentgym.dice import Dice
from envs.agencybench.assessment import Assessment, Missing, Unmet
from envs.agencybench.scenario import Check, Finding, Policy, Scenario, Task, World


def number_in(name: str) -> Callable[[Assessment], Finding]:
    """The value is what stands in the file, a number in [0, 1]; words stand for other ends."""

    def run(assessment: Assessment) -> Finding:
        text = assessment.text(name).strip()
        if text == "skip":
            raise Missing("skipped for the test")
        if text == "break":
            raise RuntimeError("broken for the test")
        try:
            return Finding(float(text), f"it says {text}")
        except ValueError:
            raise Unmet(f"{text!r} is no number") from None

    return run


def kept(assessment: Assessment) -> Finding:
    return Finding(float("keep.txt" in assessment.files))


def miniature(tasks: int = 2, policy: Policy | None = None) -> Scenario:
    made = tuple(
        Task(
            f"subtask{n}", f"Write 1 into {n}.txt.", "", f"the number in {n}.txt",
            (
                Check("number", 0.8, f"{n}.txt holds 1", number_in(f"{n}.txt")),
                Check("kept", 0.2, "keep.txt is there", kept),
            ),
            protected=("fixed.txt",),
        )
        for n in range(1, tasks + 1)
    )  # fmt: skip

    def build(dice: Dice) -> World:
        secret = f"s{dice.between(1000, 9999)}"
        return World({"keep.txt": b"k", "fixed.txt": b"f"}, secret, secrets=(secret,))

    return Scenario("test/miniature", "Code", "A miniature.", made, build, policy or Policy())
