import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agentgym.info import StopReason
from trainers import metrics
from trainers.metrics import METRICS, Metric, MetricError, check_metrics, describe

_DOC = Path(__file__).parents[2] / "docs" / "runs.md"


def test_names_are_unique_and_described():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert metric.description.endswith("."), metric.name
        assert metric.label, metric.name


@pytest.mark.parametrize(
    "name",
    [
        "loss_policy",
        "stop/context_overflow",
        "eval/valid_seen/greedy/success",
        "eval/test/rule/first_result_share",
        "staleness/0",
        "success/pick and place",
    ],
)
def test_known_names(name):
    assert describe(name).pattern.fullmatch(name) or describe(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "loss_polciy",
        "stop/bored",
        "eval/test/greedy/sucess",
        "eval/test/success",
        "eval/test/greedy/success/x/y",
        "eval/<split>/<mode>/",
        "staleness/two",
        "",
    ],
)
def test_unknown_names_are_refused(name):
    with pytest.raises(MetricError, match="unknown metric"):
        describe(name)


def test_the_error_suggests_a_name():
    with pytest.raises(MetricError, match="did you mean 'loss_policy'"):
        check_metrics({"loss_polciy": 1.0})


def test_every_stop_reason_has_a_name():
    for reason in StopReason:
        assert describe(f"stop/{reason}").name == "stop/<reason>"


def test_values_become_plain():
    torch = pytest.importorskip("torch")
    row = check_metrics(
        {
            "entropy": np.float32(0.5),
            "loss_policy": torch.tensor(2.0),
            "loss_value": torch.tensor([3.0]),
            "trajectories": np.int64(2**60 + 1),
            "groups": 4.0,
            "forced": np.bool_(True),
            "phase": "group",
            "skill_raw": None,
            "ratio_max": math.inf,
        }
    )
    assert row == {
        "entropy": 0.5,
        "loss_policy": 2.0,
        "loss_value": 3.0,
        "trajectories": 2**60 + 1,
        "groups": 4,
        "forced": True,
        "phase": "group",
        "ratio_max": math.inf,
    }
    assert {type(value) for value in row.values()} == {float, int, bool, str}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("phase", "A"),
        ("phase", 1),
        ("trajectories", 1.5),
        ("trajectories", math.nan),
        ("forced", 2),
        ("entropy", "high"),
        ("entropy", [1.0]),
        ("entropy", np.ones(3)),
    ],
)
def test_values_of_the_wrong_kind_name_the_metric(name, value):
    with pytest.raises(MetricError, match=name):
        check_metrics({name: value})


def test_registering(monkeypatch):
    monkeypatch.setattr(metrics, "_extra", [])
    own = Metric("progress/<state>", "progress", "fraction", "Share of states reached.")
    metrics.register_metrics(own)
    metrics.register_metrics(own)
    assert check_metrics({"progress/kitchen": 0.5}) == {"progress/kitchen": 0.5}
    with pytest.raises(ValueError, match="already stands for"):
        metrics.register_metrics(Metric("entropy", "e", "", "Something else."))
    with pytest.raises(ValueError, match="lower-case"):
        Metric("Bad Name", "", "", "")


def test_the_documentation_holds_the_table():
    printed = subprocess.run(
        [sys.executable, "-m", "trainers.metrics"], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() in _DOC.read_text(), "paste the output of python -m trainers.metrics"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("success_rate", 0.4312, "43.1%"),
        ("success_rate", math.nan, "nan"),
        ("trajectories", 12800, "12,800"),
        ("forced", True, "yes"),
        ("phase", "single", "single"),
        ("entropy", 0.031254, "0.03125"),
        ("entropy", None, "-"),
        ("lr_actor", 1e-6, "1e-6"),
        ("tokens_per_s", 12345.6, "12346"),
        ("step_s", -0.5, "-0.5"),
        ("loss_value", 1.5e9, "1.5e9"),
        ("ratio_max", math.inf, "inf"),
        ("adv_mean", 0.0, "0"),
        ("turns_mean", 100, "100"),
    ],
)
def test_formatting(name, value, text):
    assert metrics.format_metric(name, value) == text
