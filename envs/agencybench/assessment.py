"""What a check may look at: a copy of the workspace, and programs run beside it in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentgym.dice import Dice
from agentgym.sandbox import Limits, SandboxError, Snapshot, Status
from envs.agencybench.scenario import World

if TYPE_CHECKING:
    from agentgym.sandbox import Sandbox

__all__ = ["Assessment", "Missing", "Unmet", "inside"]

T = TypeVar("T")

_IMPORTS = re.compile(
    r"^from (?:__future__|envs\.agencybench\.[a-z_.]+) import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE
)

#: Longest text that a check reads.
MOST_BYTES = 4 << 20


class Unmet(Exception):
    """The workspace does not do what is asked; the message is what was seen, for the agent."""


class Missing(Exception):
    """What the check needs is not there (a judge, a browser): it is skipped."""


@cache
def inside(*names: str) -> str:
    """The text of programs of the folder ``inside`` (or of a scenario: ``units/harness``)."""
    root = Path(__file__).parent
    texts = []
    for name in ("inside/prelude", *names):
        text = (root / f"{name}.py").read_text("utf-8")
        # A program joins several files, which import each other when they are modules.
        texts.append(_IMPORTS.sub("", text))
    return "\n".join(texts)


class Assessment:
    """One look at one workspace for one task.

    Checks read ``files``, which are a copy in memory without links, pipes and devices; draw their
    inputs from :meth:`dice`, which depends on the episode, the task and the attempt alone; and run
    programs with :meth:`probe` in a fresh sandbox on a copy. Agent code runs there and only there.

    Args:
        snapshot: The workspace, protected files put back.
        world: What the scenario drew.
        sandbox: Where programs run.
        key: Names the episode, task and attempt; equal keys draw equal inputs.
        calls: The agent's calls in this scenario: tool, arguments, and whether it worked.
        abilities: What is there: ``judge``, ``vision``, ``browser``.
        judge: The text and vision judge, or None.
        keep: Takes what the checks produce (name and content, such as screenshots).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        world: World,
        sandbox: Sandbox,
        key: str,
        *,
        calls: tuple[tuple[str, Mapping[str, Any], bool], ...] = (),
        abilities: frozenset[str] = frozenset(),
        judge: Any = None,
        keep: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.snapshot, self.world, self.sandbox, self.key = snapshot, world, sandbox, key
        self.calls, self.abilities, self.judge, self.keep = calls, abilities, judge, keep
        self._done: dict[str, tuple[Any, Exception | None]] = {}

    @property
    def files(self) -> Mapping[str, bytes]:
        """Path to content."""
        return self.snapshot.files

    def dice(self, label: str) -> Dice:
        """Draws that depend on the episode, the task, the attempt and ``label``."""
        return Dice(f"{self.key}/{label}")

    def once(self, label: str, make: Callable[[], T]) -> T:
        """``make()``, worked out once for all checks; what it raises is raised again."""
        if label not in self._done:
            try:
                self._done[label] = (make(), None)
            except (Unmet, Missing, SandboxError) as fault:
                self._done[label] = (None, fault)
        value, raised = self._done[label]
        if raised is not None:
            raise raised
        return value

    def text(self, path: str) -> str:
        """The text of a file.

        Raises:
            Unmet: If it is not there, too long, or not UTF-8.
        """
        content = self.files.get(path)
        if content is None:
            reason = self.snapshot.skipped.get(path)
            raise Unmet(f"{path} is no file ({reason})" if reason else f"{path} is missing")
        if len(content) > MOST_BYTES:
            raise Unmet(f"{path} has {len(content)} bytes; at most {MOST_BYTES} are read")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unmet(f"{path} is not UTF-8 ({error.reason} at byte {error.start})") from None

    def json(self, path: str) -> Any:
        """The JSON value of a file.

        Raises:
            Unmet: If it is not there or no JSON.
        """
        text = self.text(path)
        try:
            return json.loads(text)
        except RecursionError:
            raise Unmet(f"{path} is nested too deeply") from None
        except ValueError as error:
            raise Unmet(f"{path} is not valid JSON ({error})") from None

    def probe(
        self,
        program: str,
        payload: Any,
        *,
        seconds: float = 60.0,
        files: Snapshot | None = None,
        limits: Limits | None = None,
    ) -> Any:
        """Run a program in a fresh sandbox on a copy, and return what it reports.

        Args:
            program: Its text, as :func:`inside` gives it; reads ``PAYLOAD``.
            payload: JSON-able; holds inputs, never what is expected.
            seconds: Deadline of the whole.
            files: Files to work on instead of the workspace's.
            limits: Limits instead of the usual ones.

        Raises:
            Unmet: If it was ended (by the deadline, by memory, by the agent's code).
            SandboxError: If the sandbox failed.
        """
        # The workspace is the folder it starts in: nothing there may pass for a module of ours.
        head = "import sys\nsys.path[:] = [p for p in sys.path if p not in ('', '/box')]\n"
        head += f"import json\nPAYLOAD = json.loads({json.dumps(payload)!r})\n"
        limits = (limits or Limits(processes=128)).but(seconds=seconds)
        snapshot = self.snapshot if files is None else files
        result = self.sandbox.run(
            head + program, files=dict(snapshot.files), report=True, limits=limits
        )
        if result.status is Status.DIED:
            raise SandboxError(f"the sandbox of a check ended: {result.message}")
        if not result.report.strip():
            if result.report:
                raise Unmet(f"the program that calls it was ended: {result.message}")
            if result.ok or (result.status is Status.ERROR and "Traceback" in result.stderr):
                raise SandboxError(f"a check's program failed: {result.stderr[-400:]}")
            raise Unmet(f"the program that calls it was ended: {result.message}")
        try:
            return json.loads(result.report)
        except ValueError:
            raise Unmet("what it was called by wrote no whole report") from None

    def runs(self, code: str, files: Snapshot, *, seconds: float = 30.0) -> tuple[bool, str]:
        """Whether Python code ends with 0 in a fresh sandbox on ``files``, and its last words.

        Raises:
            SandboxError: If the sandbox failed.
        """
        result = self.sandbox.run(code, files=dict(files.files), limits=Limits(seconds=seconds))
        if result.status is Status.DIED:
            raise SandboxError(f"the sandbox of a check ended: {result.message}")
        return result.ok, (result.stderr or result.stdout)[-2000:]
