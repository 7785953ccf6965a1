"""Tasks that a judge scores: by what was written, and for pages by how they look as well."""

from __future__ import annotations

from collections.abc import Callable

from envs.agencybench.assessment import Assessment, Missing, Unmet
from envs.agencybench.scenario import Check, Finding
from envs.agencybench.upstream.sections import Sections

__all__ = ["text_check", "text_checks", "vision_check", "workspace_text"]

_MOST_CHARS = 60_000
_MOST_OF_ONE = 12_000


def workspace_text(assessment: Assessment) -> str:
    """The workspace's texts one after the other, long ones and the rest cut.

    What was there at the start comes last, lest it leave no room for what was made.

    Raises:
        Unmet: If the workspace is empty.
    """
    parts, left = [], _MOST_CHARS
    start, files = assessment.world.files, assessment.files
    order = sorted(files, key=lambda path: (start.get(path) == files[path], path))
    for place, path in enumerate(order):
        if left <= 0:
            parts.append(f"[… {len(order) - place} more files left out]")
            break
        content = files[path]
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            text = "[no text]"
        cut = text[: min(_MOST_OF_ONE, left)]
        more = f"\n[… {len(text) - len(cut)} characters left out]" if len(cut) < len(text) else ""
        parts.append(f"--- {path} ({len(content)} bytes)\n{cut}{more}")
        left -= len(parts[-1]) + 1
    if not parts:
        raise Unmet("the workspace is empty")
    return "\n".join(parts)


def _text(sections: Sections) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        work = workspace_text(assessment)
        task = f"{sections.query}\n\nDeliverables:\n{sections.deliverables}"
        ruling = assessment.judge.text(task, sections.rubric, work)
        return Finding(ruling.score / 10, ruling.comment)

    return run


def _vision(sections: Sections) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        screens = assessment.judge.screens(assessment)
        if not screens:
            raise Missing("no screenshot could be taken")
        ruling = assessment.judge.vision(sections.query, sections.rubric, screens)
        return Finding(ruling.score / 10, ruling.comment)

    return run


def text_check(
    sections: Sections,
    weight: float,
    name: str = "judge",
    required: str = "a judge finds the task done",
) -> Check:
    """A text judge, with a weight among other checks."""
    return Check(name, weight, required, _text(sections), frozenset({"judge"}), "judge")


def vision_check(sections: Sections, weight: float) -> Check:
    """A vision judge of how a page looks, with a weight among other checks."""
    needs = frozenset({"vision", "browser"})
    return Check("vision", weight, "a judge of the page", _vision(sections), needs, "vision")


def text_checks(sections: Sections) -> tuple[Check, ...]:
    """One text judge."""
    return (text_check(sections, 1.0),)
