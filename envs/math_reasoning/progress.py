"""Task progress in MathReasoning, for step-level credit that is shared across tasks.

State: kind of the problem, how many answers were wrong (0, 1, 2+), how many calls were made (0, 1,
2+), and what the last response came to. Action: a call by its tool, or an answer by how many
equations lead to it (0, 1-2, 3+).
"""

from __future__ import annotations

from agentgym.info import Info
from agentgym.progress import INADMISSIBLE, MALFORMED, canonical_text, context_key
from envs.math_reasoning.tools import find_call

__all__ = ["MathProgress"]


class MathProgress:
    """See the module.

    Args:
        env_id: The environment.
        max_steps: Not used.
    """

    def __init__(self, env_id: str, max_steps: int | None = None) -> None:
        self.env_id = env_id

    def reset(self, observation: str, info: Info) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        self._kind = info.get("task_type", "default")
        self._goal = canonical_text(info.get("goal", "") or observation)
        self._tools = tuple(info.get("details", {}).get("tools", ()))
        self._wrong = self._calls = 0
        self._last = "start"

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        wrong, calls = (f"{n}" if n < 2 else "2+" for n in (self._wrong, self._calls))
        return f"math {self._kind} wrong={wrong} calls={calls} last={self._last}"

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not format_ok:
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        call = find_call(action, self._tools)
        if call is not None:
            return f"call:{call.tool}"
        equations = action.count("=")
        return f"answer:{'0' if not equations else '1-2' if equations < 3 else '3+'}"

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        if not admissible:
            return
        if find_call(action, self._tools) is None:
            self._wrong += 1  # a right answer ends the episode
            self._last = "wrong"
            return
        self._calls += 1
        tool = info.get("details", {}).get("tool") or {}
        self._last = "result" if tool.get("ok", True) else "error"

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Whatever was well-formed and accepted."""
        return abstract_action not in (MALFORMED, INADMISSIBLE)

    def context(self, observation: str) -> str:
        """The problem and the observation."""
        return context_key("math", self._goal, observation)
