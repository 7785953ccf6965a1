import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import textwrap
import time

import pytest

from trainers import console as module
from trainers.console import Console, printable
from trainers.metrics import MetricError

ROW = {
    "phase": "group",
    "reward_mean": 0.3125,
    "success_rate": 0.281,
    "entropy": float("nan"),
    "step_s": 1.25,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("NO_COLOR", "CI", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class TestChoice:
    def test_a_pipe_is_plain(self):
        assert Console(1, stream=io.StringIO()).mode == "plain"

    def test_a_terminal_is_live(self):
        assert Console(1, stream=Terminal()).mode == "live"

    @pytest.mark.parametrize(
        ("name", "value", "mode"),
        [
            ("NO_COLOR", "1", "plain"),
            ("NO_COLOR", "", "live"),
            ("CI", "true", "plain"),
            ("CI", "false", "live"),
            ("TERM", "dumb", "plain"),
            ("TERM", "", "plain"),
        ],
    )
    def test_the_environment_decides(self, monkeypatch, name, value, mode):
        monkeypatch.setenv(name, value)
        assert Console(1, stream=Terminal()).mode == mode

    def test_streams_without_isatty(self):
        class Odd:
            def write(self, text): ...

        assert Console(1, stream=Odd()).mode == "plain"
        closed = io.StringIO()
        closed.close()
        assert Console(1, stream=closed).mode == "plain"

    def test_without_rich_it_is_plain(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "rich.live", None)
        stream = Terminal()
        with Console(1, stream=stream) as console:
            assert console.mode == "plain"
            console.step(1, ROW)
        assert stream.getvalue().startswith("step 1/1  phase group")
        with pytest.raises(ImportError, match=r"agentgym-suite\[cli\]"), Console(1, mode="live"):
            pass

    def test_bad_arguments(self):
        with pytest.raises(ValueError, match="console mode"):
            Console(1, mode="loud")
        with pytest.raises(MetricError, match="sucess"):
            Console(1, columns=["sucess"])

    def test_importing_it_imports_neither_rich_nor_torch(self):
        code = "import sys, trainers.console; print({'rich', 'torch'} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "set()\n"


class TestPlain:
    def test_one_line_a_step(self):
        stream = io.StringIO()
        with Console(200, stream=stream, title="li2sao") as console:
            console.step(12, ROW)
        title, line = stream.getvalue().splitlines()
        assert title == "li2sao"
        assert re.fullmatch(
            r"step 12/200  phase group  reward 0\.312  success 28\.1%  entropy nan  s/step 1\.25"
            r"  eta 0s",
            line,
        )

    def test_no_total_and_own_columns(self):
        stream = io.StringIO()
        with Console(None, ("score_mean", "eval/test/greedy/success"), stream=stream) as console:
            console.step(1, {"score_mean": 0.5})
        assert stream.getvalue() == "step 1  score 0.5\n"

    def test_the_estimate_counts_this_session_only(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
        stream = io.StringIO()
        with Console(100, ("entropy",), first_step=80, stream=stream) as console:
            console.step(80, {})
            now[0] += 300
            console.step(85, {})
            now[0] += 24 * 3600
            console.step(90, {})
        assert stream.getvalue().splitlines() == [
            "step 80/100",
            "step 85/100  eta 15m00s",
            "step 90/100  eta 24h05m",
        ]

    def test_evaluations_and_the_switch_are_told(self):
        stream = io.StringIO()
        evaluation = {
            "eval/test/sampled/success": 0.43,
            "eval/test/sampled/n": 200,
            "eval/test/sampled/first_result_share": 0.25,
            "eval/test/rule/score": 0.5,
        }
        with Console(9, ("entropy",), stream=stream) as console:
            console.step(1, {"phase": "group", **evaluation})
            console.step(2, {})
            console.step(3, {"phase": "single", "forced": True})
        lines = stream.getvalue().splitlines()
        assert lines[1:3] == [
            "step 1: eval test sampled:  success 43.0%  [36.3, 49.9] n=200  first result 25.0%",
            "step 1: eval test rule:  score 0.5",
        ]
        assert lines[-1] == "step 3: phase group -> single (forced by the step limit)"

    def test_tables(self):
        stream = io.StringIO()
        with Console(1, stream=stream) as console:
            console.table("mappings", [{"who": "rule", "rate": 0.5}, {"who": "us", "n": 20}])
            console.table("sequences", [["who", "n"], ["a"], ["b", 100]])
            console.table("empty", [])
        assert stream.getvalue() == textwrap.dedent(
            """\
            mappings
              who   rate  n
              rule   0.5
              us          20
            sequences
              who  n
              a
              b    100
            empty
            """
        )

    def test_an_ascii_stream_does_not_fail(self):
        raw = io.BytesIO()
        with Console(1, stream=io.TextIOWrapper(raw, "ascii", write_through=True)) as console:
            console.note("naïve → ✓")
            assert raw.getvalue() == b"na\\xefve \\u2192 \\u2713\n"
            assert console.mode == "plain"

    @pytest.mark.parametrize("error", [BrokenPipeError, ValueError, OSError, RuntimeError])
    def test_a_broken_stream_makes_it_quiet(self, error):
        class Broken(io.StringIO):
            def write(self, text):
                raise error("gone")

        with Console(1, stream=Broken(), title="x") as console:
            console.step(1, ROW)
            console.table("t", [["a"], [1]])
            assert console.mode == "quiet"

    def test_ctrl_c_passes(self):
        class Interrupted(io.StringIO):
            def write(self, text):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), Console(1, stream=Interrupted()) as console:
            console.note("x")

    def test_quiet_writes_nothing(self):
        stream = Terminal()
        with Console(1, stream=stream, mode="quiet", title="x") as console:
            console.step(1, ROW)
            console.note("x")
            console.table("t", [["a"]])
        assert stream.getvalue() == ""


def test_control_characters_are_made_visible():
    assert printable("a\x1b[31mb\x07\r\n\tc\x9b\u202e\ud800é👍") == (
        "a\\x1b[31mb\\x07\\r\n\tc\\x9b\\u202e\\ud800é👍"
    )


class TestLive:
    def test_content(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("LINES", "30")
        stream = Terminal()
        with Console(5, stream=stream, title="[bold]no markup") as console:
            for step in range(1, 6):
                console.step(step, ROW)
            console.note("[red]a\x1b[31mb")
            console.table("Result", [["split", "rate"], ["test", 0.5]])
            assert console.mode == "live"
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
        assert "[bold]no markup" in shown
        assert "[red]a\\x1b[31mb" in shown
        assert "5/5" in shown
        assert "28.1%" in shown
        assert "expl. var." not in shown  # never logged
        assert "Result" in shown
        assert stream.getvalue().count("\x1b[?25h") == 1  # the cursor is back

    def test_narrow_terminals_show_the_first_columns(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        stream = Terminal()
        with Console(5, stream=stream) as console:
            console.step(1, ROW)
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
        assert "reward" in shown
        assert "entropy" not in shown
        assert "…" not in shown

    def test_a_failure_goes_on_in_plain_lines(self, monkeypatch):
        stream = Terminal()
        with Console(5, stream=stream) as console:
            monkeypatch.setattr(module._LiveTable, "row", lambda *_: 1 / 0)
            console.step(1, ROW)
            assert console.mode == "plain"
            console.step(2, ROW)
        assert "step 1/5  phase group" in stream.getvalue()
        assert "step 2/5  phase group" in stream.getvalue()


PROGRAM = """
    from trainers.console import Console
    with Console(20, title="run") as console:
        for step in range(1, 21):
            console.step(step, {"reward_mean": step / 20, "success_rate": 0.5, "phase": "group"})
        console.note("naïve ✓")
        console.table("t", [["a", "b"], ["x", 1.0]])
    print("mode", console.mode)
"""


@pytest.mark.parametrize(
    ("size", "changes", "mode"),
    [
        ((24, 80), {}, b"mode live"),
        ((1, 1), {}, b"mode live"),
        ((0, 0), {}, b"mode live"),
        ((200, 500), {"TERM": "vt100"}, b"mode live"),
        ((3, 10), {"TERM": "nonsense"}, b"mode live"),
        ((24, 80), {"PYTHONIOENCODING": "ascii"}, b"mode plain"),
        ((1, 1), {"PYTHONIOENCODING": "latin-1"}, b"mode plain"),
    ],
)
def test_odd_terminals(size, changes, mode):
    """A real pseudo-terminal of every size and kind: the program always reaches its end."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, **changes},
    )
    os.close(follower)
    output, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            output += chunk
    os.close(leader)
    assert process.wait(timeout=60) == 0, output.decode(errors="replace")
    assert mode in output
    assert b"Traceback" not in output
