"""The oracle: plays a scenario that has a solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from agentgym.sandbox import WorkspaceError
from envs.agencybench.calls import write_call
from envs.agencybench.episode import Episode

__all__ = ["demonstrate", "remaining"]

_Calls = list[tuple[str, dict[str, Any]]]


class _Random(Protocol):
    def random(self) -> float:
        """A number in [0, 1)."""
        ...


def remaining(episode: Episode) -> _Calls:
    """Calls that solve what is left, each task handed in at once.

    Files that already are as they should be are left alone, and so is what was called before in
    the current task.

    Raises:
        NotImplementedError: If the scenario has no oracle.
    """
    scenario = episode.scenario
    if scenario.oracle is None:
        raise NotImplementedError(f"scenario {scenario.id!r} has no oracle")
    calls: _Calls = []
    for index in range(episode.index, len(scenario.tasks)):
        solution = scenario.oracle(episode.world, index)
        if index == episode.index:
            solution = [call for call in solution if not _done(episode, *call)]
        calls += [*solution, ("submit", {})]
    return calls


def _done(episode: Episode, tool: str, arguments: dict[str, Any]) -> bool:
    if tool == "write_file":
        try:
            return episode.session.read(arguments["path"]) == arguments["content"].encode()
        except WorkspaceError:
            return False
    return any((name, given) == (tool, arguments) for name, given, _ in episode.log)


def demonstrate(env: Any, rng: _Random, noise: float = 0.0) -> Iterator[str]:
    """Play the episode that ``env`` has begun.

    Args:
        env: An AgencyBench environment after ``reset``, wrapped or not.
        rng: Source of randomness.
        noise: How often a call that leads nowhere comes first, between 0 and 1.

    Raises:
        NotImplementedError: If the scenario has no oracle.
        ValueError: If ``noise`` is out of range.
    """
    if not 0.0 <= noise <= 1.0:
        raise ValueError(f"noise must be between 0 and 1, got {noise!r}")
    episode: Episode = env.unwrapped.episode
    while not episode.over:
        calls = remaining(episode)
        if rng.random() < noise:
            yield write_call("list_directory", {"path": "."})
            continue
        yield write_call(*calls[0])
