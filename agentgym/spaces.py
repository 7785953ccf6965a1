"""A space of Unicode strings that batches, samples legal actions and crosses processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from multiprocessing.context import BaseContext
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

__all__ = ["UnicodeText"]

# Bytes that one character may take in UTF-8; shared memory is sized for the worst case up to a cap.
_UTF8_MAX = 4
# Blocks that random text is drawn from: ASCII, Latin-1, Greek, CJK, emoji. None holds surrogates.
_BLOCKS = ((0x20, 0x7E), (0xA1, 0xFF), (0x391, 0x3C9), (0x4E00, 0x4EFF), (0x1F600, 0x1F64F))
_PLACEHOLDER = re.compile(r"<[a-z_]+>")


class UnicodeText(gym.Space[str]):
    """Any string of at most ``max_length`` characters without lone surrogates.

    Gymnasium's own ``Text`` space needs the full character set listed and draws gibberish.
    This one accepts all of Unicode, and where an environment offers legal actions ``sample``
    draws one of those.

    Args:
        max_length: Longest string, in characters (code points).
        min_length: Shortest string.
        legal_actions: Function that returns the actions legal now, or None. Each
            ``<placeholder>`` (lower-case letters) in the one drawn becomes a random word.
        seed: Seed of the space's own generator.
    """

    def __init__(
        self,
        max_length: int,
        *,
        min_length: int = 0,
        legal_actions: Callable[[], Sequence[str] | None] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if not 0 <= min_length <= max_length:
            raise ValueError(f"need 0 <= min_length <= max_length, got {min_length}, {max_length}")
        self.max_length, self.min_length = max_length, min_length
        self._legal_actions = legal_actions
        super().__init__(None, None, seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size vector."""
        return False

    @property
    def legal_actions(self) -> Callable[[], Sequence[str] | None] | None:
        """The function that returns the actions legal now, where there is one."""
        return self._legal_actions

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A legal action where the environment offers one, else random Unicode text."""
        offered = self._legal_actions() if self._legal_actions is not None else None
        if offered:
            choice = offered[int(self.np_random.integers(len(offered)))]
            return self._fill(choice)
        longest = min(self.max_length, max(self.min_length, 32))
        length = int(self.np_random.integers(self.min_length, longest + 1))
        return "".join(self._character() for _ in range(length))

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string of allowed length that UTF-8 can encode."""
        if not isinstance(x, str) or not self.min_length <= len(x) <= self.max_length:
            return False
        try:
            x.encode("utf-8")
        except UnicodeEncodeError:
            return False
        return True

    def _character(self) -> str:
        low, high = _BLOCKS[int(self.np_random.integers(len(_BLOCKS)))]
        return chr(int(self.np_random.integers(low, high + 1)))

    def _fill(self, action: str) -> str:
        def word(_: re.Match[str]) -> str:
            return "".join(chr(97 + int(self.np_random.integers(26))) for _ in range(6))

        return _PLACEHOLDER.sub(word, action)

    def __getstate__(self) -> dict[str, Any]:
        # The bound method would drag the whole environment through every pickle of the space.
        return self.__dict__ | {"_legal_actions": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> UnicodeText:
        copy = UnicodeText(self.max_length, min_length=self.min_length)
        if self._np_random is not None:
            copy._np_random = deepcopy(self._np_random, memo)
        # A copied environment keeps its legal actions; a space copied alone does not drag the
        # environment along.
        owner = getattr(self._legal_actions, "__self__", None)
        if owner is not None and id(owner) in memo:
            copy._legal_actions = deepcopy(self._legal_actions, memo)
        return copy

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnicodeText)
            and self.max_length == other.max_length
            and self.min_length == other.min_length
        )

    __hash__ = None  # type: ignore[assignment]


# Gymnasium dispatches these on the space's class: that is what makes a space work in a vector env.
# ``iterate`` stays unregistered on purpose, as for Gymnasium's ``Text``: a batch of texts is then
# iterated as it is, while a registered space would have each text iterated by character.


@batch_space.register(UnicodeText)
def _batch_space(space: UnicodeText, n: int = 1) -> gym.spaces.Tuple:
    # Seeds follow from the single space's generator, which stays where it is.
    seeds = deepcopy(space.np_random).integers(1 << 31, size=n)
    return gym.spaces.Tuple(
        tuple(
            UnicodeText(space.max_length, min_length=space.min_length, seed=int(seed))
            for seed in seeds
        )
    )


def _batch_differing_spaces(spaces: Sequence[UnicodeText]) -> gym.spaces.Tuple:
    return gym.spaces.Tuple(deepcopy(tuple(spaces)))


# Not as a decorator: the registry is keyed by the class of the first of the spaces.
batch_differing_spaces.register(UnicodeText, _batch_differing_spaces)


@is_space_dtype_shape_equiv.register(UnicodeText)
def _is_equivalent(space_1: UnicodeText, space_2: gym.Space[Any]) -> bool:
    # Shared memory is laid out for one length.
    return isinstance(space_2, UnicodeText) and space_1.max_length == space_2.max_length


@create_empty_array.register(UnicodeText)
def _create_empty_array(space: UnicodeText, n: int = 1, fn: Any = None) -> tuple[str, ...]:
    return ("",) * n


@concatenate.register(UnicodeText)
def _concatenate(space: UnicodeText, items: Any, out: Any) -> tuple[str, ...]:
    return tuple(items)


@create_shared_memory.register(UnicodeText)
def _create_shared_memory(
    space: UnicodeText, n: int = 1, ctx: BaseContext | Any = None
) -> list[Any]:
    """One byte array an environment: 8 bytes of length, then UTF-8."""
    import multiprocessing

    context = multiprocessing if ctx is None else ctx
    return [context.Array("B", 8 + _UTF8_MAX * space.max_length) for _ in range(n)]


@write_to_shared_memory.register(UnicodeText)
def _write_to_shared_memory(
    space: UnicodeText, index: int, value: str, shared_memory: list[Any]
) -> None:
    if not space.contains(value):
        raise ValueError(
            f"text of {len(value)} characters does not fit {space!r} or holds a lone surrogate"
        )
    data = value.encode("utf-8")
    buffer = np.frombuffer(shared_memory[index].get_obj(), dtype=np.uint8)
    buffer[:8] = np.frombuffer(len(data).to_bytes(8, "little"), dtype=np.uint8)
    buffer[8 : 8 + len(data)] = np.frombuffer(data, dtype=np.uint8)


@read_from_shared_memory.register(UnicodeText)
def _read_from_shared_memory(
    space: UnicodeText, shared_memory: list[Any], n: int = 1
) -> Sequence[str]:
    # The asynchronous vector env reads once, when it is made, and hands out what it got then: that
    # has to be a live view. (Gymnasium's ``Text`` returns the empty texts of that moment for ever.)
    return _SharedTexts(shared_memory[:n])


class _SharedTexts(Sequence[str]):
    """The texts that stand in shared memory now; a deep copy is a plain tuple of them."""

    def __init__(self, blocks: list[Any]) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        raw = memoryview(self._blocks[index].get_obj()).cast("B")
        size = int.from_bytes(raw[:8], "little")
        return bytes(raw[8 : 8 + size]).decode("utf-8")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))
