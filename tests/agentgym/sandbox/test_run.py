"""One-shot commands: how Python text behaves, what a result says, limits, descriptors, threads."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading

import pytest
from sandbox_backends import ALL

from agentgym.sandbox import (
    REPORT_FD,
    Limits,
    Result,
    SandboxError,
    Status,
    open_sandbox,
)


@pytest.fixture(scope="module", params=ALL)
def sandbox(request):
    with open_sandbox(request.param, limits=Limits(seconds=60.0)) as opened:
        yield opened


# Python text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "stdout", "exit_code"),
    [
        ("print(__name__)", "__main__\n", 0),
        ("import sys; print(sys.argv, sys.path[0] == __import__('os').getcwd())",
         "['<code>', 'a', 'b c'] True\n", 0),
        ("import sys; sys.exit(3)", "", 3),
        ("import sys; sys.exit()", "", 0),
        ("print('x'); raise SystemExit(True)", "x\n", 1),
        ("import os; print('lost'); os._exit(4)", "", 4),
        ("import os; print('kept', flush=True); os._exit(0)", "kept\n", 0),
        ("import atexit; atexit.register(print, 'end'); print('begin')", "begin\nend\n", 0),
        ("import threading, time\n"
         "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", "late\n", 0),
        ("class A:\n    def __del__(self): pass\nprint([A for _ in range(2)] and 'ok')", "ok\n", 0),
        ("import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nprint(P(1))",
         "P(x=1)\n", 0),
        ("from __future__ import annotations\ndef f(x: Undefined): return x\nprint(f(2))",
         "2\n", 0),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
         "True\n", 0),
        ("print('agentgym' in __import__('sys').modules)", "False\n", 0),
        ("print({'a', 'b', 'c'} and hash('x') == hash('x'))", "True\n", 0),
        ("import subprocess\nprint(subprocess.run(['echo', 'hi'], capture_output=True).stdout)",
         "b'hi\\n'\n", 0),
        ("print(input(), input())", "one two\n", 0),
        ("import sys; print(sys.stdin.buffer.read())", "b'one\\ntwo\\n'\n", 0),
        ("import helper, sub.inner; print(helper.x, sub.inner.y)", "1 2\n", 0),
        ("import os; print(sorted(os.listdir('.')), os.environ['GREETING'])",
         "['helper.py', 'sub'] hello\n", 0),
        ("import random, os\nfirst = random.random()\nprint(0 <= first < 1)", "True\n", 0),
    ],
)  # fmt: skip
def test_text_behaves_as_a_file_would(sandbox, code, stdout, exit_code):
    result = sandbox.run(
        code,
        args=["a", "b c"],
        files={"helper.py": "x = 1", "sub/inner.py": b"y = 2"},
        stdin="one\ntwo\n",
        env={"GREETING": "hello"},
    )
    assert (result.stdout, result.exit_code) == (stdout, exit_code), result
    assert result.status == ("ok" if exit_code == 0 else "error")


def test_a_traceback_begins_at_the_code(sandbox):
    result = sandbox.run("def f():\n    return 1 / 0\nf()")
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1:3] == ['  File "<code>", line 3, in <module>', "    f()"]
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert (result.status, result.exit_code) == ("error", 1)


def test_random_numbers_differ_between_runs(sandbox):
    drawn = {sandbox.run("import random; print(random.random())").stdout for _ in range(3)}
    assert len(drawn) == 3


# Results ----------------------------------------------------------------------------------------


def test_commands(sandbox):
    result = sandbox.run(argv=["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)
    missing = sandbox.run(argv=["/no/such/program"])
    assert (missing.exit_code, missing.status) == (127, Status.ERROR)
    assert "No such file" in missing.stderr
    killed = sandbox.run(argv=["sh", "-c", "kill -9 $$"])
    assert (killed.status, killed.signal, killed.exit_code) == (Status.KILLED, 9, None)
    assert "SIGKILL" in killed.message


def test_a_deadline_names_itself(sandbox):
    result = sandbox.run("print('begun', flush=True)\nwhile True: pass", limits=Limits(seconds=1))
    assert (result.status, result.deadline, result.exit_code) == ("timeout", "command", None)
    assert result.stdout == "begun\n"
    assert result.message == "killed after 1 s (command deadline)"


def test_head_and_tail_are_kept(sandbox):
    result = sandbox.run("for i in range(100_000): print(i)", limits=Limits(output=100, seconds=60))
    total = sum(len(str(i)) + 1 for i in range(100_000))
    assert result.stdout.startswith("0\n1\n2\n")
    assert result.stdout.endswith("99998\n99999\n")
    assert f"[... {total - 100} bytes left out ...]" in result.stdout
    assert (result.truncated, result.stdout_bytes, result.status) == (True, total, "ok")


def test_no_character_is_cut_in_two(sandbox):
    result = sandbox.run("print('é' * 1000, end='')", limits=Limits(output=101, seconds=60))
    assert set(result.stdout) - set("\n[.]0123456789 bytesleftoutngi") == {"é"}


def test_out_of_memory(sandbox):
    result = sandbox.run("x = bytearray(1 << 40)")
    assert (result.status, result.ok) == (Status.MEMORY, False)


def test_the_same_question_gives_the_same_answer(sandbox):
    code = "print(list({'a', 'b', 'c', 'd'}), hash('text'))"
    assert sandbox.run(code).stdout == sandbox.run(code).stdout


# Descriptors ------------------------------------------------------------------------------------


def test_the_report_is_apart_from_the_output(sandbox):
    code = f"import os; print('said'); os.write({REPORT_FD}, b'told')"
    result = sandbox.run(code, report=True)
    assert (result.stdout, result.report) == ("said\n", b"told")
    assert sandbox.run("import os\nos.write(3, b'x')").status is Status.ERROR
    long = sandbox.run("import os\nfor _ in range(40): os.write(3, bytes(65536))", report=True)
    assert (long.status, len(long.report)) == (Status.OK, 1 << 20)
    code = "import os\nfor _ in range(40): os.write(3, bytes(65536))"
    longer = sandbox.run(code, report=True, limits=Limits(report=2 << 20))
    assert len(longer.report) == 2 << 20


def test_children_do_not_inherit_the_report(sandbox):
    code = """
import subprocess, sys
done = subprocess.run(["sh", "-c", "echo forged >&3"], capture_output=True)
print(done.returncode != 0)
"""
    result = sandbox.run(code, report=True)
    assert (result.stdout, result.report) == ("True\n", b"")


def test_a_conversation_over_a_socket(sandbox):
    ours, theirs = socket.socketpair()
    code = """
import socket
with socket.socket(fileno=5) as judge:
    for line in judge.makefile():
        judge.sendall(f"{int(line) ** 2}\\n".encode())
"""
    answers = []

    def judge():
        lines = ours.makefile()
        for number in (2, 3, 12):
            ours.sendall(f"{number}\n".encode())
            answers.append(int(lines.readline()))
        ours.shutdown(socket.SHUT_WR)

    asking = threading.Thread(target=judge)
    asking.start()
    with ours, theirs:
        result = sandbox.run(code, pass_fds={5: theirs.fileno()})
        theirs.close()
        asking.join(60)
    assert (result.status, answers) == (Status.OK, [4, 9, 144]), result


# Arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either code or argv"),
        ({"code": "1", "argv": ["x"]}, "either code or argv"),
        ({"argv": "ls -l"}, "argv must be a list"),
        ({"argv": []}, "must name a program"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": [1]}, "str"),
        ({"code": "1", "files": {"../x": ""}}, "relative paths"),
        ({"code": "1", "files": {"/etc/x": ""}}, "relative paths"),
        ({"code": "1", "files": {"a": "", "a/b": ""}}, "as a file and as a folder"),
        ({"code": "1", "files": {"a": 1}}, "str or bytes"),
        ({"code": "1", "env": {"A=B": "x"}}, "names"),
        ({"code": "1", "env": {"A": 1}}, "env"),
        ({"code": "1", "pass_fds": {1: 0}}, "numbers from 3"),
        ({"code": "1", "pass_fds": {3: 0}, "report": True}, "numbers from 4"),
        ({"code": "1", "pass_fds": {3: -1}}, "open descriptor"),
        ({"code": "1", "pass_fds": {3: 99_999}}, "descriptor cannot be passed"),
    ],
)
def test_wrong_arguments_are_named(sandbox, arguments, message):
    with pytest.raises(SandboxError, match=message):
        sandbox.run(**arguments)
    assert sandbox.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize(
    "changes",
    [{"seconds": 0}, {"seconds": float("inf")}, {"memory": 1}, {"output": 1}, {"processes": 0},
     {"cpu_seconds": 0}, {"address_space": -1}, {"disk": 1.5}, {"open_files": 3}],
)  # fmt: skip
def test_wrong_limits_are_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        Limits(**changes)


def test_lone_surrogates_do_no_harm(sandbox):
    assert sandbox.run("print('\ud800')").stdout == "?\n"
    assert sandbox.run("import sys; print(sys.stdin.read())", stdin="\ud800").stdout == "?\n"


# Threads and event loops ------------------------------------------------------------------------


def test_threads(sandbox):
    results: list[Result] = []

    def work(number):
        results.append(sandbox.run(f"print({number})"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(int(result.stdout) for result in results) == list(range(6))


def test_event_loop(sandbox):
    async def play():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        results = await asyncio.gather(*(sandbox.arun(f"print({i})") for i in range(3)))
        ticking.cancel()
        return [result.stdout for result in results], ticks

    stdout, ticks = asyncio.run(play())
    assert stdout == ["0\n", "1\n", "2\n"]
    assert ticks > 0


def test_a_cancelled_call_kills_its_command(sandbox):
    reader, writer = os.pipe()

    async def play():
        task = asyncio.create_task(
            sandbox.arun("import os, time\nos.write(4, b'x')\ntime.sleep(600)",
                         pass_fds={4: writer}, limits=Limits(seconds=600.0))
        )  # fmt: skip
        await asyncio.to_thread(os.read, reader, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(play())
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody holds the other end any more
    os.close(reader)


def test_no_signal_is_touched_in_the_caller(sandbox):
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    assert sandbox.run("1", limits=Limits(seconds=60)).ok
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
