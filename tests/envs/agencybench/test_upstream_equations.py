"""Code/1, 6 and 7: equations that fit, that do not, that look the data up, and that break out."""

from __future__ import annotations

import json

import numpy as np
import pytest

from agentgym.sandbox import Snapshot, shared_sandbox
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import State, Task, World
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.files import read_observations, read_seed
from envs.agencybench.upstream.policies import Seed
from envs.agencybench.upstream.sections import Sections

HEAD = "import numpy as np\n\ndef equation(t, A, params):\n"
SEED = HEAD + "    return params[0] * t + params[1] * A + params[2]\n"
RIGHT = (
    HEAD + "    # saturation, with a mixed decay\n"
    "    fast = params[0] * A / (1.0 + params[1] ** 2 * A) * np.exp(-params[2] * t)\n"
    "    return fast + params[3] * t\n"
)
WORDS = "Parameter zero is the rate, one the saturation and two the decay of the pathway; " * 3


def rate(t, concentration):
    return 0.7 * concentration / (1 + 0.3 * concentration) * np.exp(-0.2 * t) + 0.05 * t


@pytest.fixture(scope="module")
def gold():
    draws = np.random.default_rng(1)
    made = {"names": ["t", "A"]}
    for name, count, reach in (("train", 300, 4.0), ("test", 60, 4.0), ("ood", 40, 6.0)):
        t, a = draws.uniform(0, reach, count), draws.uniform(0, 2 * reach, count)
        made[name] = np.stack([rate(t, a), t, a], axis=1).tolist()
    return made


def handed_in(number, text):
    return {
        "equation.py": text,
        f"logs/subtask{number}_evaluate.txt": "MSE: 1e-09",
        f"docs/subtask{number}_rationale.md": WORDS,
    }


def scored(name, number, files, gold):
    task = Task(
        f"subtask{number}", "q", "", "", checks_for(name, number, Sections("q", "", "", ""))
    )
    content = {path: text.encode() for path, text in files.items()}
    seed = {"equation.py": SEED.encode(), "workspace/equation.py": SEED.encode()}
    world = World(seed, gold)
    return assess(task, Assessment(Snapshot(content), world, shared_sandbox(), "k"))


@pytest.mark.parametrize("number", range(1, 6))
def test_the_right_equation(gold, number):
    made = scored("Code/scenario1", number, handed_in(number, RIGHT), gold)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.9)
    assert made.results[-1].state is State.SKIPPED


def test_the_ladder_and_what_is_missing(gold):
    files = handed_in(1, RIGHT)
    del files["docs/subtask1_rationale.md"]
    made = scored("Code/scenario1", 1, files, gold)
    assert made.results[0].value == 0.5
    assert "rationale" in made.results[0].observed
    del files["logs/subtask1_evaluate.txt"]
    assert scored("Code/scenario1", 5, files, gold).results[0].value == 0.0
    linear = scored("Code/scenario1", 2, handed_in(2, SEED.replace("params[2]", "params[3]")), gold)
    assert linear.results[0].value == 0.0


def test_an_empty_workspace_and_the_one_at_the_start(gold):
    for number in range(1, 6):
        assert scored("Code/scenario1", number, {}, gold).score == 0.0
        # The equation at the start may fit well; each thing that is lacking takes five points.
        parts = ("train", "test", "ood")
        line = gold | {part: [[0.5 * t + a, t, a] for _, t, a in gold[part]] for part in parts}
        assert scored("Code/scenario1", number, {"equation.py": SEED}, line).score == 0.0
        if number == 1:
            done = scored("Code/scenario1", 1, handed_in(1, SEED), line)
            assert [r.value for r in done.results[:2]] == [0.5, 0.0]
            assert scored("Code/scenario1", 1, handed_in(1, SEED + "# a line\n"), line).score == 1.0
    for name in ("Code/scenario6", "Code/scenario7"):
        assert scored(name, 1, {}, gold).score == 0.0
        assert scored(name, 1, {"workspace/equation.py": SEED}, gold).score <= 0.05


CHEATS = {
    "a module that reads": "import os\n" + RIGHT,
    "a table of what was observed": HEAD + f"    return np.array({list(range(300))})\n",
    "a wider table": HEAD + "    x = '" + "0" * 17_000 + "'\n    return t\n",
    "the file of results": HEAD + "    return np.loadtxt('/box/outputs.txt')\n",
    "a reader of its callers": HEAD
    + "    f = np.f2py.sys._getframe(1)\n    return f.f_locals['outputs']\n",
    "the observations of the fit": HEAD
    + "    rows = np.array(np.f2py.sys.modules['__main__'].PAYLOAD['train'])\n"
    + "    order = np.argsort(rows[:, 1])\n"
    + "    return np.interp(t, rows[order, 1], rows[order, 0])\n",
    "a frame of a generator": HEAD
    + "    frame = (0 for _ in ()).gi_frame\n    return frame.f_back.f_locals['train']\n",
    "a module by another way": "from numpy import f2py as helper\n" + RIGHT,
    "a module under its name": "import numpy.f2py as helper\n" + RIGHT,
    "a name in a text": HEAD + "    return t * len('{0.__globals__}'.format(equation))\n",
    "knots of a spline": HEAD
    + f"    y = [{', '.join(str(n / 7) for n in range(60))}]\n"
    + "    return np.interp(t, np.linspace(0, 4, 60), y) * A\n",
    "knots in a text": HEAD
    + f"    y = [ord(c) for c in '{'abcdefgh' * 60}']\n"
    + "    return np.interp(t, np.linspace(0, 4, 480), y) * A\n",
    "a report of its own": HEAD + "    np.testing.os.write(3, b'{}')\n    return t\n",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats(gold, cheat):
    """What is known of the outputs inside is of no help with those that are compared outside."""
    made = scored("Code/scenario1", 1, handed_in(1, CHEATS[cheat]), gold)
    assert made.score <= 0.3
    assert not made.error, made.as_json()


@pytest.mark.parametrize("number", range(1, 6))
def test_what_bounds_may_stand_in_a_helper(gold, number):
    text = (
        "import numpy as np\n\n\ndef _damp(x, k):\n    # bounded away from zero\n"
        "    return x / (1.0 + k**2 * x)\n\n\n"
        "def equation(t: np.ndarray, A: np.ndarray, params: np.ndarray) -> np.ndarray:\n"
        f'    """{"A rate that saturates. " * 20}"""\n'
        "    core = 2.0 ** (-params[2] * t)\n"
        "    return params[0] * _damp(A, params[1]) * core + params[3] * t\n"
    )
    made = scored("Code/scenario1", number, handed_in(number, text), gold)
    assert made.score == 1.0, made.as_json()
    if number == 4:
        loose = text.replace(" / (1.0 + k**2 * x)", " * (1.0 + k**2 * x)")
        made = scored("Code/scenario1", number, handed_in(number, loose), gold)
        assert "damps" in made.results[0].observed


@pytest.mark.parametrize("loss", ["NaN", "Infinity", "-1", "1" + "0" * 400, "true", '"1e-9"'])
def test_a_loss_that_is_none(gold, loss):
    files = {"workspace/equation.py": RIGHT, "subtask1_result.json":
             f'{{"loss": {loss}, "equation": "A/(1+A)", "comment": "saturation"}}'}  # fmt: skip
    made = scored("Code/scenario6", 1, files, gold)
    assert [r.value for r in made.results[:2]] == [1.0, 0.0], made.as_json()


def test_a_scenario_of_discovery(gold):
    result = {"loss": 1e-12, "equation": "A/(1+A)", "comment": "saturation"}
    place = "workspace/equation.py"
    files = {place: RIGHT, "workspace/subtask1_result.json": json.dumps(result)}
    made = scored("Code/scenario6", 1, files, gold)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.95)
    files[place] = SEED + "\n# another\n"
    boasted = scored("Code/scenario7", 1, files, gold)
    assert boasted.score <= 0.3
    assert [r.value for r in boasted.results[:2]] == [0.0, 0.0]


@pytest.mark.mathverify
def test_the_answers_are_read_and_taken_from_the_agents_files(tmp_path, gold):
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path / "scenario1" / "source"
    folder.mkdir(parents=True)
    row = {
        "symbols": [["dA_dt", "t", "A"]],
        "expression": ["secret"],
        "samples": [{"test": gold["test"], "ood_test": gold["ood"]}],
        "training_set": [gold["train"]],
    }
    parquet.write_table(pa.table(row), folder / "equation.parquet")
    assert read_observations(folder / "equation.parquet") == gold
    seed = Seed("source", drop_columns=frozenset({"expression", "samples"}))
    kept = read_seed(tmp_path / "scenario1", seed)["equation.parquet"]
    assert b"secret" not in kept
    assert parquet.read_table(pa.BufferReader(kept)).column_names == ["symbols", "training_set"]
