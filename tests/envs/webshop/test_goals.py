import gzip
import json
import random

import pytest

from envs.webshop.catalogue import CatalogueError, GeneratedCatalogue, build_catalogue
from envs.webshop.goals import (
    NO_LIMIT,
    SPLITS,
    build_goals,
    load_goals,
    split_by_index,
    split_by_product,
)


def test_synthetic_goals(raw):
    goals = build_goals(build_catalogue(raw), "synthetic")
    # 3 colours times 4 sizes (a repeated value counts twice), and a product without options.
    assert len(goals) == 13
    ids = sorted(g.task_id for g in goals)
    assert ids == sorted([*(f"B00000000A/s{i}" for i in range(12)), "B000000000/s0"])
    first = goals["B00000000A/s0"]
    assert first.options == (("color", '24" wide'), ("size", "red"))
    assert first.instruction.startswith('Find me a lamp with color: 24" wide, and size: red, and ')
    assert first.attributes == ("dimmable",)
    assert first.weight == 1 / 12
    assert first.option_values == ('24" wide', "red")
    plain = goals["B000000000/s0"]
    assert plain.options == ()
    assert plain.weight == 1.0
    assert [g.index for g in goals] == list(range(13))


def test_price_bound_is_above_the_price_and_said(raw):
    for goal in build_goals(build_catalogue(raw), "synthetic"):
        price = build_catalogue(raw)[goal.asin].price
        assert price < goal.price_upper <= price + 40
        assert goal.price_upper % 10 == 0
        assert goal.instruction.endswith(f", and price lower than {goal.price_upper:.2f} dollars")


@pytest.mark.parametrize(("price", "bounded"), [(979.99, True), (980.0, False), (5000.0, False)])
def test_price_bound_at_the_top(raw, price, bounded):
    prices = {r["asin"]: price for r in raw.products}
    goal = build_goals(build_catalogue(raw, prices=prices), "synthetic")["B000000000/s0"]
    assert (goal.price_upper != NO_LIMIT) == bounded
    assert ("price lower" in goal.instruction) == bounded


def test_human_goals(raw):
    goals = build_goals(build_catalogue(raw), "human")
    assert [g.task_id for g in goals] == ["B00000000A/h0"]  # the other asks for no attribute
    goal = goals[0]
    assert goal.options == ("red",)
    assert goal.weight == 1.0
    assert goal.instruction.startswith("i want a dimmable red lamp, and price lower than ")


def test_goals_do_not_depend_on_global_randomness(raw):
    catalogue = build_catalogue(raw)
    random.seed(1)
    first = [g.as_dict() for g in build_goals(catalogue, "synthetic")]
    state = random.getstate()
    assert [g.as_dict() for g in build_goals(catalogue, "synthetic")] == first
    assert random.getstate() == state


def test_bound_of_a_product_survives_other_products(raw):
    bounds = {g.task_id: g.price_upper for g in build_goals(build_catalogue(raw), "synthetic")}
    raw.products[:] = raw.products[:1]
    for goal in build_goals(build_catalogue(raw), "synthetic"):
        assert bounds[goal.task_id] == goal.price_upper


def test_no_goals_is_an_error(raw):
    raw.human.clear()
    with pytest.raises(CatalogueError, match="no human goals: the 14 products have no human"):
        build_goals(build_catalogue(raw), "human")
    raw.attributes.clear()
    with pytest.raises(CatalogueError, match="no synthetic goals"):
        build_goals(build_catalogue(raw), "synthetic")


@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_recorded_form_round_trips(raw, kind):
    catalogue = build_catalogue(raw)
    records = [g.as_dict() for g in build_goals(catalogue, kind)]
    loaded = load_goals(json.loads(json.dumps(records)), catalogue)
    assert [g.as_dict() for g in loaded] == records
    assert len({g.task_id for g in loaded}) == len(records)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("attributes"), "goal 0 lacks 'attributes'"),
        (lambda r: r.update(asin="B9"), "goal 0: its product 'B9' is not in the catalogue"),
        (lambda r: r.update(attributes=[]), "goal 0: it asks for no attribute"),
        (lambda r: r.update(price_upper="cheap"), "goal 0: .*cheap"),
    ],
)
def test_broken_records(raw, change, message):
    catalogue = build_catalogue(raw)
    record = build_goals(catalogue, "human")[0].as_dict()
    change(record)
    with pytest.raises(CatalogueError, match=message):
        load_goals([record], catalogue)


def _many(raw, count):
    base = build_goals(build_catalogue(raw), "human")[0].as_dict()
    asins = [r["asin"] for r in raw.products]
    records = [base | {"asin": asins[i % len(asins)]} for i in range(count)]
    return load_goals(records, build_catalogue(raw))


def test_split_by_index_is_the_published_one(raw):
    goals = _many(raw, 1600)
    splits = split_by_index(goals)
    assert [goals[i].index for i in splits["test"]] == list(range(500))
    assert [goals[i].index for i in splits["validation"]] == list(range(500, 1500))
    assert [goals[i].index for i in splits["train"]] == list(range(1500, 1600))


def test_split_by_product_shares_no_product(raw):
    goals = _many(raw, 100)
    splits = split_by_product(goals)
    homes = {name: {goals[i].asin for i in ids} for name, ids in splits.items()}
    assert all(homes[name] for name in SPLITS)
    assert sum(map(len, homes.values())) == len(set().union(*homes.values())) == 14
    assert sum(map(len, splits.values())) == 100
    # The place of a product does not move with the order of the goals.
    again = split_by_product(build_goals(build_catalogue(raw), "synthetic"))
    assert set(again) == set(SPLITS)


def test_split_by_product_follows_the_catalogue_where_it_says(raw):
    goals = build_goals(build_catalogue(raw), "synthetic")
    splits = split_by_product(goals, {"B00000000A": "test", "B000000000": "train"})
    assert len(splits["test"]) == 12
    assert len(splits["train"]) == 1
    assert splits["validation"] == ()


@pytest.mark.data
@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_published_goals(data_dir, kind):
    folder = data_dir / "webshop"

    def read(name):
        return json.loads((folder / name).read_text())

    raw = GeneratedCatalogue(
        read("items_shuffle_1000.json"),
        read("items_ins_v2_1000.json"),
        read("items_human_ins_1000.json"),
        read("nouns_spacy36.json"),
    )
    recorded = json.loads(
        gzip.decompress((folder / f"upstream_trace_goals_{kind}.json.gz").read_bytes())
    )
    catalogue = build_catalogue(raw, compat="upstream", prices=recorded["prices"])
    goals = build_goals(catalogue, kind)
    assert len(goals) == len(recorded["goals"])

    # The bound is drawn at random in the original; all else is the same, in the same order.
    def fixed(record):
        text = record["instruction_text"].split(", and price lower than")[0]
        return {**record, "price_upper": None, "instruction_text": text}

    assert [fixed(g.as_dict()) for g in goals] == [fixed(r) for r in recorded["goals"]]
