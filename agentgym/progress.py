"""How far an episode has come, in a few words: what step-level credit compares across tasks.

A :class:`ProgressAbstraction` watches one episode. It names the state before each action and the
kind of each action, coarsely enough that other tasks come through the same states. BLPO keeps a
memory over these names; the environments never compute them, and the algorithm never reads them.

Environments register their own (``EnvSpec.abstractions``); :class:`GenericProgress` serves any
other text environment, also a third party's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Protocol

from agentgym.info import Info
from agentgym.registry import EnvSpec, load
from agentgym.seats import EnvironmentFault
from agentgym.trajectory import Turn

__all__ = [
    "GENERIC",
    "INADMISSIBLE",
    "MALFORMED",
    "GenericProgress",
    "ProgressAbstraction",
    "ProgressWatch",
    "canonical_text",
    "content_words",
    "context_key",
    "make_progress",
]

#: Name of the abstraction that every environment has.
GENERIC = "generic"
#: What the abstraction of a malformed or inadmissible action is called, everywhere.
MALFORMED, INADMISSIBLE = "malformed", "inadmissible"


class ProgressAbstraction(Protocol):
    """Follows one episode after another; used by one episode at a time.

    The collector calls ``reset``, then for each action ``state`` and ``context`` before it is
    sent, and ``abstract``, ``shareable`` and ``update`` once its fate is known. States and
    contexts depend on what was seen and done before the action, and on nothing later.
    """

    def reset(self, observation: str, info: Info) -> None:
        """Begin an episode with the first observation."""
        ...

    def state(self) -> str:
        """Name of the state now."""
        ...

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """Kind of an action taken in the state now.

        Args:
            action: What was sent to the environment.
            format_ok: The model's text had the right form.
            admissible: The environment accepted the action.
        """
        ...

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """Take in what the environment answered."""
        ...

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Whether other tasks may learn from this kind of action in this state."""
        ...

    def context(self, observation: str) -> str:
        """Name of the concrete situation, the same in every run: a unit of evidence."""
        ...


def make_progress(
    entry: EnvSpec, preset: str, max_steps: int | None = None
) -> Callable[[], ProgressAbstraction]:
    """A function that makes abstractions of a preset.

    Args:
        entry: The environment.
        preset: One of its presets, or ``generic``. Where an environment registers none, any of
            the usual names (``paper``, ``compact``) stands for ``generic``; where it registers
            others, for the first of those.
        max_steps: Step limit of an episode, or None.

    Raises:
        ValueError: If there is no such preset; the message lists those that exist.
        ImportError: If something it needs is not installed.
    """
    known = dict(entry.abstractions)
    if preset not in known and preset in ("paper", "compact"):
        preset = next(iter(known), GENERIC)
    if preset != GENERIC and preset not in known:
        raise ValueError(
            f"{entry.id} has no progress abstraction {preset!r}; it has "
            f"{', '.join([*known, GENERIC])}"
        )
    kind = GenericProgress if preset not in known else load(known[preset], entry.extra)
    return lambda: kind(entry.id, max_steps)


class ProgressWatch:
    """Runs an abstraction along one episode and writes what it says on the turns.

    Args:
        make: Makes the abstraction; None watches nothing.
        observation: The first observation.
        info: The environment's first info.

    Raises:
        EnvironmentFault: From here on, if the abstraction fails on what it is shown.
    """

    def __init__(
        self, make: Callable[[], ProgressAbstraction] | None, observation: str, info: Info
    ) -> None:
        self._progress = None if make is None else make()
        with _its_own_fault():
            if self._progress is not None:
                self._progress.reset(observation, info)

    def took(self, turn: Turn, observation: str, info: Info) -> None:
        """Annotate a turn whose outcome is known.

        Args:
            turn: The turn.
            observation: What the environment answered.
            info: Its info after the action.
        """
        progress = self._progress
        if progress is None:
            return
        with _its_own_fault():
            # The abstraction has not heard of the outcome: this is the state before the action.
            turn.state = progress.state()
            turn.context_key = progress.context(turn.observation)
            turn.abstract_action = progress.abstract(turn.action, turn.format_ok, turn.action_valid)
            turn.shareable = progress.shareable(turn.state, turn.abstract_action)
            progress.update(turn.action, turn.action_valid, observation, turn.reward, info)


@contextlib.contextmanager
def _its_own_fault() -> Iterator[None]:
    """An abstraction that chokes on a text ends that episode alone."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(f"the progress abstraction failed: {error!r}") from error


def canonical_text(text: str) -> str:
    """Text by which actions are compared: NFKC, small letters, single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def context_key(*parts: str) -> str:
    """A short name of a concrete situation, the same in every process."""
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).hexdigest()


_WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")
_STOP_WORDS = """
a an and are as at be but by can do find for from get give go how i if in into is it its me more my
need not of off on one or out please put should some than that the their them then there these they
this to two under use want was we what where which will with you your
"""
_STOP = frozenset(_STOP_WORDS.split())


def content_words(text: str) -> frozenset[str]:
    """Words of a text that say what it is about: small letters, no stop words or single letters."""
    words = _WORD.findall(canonical_text(text))
    return frozenset(word for word in words if len(word) > 1 and word not in _STOP)


# Any environment ---------------------------------------------------------------------------------

_VERB = re.compile(r"[a-z][a-z_]{0,29}(?![\w.])")
# A call is closed, or opens the text; "open <door>" is a pattern that an environment lists.
_CALL = re.compile(r"\A<([a-z][a-z0-9_]{0,30})>|<([a-z][a-z0-9_]{0,30})>(?=[^<]*</\2>)")


class GenericProgress:
    """Progress in an environment that nothing is known of.

    State: kind of task, how many steps were rewarded or raised the score (0, 1, 2, 3+), how many
    of the observations were new (below 1/2, to 9/10, above), how many steps in a row changed
    nothing (0, 1, 2+), and the third of the step limit. Action: its verb (a verb that the
    environment has never listed is ``other``; where it lists none, any word is one) and whether
    its arguments name something the task names, or ``repeat`` where the same was tried at the
    same observation.

    An inadmissible action changes the last two parts of the state alone.

    Args:
        env_id: The environment.
        max_steps: Step limit of an episode; None leaves the third out.
    """

    def __init__(self, env_id: str, max_steps: int | None = None) -> None:
        self.env_id, self.max_steps = env_id, max_steps

    def reset(self, observation: str, info: Info) -> None:
        """See :class:`ProgressAbstraction`."""
        self._task = info.get("task_id", "")
        self._kind = info.get("task_type", "default")
        self._goal = content_words(info.get("goal", "") or observation)
        self._observation = observation
        self._seen = {observation}
        self._observed = 1
        self._tried: set[tuple[str, str]] = set()
        self._verbs: set[str] = set()
        self._score = float(info.get("score", 0.0))
        self._gains = self._idle = self._steps = 0
        self._note_verbs(info)

    def state(self) -> str:
        """See :class:`ProgressAbstraction`."""
        share = len(self._seen) / self._observed
        news = "few" if share < 0.5 else "most" if share <= 0.9 else "all"
        parts = [
            self.env_id,
            self._kind,
            f"gains={_bucket(self._gains, 3)}",
            f"new={news}",
            f"idle={_bucket(self._idle, 2)}",
        ]
        if self.max_steps:
            third = min(3 * self._steps // self.max_steps, 2)
            parts.append(f"phase={('early', 'middle', 'late')[third]}")
        return " ".join(parts)

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        """See :class:`ProgressAbstraction`."""
        if not format_ok:
            return MALFORMED
        if not admissible:
            return INADMISSIBLE
        verb, rest = _verb_of(action)
        if self._verbs and verb not in self._verbs:
            verb = "other"
        if (self._observation, canonical_text(action)) in self._tried:
            return f"{verb}:repeat"
        words = content_words(rest)
        about = "none" if not words else "goal" if words & self._goal else "nongoal"
        return f"{verb}:{about}"

    def update(
        self, action: str, admissible: bool, observation: str, reward: float, info: Info
    ) -> None:
        """See :class:`ProgressAbstraction`."""
        self._steps += 1
        score = float(info.get("score", self._score))
        if not admissible:
            self._idle += 1
            return
        self._tried.add((self._observation, canonical_text(action)))
        self._idle = self._idle + 1 if observation == self._observation else 0
        self._gains += reward > 0 or score > self._score
        self._score = score
        self._seen.add(observation)
        self._observed += 1
        self._observation = observation
        self._note_verbs(info)

    def shareable(self, state: str, abstract_action: str) -> bool:
        """Whatever was well-formed and accepted."""
        return abstract_action not in (MALFORMED, INADMISSIBLE)

    def context(self, observation: str) -> str:
        """The task and the observation."""
        return context_key(self.env_id, self._task, observation)

    def _note_verbs(self, info: Info) -> None:
        self._verbs |= {_verb_of(listed)[0] for listed in info.get("admissible_actions") or ()}


def _verb_of(action: str) -> tuple[str, str]:
    """What an action does, and its arguments: a first word, or the name of a function call."""
    text = canonical_text(action)
    if text.startswith("{"):
        try:
            call = json.loads(text)
        except ValueError:
            call = {}
        for key in ("name", "tool", "function", "action"):
            if isinstance(call.get(key), str):
                rest = " ".join(str(value) for name, value in call.items() if name != key)
                return call[key] or "other", rest
    tag = _CALL.search(text)
    if tag is not None:
        return tag[1] or tag[2], text[tag.end() :]
    found = _VERB.match(text)
    return (found[0], text[found.end() :]) if found else ("other", text)


def _bucket(count: int, most: int) -> str:
    return f"{most}+" if count >= most else str(count)
