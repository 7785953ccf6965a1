"""The Porter stemmer with its author's later departures, as Lucene applies it.

Algorithm: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. The departures
are those of the author's own reference program: ``bli -> ble`` (for ``abli -> able``),
``logi -> log``, and words of one or two letters stay as they are. Characters that are no vowels
count as consonants, digits and punctuation included.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

__all__ = ["stem"]

# Suffix pairs of steps 2 and 3. The first suffix that fits decides, whatever its condition says,
# so longer ones stand before the suffixes they end in.
_STEP2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
)
_STEP3 = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
_STEP4 = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "sion",
    "tion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
)


def stem(word: str) -> str:
    """The stem of a lower-case word.

    A word with characters outside the Basic Multilingual Plane is handled in UTF-16 units, since
    Lucene counts those.
    """
    if word.isascii() or max(word) <= "\uffff":
        return _stem(word)
    units = word.encode("utf-16-le", "surrogatepass")
    text = "".join(chr(int.from_bytes(units[i : i + 2], "little")) for i in range(0, len(units), 2))
    return _stem(text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _stem(word: str) -> str:
    if len(word) <= 2:
        return word
    word = _step1(word)
    word = _replace(word, _STEP2)
    word = _replace(word, _STEP3)
    word = _step4(word)
    return _step5(word)


def _consonants(word: str) -> list[bool]:
    """For each letter whether it is a consonant; ``y`` is one unless it follows a consonant."""
    flags: list[bool] = []
    for letter in word:
        if letter in "aeiou":
            flags.append(False)
        elif letter == "y":
            flags.append(not flags or not flags[-1])
        else:
            flags.append(True)
    return flags


def _measure(stem_: str) -> int:
    """The number of vowel-consonant sequences, called m in the paper."""
    flags = _consonants(stem_)
    return sum(1 for before, now in itertools.pairwise(flags) if now and not before)


def _has_vowel(stem_: str) -> bool:
    return not all(_consonants(stem_))


def _doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonants(word)[-1]


def _short_end(word: str) -> bool:
    """Whether the word ends consonant, vowel, consonant, the last not being w, x or y."""
    if len(word) < 3 or word[-1] in "wxy":
        return False
    return _consonants(word)[-3:] == [True, False, True]


def _step1(word: str) -> str:
    """Plurals, past participles, and a final y."""
    if word.endswith("s"):
        if word.endswith(("sses", "ies")):
            word = word[:-2]
        elif word[-2:-1] != "s":
            word = word[:-1]
    if word.endswith("eed"):
        if _measure(word[:-3]) > 0:
            word = word[:-1]
    else:
        cut = 2 if word.endswith("ed") else 3 if word.endswith("ing") else 0
        if cut and _has_vowel(word[:-cut]):
            word = word[:-cut]
            if word.endswith(("at", "bl", "iz")):
                word += "e"
            elif _doubled(word):
                if word[-1] not in "lsz":
                    word = word[:-1]
            elif _measure(word) == 1 and _short_end(word):
                word += "e"
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    return word


def _replace(word: str, pairs: Sequence[tuple[str, str]]) -> str:
    for suffix, new in pairs:
        if word.endswith(suffix):
            kept = word[: -len(suffix)]
            return kept + new if _measure(kept) > 0 else word
    return word


def _step4(word: str) -> str:
    for suffix in _STEP4:
        if word.endswith(suffix):
            kept = word[: -len(suffix)]
            if suffix in ("sion", "tion"):
                kept += suffix[0]
            return kept if _measure(kept) > 1 else word
    return word


def _step5(word: str) -> str:
    """A final e, then a final double l; both conditions look at the word as it came in."""
    measure = _measure(word)
    result = word
    if word.endswith("e") and (measure > 1 or (measure == 1 and not _short_end(word[:-1]))):
        result = word[:-1]
    if result.endswith("l") and _doubled(result) and measure > 1:
        result = result[:-1]
    return result
