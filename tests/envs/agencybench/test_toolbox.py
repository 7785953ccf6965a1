"""The tools over a workspace: what they do, and that nothing leads out of it."""

from __future__ import annotations

import base64

import pytest

from agentgym.sandbox import shared_sandbox
from envs.agencybench.calls import Call
from envs.agencybench.scenario import Service
from envs.agencybench.toolbox import TOOLS, Toolbox, clip, plain_text

FILES = {
    "README.md": b"# Title\nline two\nline three\n",
    "src/a.py": b"def alpha():\n    return 1\n",
    "src/deep/b.py": b"def beta():\n    return 22\n",
    "data.bin": bytes(range(256)),
}


class Echo(Service):
    tools = frozenset({"web_search", "mcp_call"})

    def call(self, tool, arguments):
        if tool == "mcp_call":
            return {"got": arguments}
        raise ValueError(f"nothing about {arguments['query']}")


@pytest.fixture(scope="module")
def session():
    with shared_sandbox().session(files=FILES) as session:
        yield session


@pytest.fixture
def use(session):
    toolbox = Toolbox(session, Echo())

    def call(name, /, **arguments):
        return toolbox.use(Call(name, arguments))

    return call


def test_looking_around(use):
    assert use("list_directory").text.splitlines()[0] == "src/"
    assert "data.bin (256 bytes)" in use("list_directory", path=".").text
    assert use("glob", pattern="**/*.py").text.splitlines() == ["src/a.py", "src/deep/b.py"]
    assert use("glob", pattern="*.py", path="src").text == "src/a.py"
    assert use("glob", pattern="*.txt").text == "(nothing matches)"
    assert use("read_file", path="src/a.py").text.startswith("def alpha")
    assert use("read_file", path="README.md", offset=1, limit=1).text.endswith("line two\n")
    found = use("search_file_content", pattern=r"return \d+", include="*.py").text
    assert "src/a.py:2:" in found
    assert "src/deep/b.py:2:" in found
    assert use("search_file_content", pattern="zzz").text == "(no line matches)"
    many = use("read_many_files", paths=["README.md", "absent"])
    assert many.ok
    assert "# Title" in many.text


def test_writing_and_replacing(use):
    assert use("write_file", path="new/x.txt", content="é\n").text == "3 bytes written to new/x.txt"
    assert use("read_file", path="/box/new/x.txt").text == "é\n"
    encoded = base64.b64encode(b"\x00\xff").decode()
    assert use("write_file", path="new/y.bin", content=encoded, encoding="base64").ok
    assert not use("read_file", path="new/y.bin").ok
    assert not use("write_file", path="new/z", content="%", encoding="base64").ok
    assert not use("write_file", path="new/z", content="", encoding="rot13").ok
    assert use("replace", file_path="new/x.txt", old_string="é", new_string="e").ok
    assert use("read_file", path="new/x.txt").text == "e\n"
    reply = use("replace", path="new/x.txt", old="q", new="r")
    assert not reply.ok
    assert "0 times" in reply.text


def test_commands(use):
    reply = use("run_shell_command", command="echo out; echo err >&2; exit 3")
    assert not reply.ok
    for part in ("out", "[stderr]\nerr", "3"):
        assert part in reply.text
    assert use("run_python", code="print(6 * 7)").text.startswith("42")
    assert use("run_shell_command", command="echo hi", timeout="5").ok
    reply = use("run_shell_command", command="sleep 60", timeout=1)
    assert not reply.ok
    assert "1" in reply.text
    assert use("run_shell_command", command="echo still here").text.startswith("still here")
    assert not use("run_shell_command", command="true", timeout=0).ok


def test_a_background_process_serves_later_commands(use):
    assert use("run_shell_command", command="sleep 300", background=True).ok
    assert use("run_shell_command", command="echo on").ok


def test_notes(use):
    assert use("todo_write", items=["a", {"content": "b"}]).text.startswith("1. a\n2. {")
    assert use("read_memory").text == "(nothing is remembered)"
    use("save_memory", fact="x is 3")
    assert use("read_memory").text == "- x is 3"


def test_the_service_is_reached_and_its_complaints_are_answers(use):
    assert '"got"' in use("mcp_call", server="s", tool="t", arguments={"a": 1}).text
    reply = use("web_search", query="ports")
    assert (reply.text, reply.ok) == ("nothing about ports", False)
    assert "There is no tool 'web_fetch'" in use("web_fetch", url="x").text


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("read_file", {}, "needs 'path'"),
        ("read_file", {"path": 3}, "of type string"),
        ("read_file", {"path": "a", "lines": 3}, "no argument 'lines'"),
        ("read_file", {"path": "a", "offset": 1.5}, "of type integer"),
        ("read_file", {"path": "a", "offset": True}, "of type integer"),
        ("read_many_files", {"paths": []}, "list of file names"),
        ("todo_write", {"items": "x"}, "of type list"),
        ("nothing", {}, "There is no tool"),
    ],
)
def test_bad_arguments_are_answered(use, tool, arguments, told):
    reply = use(tool, **arguments)
    assert not reply.ok
    assert told in reply.text


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "a/../../x", "", "\x00", "x" * 5000, "link", "pipe", "src"],
)
def test_nothing_leads_out(session, use, path):
    session.run("ln -sf /etc/passwd link; mkfifo pipe")
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
        if tool == "write_file" and path in ("link", "pipe"):
            continue  # a file takes its place
        reply = use(tool, path=path, **more)
        assert not reply.ok, (tool, path)
        assert "root:" not in reply.text


def test_long_and_strange_output_is_kept_readable(use):
    use("write_file", path="long.txt", content="".join(f"{n}\n" for n in range(20_000)))
    text = use("read_file", path="long.txt").text
    assert len(text) < 17_000
    assert "characters left out" in text
    reply = use("run_shell_command", command=r"printf '\033[2J\033]0;title\007 \377 done'")
    assert "\x1b" not in reply.text
    assert "done" in reply.text
    assert plain_text("a\x1bb\x00\r\nc\ud800") == "a\\x1bb\\x00\nc\\xd800"
    assert clip("x" * 10, 20) == "x" * 10


def test_every_tool_is_described_once():
    for spec in TOOLS.values():
        assert spec.describe().startswith(f"- {spec.name}(")
        assert "\n" not in spec.describe()
