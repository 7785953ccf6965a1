"""Loading tasks, tests that are code, and the published sets."""

from __future__ import annotations

import gzip
import json

import pytest
from code_judging import LIMITS

from agentgym.sources import DataError
from envs.code_reasoning.asserts import called_names, value_tests
from envs.code_reasoning.dataset import load
from envs.code_reasoning.scoring import Status, score

HUMANEVAL = {
    "task_id": "Own/0",
    "prompt": (
        'import math\n\n\ndef helper(x):\n    return x + 1\n\n\ndef area(r):\n    """Area."""\n'
    ),
    "entry_point": "area",
    "canonical_solution": "    return math.pi * r * r\n",
    "test": (
        "METADATA = {}\n\n\ndef check(candidate):\n    assert abs(candidate(1) - 3.14159) < 1e-3\n"
        "    for r in range(3):\n        assert candidate(r) == 3.141592653589793 * r * r\n"
        "    assert helper(1) == 2\n    assert True, 'fine'\n"
    ),
}
MBPP = {
    "task_id": 7,
    "prompt": "Write a function to add two numbers.",
    "code": "def add(a, b):\n    return a + b",
    "test_imports": [],
    "test_list": ["assert add(1, 2) == 3", "assert add([1], [2]) == [1, 2]"],
}
OWN = {
    "question": "Write `halve(x)`.",
    "entry_point": "halve",
    "tests": [
        {"args": [4], "expected": 2.0},
        {"args": [1], "expected": 0.5, "tolerance": 1e-9},
        {"args": ["a"], "raises": "TypeError"},
        {"args": [], "kwargs": {"x": 8}, "expected": 4.0},
    ],
    "solution": "def halve(x):\n    return x / 2",
    "type": "arithmetic",
}


def only(row):
    (task,) = load([row])["train"]
    return task


# Forms ------------------------------------------------------------------------------------------


def test_a_function_that_is_shown(judge):
    task = only(HUMANEVAL)
    assert (task.id, task.names) == ("Own/0", ("area",))
    assert "def area(r):" in task.question
    assert task.context.startswith("import math\n")
    assert "helper" in task.context
    assert task.head.startswith("def area(r):")
    assert task.reference == ("def area(r):", "    return math.pi * r * r")
    assert task.number == 3, "assertions that test nothing do not count"
    for code in (
        "\n".join(task.reference),
        "import math\ndef area(r): return math.pi * r ** 2",
        "return math.pi * r * r",  # the rest of the function
        "    return math.pi * r * r",
    ):
        verdict = judge(code, task)
        assert (verdict.status, verdict.total) == (Status.OK, 5), code
    assert judge("def area(r): return 3.14159", task).counts == {"ok": 2, "wrong": 3}


def test_a_described_function(judge):
    task = only(MBPP)
    assert (task.id, task.names, task.checks) == ("7", ("add",), "")
    assert "`add(a, b)`" in task.question
    assert "assert add(1, 2) == 3" in task.question
    assert MBPP["test_list"][1] not in task.question
    assert judge("def add(a, b): return a + b", task).passed == 2
    assert MBPP["test_list"][0] not in load([MBPP], examples=0)["train"][0].question


def test_rows_of_ones_own(judge):
    task = only(OWN)
    assert (task.id, task.type, task.question) == ("train-0", "arithmetic", "Write `halve(x)`.")
    assert judge("\n".join(task.reference), task).status is Status.OK
    verdict = judge("def halve(x): return int(x) // 2", task)
    assert verdict.counts == {"exception": 0, "wrong": 4} or verdict.passed < 2


def test_setup_runs_ahead_of_the_code(judge):
    row = OWN | {"setup": "import math", "tests": [{"args": [4], "expected": 2.0}]}
    assert judge("def halve(x): return math.sqrt(x)", only(row)).status is Status.OK


def test_a_function_named_like_a_builtin(judge):
    row = MBPP | {"code": "def sum(a, b): return a + b", "test_list": ["assert sum(1, 2) == 3"]}
    task = only(row)
    assert task.names == ("sum",)
    assert judge(row["code"], task).status is Status.OK


def test_files_and_splits(tmp_path):
    path = tmp_path / "test.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(MBPP).encode()))
    assert [task.id for task in load(path)["test"]] == ["7"]
    (tmp_path / "own.json").write_text(json.dumps([MBPP, OWN]))
    assert len(load(tmp_path / "own.json")["train"]) == 2
    with pytest.warns(UserWarning, match="1 rows repeat"):
        tasks = load({"train": [MBPP, OWN], "test": [MBPP]})
    assert [len(tasks[split]) for split in ("train", "validation", "test")] == [1, 0, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text", "row 1: expected a mapping"),
        ({"tests": []}, "no question"),
        ({"question": "q"}, "tests must be a list that is not empty, got None"),
        ({"question": "q", "tests": []}, "not empty"),
        ({"question": "q", "tests": [{"args": [1], "expected": 1}]}, "entry_point must name"),
        (OWN | {"tests": [{"args": 1, "expected": 1}]}, "list of args"),
        (OWN | {"tests": [{"args": [1]}]}, "either expected or raises"),
        (OWN | {"tests": [{"args": [1], "expects": 1}]}, r"keys \['expects'\]"),
        (OWN | {"tests": [{"args": [1], "expected": 1, "tolerance": -1}]}, "tolerance"),
        (OWN | {"tests": ["assert f(1)", {"args": [1], "expected": 1}]}, "all texts"),
        (MBPP | {"test_list": ["assert add(1"]}, "list of tests is no Python"),
        (MBPP | {"test_list": ["assert 1 == 1"]}, "call no function"),
        (MBPP | {"code": "def add("}, "solution is no Python"),
        (HUMANEVAL | {"entry_point": "a b"}, "entry_point must be a name"),
        (HUMANEVAL | {"test": ""}, "test must be Python text"),
        (HUMANEVAL | {"test": "def check("}, "the test is no Python"),
    ],
)
def test_rows_that_hold_no_task_are_named(row, message):
    with pytest.raises(DataError, match=message):
        load([row])


def test_an_id_stands_once():
    with pytest.raises(DataError, match=r"id '7' stands twice in split 'train'"):
        load([MBPP, MBPP | {"prompt": "other"}])


# Assertions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "checks",
    ["x = 3\nassert f(1) == x", "assert f(f(1)) == 1", "assert f(1) != 2", "assert f(1) in [1]",
     "assert g(1) == 1", "assert f(*a) == 1", "assert abs(f(1)) == 1", "for i in (1,):\n    pass",
     "assert f(1) == float('nan')", "assert f(1) == 1 == 1", "", "assert f(n) == 1"],
)  # fmt: skip
def test_what_is_not_simple_is_left_to_the_judge(checks):
    assert value_tests(checks, "f") is None


def test_simple_assertions():
    checks = "assert f(-1, (2,), k={3}) == {'a': [1.5, None]}\nassert f(0)\nassert not f(1)"
    one, two, three = value_tests(checks, "f")
    assert one.args == (-1, ["t", 2])
    assert one.kwargs == (("k", ["s", 3]),)
    assert one.expected == ["d", ["a", ["l", ["f", "1.5"], None]]]
    assert (one.compare, two.compare, three.compare) == ("equal", "true", "false")


def test_names_that_a_solution_has_to_define():
    checks = "import math\ny = math.sqrt(g(2))\nassert sorted(f(y)) == [h(1)]"
    assert called_names(checks, "def h(x): return x", "") == ("g", "f")


# Tests that are code ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tests", "code", "status"),
    [
        (["try:\n    f(0)\n    assert False\nexcept ZeroDivisionError:\n    pass"],
         "def f(x): return 1 / x", "ok"),
        (["try:\n    f(0)\n    assert False\nexcept ZeroDivisionError:\n    pass"],
         "def f(x): return 1", "wrong"),
        (["a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"], "def f(x): x.sort()", "ok"),
        (["a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"], "def f(x): return sorted(x)", "wrong"),
        (["a = {1: 2}\nf(a)\nassert a == {}"], "def f(x): x.clear()", "ok"),
        (["assert f(f(f(1))) == 4"], "def f(x): return x + 1", "ok"),
        (["assert [f(x) for x in range(50)] == list(range(50))"], "def f(x): return x", "ok"),
        (["assert f(1) is not None and f(2)[0] == 1"], "def f(x): return [1]", "ok"),
        (["assert f(1) == g(1)"], "def f(x): return x\ndef g(x): return x", "ok"),
        (["assert f(1) == g(1)"], "def f(x): return x", "no_function"),
        (["assert f(1) == 1 and boom()"], "def f(x): return x\ndef boom(): return 0", "wrong"),
        (["assert sum(f(x) for x in (1, 2)) == 3"], "def f(x): raise KeyError", "exception"),
        (["y = f(1)\nassert y + 1 == 2\nassert y == 1"], "def f(x): raise OSError", "exception"),
        (["import random\nassert f(random.random()) < 1"], "def f(x): return x", "ok"),
        (["assert f(1) < 2"], "def f(x): return 'a'", "wrong"),
    ],
)  # fmt: skip
def test_tests_run_as_they_are_written(judge, tests, code, status):
    from code_judging import made

    task = made(tests)
    assert task.checks
    verdict = judge(code, task)
    assert verdict.status == status, verdict
    assert (verdict.share == 1.0) == (status == "ok")


def test_tests_that_call_nothing_pass_nobody(sandbox):
    import dataclasses

    task = dataclasses.replace(only(HUMANEVAL), checks="def check(candidate):\n    assert 1 + 1\n")
    verdict = score(task, "\n".join(task.reference), sandbox, LIMITS)
    assert verdict.status is Status.WRONG


def test_tests_behind_a_break_count_as_failed(judge):
    from code_judging import made

    task = made(["assert f(1) == 1 and f(1)\ny = f(2)\nassert y + 1 == 3\nassert y == 2"])
    verdict = judge("def f(x):\n    if x == 2: raise ValueError\n    return x", task)
    assert (verdict.passed, verdict.total) == (1, 3)


# The published sets -----------------------------------------------------------------------------

SETS = {
    "humaneval": ("math/humaneval/HumanEval.jsonl.gz", 164),
    "mbpp": ("math/mbpp/sanitized-mbpp.json", 427),
}


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_every_reference_solution_passes(data_dir, sandbox, name):
    path, number = SETS[name]
    tasks = load(data_dir / path)["train"]
    assert len(tasks) == number
    failed = {}
    for task in tasks:
        verdict = score(task, "\n".join(task.reference), sandbox, LIMITS)
        if verdict.status is not Status.OK:
            failed[task.id] = verdict
    assert not failed


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "code",
    ["import sys\nsys.exit(0)", "def {name}(*a, **k): raise SystemExit",
     "class A:\n    def __eq__(self, o): return True\n    def __bool__(self): return True\n"
     "    __lt__ = __gt__ = __le__ = __ge__ = __eq__\n"
     "    def __sub__(self, o): return self\n    def __abs__(self): return self\n"
     "def {name}(*a, **k): return A()"],
    ids=["exit", "raise", "always equal"],
)  # fmt: skip
def test_no_task_pays_for_nothing(data_dir, sandbox, name, code):
    """A sample of the tasks, those with tests that are code among them."""
    tasks = load(data_dir / SETS[name][0])["train"]
    for task in [*tasks[::25], *[task for task in tasks if task.checks][::3]]:
        verdict = score(task, code.replace("{name}", task.names[0]), sandbox, LIMITS)
        assert (verdict.passed, verdict.share) == (0, 0.0), (task.id, verdict)


def test_many_threads_at_once(judge):
    """Solutions whose judge waits for a place still end, with the right verdicts."""
    from concurrent.futures import ThreadPoolExecutor

    from code_judging import made

    by_code = made(["assert sorted(f(3)) == [0, 1, 2]", "assert f(f(2)[1]) == [0]"])
    by_value = made([{"args": [2], "expected": [0, 1]}])
    right, wrong = "def f(x): return list(range(x))", "def f(x): return [x]"
    jobs = [(code, task) for code in (right, wrong) for task in (by_code, by_value)] * 6
    with ThreadPoolExecutor(12) as pool:
        verdicts = list(pool.map(lambda job: judge(*job), jobs))
    for (code, _), verdict in zip(jobs, verdicts, strict=True):
        assert (verdict.status is Status.OK) == (code == right), verdict
