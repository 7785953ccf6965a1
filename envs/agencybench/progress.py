"""Task progress in AgencyBench, for step-level credit that is shared across tasks.

State: capability, number of the task, number of the attempt, and how far the attempt has come
(nothing read, something read, something written, written and run since). Action: the tool, and for
files whether the path was seen before. Contents and answers never enter a name.
"""

from __future__ import annotations

from agentgym.info import Info
from agentgym.progress import INADMISSIBLE, MALFORMED, canonical_text, context_key
from envs.agencybench.calls import Call, find_call

__all__ = ["AgencyProgress"]

_READS = frozenset(
    {"list_directory", "glob", "read_file", "read_many_files", "search_file_content"}
    | {"web_search", "web_fetch", "mcp_list_tools"}
)
_WRITES = frozenset({"write_file", "replace", "mcp_call"})
_RUNS = frozenset({"run_shell_command", "run_python"})


class AgencyProgress:
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
        self._begin(info)

    def _begin(self, info: Info) -> None:
        details = info.get("details", {})
        self._task, self._attempt = details.get("task", 0), details.get("attempt", 0)
        self._goal = canonical_text(info.get("goal", ""))
        self._stage = "fresh"
        self._seen: set[str] = set()

    def state(self) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        attempt = f"{self._attempt}" if self._attempt < 2 else "2+"
        return f"agency {self._kind} task={self._task} attempt={attempt} {self._stage}"

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        call = find_call(action)
        if not isinstance(call, Call):
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        name = _target(call)
        if call.tool in _READS | _WRITES and name:
            return f"{call.tool}:{'seen' if name in self._seen else 'new'}"
        return call.tool

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        details = info.get("details", {})
        if (details.get("task"), details.get("attempt")) != (self._task, self._attempt):
            self._begin(info)
            return
        call = find_call(action)
        if not admissible or not isinstance(call, Call):
            return
        if name := _target(call):
            self._seen.add(name)
        if call.tool in _WRITES:
            self._stage = "written"
        elif call.tool in _RUNS and self._stage in ("written", "run"):
            self._stage = "run"
        elif call.tool in _READS and self._stage == "fresh":
            self._stage = "read"

    def shareable(self, state: str, abstract_action: str) -> bool:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        return abstract_action not in (MALFORMED, INADMISSIBLE)

    def context(self, observation: str) -> str:
        """See :class:`agentgym.progress.ProgressAbstraction`."""
        return context_key(self._goal, self.state(), canonical_text(observation))


def _target(call: Call) -> str:
    """The file, page or tool that a call is about; empty where it is about none."""
    for key in ("path", "file_path", "absolute_path", "url", "tool"):
        value = call.arguments.get(key)
        if isinstance(value, str):
            return value
    return ""
