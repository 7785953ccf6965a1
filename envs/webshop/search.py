"""Ranked retrieval with the scores and the tie-break of a Lucene BM25 index.

Scoring: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond",
2009, in Lucene's form: the sum over distinct query terms of ``w - w / (1 + tf * inv)`` with
``w = count * idf``, ``idf = ln(1 + (N - df + 0.5) / (df + 0.5))`` and
``inv = 1 / (k1 * (1 - b + b * length / mean))``. ``length`` has lost its low bits to the one byte
that Lucene stores. Single and double precision stand where Lucene has them, since they decide
which scores are equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.webshop.analyzer import analyze

__all__ = ["K1", "B", "BM25Index", "stored_length"]

#: Term-frequency saturation and length normalisation that the WebShop index was built with.
K1 = 0.9
B = 0.4

_EXACT_BELOW = 40


def stored_length(length: int) -> int:
    """A document length after the round trip through Lucene's one-byte encoding.

    Lengths below 40 are exact; above, the excess over 24 keeps its four leading bits.

    Raises:
        ValueError: If the length is negative.
    """
    if length < 0:
        raise ValueError(f"length must not be negative, got {length}")
    if length < _EXACT_BELOW:
        return length
    excess = length - 24
    shift = excess.bit_length() - 4
    return 24 + (excess >> shift << shift)


class BM25Index:
    """An inverted index over a fixed list of documents.

    Args:
        texts: The documents.
        keys: A name for each document; equal scores are ordered by it, ascending.
        k1: Term-frequency saturation.
        b: Length normalisation.

    Raises:
        ValueError: If there is not exactly one distinct key for each document.
    """

    def __init__(
        self, texts: Sequence[str], keys: Sequence[str], *, k1: float = K1, b: float = B
    ) -> None:
        if len(texts) != len(keys) or len(set(keys)) != len(keys):
            raise ValueError(
                f"need one distinct key a document, got {len(texts)} documents "
                f"and {len(set(keys))} distinct keys"
            )
        self.size = len(texts)
        # Positions follow the keys, so that a stable sort by score breaks ties as it should.
        order = sorted(range(self.size), key=keys.__getitem__)
        self._document = np.array(order, dtype=np.intp)
        postings: dict[str, tuple[list[int], list[int]]] = {}
        lengths = np.zeros(self.size, dtype=np.int64)
        for position, document in enumerate(order):
            terms = analyze(texts[document])
            lengths[position] = len(terms)
            for term, count in Counter(terms).items():
                positions, counts = postings.setdefault(term, ([], []))
                positions.append(position)
                counts.append(count)
        self._weigh(postings, lengths, k1, b)

    def _weigh(
        self,
        postings: dict[str, tuple[list[int], list[int]]],
        lengths: NDArray[np.int64],
        k1: float,
        b: float,
    ) -> None:
        single = np.float32
        filled = int(np.count_nonzero(lengths))
        mean = single(lengths.sum() / filled) if filled else single(1)
        stored = np.array([stored_length(int(n)) for n in lengths], dtype=single)
        inverse = single(1) / (single(k1) * (single(1) - single(b) + single(b) * stored / mean))
        starts = np.zeros(len(postings) + 1, dtype=np.intp)
        np.cumsum([len(positions) for positions, _ in postings.values()], out=starts[1:])
        # One array for all terms: a view costs less memory than many small arrays.
        at = np.empty(starts[-1], dtype=np.int32)
        one_plus = np.empty(starts[-1], dtype=single)
        for (positions, counts), start, stop in zip(
            postings.values(), starts[:-1], starts[1:], strict=True
        ):
            at[start:stop] = positions
            one_plus[start:stop] = counts
        one_plus = single(1) + one_plus * inverse[at]
        self._idf = {
            term: float(single(math.log(1 + (filled - df + 0.5) / (df + 0.5))))
            for term, df in zip(postings, np.diff(starts).tolist(), strict=True)
        }
        self._span = dict(
            zip(postings, zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True), strict=True)
        )
        idf = np.repeat(np.fromiter(self._idf.values(), single, len(postings)), np.diff(starts))
        self._at, self._one_plus, self._single = at, one_plus, idf - idf / one_plus

    def __len__(self) -> int:
        return self.size

    def top(self, query: str, k: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The best documents for a query.

        Args:
            query: Free text.
            k: Largest number of documents.

        Returns:
            Document numbers and scores, best first, at most ``k``; only documents that hold a
            term of the query.
        """
        spans, gains = [], []
        counts: dict[str, int] = {}
        for term in analyze(query):
            counts[term] = counts.get(term, 0) + 1
        for term, count in counts.items():
            span = self._span.get(term)
            if span is None:
                continue
            start, stop = span
            spans.append(self._at[start:stop])
            if count == 1:
                gains.append(self._single[start:stop])
            else:
                weight = np.float32(count) * np.float32(self._idf[term])
                gains.append(weight - weight / self._one_plus[start:stop])
        if not spans:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float32)
        # Lucene adds the terms up in double precision and rounds once.
        scores = np.bincount(
            np.concatenate(spans), weights=np.concatenate(gains), minlength=self.size
        )
        found = (scores > 0).nonzero()[0]
        ranked = scores[found].astype(np.float32)
        if len(found) > k:
            ordered = ranked.copy()
            ordered.partition(-k)
            enough = ranked >= ordered[-k]
            found, ranked = found[enough], ranked[enough]
        best = (-ranked).argsort(kind="stable")[:k]
        return self._document[found[best]], ranked[best]
