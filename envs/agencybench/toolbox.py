"""The agent's tools: their names are the benchmark's, their place is the workspace."""

from __future__ import annotations

import base64
import fnmatch
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agentgym.sandbox import Limits, Result, SandboxError, Status, WorkspaceError
from envs.agencybench.calls import Call
from envs.agencybench.scenario import Service

if TYPE_CHECKING:
    from agentgym.sandbox import Session

__all__ = ["TOOLS", "Parameter", "Reply", "ToolSpec", "Toolbox", "clip", "plain_text"]

#: Characters of a tool's output that the agent reads.
MOST_CHARS = 16_000
_MOST_SECONDS = 600
_MOST_NOTES = 200
_READABLE_BYTES = 8 << 20

# Control characters, but newline and tab: terminal sequences must not reach anybody's terminal.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a tool.

    Attributes:
        kind: ``string``, ``integer``, ``boolean``, ``list`` or ``object``.
        text: What it is.
        required: It must be given.
        also: Other names for it.
    """

    kind: str
    text: str
    required: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the agent is told of a tool."""

    name: str
    text: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def describe(self) -> str:
        """One line: call and purpose."""
        told = [
            f"{name}: {p.kind}" if p.required else f"{name}?: {p.kind}"
            for name, p in self.parameters.items()
        ]
        return f"- {self.name}({', '.join(told)}): {self.text}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call gave.

    Attributes:
        text: For the agent.
        ok: The tool did what it was asked for.
    """

    text: str
    ok: bool = True


def _path(text: str, required: bool = True) -> Parameter:
    return Parameter("string", text, required, ("file_path", "absolute_path", "dir_path"))


TOOLS: dict[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        ToolSpec(
            "list_directory",
            "what a folder holds",
            {"path": _path("folder", required=False)},
        ),
        ToolSpec(
            "glob",
            "paths that match a pattern such as `**/*.py`",
            {"pattern": Parameter("string", "pattern", True), "path": _path("folder", False)},
        ),
        ToolSpec(
            "read_file",
            "the text of a file, from line `offset` (0 is the first), at most `limit` lines",
            {
                "path": _path("file"),
                "offset": Parameter("integer", "first line"),
                "limit": Parameter("integer", "lines"),
            },
        ),
        ToolSpec(
            "read_many_files",
            "the texts of several files",
            {"paths": Parameter("list", "files", True)},
        ),
        ToolSpec(
            "search_file_content",
            "lines that match a regular expression (PCRE)",
            {
                "pattern": Parameter("string", "expression", True),
                "path": _path("folder or file", False),
                "include": Parameter("string", "file names, such as `*.py`"),
            },
        ),
        ToolSpec(
            "write_file",
            "write a whole file; `encoding` is utf-8 or base64",
            {
                "path": _path("file"),
                "content": Parameter("string", "content", True),
                "encoding": Parameter("string", "utf-8 or base64"),
            },
        ),
        ToolSpec(
            "replace",
            "replace `old` by `new` in a file; it must stand there `expected` times (1)",
            {
                "path": _path("file"),
                "old": Parameter("string", "text", True, ("old_string",)),
                "new": Parameter("string", "text", True, ("new_string",)),
                "expected": Parameter("integer", "how often", False, ("expected_replacements",)),
            },
        ),
        ToolSpec(
            "run_shell_command",
            "run a command in the workspace, there is no network; `timeout` in seconds (30)",
            {
                "command": Parameter("string", "command", True, ("cmd",)),
                "timeout": Parameter("integer", "seconds"),
                "background": Parameter("boolean", "return at once"),
            },
        ),
        ToolSpec(
            "run_python",
            "run Python code in the workspace; `timeout` in seconds (30)",
            {
                "code": Parameter("string", "code", True),
                "timeout": Parameter("integer", "seconds"),
            },
        ),
        ToolSpec(
            "todo_write",
            "keep a list of what is to do",
            {"items": Parameter("list", "all of it", True, ("todos",))},
        ),
        ToolSpec(
            "save_memory",
            "remember a fact until the end",
            {"fact": Parameter("string", "fact", True)},
        ),
        ToolSpec("read_memory", "what was remembered"),
        ToolSpec(
            "web_search",
            "search the pages there are",
            {"query": Parameter("string", "words", True)},
        ),
        ToolSpec(
            "web_fetch",
            "the text of a page",
            {"url": Parameter("string", "address", True, ("id", "prompt"))},
        ),
        ToolSpec("mcp_list_tools", "tools of the connected servers"),
        ToolSpec(
            "mcp_call",
            "call a tool of a connected server",
            {
                "server": Parameter("string", "server", True),
                "tool": Parameter("string", "tool", True),
                "arguments": Parameter("object", "arguments"),
            },
        ),
        ToolSpec(
            "submit",
            "hand in the current task; it is then scored",
            {"summary": Parameter("string", "what was done")},
        ),
    )
}

#: Tools that every scenario has.
_ALWAYS = (
    "list_directory", "glob", "read_file", "read_many_files", "search_file_content", "write_file",
    "replace", "run_shell_command", "run_python", "todo_write", "save_memory", "read_memory",
    "submit",
)  # fmt: skip


def clip(text: str, most: int = MOST_CHARS) -> str:
    """Head and tail of a long text, with a note of what is left out between."""
    if len(text) <= most:
        return text
    half = most // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


def plain_text(text: str) -> str:
    """Text without control characters, which a terminal would obey; they are spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))


class Toolbox:
    """The tools over one workspace.

    Args:
        session: The workspace.
        service: What stands beside it, or None.
    """

    def __init__(self, session: Session, service: Service | None = None) -> None:
        self.session, self.service = session, service
        self.todo: list[str] = []
        self.memory: list[str] = []
        #: A command found the sandbox dead, or it died under it, by no doing of a command.
        self.died = False
        #: Seconds that are left of the episode, or None where it has no end.
        self.left: Callable[[], float] | None = None
        self._ended_with_command = False
        self._own: dict[str, Callable[..., Reply]] = {
            name: getattr(self, f"_{name}") for name in _ALWAYS if name != "submit"
        }

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Every tool there is in this scenario."""
        served = self.service.tools if self.service is not None else frozenset()
        return tuple(spec for name, spec in TOOLS.items() if name in _ALWAYS or name in served)

    def arguments(self, call: Call) -> dict[str, Any] | Reply:
        """The arguments of a call under their own names, or what is wrong with them."""
        spec = TOOLS[call.tool]
        names = {also: name for name, p in spec.parameters.items() for also in (name, *p.also)}
        given: dict[str, Any] = {}
        for key, value in call.arguments.items():
            name = names.get(key)
            if name is None or (name in given and key != name):
                if key in ("description", "directory", "explanation"):
                    continue  # other harnesses ask for these; they change nothing
                known = ", ".join(spec.parameters) or "none"
                return Reply(f"{call.tool} has no argument {key!r}; its arguments: {known}", False)
            checked = _as_kind(spec.parameters[name].kind, value)
            if checked is None:
                kind = spec.parameters[name].kind
                return Reply(f"{name!r} of {call.tool} must be of type {kind}", False)
            given[name] = checked
        for name, parameter in spec.parameters.items():
            if parameter.required and name not in given:
                return Reply(f"{call.tool} needs {name!r}: {spec.describe()[2:]}", False)
        return given

    def use(self, call: Call) -> Reply:
        """Do what a call asks for. Whatever is wrong with it is said in the reply."""
        known = [spec.name for spec in self.specs]
        if call.tool not in known:
            return Reply(f"There is no tool {call.tool!r}. Tools: {', '.join(known)}", False)
        given = self.arguments(call)
        if isinstance(given, Reply):
            return given
        try:
            if call.tool in self._own:
                reply = self._own[call.tool](**given)
            else:
                assert self.service is not None
                made = self.service.call(call.tool, given)
                text = (
                    made
                    if isinstance(made, str)
                    else json.dumps(made, ensure_ascii=False, indent=1)
                )
                reply = Reply(text)
        except ValueError as error:  # WorkspaceError is one
            return Reply(plain_text(str(error)), False)
        return Reply(clip(plain_text(reply.text)), reply.ok)

    # Files --------------------------------------------------------------------------------------

    def _list_directory(self, path: str = ".") -> Reply:
        entries = sorted(self.session.list(path), key=lambda e: (e.kind != "folder", e.path))
        if not entries:
            return Reply("(empty)")
        return Reply("\n".join(_entry(entry.path, entry.kind, entry.size) for entry in entries))

    def _glob(self, pattern: str, path: str = ".") -> Reply:
        if len(pattern) > 300 or pattern.count("*") > 20:
            return Reply("the pattern is too long", False)
        base = path.strip("/").removeprefix("box").strip("/") if path.startswith("/") else path
        base = "" if base in (".", "./", "") else base.removeprefix("./").rstrip("/") + "/"
        wanted = (base + pattern.removeprefix("/box/").removeprefix("./")).split("/")
        found = [
            entry.path
            for entry in self.session.list(".", recursive=True)
            if entry.kind == "file" and _matches(entry.path.split("/"), wanted)
        ]
        return Reply("\n".join(sorted(found)) or "(nothing matches)")

    def _text(self, path: str) -> str:
        content = self.session.read(path, limit=_READABLE_BYTES + 1)
        if len(content) > _READABLE_BYTES:
            raise WorkspaceError(f"{path} is larger than {_READABLE_BYTES} bytes")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise WorkspaceError(
                f"{path} is not UTF-8 text ({len(content)} bytes); look at it with a command"
            ) from None

    def _read_file(self, path: str, offset: int = 0, limit: int | None = None) -> Reply:
        if offset < 0 or (limit is not None and limit < 1):
            return Reply("offset must be >= 0 and limit >= 1", False)
        text = self._text(path)
        if not offset and limit is None:
            return Reply(text or "(empty file)")
        lines = text.splitlines(keepends=True)
        part = lines[offset : None if limit is None else offset + limit]
        head = f"[lines {offset} to {offset + len(part) - 1} of {len(lines)}]\n" if part else ""
        return Reply(head + "".join(part) if part else f"(the file has {len(lines)} lines)")

    def _read_many_files(self, paths: list[Any]) -> Reply:
        if not paths or not all(isinstance(path, str) for path in paths):
            return Reply("paths must be a list of file names", False)
        share = max(1000, MOST_CHARS // len(paths) - 100)
        parts, good = [], False
        for path in paths[:50]:
            try:
                parts.append(f"--- {path}\n{clip(self._text(path), share)}")
                good = True
            except WorkspaceError as error:
                parts.append(f"--- {path}\n[{error}]")
        return Reply("\n".join(parts), good)

    def _search_file_content(self, pattern: str, path: str = ".", include: str = "") -> Reply:
        # Inside, where an expression that never ends harms nobody.
        words = ["grep", "-rnIP", "--color=never", *([f"--include={include}"] if include else [])]
        result = self._command([*words, "-e", pattern, "--", path], 20)
        if result.exit_code == 1 and not result.stderr:
            return Reply("(no line matches)")
        said = result.stdout or result.stderr or _ending(result)
        return Reply(said.rstrip("\n"), bool(result.stdout))

    def _write_file(self, path: str, content: str, encoding: str = "utf-8") -> Reply:
        if encoding in ("utf-8", "utf8"):
            data = content.encode("utf-8")
        elif encoding == "base64":
            data = base64.b64decode(content, validate=True)
        else:
            return Reply(f"encoding must be utf-8 or base64, got {encoding!r}", False)
        self.session.write(path, data)
        return Reply(f"{len(data)} bytes written to {path}")

    def _replace(self, path: str, old: str, new: str, expected: int = 1) -> Reply:
        text = self._text(path)
        if not old:
            return Reply("old must not be empty", False)
        count = text.count(old)
        if count != expected:
            return Reply(
                f"old stands {count} times in {path}, expected {expected}; nothing is changed",
                False,
            )
        self.session.write(path, text.replace(old, new).encode("utf-8"))
        return Reply(f"{count} replaced in {path}")

    # Commands -----------------------------------------------------------------------------------

    def _run_shell_command(
        self, command: str, timeout: int = 30, background: bool = False
    ) -> Reply:
        return self._run(command, timeout, background)

    def _run_python(self, code: str, timeout: int = 30) -> Reply:
        return self._run(["python3", "-"], timeout, stdin=code.encode("utf-8"))

    def _run(
        self,
        command: str | list[str],
        timeout: int,
        background: bool = False,
        stdin: bytes = b"",
    ) -> Reply:
        if not 1 <= timeout <= _MOST_SECONDS:
            return Reply(f"timeout must lie between 1 and {_MOST_SECONDS} seconds", False)
        result = self._command(command, timeout, background=background, stdin=stdin)
        if background:
            return Reply(f"started in the background (job {result.job})", True)
        parts = [result.stdout]
        if result.stderr:
            parts.append(f"[stderr]\n{result.stderr}")
        parts.append(f"[{_ending(result)}]")
        return Reply("\n".join(part.rstrip("\n") for part in parts if part), result.ok)

    def _command(self, command: Any, seconds: int, **more: Any) -> Result:
        if "\0" in "".join(command):
            raise ValueError("a command cannot hold the character NUL")
        left = None if self.left is None else max(0.1, self.left())
        short = left is not None and left < seconds and not more.get("background")
        limits = Limits(seconds=left if short and left is not None else float(seconds))
        try:
            result = self.session.run(command, limits=limits, **more)
        except SandboxError as error:
            result = Result(Status.DIED, message=f"the sandbox failed: {error}")
        # Where a command would not end, its sandbox was ended with it: that is its own doing.
        gone = result.restarted and not self._ended_with_command
        self._ended_with_command = result.status is Status.TIMEOUT and not self.session.alive
        self.died = self.died or gone or result.status is Status.DIED
        if short and result.deadline == "command":
            message = f"killed after {limits.seconds:.3g} s (episode deadline)"
            return replace(result, deadline="episode", message=message)
        return result

    # Notes --------------------------------------------------------------------------------------

    def _todo_write(self, items: list[Any]) -> Reply:
        self.todo = [clip(_spelled(item), 500) for item in items[:_MOST_NOTES]]
        return Reply("\n".join(f"{n}. {item}" for n, item in enumerate(self.todo, 1)) or "(empty)")

    def _save_memory(self, fact: str) -> Reply:
        if len(self.memory) >= _MOST_NOTES:
            return Reply(f"at most {_MOST_NOTES} facts are remembered", False)
        self.memory.append(clip(fact, 2000))
        return Reply(f"remembered ({len(self.memory)})")

    def _read_memory(self) -> Reply:
        return Reply("\n".join(f"- {fact}" for fact in self.memory) or "(nothing is remembered)")


def _as_kind(kind: str, value: Any) -> Any:
    """The value as what it should be, or None. Text spells numbers where a model sends text."""
    if kind == "string":
        return value if isinstance(value, str) else None
    if isinstance(value, str) and kind != "string":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if kind == "integer":
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    wanted: type = {"boolean": bool, "list": list, "object": dict}[kind]
    return value if isinstance(value, wanted) else None


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _entry(path: str, kind: str, size: int) -> str:
    name = path.rsplit("/", 1)[-1]
    return (
        f"{name}/"
        if kind == "folder"
        else f"{name} ({size} bytes)"
        if kind == "file"
        else f"{name} [{kind}]"
    )


def _ending(result: Result) -> str:
    return result.message or ("exit code 0" if result.ok else f"exit code {result.exit_code}")


def _matches(path: list[str], pattern: list[str]) -> bool:
    """Whether a path matches a pattern part by part; ``**`` stands for any number of folders."""
    reachable = {0}
    for part in pattern:
        if part == "**":
            reachable = set(range(min(reachable), len(path) + 1)) if reachable else reachable
        else:
            reachable = {
                n + 1 for n in reachable if n < len(path) and fnmatch.fnmatchcase(path[n], part)
            }
    return len(path) in reachable
