"""The comparison of kinds of guidance can fail, and prints what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.guidance import difference, main, table, verdict
from trainers.run_dir import RunDir

KEY = "eval/test/sampled/success"


def write(folder: Path, before: float, after: float) -> Path:
    run = RunDir.create(folder, "g2rpoa", {"env": "MathReasoning-v0"}, total_steps=3)
    for step, value in enumerate((before, (before + after) / 2, (before + 2 * after) / 3, after)):
        row = dict.fromkeys((KEY, KEY.replace("sampled", "greedy")), value)
        row |= {name.replace("success", "n"): 100 for name in row}
        done = {"trajectories": 64 * step, "action_tokens": 640 * step} if step else {}
        free = {"success_unguided": 0.25, "frac_zero_variance": 0.5} if step else {}
        run.log_metrics(step, {**row, **done, **free})
    run.close("finished")
    return folder


@pytest.mark.parametrize(
    ("adaptive", "none", "better"),
    [
        ([0.5, 0.6, 0.55], [0.1, 0.2, 0.15], True),
        ([0.1, 0.2, 0.15], [0.5, 0.6, 0.55], False),
        ([0.5, 0.6, 0.55], [0.5, 0.6, 0.55], False),
        ([0.9, 0.1, 0.5], [0.1, 0.2, 0.1], False),  # on average better, and it may be chance
        ([0.9], [0.1], False),  # one pair tells nothing
    ],
)
def test_the_verdict_is_that_of_the_interval(adaptive, none, better) -> None:
    assert verdict(adaptive, none) is better


def test_differences_are_paired() -> None:
    mean, low, high = difference([0.2, 0.5, 0.8], [0.1, 0.4, 0.7])
    assert (mean, low, high) == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize(("gain", "status"), [(0.3, 0), (-0.01, 1)])
def test_the_command_fails_where_guidance_does_not_help(
    gain, status, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished runs are taken as they are, so nothing is trained here."""
    for seed, base in enumerate((0.2, 0.25, 0.3)):
        write(tmp_path / f"none-{seed}", 0.05, base)
        write(tmp_path / f"fixed-{seed}", 0.05, base + 0.05)
        write(tmp_path / f"adaptive-{seed}", 0.05, base + gain + seed / 1000)
    assert main(["--out", str(tmp_path), "--seeds", "0", "1", "2"]) == status
    said = capsys.readouterr().out
    assert f"adaptive - none, sampled: {100 * gain + 0.1:+.1f} points" in said
    assert "fixed - none, greedy: +5.0 points [+5.0, +5.0], 3 pairs" in said
    assert "free rollouts 25.0%, groups without a signal 50.0%" in said
    picture = (tmp_path / "comparison.svg").read_text()
    for kind in ("adaptive", "fixed", "none"):
        assert f"{kind} (3 seeds)" in picture
    found = {kind: [tmp_path / f"{kind}-0"] for kind in ("adaptive", "none")}
    assert table(found, "sampled")[0].startswith("adaptive  sampled: 5.0% -> ")
