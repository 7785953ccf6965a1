import json
import random

import pytest

from envs.webshop.catalogue import (
    CatalogueError,
    GeneratedCatalogue,
    build_catalogue,
    parse_price,
)


@pytest.mark.parametrize(
    ("pricing", "prices", "tag"),
    [
        ("$7.49", (7.49,), "$7.49"),
        ("$1,299.00", (1299.0,), "$1299.0"),
        ("$6.99 - $12.99", (6.99, 12.99), "$6.99 to $12.99"),
        ("$1 - $2 - $3", (1.0, 2.0), "$1.0 to $2.0"),
        ("", (100.0,), "$100.0"),
        (None, (100.0,), "$100.0"),
    ],
)
def test_parse_price(pricing, prices, tag):
    assert parse_price(pricing, "B1") == (prices, tag)


@pytest.mark.parametrize(
    ("pricing", "message"),
    [
        ("12.99", "'12.99' has no dollar sign"),
        ("EUR 5", "no dollar sign"),
        ("$", "no number behind"),
        ("$5 - $", "no number behind"),
        ("$1.2.3", "no number behind"),
        (12.99, "must be a string"),
    ],
)
@pytest.mark.parametrize("compat", ["strict", "upstream"])
def test_bad_price_is_an_error_of_loading(raw, pricing, message, compat):
    raw.products[1]["pricing"] = pricing
    with pytest.raises(CatalogueError, match=message) as caught:
        build_catalogue(raw, compat=compat)
    assert "B00000000B" in str(caught.value)


def test_products(raw):
    catalogue = build_catalogue(raw)
    lamp = catalogue["B00000000A"]
    assert lamp.title == "Brass Lamp"
    assert lamp.query == "lamps"
    assert lamp.bullets == ("Dimmable ", "", "Made of brass")
    assert lamp.options == {
        "color": ('24" wide', "rosé | gold", "red"),
        "size": ("red", "small", "buy now", "small"),
    }
    assert lamp.price_tag == "$10.0 to $30.0"
    assert lamp.nouns == ("brass", "lamp")
    assert lamp.indexed_text() == (
        'brass lamp warm light. dimmable  color: 24" wide, rosé | gold, red, and '
        "size: red, small, buy now, small"
    )
    plain = catalogue["B00000000B"]
    assert plain.bullets == ("One line",)
    assert plain.price == 100.0
    assert plain.indexed_text() == "plain lamp  one line "
    assert len(catalogue) == 14
    assert catalogue.position("B00000000B") == 1
    with pytest.raises(KeyError, match="no product 'nope' among the 14"):
        catalogue["nope"]


def test_rows_without_a_usable_id_and_repeats_are_left_out(raw):
    first = raw.products[0]
    raw.products.extend(
        [
            first | {"asin": "nan"},
            first | {"asin": "B0123456789"},
            first | {"name": "another one of that id"},
        ]
    )
    catalogue = build_catalogue(raw)
    assert len(catalogue) == 14
    assert catalogue.skipped == 3
    assert catalogue["B00000000A"].title == "Brass Lamp"


def test_limit_counts_rows(raw):
    assert [p.asin for p in build_catalogue(raw, limit=2)] == ["B00000000A", "B00000000B"]


def test_option_groups_of_null_are_dropped_and_names_lowered(raw):
    raw.products[0]["customization_options"] = {
        "Color": None,
        "SIZE": [{"value": " A/B "}],
        "Size": [{"value": "c"}],
    }
    assert build_catalogue(raw)["B00000000A"].options == {"size": ("c",)}


def test_price_of_a_range_depends_on_the_product_alone(raw):
    random.seed(1)
    first = build_catalogue(raw)["B00000000A"].price
    random.seed(2)
    raw.products.reverse()
    assert build_catalogue(raw)["B00000000A"].price == first
    assert 10.0 <= first <= 30.0


def test_given_prices_win(raw):
    prices = {r["asin"]: 5.0 for r in raw.products}
    assert {p.price for p in build_catalogue(raw, compat="upstream", prices=prices)} == {5.0}
    del prices["B00000000B"]
    with pytest.raises(CatalogueError, match="prices lack a number for product 'B00000000B'"):
        build_catalogue(raw, prices=prices)


def test_unknown_attributes(raw):
    assert build_catalogue(raw)["B000000001"].attributes == ()
    upstream = build_catalogue(raw, compat="upstream")
    assert upstream["B000000001"].attributes == ("DUMMY_ATTR",)


def _set(path, value):
    def change(raw):
        target = raw
        for key in path[:-1]:
            target = (
                getattr(target, key)
                if isinstance(key, str) and hasattr(target, key)
                else target[key]
            )
        target[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(("products", 3), "text"), "row 3 must be an object"),
        (lambda raw: raw.products[2].pop("query"), "row 2 .*lacks 'query'"),
        (_set(("products", 2, "name"), 5), "row 2 .*name must be str"),
        (_set(("products", 2, "full_description"), None), "full_description must be str"),
        (_set(("products", 2, "small_description"), [1]), "small_description .*list of strings"),
        (_set(("products", 2, "customization_options"), "red"), "customization_options"),
        (_set(("products", 2, "customization_options"), {"a": "b"}), "'a' must be a list"),
        (_set(("products", 2, "customization_options"), {"a": [{}]}), "string 'value'"),
        (_set(("attributes", "B00000000A"), ["x"]), "attributes of 'B00000000A'"),
        (_set(("attributes", "B00000000A", "attributes"), "x"), "list of strings"),
        (_set(("attributes", "B00000000A", "instruction"), 5), "instruction of"),
        (_set(("attributes", "B00000000A", "instruction_attributes"), []), "no instruction_attr"),
        (_set(("human", "B00000000A"), {}), "must be a list"),
        (_set(("human", "B00000000A"), [{"instruction": 1}]), "string 'instruction'"),
        (_set(("human", "B00000000A"), [{"instruction": "x"}]), "lacks 'instruction_attributes'"),
        (lambda raw: raw.nouns.pop("B00000000B"), "nouns lack product 'B00000000B'"),
        (_set(("nouns", "B00000000B"), "lamp"), "nouns of 'B00000000B' must be a list"),
        (lambda raw: raw.products.clear(), "no usable product"),
    ],
)
def test_broken_schema(raw, change, message):
    change(raw)
    with pytest.raises(CatalogueError, match=message):
        build_catalogue(raw)


def test_wrong_top_level(raw):
    with pytest.raises(CatalogueError, match="products must be a list"):
        build_catalogue(GeneratedCatalogue({}, {}, {}, {}))  # type: ignore[arg-type]
    with pytest.raises(CatalogueError, match="attributes must be an object"):
        build_catalogue(GeneratedCatalogue(raw.products, [], {}, raw.nouns))  # type: ignore[arg-type]


def test_save_writes_the_original_files(raw, tmp_path):
    raw.save(tmp_path / "shop")
    names = {p.name: p for p in (tmp_path / "shop").iterdir()}
    assert set(names) == {
        "items_shuffle.json",
        "items_ins_v2.json",
        "items_human_ins.json",
        "nouns.json",
    }
    assert json.loads(names["items_shuffle.json"].read_text()) == raw.products
    assert json.loads(names["nouns.json"].read_text()) == raw.nouns
