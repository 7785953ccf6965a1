import gzip
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.analyzer import analyze
from envs.webshop.catalogue import GeneratedCatalogue, build_catalogue
from envs.webshop.search import K1, B, BM25Index, stored_length

DOCUMENTS = [
    "red shoe for women",
    "red red shoe",
    "blue shoe with a very long text about walking and running and standing still",
    "green hat",
    "red shoe for women",
    "",
]
KEYS = ["e", "d", "c", "b", "a", "f"]


def _slow_scores(query, documents):
    """BM25 term by term in double precision."""
    tokens = [analyze(d) for d in documents]
    filled = [t for t in tokens if t]
    mean = sum(map(len, filled)) / len(filled)
    scores = []
    for document in tokens:
        score = 0.0
        for term in set(analyze(query)):
            df = sum(term in t for t in tokens)
            if not df:
                continue
            idf = math.log(1 + (len(filled) - df + 0.5) / (df + 0.5))
            norm = K1 * (1 - B + B * stored_length(len(document)) / mean)
            tf = document.count(term)
            score += analyze(query).count(term) * idf * tf / (tf + norm)
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["red", "red shoe", "red red hat", "shoe women blue", "walking"])
def test_scores_equal_the_formula(query):
    documents, scores = BM25Index(DOCUMENTS, KEYS).top(query, 10)
    expected = _slow_scores(query, DOCUMENTS)
    assert set(documents.tolist()) == {i for i, s in enumerate(expected) if s > 0}
    np.testing.assert_allclose(scores, [expected[i] for i in documents], rtol=2e-6)
    assert sorted(scores, reverse=True) == list(scores)


def test_equal_scores_go_by_key():
    documents, scores = BM25Index(DOCUMENTS, KEYS).top("women", 10)
    assert documents.tolist() == [4, 0]  # keys "a" and "e"
    assert scores[0] == scores[1]


def test_ties_at_the_cut_go_by_key():
    keys = [f"k{i:02}" for i in reversed(range(30))]
    documents, _ = BM25Index(["same words"] * 30, keys).top("words", 7)
    assert [keys[i] for i in documents] == [f"k{i:02}" for i in range(7)]


def test_nothing_found():
    index = BM25Index(DOCUMENTS, KEYS)
    for query in ("", "   ", "the of", "zzzqqq"):
        documents, scores = index.top(query, 10)
        assert len(documents) == len(scores) == 0
    assert len(BM25Index(["", ""], ["a", "b"]).top("x", 5)[0]) == 0


def test_keys_must_be_distinct():
    with pytest.raises(ValueError, match="one distinct key"):
        BM25Index(["a", "b"], ["k", "k"])


def _byte4_round_trip(length):
    """Lucene's SmallFloat in words: 24 free values, then a four-bit mantissa with an exponent."""
    if length < 24:
        return length
    excess = length - 24
    bits = excess.bit_length()
    if bits < 4:
        return length
    shift = bits - 4
    encoded = (excess >> shift & 0x07) | (shift + 1) << 3
    mantissa, exponent = encoded & 0x07, (encoded >> 3) - 1
    decoded = mantissa if exponent == -1 else (mantissa | 0x08) << exponent
    return 24 + decoded


@given(st.integers(0, 1_000_000))
def test_stored_length(length):
    assert stored_length(length) == _byte4_round_trip(length)
    assert stored_length(length) <= length


def test_stored_length_examples():
    assert [stored_length(n) for n in (0, 39, 40, 41, 42, 55, 57, 124)] == [
        *(0, 39, 40, 40, 42, 54, 56),
        120,
    ]
    with pytest.raises(ValueError, match="-1"):
        stored_length(-1)


@pytest.mark.data
def test_recorded_ranks_and_scores(data_dir):
    folder = data_dir / "webshop"
    reference = json.loads(
        gzip.decompress((folder / "lucene_reference_1500_queries.json.gz").read_bytes())
    )
    raw = GeneratedCatalogue(
        json.loads((folder / "items_shuffle_1000.json").read_text()),
        {},
        {},
        json.loads((folder / "nouns_spacy36.json").read_text()),
    )
    products = build_catalogue(raw).products
    index = BM25Index([p.indexed_text() for p in products], [p.asin for p in products])
    for query, results in zip(reference["queries"], reference["results"], strict=True):
        documents, scores = index.top(query, 50)
        assert [products[i].asin for i in documents] == [asin for asin, _ in results], query
        np.testing.assert_allclose(scores, [s for _, s in results], atol=5.1e-5, rtol=0)
