"""What a grader says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Status", "Verdict"]


class Status(StrEnum):
    """How the comparison went. Only ``OK`` is a decision; everything else is graded wrong.

    ``NO_ANSWER``: the response gives none. ``UNPARSED``: the answer cannot be read.
    ``TOO_LONG``: it is longer than any answer. ``GOLD_UNPARSED``: the gold answer cannot be read,
    which is a fault of the data. ``UNDECIDED``: neither equality nor difference was proved, and
    the external verifier is absent, was not asked, or failed. ``TIMEOUT``: the verifier ran into
    its deadline. ``DIED``: its process ended. ``ERROR``: the grader itself failed, which is
    a fault of the grader.
    """

    OK = "ok"
    NO_ANSWER = "no_answer"
    UNPARSED = "unparsed"
    TOO_LONG = "too_long"
    GOLD_UNPARSED = "gold_unparsed"
    UNDECIDED = "undecided"
    TIMEOUT = "timeout"
    DIED = "died"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one comparison.

    Attributes:
        correct: The answer is the gold answer.
        status: How that was found, or what went wrong.
        via: ``identical`` (same symbols), ``rules`` (this package's own decision), ``math-verify``,
            or ``none``.
        answer: The answer that was compared, or None.
    """

    correct: bool
    status: Status
    via: str
    answer: str | None = None
