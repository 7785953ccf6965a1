"""Episodes whose beginning is given instead of sampled: a reference's first tokens or turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

__all__ = ["Guidance", "Solution", "given_tokens", "given_turns"]


@dataclass(frozen=True, slots=True)
class Guidance:
    """How much of the reference an episode starts with.

    What the reference is decides the unit. Where the environment's prompt writes it as one
    response (:meth:`agentgym.prompts.EnvPrompt.solution`), its first tokens open the first
    response. Elsewhere it is the oracle's actions, and the first of them are played.

    Whatever the length, the last action and the final answer are never given.

    Attributes:
        length: Tokens or turns; 0 gives nothing.
        share: Most that is given of a reference, as a share of its length.

    Raises:
        ValueError: If a value is out of range.
    """

    length: int
    share: float = 0.8

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError(f"the length of guidance must be >= 0, got {self.length!r}")
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"the share of guidance must lie in [0, 1], got {self.share!r}")

    def most(self, size: int) -> int:
        """Units that may be given of a reference of ``size`` units."""
        # The decimal that was written, not the binary fraction next to it: 0.29 of 100 is 29.
        return min(self.length, int(Fraction(str(self.share)) * size))


@dataclass(frozen=True, slots=True)
class Solution:
    """A reference written as one response.

    Attributes:
        text: The response.
        answer_at: Index of the character at which it begins to give the final answer away.
    """

    text: str
    answer_at: int


class Tokenizer(Protocol):
    """Text to ids and back."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> Any:
        """Token ids to text."""
        ...


def given_tokens(
    tokenizer: Tokenizer, solution: Solution, guidance: Guidance, room: int
) -> np.ndarray:
    """The tokens of a solution that open a response.

    They are a prefix of the solution's own tokens, so nothing is cut inside a token, and none of
    them reaches past ``solution.answer_at``.

    Args:
        tokenizer: The policy's tokenizer.
        solution: The reference.
        guidance: How much of it.
        room: Most tokens there is room for.

    Returns:
        int32 (n,).
    """
    ids = list(tokenizer.encode(solution.text, add_special_tokens=False))
    safe = solution.text[: solution.answer_at]
    low, high = 0, max(0, min(guidance.most(len(ids)), room))
    while low < high:  # the text grows with the tokens
        middle = (low + high + 1) // 2
        if len(str(tokenizer.decode(ids[:middle]))) <= len(safe):
            low = middle
        else:
            high = middle - 1
    while low and not safe.startswith(str(tokenizer.decode(ids[:low]))):
        low -= 1  # half a character decodes to something else
    return np.asarray(ids[:low], np.int32)


def given_turns(reference: Sequence[str], guidance: Guidance) -> int:
    """How many of the oracle's actions are played; the last of them never is."""
    return max(0, min(guidance.most(len(reference)), len(reference) - 1))
