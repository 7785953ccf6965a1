"""How the benchmark's 32 scenarios are played: facts of their scripts, as one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from envs.agencybench.scenario import Policy

__all__ = ["SCENARIOS", "Seed", "UpstreamPolicy"]


@dataclass(frozen=True, slots=True)
class Seed:
    """Files of the clone that the agent starts with.

    Attributes:
        source: Folder in the scenario's folder.
        target: Folder in the workspace; empty for its root.
        leave_out: Names of files and folders that hold answers.
        drop_columns: Columns of parquet files that hold answers.
    """

    source: str
    target: str = ""
    leave_out: frozenset[str] = frozenset()
    drop_columns: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UpstreamPolicy:
    """One scenario.

    Attributes:
        tasks: Number of its tasks.
        digest: First 16 hexadecimal digits of the SHA-256 of its ``description.json``.
        play: Attempts, thresholds, and what each attempt starts from. The scripts allow two or
            three attempts by default; the paper and the published runs two.
        seed: Files to start with, or None.
        folders: Empty folders to start with.
        needs: What it needs from outside, such that it cannot be played here; None if nothing.
        hidden_rubric: Its rubric names the answers.
        answers: Where the answers stand that its checks compare with: a parquet file of
            ``observations``, or a folder of ``references``; empty if they need none.
        answers_at: That file or folder, in the scenario's folder.
        packages: Modules that the agent's programs need beside the standard library.
        programs: Programs that they need.
        tracker: An issue tracker stands beside the workspace.
    """

    tasks: int
    digest: str
    play: Policy = field(default_factory=Policy)
    seed: Seed | None = None
    folders: tuple[str, ...] = ()
    needs: str | None = None
    hidden_rubric: bool = False
    answers: Literal["", "observations", "references"] = ""
    answers_at: str = ""
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    tracker: bool = False


def _play(
    stop: float,
    reset: Literal["copy", "shared", "pristine"] = "copy",
    halt: bool = False,
    pass_at: float = 0.6,
) -> Policy:
    return Policy(attempts=2, pass_at=pass_at, stop_at=stop, halt=halt, reset=reset)


_SECRET_COLUMNS = frozenset({"expression", "samples"})
_EQUATION = Seed("workspace", "workspace", drop_columns=_SECRET_COLUMNS)
_WEB = ("fastapi", "httpx")
_FITTING = ("pandas", "pyarrow", "scipy")
_AUTOGEN = "a clone of microsoft/autogen at the task's commit, which the scenario downloads"
_BOTH_JUDGES = _play(0.6)

_FRONTEND = (
    "25eda2e538df1d19",
    "5dfefab0053115de",
    "828bff8b3085cfb4",
)

_GAME = (
    "93c94ad76b9afba4",
    "724d3e3fbe6af0ba",
    "aa73a05d0bccd707",
    "4f034640fd5be0b5",
    "1f55eb2fa8a714cc",
    "55f9ab0e0f2f47a4",
    "ed379b49ab025da3",
    "3c0a395dbb28eb93",
    "3e86ae587c0184e8",
    "5d253a57583dbcfc",
)

SCENARIOS: dict[str, UpstreamPolicy] = {
    "Backend/scenario1": UpstreamPolicy(
        5, "aee41435aa38734b", _play(1.0), programs=("g++", "make")
    ),
    "Backend/scenario2": UpstreamPolicy(
        5, "867113ec0196aeec", _play(1.0), programs=("javac", "java")
    ),
    # The script never tries again, since its stop score is 0.
    "Backend/scenario3": UpstreamPolicy(
        5, "ac52a310edfa6be3", _play(1.0), folders=("data",)
    ),
    "Code/scenario1": UpstreamPolicy(
        5, "c71f991493fc8c8a", _play(0.99), Seed("source", drop_columns=_SECRET_COLUMNS),
        answers="observations", answers_at="source/equation.parquet", packages=_FITTING,
    ),
    "Code/scenario2": UpstreamPolicy(
        1, "5d77de477828a691", _play(0.8, "pristine", pass_at=0.8), needs=_AUTOGEN
    ),
    "Code/scenario3": UpstreamPolicy(
        1, "5d77de477828a691", _play(0.8, "pristine", pass_at=0.8), needs=_AUTOGEN
    ),
    "Code/scenario4": UpstreamPolicy(
        5, "f045b734f165d9fd", _play(1.0, "shared"),
        Seed("source", leave_out=frozenset({"evaluation"})),
        answers="references", answers_at="evaluation/data/references/test",
    ),
    "Code/scenario5": UpstreamPolicy(
        5, "ebbdac5d5606def1", _play(1.0, "shared"), Seed("source"),
        needs="web search and the models that the built pipeline calls",
    ),
    "Code/scenario6": UpstreamPolicy(
        1, "bdabcec5824be1f5", _play(0.6, "shared", halt=True), _EQUATION,
        answers="observations", answers_at="workspace/equation.parquet", packages=_FITTING,
    ),
    "Code/scenario7": UpstreamPolicy(
        1, "bdabcec5824be1f5", _play(0.6, "shared", halt=True), _EQUATION,
        answers="observations", answers_at="workspace/equation.parquet", packages=_FITTING,
    ),
    "Code/scenario8": UpstreamPolicy(
        5, "eac615be8e876aec", _play(0.8), packages=_WEB
    ),
    "Code/scenario9": UpstreamPolicy(
        5, "2100ff5c940dcd29", _play(0.8), Seed("source"), packages=_WEB
    ),
    **{
        f"Frontend/scenario{n}": UpstreamPolicy(5, digest, _BOTH_JUDGES)
        for n, digest in enumerate(_FRONTEND, 1)
    },
    **{
        f"Game/scenario{n}": UpstreamPolicy(5, digest, _BOTH_JUDGES)
        for n, digest in enumerate(_GAME, 1)
    },
    "MCP/scenario1": UpstreamPolicy(
        5, "9ab80c90aef5fe41", _play(1.0, "shared"), tracker=True
    ),
    "MCP/scenario2": UpstreamPolicy(
        5, "26adabc181fdd346", _play(1.0, "shared", halt=True),
        Seed("desktop", "desktop"), folders=("desktop_2",),
    ),
    "Research/scenario1": UpstreamPolicy(
        5, "345dfa1d9b6c4a2a", _play(1.0, "shared"), Seed("data", "data"),
        needs="the Hugging Face hub, which the agent searches",
    ),
    "Research/scenario2": UpstreamPolicy(
        5, "6202bc0c86fac40e", _play(1.0, "shared"), hidden_rubric=True
    ),
    "Research/scenario3": UpstreamPolicy(
        5, "0f4c0e5873b76e85", _play(0.999, "shared"), hidden_rubric=True
    ),
    "Research/scenario4": UpstreamPolicy(2, "5db31cdfc7f3d926", _play(0.6, "shared", halt=True)),
    "Research/scenario5": UpstreamPolicy(2, "fe5e5c77148642b5", _play(0.6, "shared", halt=True)),
}  # fmt: skip
