"""Research/scenario2: reports on basketball players, by the benchmark's ladders of keywords.

A ladder gives 0 without the right player, then 5, 8 and 10 of 10. As in the benchmark the facts
are found by words, which a wrong text may hold too; but who names every player identifies none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from envs.agencybench.assessment import Assessment, Unmet
from envs.agencybench.scenario import Check, Finding

__all__ = ["checks"]

_Test = Callable[[str], bool]


def _words(*alternatives: str) -> _Test:
    """One of the alternatives stands in the text; ``a&b`` needs both."""
    return lambda text: any(all(w in text for w in a.split("&")) for a in alternatives)


def _season(first: int) -> _Test:
    pattern = re.compile(rf"{first}\s*[\u2010-\u2015\u2212/-]?\s*(?:20)?{(first + 1) % 100:02d}\b")
    return lambda text: bool(pattern.search(text))


def _all(*tests: _Test) -> _Test:
    return lambda text: all(test(text) for test in tests)


@dataclass(frozen=True, slots=True)
class _Ladder:
    """A report: who it is about, and facts; ``core`` ones lost give 5, others 8."""

    player: str
    core: dict[str, _Test]
    rest: dict[str, _Test]
    lenient: bool = False  # one fact lost gives 8, more give 5, whichever they are


_STAR = _words("all-star", "all star")
# Others of that name stand in texts about the same players.
_RUSSELL = re.compile(r"d['’]angelo|(?<!bill )russell(?! westbrook)")
_LADDERS = {
    1: _Ladder(
        "paul george",
        {},
        {
            "season and honours": _all(
                _season(2018), _STAR, _words("all-defensive", "all defensive")
            ),
            "trade": _words("trade&shai", "trade&gilgeous-alexander"),
            "the namesake": _words("alexander&great"),
            "rookie team": _words("all-rookie", "all rookie"),
        },
        lenient=True,
    ),
    2: _Ladder(
        "james harden",
        {
            "most valuable player": _all(_words("mvp"), _season(2017)),
            "scoring titles": _words("scoring title", "scoring champion", "scoring leader"),
            "assists": _words(
                "assist title", "assists title", "assist leader", "assists leader",
                "led the league in assists", "assist champion",
            ),
        },
        {"who was traded": _words("simmons"), "his award": _words("rookie of the year", "roy")},
    ),
    3: _Ladder(
        "kevin durant",
        {
            "rookie award": _words("rookie of the year", "roy"),
            "scoring titles": _words("scoring&4", "scoring&four"),
            "most valuable player": lambda text: "mvp" in text
            and ("2014" in text or _season(2013)(text)),
            "finals": _words("finals mvp"),
        },
        {
            "who came in exchange": lambda text: bool(_RUSSELL.search(text)),
            "his selection": _STAR,
        },
    ),
    4: _Ladder(
        "klay thompson",
        {"the record": _words("14&three", "14&3-pointer"), "finals": _words("finals")},
        {
            "team mate": _words("wiggins"),
            "draft": _words(
                "#1", "number one", "number 1", "no. 1", "1st overall", "first overall",
                "first-overall",
            ),
            "college": _words("all-conference", "all-big 12", "kansas"),
            "average": _words("23", "22"),
        },
    ),
}  # fmt: skip


def _report(assessment: Assessment, number: int) -> str:
    names = [f"subtask{number}.md", f"Subtask{number}.md"]
    for folder in ("", "answers/", "workspace/", "workspace/answers/"):
        for name in names:
            if folder + name in assessment.files:
                return assessment.text(folder + name).lower()
    raise Unmet(f"there is no {names[0]}")


def _climb(number: int) -> Callable[[Assessment], Finding]:
    ladder = _LADDERS[number]

    def run(assessment: Assessment) -> Finding:
        text = _report(assessment, number)
        if ladder.player not in text:
            raise Unmet("it is about another player")
        if all(other.player in text for other in _LADDERS.values()):
            raise Unmet("it names every player and identifies none")
        core = [name for name, test in ladder.core.items() if not test(text)]
        rest = [name for name, test in ladder.rest.items() if not test(text)]
        if ladder.lenient:
            value = (1.0, 0.8)[len(rest)] if len(rest) < 2 else 0.5
        else:
            value = 0.5 if core else 0.8 if rest else 1.0
        lost = [*core, *rest]
        return Finding(value, f"not found: {', '.join(lost)}" if lost else "")

    return run


def _entries(assessment: Assessment) -> list[dict[str, Any]]:
    """The summary's entries: a list, under ``subtasks`` or alone, or one member for each task.

    The task names the file ``summary.json``, and the benchmark's script ``subtask_summary.json``.
    """
    folders = ("", "answers/", "workspace/", "workspace/answers/")
    names = [f"{folder}{name}" for name in ("summary.json", "subtask_summary.json")
             for folder in folders]  # fmt: skip
    value = assessment.json(next((name for name in names if name in assessment.files), names[0]))
    if isinstance(value, dict):
        listed = value.get("subtasks")
        value = listed if isinstance(listed, list | dict) else value
    if isinstance(value, dict):
        value = list(value.values())
    value = value if isinstance(value, list) else []
    entries = [
        e for e in value if isinstance(e, dict) and {"submitted_player", "ground_truth"} & e.keys()
    ]
    if len(entries) < len(_LADDERS):
        raise Unmet("it holds no four entries")
    return entries


def _names(entry: dict[str, Any], player: str) -> bool:
    """Whether an entry is of one player, by the whole name or the surname alone."""
    told = str(entry.get("submitted_player") or entry.get("ground_truth") or "").strip().lower()
    others = [ladder.player for ladder in _LADDERS.values() if ladder.player != player]
    own = player in told or told == player.split()[-1]
    return own and not any(other in told for other in others)


def _summary(assessment: Assessment) -> Finding:
    entries = _entries(assessment)
    players = [ladder.player for ladder in _LADDERS.values()]
    if not all(any(_names(entry, player) for entry in entries) for player in players):
        raise Unmet("a player is missing or another one is named")
    if not all(any(_names(entry, player) for player in players) for entry in entries):
        raise Unmet("an entry is of another player")
    notes = [entry.get("verification_notes", entry.get("conditions")) for entry in entries]
    flags = [entry.get("matches_criteria", entry.get("matches")) for entry in entries]
    if None in flags or not all(isinstance(note, list) for note in notes):
        return Finding(0.5, "flags or lists of conditions are missing")
    if any(flag is not True for flag in flags):
        return Finding(0.8, "a flag does not say that the player matches")
    told = all(note and all(isinstance(n, str) and n.strip() for n in note) for note in notes)
    return Finding(1.0) if told else Finding(0.8, "conditions are empty")


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    run = _summary if number == 5 else _climb(number)
    required = "the summary" if number == 5 else "the right player, with every fact asked for"
    return (Check("ladder", 1.0, required, run, kind="file"),)
