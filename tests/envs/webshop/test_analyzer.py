import gzip
import json
from itertools import pairwise

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.webshop.analyzer import (
    STOP_WORDS,
    _classes,
    _term,
    _words_by_class,
    analyze,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  - !?", []),
        ("Red T-Shirt (XL)", ["Red", "T", "Shirt", "XL"]),
        ("it's 3.5oz, 1,000 pcs; a.b:c'd", ["it's", "3.5oz", "1,000", "pcs", "a.b:c'd"]),
        ("a.1 1.a 1:2 x;y 3;4", ["a", "1", "1", "a", "1", "2", "x", "y", "3;4"]),
        ("'quoted' end. .5", ["quoted", "end", "5"]),
        ("snake_case _x_ __ _ 9_9", ["snake_case", "_x_", "9_9"]),
        ('28" x 28"', ["28", "x", "28"]),
        ("a..b a''b", ["a", "b", "a", "b"]),
    ],
)
def test_words_ascii(text, expected):
    assert words(text) == expected
    assert _words_by_class(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("décor don’t", ["décor", "don’t"]),
        ("note：please a，b 1，2", ["note：please", "a", "b", "1，2"]),
        ("1⁄2 cup 360º", ["1⁄2", "cup", "360º"]),
        ("1.8米锅", ["1.8", "米", "锅"]),
        ("ひらカタカナ漢", ["ひ", "ら", "カタカナ", "漢"]),
        ("カタ_カナa", ["カタ_カナ", "a"]),
        ("해물라면 일품", ["해물라면", "일품"]),
        ("ภาษาไทย x", ["ภาษาไทย", "x"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("co\u00adop", ["co\u00adop"]),
        ("א'ב ג' ד\"ה", ["א'ב", "ג'", 'ד"ה']),
        ("❤ ★ ® ™ © ♡", ["❤", "★", "®", "™", "©", "♡"]),
        ("❄️❤️", ["❄️", "❤️"]),
        ("👨\u200d💼x", ["👨\u200d💼", "x"]),
        ("👍🏽👍 🏽", ["👍🏽", "👍", "🏽"]),
        ("#️⃣*⃣ # 1️⃣2", ["#️⃣", "*⃣", "1️⃣2"]),
        ("🇩🇪🇫🇷🇬", ["🇩🇪", "🇫🇷"]),
        ("ℹ️ ℹinfo", ["ℹ️", "ℹinfo"]),
        ("→ ■ ✂", ["✂"]),
    ],
)
def test_words_beyond_ascii(text, expected):
    assert words(text) == expected


def test_words_longer_than_the_buffer_are_cut():
    assert [len(w) for w in words("a" * 600)] == [255, 255, 90]
    assert [len(w) for w in words("é" * 300)] == [255, 45]
    # 127 characters of two UTF-16 units each fit into 255 units.
    assert [len(w) for w in words("\U0001d4b6" * 130)] == [127, 3]
    # The cut falls between a letter and what would join it to the next.
    assert words("a" * 255 + ".b") == ["a" * 255, "b"]


@pytest.mark.parametrize("filler", ["_", "\u200d", "#", "\u0301", "\u200d#", "🇩", ".", "'"])
def test_words_take_linear_time_on_what_is_no_word(filler):
    assert words(f"é {filler * 60_000} é")[-1] == "é"


def test_words_take_linear_time_on_connectors():
    assert words("_" * 60_000 + "x") == ["_" * 254 + "x"]
    assert words("_" * 60_000) == []
    assert words("é" + " _" * 30_000) == ["é"]


@given(st.text(alphabet="ab1.,:;'\"_ -#*\n", max_size=40))
@settings(max_examples=400)
def test_ascii_path_equals_class_path(text):
    assert words(text) == _words_by_class(text)


# Characters on which the regex package's Unicode version and the table agree, and for which
# Lucene adds no rules of its own.
_PLAIN = "aZéßΩжक한ब0٣५カｱ.:'’·‧＇,;٬٫_‿\u0301\u00ad\u200d\u0e31 \n\t-!(→—"
_BOUNDARY = regex.compile(r"\b", flags=regex.WORD | regex.V1)
_STARTS_TOKEN = frozenset("AHNDKe")


def _by_regex(text):
    places = sorted({0, len(text), *(m.start() for m in _BOUNDARY.finditer(text))})
    pieces = [text[i:j] for i, j in pairwise(places)]
    classes = _classes()
    return [p for p in pieces if any(classes[ord(c)] in _STARTS_TOKEN for c in p)]


@given(st.text(alphabet=_PLAIN.replace("\u0e31", ""), max_size=30))
@example("a.b.c 1,2.3 a_1")
@example("a\u0301.b")
@settings(max_examples=1500)
def test_word_boundaries_equal_the_regex_package(text):
    assert words(text) == _by_regex(text)


@given(
    st.text(
        alphabet=st.characters(
            blacklist_categories=["Cs", "Cn", "So", "Sk", "Sm"], max_codepoint=0x2FFF
        ),
        max_size=25,
    )
)
@settings(max_examples=1500)
def test_word_boundaries_on_any_letters(text):
    classes = _classes()
    kept = "".join(c for c in text if classes[ord(c)] in "AND_lnbqxo" and _same_class(c))
    assert words(kept) == _by_regex(kept)


_WORD_BREAK = {
    "A": regex.compile(r"\p{WB=ALetter}"),
    "N": regex.compile(r"\p{WB=Numeric}"),
    "D": regex.compile(r"\p{WB=Numeric}"),
    "_": regex.compile(r"\p{WB=ExtendNumLet}"),
    "l": regex.compile(r"\p{WB=MidLetter}"),
    "n": regex.compile(r"\p{WB=MidNum}"),
    "b": regex.compile(r"\p{WB=MidNumLet}"),
    "q": regex.compile(r"\p{WB=Single_Quote}"),
    "x": regex.compile(r"[\p{WB=Extend}\p{WB=Format}]"),
    "o": regex.compile(r"[\p{WB=Other}\p{WB=WSegSpace}\p{WB=Newline}\p{WB=CR}\p{WB=LF}]"),
}


def _same_class(character):
    return _WORD_BREAK[_classes()[ord(character)]].fullmatch(character) is not None


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Women's", "women"),
        ("women’S", "women"),
        ("boss＇s", "boss"),
        ("dogs'", "dogs'"),
        ("THE", None),
        ("Running", "run"),
        ("İ", "i"),  # no combining dot
        ("ΟΔΟΣ", "οδοσ"),  # no final sigma
    ],
)
def test_term(word, expected):
    assert _term(word) == expected


def test_analyze_keeps_order_and_repeats():
    assert analyze("The cats and the cat's toys: cats!") == ["cat", "cat", "toi", "cat"]


def test_stop_words():
    assert len(STOP_WORDS) == 33
    assert analyze(" ".join(sorted(STOP_WORDS))) == []


@pytest.mark.data
def test_recorded_tokens(data_dir):
    path = data_dir / "webshop" / "lucene_reference_1500_queries.json.gz"
    reference = json.loads(gzip.decompress(path.read_bytes()))
    assert [analyze(query) for query in reference["queries"]] == reference["query_tokens"]
