"""From a workspace to a score: every check of a task, weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym.sandbox import SandboxError, Snapshot
from envs.agencybench.assessment import Assessment, Missing, Unmet
from envs.agencybench.scenario import Check, Finding, State, Task

__all__ = ["CheckResult", "Verdict", "assess", "protect", "turn_down"]

_LONGEST_OBSERVED = 600


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check and how it came out."""

    id: str
    weight: float
    kind: str
    required: str
    state: State
    value: float | None
    observed: str

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "id": self.id,
            "weight": self.weight,
            "kind": self.kind,
            "state": str(self.state),
            "value": self.value,
            "observed": self.observed,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of a task.

    Attributes:
        results: In the order of the task's checks.
    """

    results: tuple[CheckResult, ...]

    @property
    def weight(self) -> float:
        """Weight of all checks."""
        return sum(result.weight for result in self.results)

    @property
    def evaluated(self) -> float:
        """Weight of those that have a value."""
        return sum(result.weight for result in self.results if result.value is not None)

    @property
    def coverage(self) -> float:
        """Share of the weight that has a value."""
        return self.evaluated / self.weight if self.weight else 0.0

    @property
    def error(self) -> bool:
        """The assessor failed at a check: a share of the score is nobody's."""
        return any(result.state is State.ERROR for result in self.results)

    @property
    def score_strict(self) -> float:
        """Weighted mean, checks without a value counted as 0."""
        earned = sum(result.weight * (result.value or 0.0) for result in self.results)
        return _unit(earned / self.weight) if self.weight else 0.0

    @property
    def score(self) -> float | None:
        """Weighted mean of the checks that have a value; None where none has."""
        if not self.evaluated:
            return None
        earned = sum(result.weight * (result.value or 0.0) for result in self.results)
        return _unit(earned / self.evaluated)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "score": self.score,
            "score_strict": self.score_strict,
            "coverage": round(self.coverage, 9),
            "error": self.error,
            "checks": [result.as_json() for result in self.results],
        }


def _unit(value: float) -> float:
    # Weights such as 0.3 do not sum to 1 exactly; scores are told in billionths.
    return min(1.0, max(0.0, round(value, 9)))


def assess(task: Task, assessment: Assessment) -> Verdict:
    """Run every check of ``task``; a check that goes wrong is an error and never a score."""
    return Verdict(tuple(_run(check, assessment) for check in task.checks))


def turn_down(task: Task, observed: str) -> Verdict:
    """The verdict on a workspace that cannot be looked at: every check fails."""
    return Verdict(tuple(_result(check, Finding(0.0, observed)) for check in task.checks))


def _run(check: Check, assessment: Assessment) -> CheckResult:
    lacking = check.needs - assessment.abilities
    if lacking:
        found = Finding(None, f"needs {', '.join(sorted(lacking))}", "skipped")
    else:
        try:
            found = check.run(assessment)
        except Unmet as unmet:
            found = Finding(0.0, str(unmet))
        except Missing as missing:
            found = Finding(None, str(missing), "skipped")
        except RecursionError:  # checks go no deeper than what they are given
            found = Finding(0.0, "what was handed in is nested too deeply")
        except SandboxError as error:
            found = Finding(None, f"the sandbox failed: {error}", "error")
        except Exception as error:
            found = Finding(None, f"the check failed: {type(error).__name__}: {error}", "error")
    return _result(check, found)


def _result(check: Check, found: Finding) -> CheckResult:
    observed = found.observed
    if len(observed) > _LONGEST_OBSERVED:
        observed = f"{observed[:_LONGEST_OBSERVED]} […]"
    return CheckResult(
        check.id, check.weight, check.kind, check.required, found.state, found.value, observed
    )


def protect(snapshot: Snapshot, task: Task, pristine: Mapping[str, bytes]) -> Snapshot:
    """The snapshot with the task's protected files as they were; links in their place go."""
    if not task.protected:
        return snapshot
    files = dict(snapshot.files)
    for path in task.protected:
        # What the agent put in place of a parent folder would be in the way.
        parts = path.split("/")
        for depth in range(1, len(parts)):
            files.pop("/".join(parts[:depth]), None)
        files = {name: data for name, data in files.items() if not name.startswith(f"{path}/")}
        files[path] = pristine[path]
    folders = tuple(folder for folder in snapshot.folders if folder not in task.protected)
    skipped = {p: why for p, why in snapshot.skipped.items() if p not in task.protected}
    return Snapshot(files, folders, snapshot.executable, skipped)
