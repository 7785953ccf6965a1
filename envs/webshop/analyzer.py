"""Text to index terms, exactly as Lucene's English analysis of a BM25 index emits them.

The chain is: words by Unicode Standard Annex #29 with Lucene's additions (one token for each
ideograph and each hiragana, runs of South East Asian characters, emoji sequences), no longer than
255 UTF-16 units; English possessive; lower case; 33 stop words; Porter's stemmer.

ASCII text takes a fast path. Other text is first mapped to one class letter a character, by the
table in ``word_break.txt``, and the rules run as regular expressions over the class letters.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from importlib import resources

from envs.webshop.porter import stem

__all__ = ["STOP_WORDS", "analyze", "words"]

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
"""

#: Lucene's English stop words.
STOP_WORDS = frozenset(_STOP_WORDS.split())

_MAX_TOKEN = 255
_MEMO_SIZE = 50_000

# Class letters: A letter, H Hebrew letter, N digit (D: of a keycap), K katakana, _ connector;
# l n b q d: characters that join letters, digits, either (b and q), Hebrew letters; x mark or
# format, v V presentation selectors, z joiner, c enclosing keycap; E B e emoji (B: takes a skin
# tone, e: is a letter too), M skin tone, k base of a keycap, r regional indicator; s t South East
# Asian (t: a mark); h ideograph (a: a letter too), i hiragana (g: a letter too); o any other.
_X = "[xtzvVc]*"
_SANS = "[xtzc]*"
_H, _L, _N, _K, _U = f"H{_X}", f"[AHaeg]{_X}", f"[ND]{_X}", f"K{_X}", f"_{_X}"
_RUN = f"(?:(?:{_H}(?:q{_X}|d{_X}{_H})|{_N}(?:[nbq]{_X}{_N})*|{_L}(?:[lbq]{_X}{_L})*)+|(?:{_K})+)"
_WORD = f"(?:{_U})*+{_RUN}(?:(?:{_U})++{_RUN})*(?:{_U})*+"
_TONED = f"(?:z*+B{_SANS}+)?M{_SANS}+"
_PLAIN = f"z*+[EBe]{_SANS}+V?"
_EMOJI = f"(?:{_TONED}|{_PLAIN})(?:(?:(?<=z)|z)(?:{_TONED}|{_PLAIN}))*"
_KEYCAP = f"[Dk]{_SANS}V?c{_SANS}"
_FLAG = f"r{_X}r{_X}"
_OTHER = f"(?:[st]{_X})+|[ha]{_X}|[ig]{_X}"

_CLASSED = re.compile(
    f"(?P<token>{_WORD}|{_EMOJI}|{_KEYCAP}|{_FLAG}|{_OTHER})|(?P<skip>(?:{_U})++|z++)"
)
_CONNECTORS = re.compile(f"(?:{_U})++")
_CLASSED_EMOJI = re.compile(_EMOJI)
# The same rules where every character is ASCII; the trailing alternative steps over connectors
# that belong to no word, so that a long run of them costs linear time.
_ASCII_RUN = "(?:[A-Za-z]++(?:[:.'][A-Za-z]++)*+|[0-9]++(?:[.,;'][0-9]++)*+)++"
_ASCII = re.compile(f"(_*+{_ASCII_RUN}(?:_++{_ASCII_RUN})*+_*+)|_++")


class _Classes(dict[int, str]):
    """Character code to class letter, looked up in the table of ranges once a character."""

    def __init__(self) -> None:
        table = resources.files("envs.webshop").joinpath("word_break.txt").read_text("ascii")
        ranges = []
        for line in table.splitlines():
            letter, *spans = line.split(" ")
            for span in spans:
                first, _, last = span.partition("-")
                ranges.append((int(first, 16), int(last or first, 16), letter))
        ranges.sort()
        self._starts = [first for first, _, _ in ranges]
        self._ends = [last for _, last, _ in ranges]
        self._letters = [letter for _, _, letter in ranges]
        super().__init__()

    def __missing__(self, code: int) -> str:
        at = bisect_right(self._starts, code) - 1
        letter = self._letters[at] if at >= 0 and code <= self._ends[at] else "o"
        self[code] = letter
        return letter


@functools.cache
def _classes() -> _Classes:
    return _Classes()


def words(text: str) -> list[str]:
    """The words of ``text`` as Lucene's ``StandardTokenizer`` cuts them, case kept."""
    if text.isascii():
        found = [word for word in _ASCII.findall(text) if word]
        if all(len(word) <= _MAX_TOKEN for word in found):
            return found
    return _words_by_class(text)


def _words_by_class(text: str) -> list[str]:
    classes = text.translate(_classes())
    found = []
    position, end = 0, len(text)
    while (match := _CLASSED.search(classes, position)) is not None:
        start, stop = match.span()
        if classes[start] == "e":
            emoji = _CLASSED_EMOJI.match(classes, start)
            stop = max(stop, emoji.end() if emoji else 0)
        if stop - start > _MAX_TOKEN // 2:
            # The scanner sees no further than its buffer: what is longer is cut there.
            limit = _buffer_end(text, start, end)
            if stop > limit and match["token"] is not None:
                cut = _CLASSED.match(classes, start, limit)
                if cut is None or cut["token"] is None:
                    # Connectors fill the buffer; the scanner drops one at a time until the
                    # letter behind them comes into sight.
                    run = _CONNECTORS.match(classes, start)
                    position = max(start + 1, run.end() - _MAX_TOKEN + 1 if run else 0)
                    continue
                stop = cut.end()
        position = stop
        if match["token"] is not None:
            found.append(text[start:stop])
    return found


def _buffer_end(text: str, start: int, end: int) -> int:
    """Where a buffer of 255 UTF-16 units that begins at ``start`` ends."""
    units, at = 0, start
    while at < end:
        units += 2 if text[at] > "\uffff" else 1
        if units > _MAX_TOKEN:
            break
        at += 1
    return at


def _lower(word: str) -> str:
    """Lower case one character at a time, as Java does: no final sigma, no added dots."""
    if word.isascii():
        return word.lower()
    return "".join("i" if c == "İ" else c.lower() for c in word)


def _term(word: str) -> str | None:
    """The index term of a word, or None for a stop word."""
    if len(word) >= 2 and word[-1] in "sS" and word[-2] in "'\u2019\uff07":
        word = word[:-2]
    word = _lower(word)
    return None if word in STOP_WORDS else stem(word)


class _Terms(dict[str, str | None]):
    """Memo of :func:`_term`, emptied when full so that odd queries cannot grow it for ever."""

    def __missing__(self, word: str) -> str | None:
        term = _term(word)
        if len(self) >= _MEMO_SIZE:
            self.clear()
        self[word] = term
        return term


_terms = _Terms()


def analyze(text: str) -> list[str]:
    """The index terms of ``text``, in order, repeats kept.

    Args:
        text: Any text; queries and documents go through the same chain.
    """
    terms = map(_terms.__getitem__, words(text))
    return [term for term in terms if term is not None]
