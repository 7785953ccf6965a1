"""The external verifier in processes that are killed when they do not answer."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import run_ok

from envs.math_reasoning import Pool, PoolError, Status, grade
from envs.math_reasoning.grading.nodes import Node, num
from envs.math_reasoning.grading.pool import default_pool
from envs.math_reasoning.grading.suspects import is_harmless, to_plain

X = Node("sym", (), "x")
#: Pairs that the rules leave open and the verifier decides.
OPEN = [("x", "tan(arctan(x))", True), ("\\ln(2+\\sqrt3)", "-\\ln(2-\\sqrt3)", True)]
#: Takes hours to build, and is never sent by ``verify``.
TOWER = ["pow", None, [["num", "9", []], ["pow", None, [["num", "9", []], ["num", "9", []]]]]]
HANG = {"gold": ["fact", None, [["num", "1000000000", []]]], "answer": TOWER}


def power(base, exponent):
    return Node("pow", (base, exponent))


@pytest.fixture(scope="module")
def pool():
    with Pool(workers=2) as made:
        made.start()
        yield made


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# What is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "harmless"),
    [
        (power(X, num(3)), True),
        (power(num(2), X), True),
        (power(num(9), power(num(9), num(9))), False),
        (power(X, num(10**6)), False),
        (Node("fact", (num(5),)), True),
        (Node("fact", (num(10**6),)), False),
        (Node("fn", (num(10**9), num(5)), "binom"), False),
        (num(10**80), False),
        (Node("add", tuple(X for _ in range(300))), False),
        (Node("const", (), "inf"), False),
        (Node("tuple", (X, X), "()"), False),
    ],
)
def test_only_small_expressions_are_sent(node, harmless):
    assert is_harmless(node) is harmless


def test_an_expression_travels_as_a_tree():
    node = Node("add", (power(X, num(2)), num(1)))
    assert to_plain(node) == [
        "add",
        None,
        [["pow", None, [["sym", "x", []], ["num", "2", []]]], ["num", "1", []]],
    ]


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="workers"):
        Pool(workers=0)
    with pytest.raises(ValueError, match="timeout"):
        Pool(timeout=0)


# What comes back ---------------------------------------------------------------------------------


@pytest.mark.mathverify
@pytest.mark.parametrize(("gold", "candidate", "expected"), OPEN)
def test_what_the_rules_leave_open(pool, gold, candidate, expected):
    assert grade(candidate, gold, verifier="none").status is Status.UNDECIDED
    verdict = grade(candidate, gold, verifier=pool)
    assert (verdict.correct, verdict.status, verdict.via) == (expected, Status.OK, "math-verify")


@pytest.mark.mathverify
def test_a_hanging_request_is_killed_and_the_next_is_answered():
    with Pool(workers=1, timeout=0.5) as pool:
        pool.start()
        for _ in range(3):
            start = time.monotonic()
            assert pool.request(HANG).status is Status.TIMEOUT
            assert time.monotonic() - start < 20  # not the hours it would take
            assert grade("tan(arctan(x))", "x", verifier=pool).status in (Status.OK, Status.TIMEOUT)
        pool.timeout = 60.0
        assert grade("tan(arctan(x))", "x", verifier=pool).correct


@pytest.mark.mathverify
def test_killed_workers_are_gone():
    with Pool(workers=1, timeout=0.3) as pool:
        pool.start()
        worker = pool._places.get()
        pool._places.put(worker)
        assert alive(worker.pid)
        assert pool.request(HANG).status is Status.TIMEOUT
        assert not alive(worker.pid)


@pytest.mark.mathverify
def test_a_worker_that_dies_is_typed_and_replaced():
    with Pool(workers=1, timeout=60.0) as pool:
        pool.start()
        worker = pool._places.get()
        pool._places.put(worker)
        os.kill(worker.pid, signal.SIGKILL)
        assert grade("tan(arctan(x))", "x", verifier=pool).status is Status.DIED
        assert grade("tan(arctan(x))", "x", verifier=pool).correct


@pytest.mark.mathverify
def test_a_zygote_that_dies_is_replaced():
    with Pool(workers=1, timeout=60.0) as pool:
        pool.start()
        pool._process.kill()
        pool._process.wait()
        grade("tan(arctan(x))", "x", verifier=pool)
        worker = pool._places.get()
        if worker is not None:
            pool._discard(worker)
        pool._places.put(None)
        assert grade("tan(arctan(x))", "x", verifier=pool).correct


@pytest.mark.mathverify
def test_a_failure_inside_the_verifier_is_undecided(pool):
    assert pool.request({"gold": ["oops", None, []], "answer": TOWER}).status is Status.UNDECIDED


@pytest.mark.mathverify
def test_closing_ends_the_processes():
    pool = Pool(workers=2)
    pool.start()
    pids = [pool._process.pid, *(pool._places.queue[i].pid for i in range(2))]
    pool.close()
    for pid in pids:
        for _ in range(200):
            if not alive(pid):
                break
            time.sleep(0.05)
        assert not alive(pid)
    with pytest.raises(PoolError, match="closed"):
        pool.verify(X, X)


# Where it is called from -------------------------------------------------------------------------


@pytest.mark.mathverify
def test_threads(pool):
    pairs = OPEN * 8
    with ThreadPoolExecutor(8) as threads:
        verdicts = list(threads.map(lambda p: grade(p[1], p[0], verifier=pool), pairs))
    assert [v.correct or v.status is Status.TIMEOUT for v in verdicts] == [True] * len(pairs)
    assert any(v.correct for v in verdicts)


@pytest.mark.mathverify
def test_asyncio(pool):
    async def several():
        inside = grade(OPEN[0][1], OPEN[0][0], verifier=pool)
        others = [asyncio.to_thread(grade, c, g, verifier=pool) for g, c, _ in OPEN]
        return [inside, *await asyncio.gather(*others)]

    assert all(v.status in (Status.OK, Status.TIMEOUT) for v in asyncio.run(several()))


@pytest.mark.mathverify
def test_signals_of_the_caller_are_left_alone():
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGCHLD)}
    signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        with Pool(workers=1, timeout=0.3) as pool:
            pool.request(HANG)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left <= 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert before == {number: signal.getsignal(number) for number in before}


@pytest.mark.mathverify
def test_no_thread_is_started():
    before = threading.active_count()
    with Pool(workers=1, timeout=60.0) as pool:
        grade("tan(arctan(x))", "x", verifier=pool)
        assert threading.active_count() == before


@pytest.mark.mathverify
def test_a_forked_child_gets_processes_of_its_own():
    code = """
import os, sys
from envs.math_reasoning import grade, warm_up
from envs.math_reasoning.grading import pool
assert warm_up()
parent = pool.default_pool()._process.pid
child = os.fork()
if child == 0:
    pool.default_pool().timeout = 60.0
    ok = grade("tan(arctan(x))", "x").correct and pool.default_pool()._process.pid != parent
    pool.default_pool().close()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
pool.default_pool().timeout = 60.0
assert grade("tan(arctan(x))", "x").correct
assert pool.default_pool()._process.pid == parent
print(os.waitstatus_to_exitcode(status))
"""
    assert run_ok(code) == "0"


@pytest.mark.mathverify
def test_the_verifier_is_not_imported_here():
    code = """
import sys
from envs.math_reasoning import grade, warm_up
warm_up()
grade("tan(arctan(x))", "x")
print(sorted({"sympy", "math_verify", "gmpy2", "mpmath"} & set(sys.modules)))
"""
    assert run_ok(code) == "[]"


def test_without_math_verify_the_rules_decide_alone(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("envs.math_reasoning.grading.pool._shared", None)
    assert default_pool() is None
    assert grade("\\frac{1}{2}", "0.5").correct
    assert grade("tan(arctan(x))", "x").status is Status.UNDECIDED


def test_a_verifier_that_does_not_start_is_said_once(monkeypatch):
    pool = Pool(workers=1)
    pool.close()
    monkeypatch.setattr("envs.math_reasoning.grading.pool._unusable", False)
    with pytest.warns(UserWarning, match="without math-verify"):
        assert grade("tan(arctan(x))", "x", verifier=pool).status is Status.UNDECIDED
    assert grade("tan(arctan(x))", "x", verifier=pool).status is Status.UNDECIDED
