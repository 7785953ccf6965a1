"""Every number a run may log: name, unit and meaning.

``metrics.jsonl`` is documented by this table, and a name that is not in it is refused, so that a
typing error does not become a silent second column. ``python -m trainers.metrics`` prints the table
as Markdown.
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from agentgym.info import StopReason
from trainers.advantages import Phase

__all__ = [
    "METRICS",
    "Metric",
    "MetricError",
    "MetricValue",
    "check_metrics",
    "describe",
    "describe_eval",
    "format_metric",
    "format_number",
    "markdown_table",
    "register_metrics",
]

MetricValue = int | float | bool | str
Kind = Literal["number", "count", "flag", "text"]

# What may stand for a placeholder; others take any path segment.
_PLACEHOLDERS = {
    "<reason>": "|".join(re.escape(str(reason)) for reason in StopReason),
    "<versions>": r"\d+",
    "<task_type>": r"[^/]+",
}
_SEGMENT = r"[A-Za-z0-9_.+-]+"


class MetricError(ValueError):
    """A metric that is not in the table, or a value that is not of its kind."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table.

    Attributes:
        name: As logged; parts in angle brackets stand for any name (``eval/<split>/<mode>/n``).
        label: Short heading for tables and charts.
        unit: ``fraction`` is shown as a percentage; ``""`` has none.
        description: One line.
        kind: What values are allowed. ``count`` is an integer, ``flag`` true or false.
        section: Heading it is listed under.
    """

    name: str
    label: str
    unit: str
    description: str
    kind: Kind = "number"
    section: str = "Other"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {self.kind!r}")
        if not re.fullmatch(r"[a-z0-9_]+(/([a-z0-9_]+|<[a-z_]+>))*", self.name):
            raise ValueError(
                f"a metric name is lower-case words joined by '/', with placeholders in angle "
                f"brackets, got {self.name!r}"
            )

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches the names this row covers."""
        parts = re.split(r"(<[a-z_]+>)", self.name)
        return re.compile(
            "".join(
                f"(?:{_PLACEHOLDERS.get(part, _SEGMENT)})" if part[:1] == "<" else re.escape(part)
                for part in parts
            )
        )


def _section(
    title: str, *rows: tuple[str, str, str, str] | tuple[str, str, str, str, Kind]
) -> tuple[Metric, ...]:
    return tuple(
        Metric(*row[:4], kind=row[4] if len(row) == 5 else "number", section=title) for row in rows
    )


METRICS: tuple[Metric, ...] = (
    *_section(
        "Progress",
        ("step", "step", "", "Learner steps done; 0 is the state before the first.", "count"),
        ("phase", "phase", "", "Who gives the advantages: `group` or `single` (critic).", "text"),
        ("switch_step", "switch", "step", "Step after which the critic took over.", "count"),
        ("forced", "forced", "", "The switch came from its step limit, not its criterion.", "flag"),
        ("fallbacks", "fallbacks", "", "Times the gate went back to groups.", "count"),
        ("trajectories", "trajectories", "since start", "Episodes the learner took in.", "count"),
        ("action_tokens", "action tokens", "since start", "Tokens sampled in them.", "count"),
        ("prompt_tokens", "prompt tokens", "since start", "Tokens read in them.", "count"),
        ("batch_trajectories", "batch", "", "Episodes in this step.", "count"),
        ("batch_action_tokens", "batch tokens", "", "Tokens sampled in this step.", "count"),
        ("weight_version", "version", "", "Weight version published after the step.", "count"),
    ),
    *_section(
        "Outcome of the step's episodes",
        ("reward_mean", "reward", "", "Mean undiscounted return."),
        ("reward_std", "reward sd", "", "Standard deviation of the returns."),
        ("success_rate", "success", "fraction", "Episodes that solved their task."),
        ("score_mean", "score", "", "Mean final score in [0, 1]."),
        ("turns_mean", "turns", "turns", "Mean number of actions in an episode."),
        ("tokens_per_turn", "tokens/turn", "tokens", "Mean sampled tokens of an action."),
        ("invalid_action_rate", "invalid", "fraction", "Turns whose action was inadmissible."),
        ("format_error_rate", "format err", "fraction", "Turns whose text had the wrong form."),
        ("truncated_frac", "truncated", "fraction", "Episodes cut off before their end."),
        ("stop/<reason>", "stop", "fraction", "Episodes that ended for this reason."),
        ("success/<task_type>", "success", "fraction", "Success on tasks of one type."),
    ),
    *_section(
        "Credit",
        ("frac_zero_variance", "zero var", "fraction", "Groups whose returns are all equal."),
        ("groups", "groups", "", "Groups in this step.", "count"),
        ("groups_dropped", "groups dropped", "", "Groups left out of this step.", "count"),
        ("adv_mean", "adv mean", "", "Mean advantage over action tokens."),
        ("adv_rms", "adv RMS", "", "Root mean square of the advantages over action tokens."),
        ("baseline_b", "b", "reward", "Level subtracted from single rollouts' returns."),
    ),
    *_section(
        "Guidance (G2RPO-A)",
        ("guidance_length", "guidance", "", "Tokens or turns asked to be given.", "count"),
        ("guided_frac", "guided", "fraction", "Episodes that began with something given."),
        ("given_mean", "given", "", "Mean tokens or turns given to these."),
        ("success_guided", "success guided", "fraction", "Guided episodes that were solved."),
        ("success_unguided", "success free", "fraction", "Other episodes that were solved."),
    ),
    *_section(
        "Step-level credit",
        ("rows", "rows", "", "Decisions in this step, each with an advantage of its own.", "count"),
        ("situations", "situations", "", "Different situations among them.", "count"),
        ("singleton_rows", "singletons", "fraction", "Rows whose situation occurred once."),
        ("local_active", "local on", "fraction", "Rows with a local (step) term."),
        ("progress_active", "progress on", "fraction", "Rows with a progress term."),
        ("adv_episode_rms", "A episode", "", "Root mean square of the episode term over rows."),
        ("adv_step_rms", "A step", "", "Of what is added to it, before omega."),
        ("adv_progress_rms", "A progress", "", "Of the progress term, over its active rows."),
        ("shareable_rows", "shareable", "fraction", "Rows that other tasks may learn from."),
        ("memory_written", "written", "", "Effects written into the memory.", "count"),
        ("memory_cells", "cells", "", "Cells of the memory.", "count"),
        ("memory_states", "states", "", "States of progress in it.", "count"),
        ("memory_evicted", "evicted", "since start", "Cells forgotten.", "count"),
    ),
    *_section(
        "Policy update",
        ("loss_policy", "policy loss", "", "Policy loss, all its terms."),
        ("loss_kl", "KL loss", "", "Its KL term, coefficient included."),
        ("entropy", "entropy", "nats", "Mean entropy of the next-token distribution."),
        ("kl_k1", "KL k1", "nats", "Mean log pi - log pi_ref."),
        ("kl_k2", "KL k2", "nats", "Mean half square of the log ratio to the reference."),
        ("kl_k3", "KL k3", "nats", "Mean x - 1 - log x with x = pi_ref / pi."),
        ("ratio_mean", "ratio", "", "Mean importance ratio of learner to sampler."),
        ("ratio_min", "ratio min", "", "Smallest importance ratio."),
        ("ratio_max", "ratio max", "", "Largest importance ratio."),
        ("clip_frac", "clipped", "fraction", "Action tokens whose ratio was clipped."),
        ("dis_rejected_low", "DIS low", "fraction", "Action tokens rejected below the band."),
        ("dis_rejected_high", "DIS high", "fraction", "Action tokens rejected above the band."),
        ("dis_rejected_nonfinite", "DIS bad", "fraction", "Rejected for a non-finite ratio."),
        ("is_weight_mean", "IS weight", "", "Mean weight that corrects the sampler's mismatch."),
        ("is_rejected", "IS cut", "fraction", "Action tokens whose correction was cut or masked."),
        ("logp_diff_max", "logp diff", "nats", "Largest |learner - sampler| before the update."),
        ("logp_diff_mean", "logp diff mean", "nats", "Mean |learner - sampler| before the update."),
        ("parity_max", "parity max", "nats", "Largest |learner - engine| on a fixed text."),
        ("parity_mean", "parity", "nats", "Mean |learner - engine| on it, under new weights."),
        ("grad_norm_actor", "grad actor", "", "Gradient norm of the policy before clipping."),
        ("lr_actor", "lr actor", "", "Learning rate of the policy."),
        ("updates_skipped", "skipped", "", "Updates not taken: gradient not finite.", "count"),
    ),
    *_section(
        "Critic",
        ("loss_value", "value loss", "", "Critic loss, mean of its K updates."),
        ("grad_norm_critic", "grad critic", "", "Gradient norm of the critic before clipping."),
        ("lr_critic", "lr critic", "", "Learning rate of the critic."),
        ("value_mean", "V mean", "reward", "Mean value before the update."),
        ("target_mean", "target mean", "reward", "Mean critic target."),
        ("explained_variance", "expl. var.", "", "1 - Var(y - V) / Var(y), before the update."),
        ("explained_variance_mse", "expl. var. mse", "", "1 - mean (y - V)^2 / Var(y), likewise."),
    ),
    *_section(
        "Gate",
        ("skill_raw", "S", "", "Critic's skill against the group baseline, before the update."),
        ("skill_ema", "S EMA", "", "Its moving average, which decides the switch."),
        ("skill_turn_start", "S turn start", "", "Skill at the first token of each turn."),
        ("gate_streak", "streak", "steps", "Consecutive steps beyond the threshold.", "count"),
    ),
    *_section(
        "Asynchrony",
        ("staleness_mean", "stale mean", "versions", "Mean age of the episodes' oldest token."),
        ("staleness_max", "stale max", "versions", "Largest age of an episode's oldest token."),
        ("staleness/<versions>", "stale", "fraction", "Episodes whose oldest token is this old."),
        ("dropped_stale", "dropped stale", "", "Episodes dropped as too old.", "count"),
        ("dropped_infra", "dropped infra", "", "Episodes lost to faults.", "count"),
        ("in_flight", "in flight", "", "Episodes under way when the step began.", "count"),
    ),
    *_section(
        "Time and size",
        ("env_s", "env", "s", "In environments, summed over concurrent episodes."),
        ("generate_s", "generate", "s", "Sampling episodes, environments included."),
        ("learn_s", "learn", "s", "Credit, losses and optimiser steps."),
        ("sync_s", "sync", "s", "Publishing weights."),
        ("eval_s", "eval", "s", "Evaluating."),
        ("checkpoint_s", "checkpoint", "s", "Writing the checkpoint before this step."),
        ("wait_s", "wait", "s", "Learner waiting for episodes."),
        ("step_s", "s/step", "s", "Whole step."),
        ("tokens_per_s", "tokens/s", "tokens/s", "Action tokens sampled in a second of sampling."),
        ("elapsed_s", "elapsed", "s since start", "Wall clock of the steps, evaluations left out."),
        ("cpu_s", "CPU", "s since start", "Process CPU time of the steps, likewise."),
        ("max_rss_mb", "memory", "MB", "Largest resident memory of the process."),
    ),
    *_section(
        "Supervised training",
        ("loss_sft", "SFT loss", "nats", "Weighted cross-entropy per token."),
        ("action_accuracy", "accuracy", "fraction", "Action tokens predicted exactly."),
        ("demonstrations", "demos", "since start", "Demonstrations seen.", "count"),
    ),
    *_section(
        "Evaluation (mode: `sampled`, `greedy`, or a baseline such as `rule`, `oracle`)",
        ("eval/<split>/<mode>/success", "success", "fraction", "Episodes that solved their task."),
        (
            "eval/<split>/<mode>/success/<type>",
            "<type>",
            "fraction",
            "Episodes of one type of task that solved it.",
        ),
        ("eval/<split>/<mode>/score", "score", "", "Mean final score in [0, 1]."),
        ("eval/<split>/<mode>/score_se", "score SE", "", "Standard error of the mean score."),
        ("eval/<split>/<mode>/reward", "reward", "", "Mean undiscounted return."),
        ("eval/<split>/<mode>/turns", "turns", "turns", "Mean number of actions."),
        (
            "eval/<split>/<mode>/turns_solved",
            "turns, solved",
            "turns",
            "Mean number of actions in episodes that solved their task.",
        ),
        (
            "eval/<split>/<mode>/invalid_rate",
            "invalid",
            "fraction",
            "Turns whose action was inadmissible.",
        ),
        (
            "eval/<split>/<mode>/format_error_rate",
            "format err",
            "fraction",
            "Turns whose text had the wrong form.",
        ),
        ("eval/<split>/<mode>/truncated_frac", "truncated", "fraction", "Episodes cut off."),
        (
            "eval/<split>/<mode>/first_result_share",
            "first result",
            "fraction",
            "Purchases of the first search result, of all purchases.",
        ),
        ("eval/<split>/<mode>/n", "episodes", "", "Episodes evaluated.", "count"),
    ),
)

_extra: list[Metric] = []


def register_metrics(*metrics: Metric) -> None:
    """Add rows to the table, for algorithms that log numbers of their own.

    Registering the same row again changes nothing.

    Raises:
        ValueError: The name already stands for something else.
    """
    for metric in metrics:
        known = next((m for m in _table() if m.name == metric.name), None)
        if known is None:
            _extra.append(metric)
        elif known != metric:
            raise ValueError(f"metric {metric.name!r} already stands for {known.description!r}")


def describe(name: str) -> Metric:
    """Find the row that covers a logged name.

    Raises:
        MetricError: No row does; the message names the closest ones.
    """
    for metric in _table():
        if metric.name == name or ("<" in metric.name and metric.pattern.fullmatch(name)):
            return metric
    names = [metric.name for metric in _table()]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise MetricError(
        f"unknown metric {name!r}{hint} (the table is in trainers/metrics.py; "
        "register_metrics adds to it)"
    )


def describe_eval(name: str) -> tuple[str, str, str] | None:
    """Split ``eval/<split>/<mode>/<quantity>``; None for any other name."""
    parts = name.split("/")
    return (parts[1], parts[2], parts[3]) if len(parts) == 4 and parts[0] == "eval" else None


def check_metrics(metrics: Mapping[str, Any]) -> dict[str, MetricValue]:
    """Verify names and values, and turn the values into plain Python ones.

    NumPy scalars and one-element tensors become Python numbers. None means undefined and is left
    out. Non-finite numbers are allowed: they are what one wants to see in a log.

    Raises:
        MetricError: Unknown name, or a value that is not of the metric's kind.
    """
    clean: dict[str, MetricValue] = {}
    for name, value in metrics.items():
        metric = describe(name)
        if value is not None:
            clean[name] = _as_kind(metric, name, value)
    return clean


def format_metric(name: str, value: MetricValue | None, digits: int = 4) -> str:
    """A value for a person to read: ``43.1%``, ``12,800``, ``0.03125``, ``yes``; ``-`` for None."""
    metric = describe(name)
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if metric.kind == "flag":
        return "yes" if value else "no"
    if metric.kind == "count":
        return f"{value:,}"
    if metric.unit == "fraction" and math.isfinite(value):
        return f"{100 * value:.1f}%"
    return format_number(value, digits)


def format_number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits and no trailing zeros."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 < exponent < max(digits, 6):
        text = f"{value:.{max(digits - 1 - exponent, 0)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(power)}"


def markdown_table() -> str:
    """Markdown of the whole table, a heading and a table for each section."""
    blocks = []
    for section in dict.fromkeys(metric.section for metric in _table()):
        rows = [
            f"| `{m.name}` | {m.unit or '-'} | {m.description.replace('|', chr(92) + '|')} |"
            for m in _table()
            if m.section == section
        ]
        head = [f"### {section}", "", "| name | unit | meaning |", "|---|---|---|"]
        blocks.append("\n".join([*head, *rows]))
    return "\n\n".join(blocks) + "\n"


def _table() -> Iterable[Metric]:
    return (*METRICS, *_extra)


def _as_kind(metric: Metric, name: str, value: Any) -> MetricValue:
    if hasattr(value, "item") and getattr(value, "shape", None) in ((), (1,)):
        value = value.item()
    if metric.kind == "text":
        if not isinstance(value, str):
            raise MetricError(f"metric {name!r} is a text, got {value!r}")
        if name == "phase" and value not in get_args(Phase):
            raise MetricError(f"phase must be one of {get_args(Phase)}, got {value!r}")
        return str(value)
    if not isinstance(value, numbers.Real):
        raise MetricError(
            f"metric {name!r} must be a number, got {value!r} ({type(value).__name__})"
        )
    if metric.kind == "flag":
        if value not in (0, 1):
            raise MetricError(f"metric {name!r} must be true or false, got {value!r}")
        return bool(value)
    if isinstance(value, numbers.Integral):
        return operator.index(value)
    number = float(value)
    if metric.kind == "count":
        if not number.is_integer():
            raise MetricError(f"metric {name!r} is a count, got {value!r}")
        return int(number)
    return number


if __name__ == "__main__":
    print(markdown_table(), end="")
