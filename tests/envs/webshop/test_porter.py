import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webshop.porter import stem

# The examples that the 1980 paper gives for each rule, carried through all steps.
PAPER = {
    "caresses": "caress",
    "ponies": "poni",
    "ties": "ti",
    "caress": "caress",
    "cats": "cat",
    "feed": "feed",
    "agreed": "agre",
    "plastered": "plaster",
    "bled": "bled",
    "motoring": "motor",
    "sing": "sing",
    "conflated": "conflat",
    "troubled": "troubl",
    "sized": "size",
    "hopping": "hop",
    "tanned": "tan",
    "falling": "fall",
    "hissing": "hiss",
    "fizzed": "fizz",
    "failing": "fail",
    "filing": "file",
    "happy": "happi",
    "sky": "sky",
    "relational": "relat",
    "conditional": "condit",
    "rational": "ration",
    "valenci": "valenc",
    "digitizer": "digit",
    "radicalli": "radic",
    "vileli": "vile",
    "vietnamization": "vietnam",
    "operator": "oper",
    "feudalism": "feudal",
    "decisiveness": "decis",
    "sensibiliti": "sensibl",
    "triplicate": "triplic",
    "formative": "form",
    "electriciti": "electr",
    "hopeful": "hope",
    "goodness": "good",
    "revival": "reviv",
    "allowance": "allow",
    "airliner": "airlin",
    "adjustable": "adjust",
    "replacement": "replac",
    "adjustment": "adjust",
    "adoption": "adopt",
    "homologou": "homolog",
    "communism": "commun",
    "angulariti": "angular",
    "bowdlerize": "bowdler",
    "probate": "probat",
    "rate": "rate",
    "cease": "ceas",
    "controll": "control",
    "roll": "roll",
}


@pytest.mark.parametrize(("word", "expected"), PAPER.items())
def test_stem_examples_of_the_paper(word, expected):
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("possibly", "possibl"),  # bli -> ble, not abli -> able only
        ("archaeology", "archaeolog"),  # logi -> log
        ("is", "is"),  # two letters stay
        ("as", "as"),
        ("s", "s"),
        ("ies", "i"),
    ],
)
def test_stem_departures(word, expected):
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("description:solid", "description:solid"),
        ("4.25s", "4.25"),
        ("décors", "décor"),
        ("you’re", "you’r"),
        ("\U0001d4b6s", "\U0001d4b6"),  # three UTF-16 units, so the s goes
        ("\U0001d4b6", "\U0001d4b6"),
    ],
)
def test_stem_other_characters(word, expected):
    assert stem(word) == expected


@given(st.text(alphabet="abcdefghilnorstuyz", max_size=14))
def test_stem_never_grows_and_keeps_the_start(word):
    result = stem(word)
    assert len(result) <= len(word)
    assert result[:2] == word[:2] or len(result) < 2
