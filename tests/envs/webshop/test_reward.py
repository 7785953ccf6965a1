import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop.catalogue import Product
from envs.webshop.goals import NO_LIMIT, Goal, Target
from envs.webshop.reward import (
    COLOURS,
    Scorer,
    attributes_met,
    options_met,
    score_type,
    similar,
    token_set_ratio,
)

LAMP = Product(
    asin="B1",
    title="Brass Lamp with Shade",
    description="Gives warm light.",
    bullets=("Easy Clean surface", "Made by hand"),
    category="garden",
    query="lamps",
    product_category="Home › Lighting › Lamps",
    pricing=(20.0,),
    price_tag="$20.0",
    price=20.0,
    options={},
    attributes=("dimmable", "brass finish"),
    nouns=("brass", "lamp", "shade"),
)
TARGET = Target.of(LAMP)
GOAL = Goal(
    task_id="B1/s0",
    index=0,
    kind="synthetic",
    category="garden",
    target=TARGET,
    instruction="Find me a lamp",
    attributes=("dimmable", "easy clean"),
    options=(("color", "gold"), ("size", "large")),
    price_upper=30.0,
    weight=1.0,
)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("large", "large", 100),
        ("x-large", "large", 100),
        ("xx-large", "x-large", 93),
        ("size 8", "8", 100),
        ("small", "large", 20),
        ("", "large", 0),
        ("---", "large", 0),
        ("B c", "c b", 100),
        ("a_b", "a b", 67),  # the underscore is part of a word
        ("rosé", "ros", 100),  # Latin-1 characters vanish
        ("4ω", "4", 67),  # others stay
        ("new york mets", "new york meats", 96),
        ("('size', '8 wide')", "8 wide", 100),
    ],
)
def test_token_set_ratio(a, b, expected):
    assert token_set_ratio(a, b) == expected


@given(
    st.text(alphabet="abcde é_-0", max_size=24),
    st.text(alphabet="abcde é_-0", max_size=24),
)
@settings(max_examples=2000)
def test_similar_is_the_ratio_above_85(a, b):
    assert similar(a, b) == (token_set_ratio(a, b) > 85)


@given(st.text(alphabet="abc ", min_size=6, max_size=20), st.integers(0, 19))
@settings(max_examples=500)
def test_similar_near_the_threshold(text, at):
    changed = text[:at] + "x" + text[at + 1 :]
    assert similar(text, changed) == (token_set_ratio(text, changed) > 85)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (1.0, True, True, 1.0)),
        ({"query": "x"}, (1.0, False, True, 1.0)),
        # Two shared nouns of three are a title score above 0.2.
        ({"query": "x", "product_category": "A › B", "nouns": ("lamp", "shade")},
         (1.0, False, False, 2 / 3)),
        ({"query": "x", "product_category": "Home › B", "nouns": ()}, (0.0, False, False, 0.0)),
        # A title without anything in common overrides query and category.
        ({"nouns": ("sofa",)}, (0.0, True, True, 0.0)),
    ],
)  # fmt: skip
def test_score_type(changes, expected):
    assert score_type(replace(LAMP, **changes), TARGET) == expected


def test_score_type_between_the_thresholds():
    long = replace(TARGET, nouns=(*(f"n{i}" for i in range(9)), "lamp"))
    other = replace(LAMP, query="x", product_category="y")
    assert score_type(other, long) == (0.5, False, False, 0.1)  # 1 of 10 is not below 0.1
    longer = replace(TARGET, nouns=(*(f"n{i}" for i in range(10)), "lamp"))
    assert score_type(LAMP, longer)[0] == 0.1
    # Repeats count in the length, not among the shared ones.
    repeated = replace(TARGET, nouns=("lamp",) * 4)
    assert score_type(LAMP, repeated)[3] == 0.25
    assert score_type(LAMP, replace(TARGET, nouns=()))[3] == 0.2


def test_category_needs_two_parts_in_common():
    paths = {"Home": False, "Home › Lighting": True, "Lamps › Other › Home": True, "Homes": False}
    for path, match in paths.items():
        assert score_type(replace(LAMP, product_category=path), TARGET)[2] is match


@pytest.mark.parametrize(
    ("attribute", "met"),
    [
        ("dimmable", True),
        ("finish brass", True),  # word order does not matter
        ("easy clean", True),  # in a bullet, in lower case
        ("warm light", True),  # in the description
        ("with shade", True),  # in the title
        ("surface made", True),  # bullets are joined by a blank
        ("battery powered", False),
        ("Warm", False),  # the wanted attribute is compared as it is written
    ],
)
def test_attributes_met(attribute, met):
    assert attributes_met(LAMP, (attribute,)) == met


@pytest.mark.parametrize(
    ("selected", "wanted", "met"),
    [
        ((), ("red",), 0),
        (("red",), ("red",), 1),
        (("light blue",), ("navy blue",), 1),  # both reduce to "blue"
        (("light green",), ("light rose",), 0),  # to "green" and "light"
        (("titanium",), ("tan",), 1),
        (("navy",), ("dark navy",), 0),  # "dark" comes first in the table
        (("x-large",), ("large",), 1),
        (("large", "red"), ("red", "large", "tall"), 2),
        # A synthetic goal's pair reduces only if a part of it is a colour word as a whole.
        (("red",), (("color", "red"),), 1),
        (("dark red",), (("color", "dark red"),), 1),  # "dark" is a word of the pair
        (("navy",), (("color", "dark red"),), 0),
        (("small",), (("size", "small"),), 1),
        (("wide",), (("size", "small"),), 0),
        (("natural",), (("wine", "natural"),), 1),  # first of the two in the table
    ],
)
def test_options_met(selected, wanted, met):
    assert options_met(selected, wanted) == met


def test_reward_of_a_perfect_purchase():
    reward = Scorer().score(LAMP, GOAL, ["gold", "large"])
    assert reward.total == 1.0
    assert reward.parts() == {
        "r_type": 1.0,
        "r_att": 1.0,
        "w_att": 0.4,
        "query_match": True,
        "category_match": True,
        "title_score": 1.0,
        "r_option": 1.0,
        "w_option": 0.4,
        "r_price": True,
        "w_price": 0.2,
    }


def test_reward_of_an_imperfect_purchase():
    dear = replace(LAMP, price=31.0, nouns=("lamp",), attributes=())
    reward = Scorer().score(dear, GOAL, ["gold"])
    # One of two attributes, one of two options, not the price; the type is right.
    assert reward.total == pytest.approx(2 / 5)
    assert reward.parts()["r_price"] is False
    wrong = Scorer().score(replace(dear, nouns=()), GOAL, ["gold", "large"])
    assert wrong.total == 0.0


def test_reward_without_options_or_price_bound():
    goal = replace(GOAL, options=(), price_upper=NO_LIMIT)
    reward = Scorer().score(replace(LAMP, price=5000.0), goal, ["anything"])
    assert reward.total == 1.0
    assert "r_option" not in reward.parts()
    assert "w_option" not in reward.parts()
    assert reward.parts()["w_price"] == 1 / 3


def test_price_on_the_bound_is_met():
    assert Scorer().score(replace(LAMP, price=30.0), GOAL, []).price_met
    assert not Scorer().score(replace(LAMP, price=30.01), GOAL, []).price_met


@pytest.mark.data
def test_colour_words(data_dir):
    assert list(COLOURS) == json.loads((data_dir / "webshop" / "colour_names.json").read_text())
