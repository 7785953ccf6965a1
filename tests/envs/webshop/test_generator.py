import hashlib
import itertools
import json
import re
from collections import Counter, defaultdict

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentgym  # noqa: F401 - registers the environments
from envs.webshop.catalogue import build_catalogue
from envs.webshop.families import (
    FAMILY_SIZE,
    GROUP_SIZE,
    MAX_PRODUCTS,
    Dice,
    asin_of,
    asin_pieces,
    highest_bound,
    normal_value,
    split_of_family,
)
from envs.webshop.full_shop import wordings
from envs.webshop.generator import MIN_PRODUCTS, generate, target_splits
from envs.webshop.goals import SPLITS, build_goals
from envs.webshop.lexicon import DEPARTMENTS, DETAILS, SENTENCES, SMALL, phrases
from envs.webshop.oracle import basket_of
from envs.webshop.reward import options_met, similar
from envs.webshop.shop import ShopConfig, open_shop
from envs.webshop.small_shop import bound_range, price_range

LEVELS = ("small", "full")
KINDS = ("synthetic", "human")

# The catalogues that published numbers belong to: a change here is a new catalogue.
DIGESTS = {
    "small": "cbefe4d419dfb0a0cdcf58109924928c07b829752f85db4541f947318d1f679e",
    "full": "f1b1e06d2b0b9d2db1e006879cb3741db789b019481db03efaf55d10599ca5b0",
}

# Every key of the original's product file.
ROW_KEYS = list(
    phrases("""
        name, product_information, brand, brand_url, full_description, pricing, list_price,
        availability_quantity, availability_status, images, product_category, average_rating,
        small_description, total_reviews, total_answered_questions, customization_options,
        seller_id, seller_name, fulfilled_by_amazon, fast_track_message, aplus_present,
        small_description_old, asin, category, query, page""")
)
OPTION_KEYS = {
    "is_selected", "is_available", "url", "value", "asin", "price_string", "price", "image"
}  # fmt: skip
ANNOTATION_KEYS = {
    "asin", "instruction", "attributes", "options", "instruction_attributes",
    "instruction_options", "assignment_id", "worker_id",
}  # fmt: skip


@pytest.fixture(scope="module", params=LEVELS)
def level(request):
    return request.param


@pytest.fixture(scope="module")
def made(level):
    return generate(1000, 0, level)


@pytest.fixture(scope="module")
def shop(level):
    return open_shop(ShopConfig(difficulty=level))


def _parts(raw):
    return json.dumps([raw.products, raw.attributes, raw.human, raw.nouns], sort_keys=True)


def _groups(rows):
    """Groups of a catalogue: two decoys and the target."""
    whole = len(rows) // GROUP_SIZE * GROUP_SIZE
    return [rows[start : start + GROUP_SIZE] for start in range(0, whole, GROUP_SIZE)]


# The same everywhere -----------------------------------------------------------------------------


def test_the_default_catalogue_is_the_published_one(made, level):
    assert hashlib.sha256(_parts(made).encode()).hexdigest() == DIGESTS[level]


def test_more_products_do_not_change_the_earlier_ones(level):
    few, many = generate(MIN_PRODUCTS + 5, 3, level), generate(500, 3, level)
    assert many.products[: len(few.products)] == few.products
    for asin in few.attributes:
        assert many.attributes[asin] == few.attributes[asin]
        assert many.human.get(asin) == few.human.get(asin)
        assert many.nouns[asin] == few.nouns[asin]
    assert target_splits(few).items() <= target_splits(many).items()


def test_seeds_differ(level):
    assert _parts(generate(90, 0, level)) != _parts(generate(90, 1, level))


@given(st.integers(MIN_PRODUCTS, 200), st.integers(0, 2**40), st.sampled_from(LEVELS))
def test_any_size_and_seed_gives_goals_in_every_split(size, seed, difficulty):
    raw = generate(size, seed, difficulty)
    catalogue = build_catalogue(raw)
    assert len(catalogue) == size == len(raw.products)
    homes = target_splits(raw)
    for kind in KINDS:
        goals = build_goals(catalogue, kind)
        assert {homes[goal.asin] for goal in goals} == set(SPLITS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((MIN_PRODUCTS - 1, 0, "small"), f"between {MIN_PRODUCTS}"),
        ((MAX_PRODUCTS + 1, 0, "small"), f"got {MAX_PRODUCTS + 1}"),
        (("90", 0, "small"), "n_products must be an int, got '90'"),
        ((True, 0, "small"), "got True"),
        ((90, -1, "small"), "seed must be an int >= 0, got -1"),
        ((90, 0.5, "small"), "got 0.5"),
        ((90, 0, "hard"), "'small' or 'full', got 'hard'"),
    ],
)
def test_bad_arguments_are_named(arguments, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        generate(*arguments)


def test_splits_of_a_loaded_catalogue_are_refused(raw):
    with pytest.raises(ValueError, match="was not generated"):
        target_splits(raw)


# The original's schema ---------------------------------------------------------------------------


def test_rows_have_the_keys_and_types_of_the_original(made):
    for row in made.products:
        assert list(row) == ROW_KEYS
        assert isinstance(row["small_description"], list)
        assert row["images"]
        groups = row["customization_options"]
        assert groups == "" or isinstance(groups, dict)
        for values in (groups or {}).values():
            assert len(values) == len({normal_value(v["value"]) for v in values}) >= 3
            assert all(set(value) == OPTION_KEYS for value in values)
        assert set(made.attributes[row["asin"]]) >= {"attributes"}
    for kind in KINDS:
        assert build_goals(build_catalogue(made, compat="upstream"), kind, compat="upstream")
    for asin, annotations in made.human.items():
        for annotation in annotations:
            assert set(annotation) == ANNOTATION_KEYS
            assert annotation["asin"] == asin
            assert set(annotation["instruction_attributes"]) <= set(annotation["attributes"])


def test_saved_files_give_the_same_goals_as_the_catalogue_in_memory(made, level, tmp_path):
    made.save(tmp_path)
    for kind in KINDS:
        loaded = open_shop(
            ShopConfig(data=tmp_path, nouns=tmp_path / "nouns.json", goals=kind, split_by="product")
        )
        builtin = open_shop(ShopConfig(difficulty=level, goals=kind))
        assert [g.as_dict() for g in loaded.goals] == [g.as_dict() for g in builtin.goals]


def test_option_values_and_buttons_never_share_a_name(shop):
    for product in shop.catalogue:
        view = shop.view(product.asin)
        values = [value for group in product.options.values() for value in group]
        assert sorted(view.label_of) == sorted(values)


# Product ids -------------------------------------------------------------------------------------


def test_ids_are_distinct_and_made_of_the_pieces(made):
    asins = [row["asin"] for row in made.products]
    assert len(set(asins)) == len(asins)
    firsts, seconds = asin_pieces(1000)
    assert len(set(firsts)) == len(set(seconds)) == 32
    for asin in asins:
        assert re.fullmatch(r"B0[A-Z0-9]{8}", asin)
        assert asin[:6] in firsts
        assert asin[6:] in seconds


def test_ids_stay_distinct_in_large_catalogues_and_the_pieces_do_not_depend_on_the_seed():
    firsts, seconds = asin_pieces(5000)
    pieces = {first + second for first in firsts for second in seconds}
    assert len(firsts) == 5 * 32
    for seed in (0, 9):
        asins = {asin_of(index, seed) for index in range(5000)}
        assert len(asins) == 5000
        assert asins <= pieces
    last = {asin_of(MAX_PRODUCTS - 1 - back, 0) for back in range(1024)}
    assert len(last) == 1024
    assert not last & {asin_of(index, 0) for index in range(5000)}
    with pytest.raises(ValueError, match="at most"):
        asin_of(MAX_PRODUCTS, 0)


def test_a_target_gets_each_rank_among_its_groups_ids_equally_often(made):
    ranks = Counter(
        sorted(row["asin"] for row in group).index(group[-1]["asin"])
        for group in _groups(made.products)
    )
    assert set(ranks) == {0, 1, 2}
    assert max(ranks.values()) - min(ranks.values()) <= 1


# Families ----------------------------------------------------------------------------------------


def test_all_targets_of_a_family_are_in_one_split_whatever_the_seed(level):
    for seed in (0, 5):
        raw = generate(300, seed, level)
        homes = target_splits(raw)
        for index, row in enumerate(raw.products):
            target = (index + 1) % GROUP_SIZE == 0
            assert (row["asin"] in homes) == target
            assert ("instruction" in raw.attributes[row["asin"]]) == target
            assert (row["asin"] in raw.human) == target
            if target:
                assert homes[row["asin"]] == split_of_family(index // FAMILY_SIZE)


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_enough_goals(made, kind):
    homes = target_splits(made)
    goals = build_goals(build_catalogue(made), kind)
    counts = Counter(homes[goal.asin] for goal in goals)
    assert counts["train"] >= 1500
    assert counts["test"] >= 200
    assert counts["validation"] >= 200
    of = defaultdict(set)
    for goal in goals:
        of[homes[goal.asin]].add(goal.asin)
    assert not of["train"] & of["test"]
    assert not of["train"] & of["validation"]
    assert not of["test"] & of["validation"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_decoy_of_the_family_meets_a_goal(made, level, kind):
    shop = open_shop(ShopConfig(difficulty=level, goals=kind))
    place = {row["asin"]: index for index, row in enumerate(made.products)}
    for goal in shop.goals.goals[::4]:
        family = place[goal.asin] // FAMILY_SIZE
        members = made.products[family * FAMILY_SIZE : (family + 1) * FAMILY_SIZE]
        meet = [
            row["asin"]
            for row in members
            if basket_of(shop, shop.view(row["asin"]), goal).reward == 1.0
        ]
        assert meet == [goal.asin], goal.instruction


def test_price_decoys_cost_more_than_any_bound_the_target_can_state(shop):
    for *decoys, target in _groups(shop.catalogue.products):
        bound = highest_bound(max(target.pricing))
        assert all(min(decoy.pricing) > bound for decoy in decoys)
        assert all(decoy.attributes == target.attributes for decoy in decoys)
        assert all(decoy.options == target.options for decoy in decoys)


@given(st.floats(0.01, 900, allow_nan=False))
def test_highest_bound_is_the_fourth_multiple_of_ten_above(price):
    above = [bound for bound in range(10, 1000, 10) if bound > price]
    assert highest_bound(price) == above[3]


# Words -------------------------------------------------------------------------------------------


def _apart(values):
    return [pair for pair in itertools.combinations(values, 2) if similar(*pair)]


def test_attributes_of_a_pool_never_count_as_equal():
    assert _apart(SMALL.attributes) == []
    for department in DEPARTMENTS:
        assert _apart((*department.attributes, *department.purposes)) == []


def test_small_option_values_never_count_as_equal():
    for group, values in (("color", SMALL.colors), ("size", SMALL.sizes)):
        for has, wanted in itertools.product(values, values):
            assert options_met((has,), ((group, wanted),)) == (has == wanted)
            assert options_met((has,), (wanted,)) == (has == wanted)


def test_option_values_meet_themselves_and_never_the_other_half():
    for department in DEPARTMENTS:
        for kind in department.types:
            assert kind.groups[0].right
            for group in kind.groups:
                name = group.name.lower()
                left = [normal_value(value) for value in group.left]
                right = [normal_value(value) for value in group.right]
                for value in (*left, *right):
                    assert options_met((value,), ((name, value),)) == 1, value
                    assert options_met((value,), (value,)) == 1, value
                for a, b in itertools.product(left, right):
                    for has, wanted in ((a, b), (b, a)):
                        assert not options_met((has,), ((name, wanted),)), (has, wanted)
                        assert not options_met((has,), (wanted,)), (has, wanted)


def test_filler_names_no_attribute():
    filler = " ".join((*SENTENCES, *DETAILS)).lower()
    for department in DEPARTMENTS:
        titles = [*department.modifiers, *department.audiences]
        titles += [kind.head for kind in department.types]
        text = f"{filler} {' '.join(titles).lower()}"
        for attribute in (*department.attributes, *department.purposes):
            assert attribute not in text


def test_walks_need_a_power_of_two():
    assert len(SENTENCES) == 16
    assert len(DETAILS) == 8
    for seed in range(200):
        assert len(set(Dice(seed).walk(SENTENCES, 16))) == 16


@given(st.integers(0, 2**30), st.integers(1, 12))
def test_draws_are_distinct_places(seed, size):
    drawn = Dice(seed).draw(range(12), size)
    assert len(set(drawn)) == size
    assert set(drawn) <= set(range(12))
    assert 3 <= Dice(seed).between(3, 5) <= 5


def test_draws_reach_everything_equally():
    dice = Dice(0)
    counts = Counter(dice.pick("abcd") for _ in range(4000))
    counts2 = Counter(dice.draw("abcd", 2)[1] for _ in range(4000))
    assert all(900 < counts[c] < 1100 and 900 < counts2[c] < 1100 for c in "abcd")


def test_wordings_keep_the_attribute_recognisable():
    assert "easy to clean" in wordings("easy clean")
    assert set(wordings("gluten free")) == {"free of gluten", "gluten-free", "gluten free"}
    assert "non-toxic" in wordings("non toxic")
    assert wordings("tea tree") == ("tea tree",)


# The small catalogue -----------------------------------------------------------------------------


def test_small_titles_have_one_length_and_prices_few_forms():
    shop = open_shop(ShopConfig(difficulty="small"))
    assert {len(product.title.split()) for product in shop.catalogue} == {8}
    prices = {product.price for product in shop.catalogue}
    assert prices <= set(price_range())
    assert len(price_range()) <= 40
    bounds = {goal.price_upper for goal in shop.goals}
    assert bounds == set(bound_range())


def test_small_targets_and_decoys_overlap_in_price():
    products = open_shop(ShopConfig(difficulty="small")).catalogue.products
    targets = Counter(product.price for product in products if product.instruction)
    decoys = Counter(product.price for product in products if not product.instruction)
    shared = set(targets) & set(decoys)
    assert sum(targets[price] for price in shared) > 0.3 * targets.total()
    assert sum(decoys[price] for price in shared) > 0.3 * decoys.total()


def test_small_families_of_a_noun_share_no_attribute():
    products = generate(1260, 0, "small").products
    seen = defaultdict(set)
    for start in range(0, len(products), FAMILY_SIZE):
        family = products[start : start + FAMILY_SIZE]
        noun = family[0]["query"]
        words = {line.strip() for row in family for line in row["small_description"][1:]}
        assert not seen[noun] & words
        seen[noun] |= words
    assert set(seen) == set(SMALL.nouns)


# The full catalogue ------------------------------------------------------------------------------


def test_full_catalogue_holds_what_real_ones_hold():
    shop = open_shop(ShopConfig(difficulty="full"))
    products = shop.catalogue.products
    share = len(products) / 100
    assert {product.category for product in products} == {d.category for d in DEPARTMENTS}
    assert {len(product.options) for product in products} == {0, 1, 2, 3}
    assert sum(len(p.pricing) == 2 for p in products) > 5 * share
    assert sum(p.price_tag == "$100.0" for p in products) > 2 * share
    values = [v for p in products for group in p.options.values() for v in group]
    assert any(not v.isascii() for v in values)
    assert any('"' in v for v in values)
    assert any(" | " in v for v in values)
    assert any(not p.title.isascii() for p in products)
    hidden = [
        p
        for p in products
        if p.instruction and any(a not in p.title.lower() for a in p.instruction_attributes)
    ]
    assert 15 * share / GROUP_SIZE < len(hidden) < 45 * share / GROUP_SIZE
    for product in hidden:
        for attribute in product.instruction_attributes:
            if attribute not in product.title.lower():
                assert attribute not in product.indexed_text()
                assert attribute in " ".join(product.bullets)


def test_full_requests_are_worded_in_many_ways():
    goals = build_goals(build_catalogue(generate(1000, 0, "full")), "human")
    openings = Counter(" ".join(goal.instruction.split()[:2]) for goal in goals)
    assert len(openings) >= 8
    assert len({goal.instruction for goal in goals}) > 0.95 * len(goals)
    assert any(not goal.options for goal in goals)
    assert {len(goal.attributes) for goal in goals} == {2, 3}


def test_the_environment_plays_it(level):
    env = gym.make("WebShop-v0", difficulty=level, catalogue="builtin:90:4")
    homes = target_splits(generate(90, 4, level))
    tasks = env.unwrapped.tasks
    for split in SPLITS:
        assert {homes[task_id.split("/")[0]] for task_id in tasks.ids(split)} == {split}
    env.close()
