"""Code that would rather be paid than be right. Each attempt scores 0, and is told apart.

The expected value is a number that no computation leads to: whoever returns it has read it. Each
attempt is made twice, against tests by value and against tests that are code.
"""

from __future__ import annotations

import pytest
from code_judging import LIMITS, made

from envs.code_reasoning.scoring import Status

SECRET = 918_273_645_546
BY_VALUE = [{"args": [1], "expected": SECRET}, {"args": [2], "expected": [SECRET]}]
#: ``sorted`` keeps these from being read as tests by value.
BY_CODE = [f"assert f(1) == {SECRET}", f"assert sorted(f(2)) == [{SECRET}]"]

#: Code that looks for the secret; ``found(text)`` takes whatever may hold it.
SEARCH = """
import re
def found(text):
    match = re.search(r"91827364554[6]", text if isinstance(text, str) else repr(text))
    return int(match[0]) if match else None
def f(x):
    value = look()
    return value if x == 1 or value is None else [value]
"""

ATTEMPTS = {
    # Leaving early.
    "sys.exit at import": ("import sys\nsys.exit(0)", {"early_exit"}),
    "sys.exit in the function": ("import sys\ndef f(x): sys.exit(0)", {"early_exit"}),
    "os._exit": ("import os\ndef f(x): os._exit(0)", {"early_exit"}),
    "os._exit at import": ("import os\nos._exit(0)", {"early_exit"}),
    "raise SystemExit": ("def f(x): raise SystemExit(0)", {"early_exit"}),
    "raise KeyboardInterrupt": ("def f(x): raise KeyboardInterrupt", {"early_exit"}),
    "exec another program": (
        "import os\ndef f(x): os.execv('/bin/true', ['true'])", {"early_exit"}),
    "exit in an own exception's text": (
        "import os\nclass E(Exception):\n    def __str__(self): os._exit(0)\n"
        "def f(x): raise E", {"early_exit"}),
    "kill itself": ("import os\ndef f(x): os.kill(os.getpid(), 9)", {"killed", "memory"}),
    "kill everything": ("import os\ndef f(x): os.kill(-1, 9)", None),
    # Values that agree with everything.
    "always equal": (
        "class A:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "def f(x): return A()", {"not_plain"}),
    "always equal by its class": (
        "class M(type):\n    def __eq__(cls, other): return True\n    __hash__ = type.__hash__\n"
        "class A(metaclass=M): pass\ndef f(x): return A()", {"not_plain"}),
    "a subclass of int": (
        "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        "def f(x): return A(1)", {"not_plain"}),
    "a subclass of str": (
        "class A(str):\n    def __eq__(self, other): return True\n    __hash__ = str.__hash__\n"
        "def f(x): return A('a')", {"not_plain"}),
    "a subclass of list": (
        "class A(list):\n    def __eq__(self, other): return True\ndef f(x): return A()",
        {"not_plain"}),
    "a subclass of float": (
        "class A(float):\n    def __eq__(self, other): return True\n"
        "    __hash__ = float.__hash__\ndef f(x): return A(1.0)", {"not_plain"}),
    "a subclass of dict": (
        "class A(dict):\n    def __eq__(self, other): return True\ndef f(x): return A()",
        {"not_plain"}),
    "always equal inside a list": (
        "class A:\n    def __eq__(self, other): return True\ndef f(x): return [A()]",
        {"not_plain"}),
    "a false class": (
        "class A:\n    __class__ = property(lambda self: int)\n"
        "    def __eq__(self, other): return True\ndef f(x): return A()", {"not_plain"}),
    "a class named int": (
        "int = type('int', (), {'__eq__': lambda self, other: True})\n"
        "def f(x): return int()", {"not_plain"}),
    "a hash that collides": (
        "class A:\n    def __hash__(self): return hash(918273645546)\n"
        "    def __eq__(self, other): return True\ndef f(x): return {A()}", {"not_plain"}),
    # Patches.
    "patched builtins": (
        "import builtins\nbuiltins.type = lambda *a: int\nbuiltins.repr = lambda *a: 'ok'\n"
        "builtins.sorted = lambda *a, **k: []\nbuiltins.bool = lambda *a: True\n"
        "def f(x): return object()", None),
    "patched equality of json": (
        "import json\njson.dumps = lambda *a, **k: 'null'\njson.loads = lambda *a, **k: {}\n"
        "def f(x): return None", None),
    "patched harness": (
        "import sys\nfor name in [n for n in sys.modules if 'inside' in n] + ['__main__']:\n"
        "    module = sys.modules.get(name)\n"
        "    for key in list(vars(module) if module else ()):\n"
        "        if key in ('encode', 'failure', 'answer_to', 'dumps'):\n"
        "            setattr(module, key, lambda *a, **k: {'value': True})\n"
        "def f(x): return None", None),
    "patched assertions": (
        "import builtins, unittest\n"
        "class Quiet(Exception): pass\nbuiltins.AssertionError = Quiet\n"
        "unittest.TestCase.assertEqual = lambda *a: None\ndef f(x): return None", None),
    "import hook": (
        "import sys\nclass Hook:\n    def find_spec(self, name, path=None, target=None):\n"
        "        raise SystemExit(0)\nsys.meta_path.insert(0, Hook())\n"
        "sys.modules.pop('json', None)\ndef f(x): return None", None),
    "trace function": (
        "import sys\ndef trace(frame, event, arg):\n"
        "    for name in list(frame.f_locals):\n"
        "        if name in ('answer', 'problem'): frame.f_locals[name] = {'value': True}\n"
        "    return trace\nsys.settrace(trace)\ndef f(x): return None", None),
    "atexit": (
        "import atexit, os\natexit.register(lambda: os.write(3, b'{\"passed\": true}\\n'))\n"
        "def f(x): return None", None),
    "exit hook replaced": (
        "import os\nos._exit = lambda code: None\ndef f(x): return None", None),
    # Forged answers.
    "the token written": (
        "import gc, json, os\n"
        "def f(x):\n"
        "    for d in gc.get_objects():\n"
        "        if type(d) is dict and 'token' in d and 'names' in d:\n"
        "            for n in range(9):\n"
        "                line = {'token': d['token'], 'call': n, 'error': 'ok', 'passed': True,\n"
        "                        'status': 'ok', 'end': 'complete', 'value': True}\n"
        "                for fd in (3, 4):\n"
        "                    try: os.write(fd, json.dumps(line).encode() + b'\\n')\n"
        "                    except OSError: pass\n"
        "    os._exit(0)", None),
    "loaded with an error named ok": (
        "import gc, json, os\n"
        "for d in gc.get_objects():\n"
        "    if type(d) is dict and 'token' in d and 'names' in d:\n"
        "        line = {'token': d['token'], 'loaded': {'error': 'ok', 'name': 'ok'}}\n"
        "        for fd in (3, 4):\n"
        "            try: os.write(fd, json.dumps(line).encode() + b'\\n')\n"
        "            except OSError: pass\n"
        "os._exit(0)", {"forged"}),
    "verdicts on every descriptor": (
        "import os\n"
        "for fd in range(3, 64):\n"
        "    try: os.write(fd, b'{\"passed\": true, \"end\": \"complete\", \"calls\": 2}\\n' * 9)\n"
        "    except OSError: pass\ndef f(x): return None", None),
    "channel closed": (
        "import os\nos.closerange(3, 64)\ndef f(x): return None", None),
    # Reading what is expected.
    "the parent's memory": (
        SEARCH + "import os\ndef look():\n"
        "    for pid in [p for p in os.listdir('/proc') if p.isdigit()]:\n"
        "        for name in ('environ', 'cmdline', 'stat', 'maps'):\n"
        "            try:\n"
        "                value = found(open(f'/proc/{pid}/{name}', 'rb').read())\n"
        "                if value: return value\n"
        "            except OSError: pass\n"
        "        try:\n"
        "            memory = open(f'/proc/{pid}/mem', 'rb')\n"
        "            for line in open(f'/proc/{pid}/maps'):\n"
        "                start, end = (int(a, 16) for a in line.split()[0].split('-'))\n"
        "                if 'heap' in line or 'stack' in line:\n"
        "                    memory.seek(start)\n"
        "                    value = found(memory.read(end - start).decode('latin-1'))\n"
        "                    if value and pid != str(os.getpid()): return value\n"
        "        except OSError: pass\n", None),
    "descriptors": (
        SEARCH + "import os\ndef look():\n"
        "    os.set_blocking(0, False)\n"
        "    for fd in range(64):\n"
        "        try:\n"
        "            value = found(os.pread(fd, 1 << 20, 0).decode('latin-1'))\n"
        "            if value: return value\n"
        "        except (OSError, ValueError): pass\n", None),
    "frames": (
        SEARCH + "import sys\ndef look():\n"
        "    frame = sys._getframe()\n"
        "    while frame:\n"
        "        value = found({**frame.f_globals, **frame.f_locals})\n"
        "        if value: return value\n"
        "        frame = frame.f_back\n", None),
    "garbage collector": (
        SEARCH + "import gc\ndef look():\n"
        "    half, rest = '91827', '3645546'\n"  # the number itself would be found in this code
        "    for thing in gc.get_objects():\n"
        "        if type(thing) in (list, dict, tuple, set) and len(thing) < 10_000:\n"
        "            for v in list(thing.values() if type(thing) is dict else thing):\n"
        "                if type(v) is int and str(v) == half + rest: return v\n", None),
    "files": (
        SEARCH + "import os\ndef look():\n"
        "    system = 'proc sys usr lib lib32 lib64 opt bin sbin etc dev root'.split()\n"
        "    for top in ('/' + name for name in os.listdir('/') if name not in system):\n"
        "        for folder, _, names in os.walk(top):\n"
        "            for name in names[:200]:\n"
        "                try: value = found(open(os.path.join(folder, name)).read(1 << 20))\n"
        "                except (OSError, ValueError): continue\n"
        "                if value: return value\n", None),
    "a tracer": (
        SEARCH + "import ctypes, os\ndef look():\n"
        "    libc = ctypes.CDLL(None)\n"
        "    for pid in [int(p) for p in os.listdir('/proc') if p.isdigit()]:\n"
        "        if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0:\n"
        "            return 918273645546\n", None),
    # Using up what there is.
    "memory": ("def f(x): return [0] * 10**11", {"memory"}),
    "memory, slowly": (
        "def f(x):\n    kept = []\n    while True: kept.append(bytearray(10**7))", {"memory"}),
    "output": ("def f(x):\n    while True: print('x' * 10_000)", {"output"}),
    "recursion": ("def f(x): return f(x)", {"exception", "killed"}),
    "a deep value": (
        "def f(x):\n    v = []\n    for _ in range(100_000): v = [v]\n    return v",
        {"not_plain", "exception"}),
    "a value that holds itself": ("def f(x):\n    v = []\n    v.append(v)\n    return v",
                                  {"not_plain"}),
    "a long value": ("def f(x): return 'x' * 10**7", {"too_long"}),
    "a long number": ("def f(x): return 1 << 10**7", {"too_long"}),
    "colliding hashes": (
        "def f(x): return {k * (2**61 - 1) for k in range(1, 3000)}", {"wrong"}),
    "a thread that finishes later": (
        "import threading, time\ndef f(x):\n    out = []\n"
        "    def late():\n        time.sleep(0.05)\n        out.append(918273645546 - 1)\n"
        "    threading.Thread(target=late).start()\n    return out", {"wrong"}),
    "a generator": ("def f(x):\n    yield 1", {"not_plain"}),
    "a function as a value": ("def f(x): return f", {"not_plain"}),
    # No solution at all.
    "no function": ("g = 1", {"no_function"}),
    "no callable": ("f = 1", {"no_function"}),
    "syntax": ("def f(x) return 1", {"syntax"}),
    "a null byte": ("def f(x): return 1\0", {"syntax"}),
    "half a character": ("def f(x): return '\ud800'", {"syntax"}),
    "deep source": ("def f(x): return " + "(" * 5000 + "1" + ")" * 5000, {"syntax"}),
    "an exception": ("def f(x): return 1 / 0", {"exception"}),
    "an exception at import": ("raise ValueError('no')", {"exception"}),
    "a wrong value": ("def f(x): return 0", {"wrong"}),
}  # fmt: skip

KINDS = {"by value": BY_VALUE, "by code": BY_CODE}


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_value_passes(judge, kind):
    """What follows can fail for no other reason."""
    code = f"def f(x): return {SECRET} if x == 1 else [{SECRET}]"
    verdict = judge(code, KINDS[kind])
    assert (verdict.status, verdict.passed, verdict.total) == (Status.OK, 2, 2)
    assert bool(made(KINDS[kind]).checks) == (kind == "by code")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_it_scores_nothing(judge, name, kind):
    code, statuses = ATTEMPTS[name]
    verdict = judge(code, KINDS[kind])
    assert (verdict.passed, verdict.share) == (0, 0.0), verdict
    assert verdict.status is not Status.OK
    assert verdict.status is not Status.SANDBOX
    assert statuses is None or verdict.status in statuses, verdict


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    while True: pass",
        "import time\ndef f(x): time.sleep(1000)",
        "import threading\n"
        "def f(x):\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()",
        "import os\n"
        "def f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
    ],
    ids=["busy", "asleep", "locked", "forking"],
)
def test_what_never_ends_is_ended(judge, kind, code):
    verdict = judge(code, KINDS[kind], LIMITS.but(seconds=2.0, cpu_seconds=1))
    assert verdict.passed == 0
    assert verdict.status in (Status.TIMEOUT, Status.KILLED), verdict


def test_a_part_that_is_right_is_a_part(judge):
    tests = [{"args": [n], "expected": n} for n in range(8)]
    code = "def f(x):\n    if x == 5: raise ValueError(x)\n    return x if x != 6 else float(x)"
    verdict = judge(code, tests)
    assert (verdict.passed, verdict.total, verdict.status) == (6, 8, Status.EXCEPTION)
    assert verdict.counts == {"exception": 1, "ok": 6, "wrong": 1}
    assert verdict.exception == "ValueError"


def test_what_was_right_before_it_left_counts(judge):
    tests = [{"args": [n], "expected": n} for n in range(4)]
    verdict = judge("import os\ndef f(x):\n    if x == 2: os._exit(0)\n    return x", tests)
    assert verdict.counts == {"early_exit": 2, "ok": 2}
    assert verdict.status is Status.EARLY_EXIT


def test_an_own_exception_is_not_one_of_pythons(judge):
    tests = [{"args": [0], "raises": "ValueError"}]
    assert judge("def f(x): raise ValueError", tests).status is Status.OK
    assert judge("class ValueError(Exception): pass\ndef f(x): raise ValueError", tests).share == 0
    assert judge("def f(x): return 'ValueError'", tests).share == 0


def test_tokens_are_new_each_time(judge):
    """A solution that prints its token never prints the same twice."""
    code = (
        "import gc\ndef f(x):\n    for d in gc.get_objects():\n"
        "        if type(d) is dict and 'token' in d and 'names' in d: return d['token']"
    )
    seen = set()
    for digit in "0123456789abcdef":
        tests = [{"args": [1], "expected": digit}]
        first = f"{code}\ng = f\ndef f(x): return (g(x) or '?')[0]"
        seen.add(judge(first, tests).share)
    assert seen <= {0.0, 1.0}
    assert judge(code, [{"args": [1], "expected": None}]).share == 0, "the token is found"
