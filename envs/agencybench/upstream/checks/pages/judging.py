"""What is looked at in many tasks: texts, histories, rings, and the pace of changes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.agencybench.assessment import Unmet
from envs.agencybench.browser import need
from envs.agencybench.upstream.checks.pages.layout import box, near
from envs.agencybench.upstream.checks.pages.scenes import Step, act, number, see

__all__ = ["CHANGES", "QUIET", "Ring", "reads", "records", "spread", "watch"]

_ALIVE = "(e=>!!e&&((e.getAnimations&&e.getAnimations({subtree:true}).length>0)||"
_ALIVE += "getComputedStyle(e).animationName!=='none'))"


def reads(told: Any, wanted: str, what: str, *, whole: bool = True) -> None:
    """Whether a text reads as required; case, spaces and the form of an ellipsis are free.

    Raises:
        Unmet: If not.
    """

    def plain(text: str) -> str:
        return " ".join(text.replace("…", "...").split()).casefold()

    found = plain(str(told or ""))
    if found != plain(wanted) if whole else plain(wanted) not in found:
        raise Unmet(f"{what} reads {str(told)[:60]!r}; required: {wanted!r}")


def records(history: Any, wanted: Sequence[Sequence[str]], what: str) -> None:
    """Whether each entry of a history names what it must, in any form.

    Raises:
        Unmet: If not.
    """
    need(isinstance(history, list), f"{what} is no list")
    need(len(history) == len(wanted), f"{what} has {len(history)} entries, not {len(wanted)}")
    for place, (entry, words) in enumerate(zip(history, wanted, strict=True), 1):
        text = json.dumps(entry).casefold()
        for word in words:
            whole = rf"(?<![a-z0-9]){re.escape(word.casefold())}(?![a-z0-9])"
            need(
                re.search(whole, text) is not None,
                f"entry {place} of {what} does not name {word!r}",
            )


# Rings ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring around the latest thing.

    Attributes:
        element: Its selector.
        around: Selector of what it surrounds.
        size: Its width in pixels.
        within: Tolerance.
        inside: Its centre need only lie inside of what it surrounds.
        moves: It must be animated.
    """

    element: str
    around: str
    size: float
    within: float
    inside: bool = False
    moves: bool = True

    def look(self, label: str) -> Step:
        """See it."""
        one, other = json.dumps(self.element), json.dumps(self.around)
        return see(
            label,
            f"{{ring:box({one}),round:box({other}),wide:q({one})?q({one}).offsetWidth:0,"
            f"moves:{_ALIVE}(q({one}))}}",
        )

    def judge(self, facts: Mapping[str, Any]) -> None:
        """Whether it is of the right size, in the right place, and moves.

        Raises:
            Unmet: If not.
        """
        x, y, width, height = box(facts["ring"], self.element)
        # A ring that pulses by scaling has its size from the layout alone.
        size = min((width, facts["wide"] or width), key=lambda wide: abs(wide - self.size))
        near(size, self.size, self.within, f"width of {self.element}")
        left, top, wide, high = box(facts["round"], self.around)
        across, down = (wide / 2, high / 2) if self.inside else (6.0, 6.0)
        near(x + width / 2, left + wide / 2, across, f"centre of {self.element} across")
        near(y + height / 2, top + high / 2, down, f"centre of {self.element} down")
        need(facts["moves"] or not self.moves, f"{self.element} is not animated")


# Pace -------------------------------------------------------------------------------------------


def watch(element: str) -> Step:
    """Note when anything in an element changes."""
    return act(
        "window.__w&&window.__w.o.disconnect(),window.__w={t:[]},"
        "window.__w.o=new MutationObserver(()=>window.__w.t.push(performance.now())),"
        f"window.__w.o.observe(q({json.dumps(element)}),"
        "{subtree:true,childList:true,characterData:true,attributes:true})"
    )


CHANGES = "window.__w.t.slice(0,4000)"
QUIET = "window.__w.t.length>0&&performance.now()-window.__w.t[window.__w.t.length-1]>1200"


def spread(times: Any, count: int, apart: float, what: str) -> None:
    """Whether ``count`` changes came ``apart`` milliseconds from each other, by their times.

    Raises:
        Unmet: If they came faster, or there are fewer.
    """
    need(isinstance(times, list) and bool(times), f"nothing changed during {what}")
    moments = [number(time, "a time") for time in times]
    groups = 1
    last = moments[0]
    for moment in moments[1:]:
        if moment - last >= 0.5 * apart:
            groups, last = groups + 1, moment
    need(groups >= max(2, count - 1), f"{what} shows {groups} steps, not {count}")
    span = moments[-1] - moments[0]
    least = 0.85 * apart * (max(2, count) - 1)
    need(span >= least, f"{what} takes {span:.0f} ms for {count} steps {apart:g} ms apart")
