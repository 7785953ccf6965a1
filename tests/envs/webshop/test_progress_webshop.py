"""Task progress in WebShop: states by the pages, kinds of action by the table, nothing hidden."""

from __future__ import annotations

import gzip
import itertools
import json
import random

import gymnasium as gym
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.registry import load, spec
from envs.webshop.oracle import demonstrate
from envs.webshop.progress import (
    CompactProgress,
    FrontierProgress,
    Page,
    coverage,
    price_kind,
    read_page,
    read_wish,
)

GOAL = (
    "Find me stain repellent, machine washable curtain with color: orange, and size: large, and "
    "price lower than 120.00 dollars"
)
PRESETS = {"paper": FrontierProgress, "compact": CompactProgress}
BUTTONS = ("back to search", "< prev", "description", "features", "reviews", "buy now")


def info(page, *names, **more):
    return {
        "goal": GOAL,
        "details": {"page": page},
        "admissible_actions": tuple(f"click[{name}]" for name in names),
        **more,
    }


def results(*products, number=1, has_next=True):
    shown = [x for asin, title, price in products for x in (asin.upper(), title, price)]
    head = f"Instruction: [SEP] {GOAL} [SEP] Back to Search [SEP] Page {number} (Total results: 50)"
    parts = [head, *(["Next >"] if has_next else []), *shown]
    names = ["back to search", *(["next >"] if has_next else []), *(p[0] for p in products)]
    return " [SEP] ".join(parts), info("results", *names)


def item(title, price, **groups):
    parts = [f"Instruction: [SEP] {GOAL} [SEP] Back to Search [SEP] < Prev"]
    for group, labels in groups.items():
        parts += [group, *labels]
    parts += [title, f"Price: {price}", "Rating: N.A.", "Description", "Features", "Reviews"]
    labels = [label.lower() for own in groups.values() for label in own]
    return " [SEP] ".join([*parts, "Buy Now"]), info("item", *BUTTONS, *labels)


INDEX = (f"WebShop [SEP] Instruction: [SEP] {GOAL} [SEP] Search", info("index"))
STRONG = ("b01", "Alderon Stain Repellent Machine Washable Deep Curtain", "$85.0")
DEAR = ("b02", "Bexley Stain Repellent Machine Washable Curtain", "$138.0")
HALF = ("b03", "Corvane Machine Washable Blanket", "$20.0")
LIST = results(STRONG, DEAR, HALF)
ITEM = item(STRONG[1], STRONG[2], color=["orange", "white"], size=["small", "large"])
SUB = ("Back to Search [SEP] < Prev [SEP] soft", info("description", "back to search", "< prev"))


def follow(kind, *steps, max_steps=None):
    """Do (action, next page) one after another; (state before, kind) of each."""
    made = kind("WebShop-v0", max_steps)
    made.reset(*INDEX)
    told = []
    for action, (observation, told_info) in steps:
        told.append((made.state(), made.abstract(action, True, True)))
        made.update(action, True, observation, 0.0, told_info)
    return [*told, (made.state(), "")]


def test_the_registry_knows_the_presets():
    entry = spec("WebShop-v0")
    assert {name: load(point) for name, point in entry.abstractions.items()} == PRESETS


# Reading -----------------------------------------------------------------------------------------


def test_an_instruction_is_taken_apart():
    wish = read_wish(GOAL)
    assert wish.words == {"stain", "repellent", "machine", "washable", "curtain"}
    assert wish.options == {"color": "orange", "size": "large"}
    assert wish.limit == 120
    free = read_wish(
        "i'm looking for a pair of blue 2 pack socks, and price lower than 30.00 dollars."
    )
    assert (free.words, free.options, free.limit) == ({"pair", "blue", "pack", "socks"}, {}, 30)
    assert read_wish("Find me tea").limit is None


@pytest.mark.parametrize(
    ("price", "limit", "kind"),
    [
        ("$85.0", 120.0, "ok"),
        ("$120", 120.0, "ok"),
        ("$138.0", 120.0, "high"),
        ("$100.0 to $1,200.50", 120.0, "mixed"),
        ("$130.0 to $140.0", 120.0, "high"),
        ("", 120.0, "unknown"),
        ("$138.0", None, "no-limit"),
    ],
)
def test_prices(price, limit, kind):
    assert price_kind(price, limit) == kind


@pytest.mark.parametrize(
    ("hits", "grade"), [(0, "none"), (1, "low"), (3, "low"), (4, "high"), (5, "high"), (6, "all")]
)
def test_coverage(hits, grade):
    assert coverage("abcdef"[:hits], frozenset("abcdef")) == grade


@pytest.mark.parametrize("mode", ["text", "text_rich"])
@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_pages_are_read_as_they_are(mode, difficulty):
    env = gym.make(
        "WebShop-v0", difficulty=difficulty, observation_mode=mode, catalogue="builtin:200"
    )
    inner = env.unwrapped
    kinds = set()
    for seed in range(6):
        observation, told = env.reset(seed=seed)
        for action in demonstrate(env, random.Random(seed), 0.0):
            observation, _, terminated, truncated, told = env.step(action)
            page, session = read_page(observation, told), inner.session
            kinds.add(page.kind)
            if page.kind == "results":
                shown = session.shown()
                assert list(page.products) == [view.name for view in shown]
                for view in shown:
                    title, price = page.products[view.name]
                    assert title == " ".join(view.product.title.lower().split())
                    assert price == view.product.price_tag.lower()
                assert page.has_next == ("click[next >]" in told["admissible_actions"])
                assert page.number == session.page_number
            elif page.kind == "item":
                view = session.view
                assert page.title == " ".join(view.product.title.lower().split())
                assert page.price == view.product.price_tag.lower()
                assert page.groups == {
                    group.lower(): [label.name for label in labels] for group, labels in view.labels
                }
            if terminated or truncated:
                break
    assert kinds == {"results", "item", "done"}


def test_an_address_cannot_be_read():
    env = gym.make("WebShop-v0", difficulty="small", observation_mode="url")
    observation, told = env.reset(seed=0)
    observation, *_, told = env.step("search[curtain]")
    assert read_page(observation, told) == Page()
    made = CompactProgress("x")
    made.reset(observation, told)
    assert not made.shareable(made.state(), "open:strong")


# The frontier ------------------------------------------------------------------------------------


def frontier(kind, *steps):
    return [(state.removeprefix("ws "), b) for state, b in follow(kind, *steps)]


def test_the_frontier_of_a_purchase():
    told = frontier(
        FrontierProgress,
        ("search[machine washable curtain]", LIST),
        ("click[b03]", item(HALF[1], HALF[2])),
        ("click[< prev]", LIST),
        ("click[b01]", ITEM),
        ("click[white]", ITEM),
        ("click[orange]", ITEM),
        ("click[description]", SUB),
        ("click[< prev]", ITEM),
        ("click[large]", ITEM),
        ("click[large]", ITEM),
        ("click[buy now]", ("Thank you", info("done"))),
    )
    assert told == [
        ("index -", "query:better"),
        ("results candidate", "open:weak"),  # neither weak nor strong, beside a strong one
        ("item reject", "back"),  # it has no colour
        ("results candidate", "open:strong"),
        ("item options_open", "option:other"),
        ("item options_open", "option:required"),
        ("item options_open", "inspect"),
        ("sub -", "other"),
        ("item options_open", "option:required"),
        ("item ready", "option:other"),
        ("item ready", "buy"),
        ("done -", ""),
    ]


def test_the_frontier_without_a_candidate():
    told = frontier(
        FrontierProgress,
        ("search[curtain]", results(DEAR, HALF)),
        ("click[b03]", results(DEAR, HALF)),
        ("click[back to search]", INDEX),
        ("search[curtain]", results(DEAR, HALF)),
        ("click[back to search]", INDEX),
        ("search[stain repellent machine washable curtain]", results(DEAR, HALF)),
        ("click[next >]", results(HALF, number=2, has_next=False)),
        ("click[b02]", INDEX),
    )
    assert told[:-1] == [
        ("index -", "query:better"),
        ("results query_weak", "open:partial"),
        ("results query_weak", "query"),
        ("index -", "query:other"),
        ("results query_weak", "query"),
        ("index -", "query:better"),
        ("results go_on", "next"),
        ("results -", "other"),
    ]


@pytest.mark.parametrize(
    ("page", "state"),
    [
        (item(*DEAR[1:], color=["orange"], size=["large"]), "reject"),
        (item("Some Other Thing", "$1.0", color=["orange"], size=["large"]), "reject"),
        (item(*HALF[1:], color=["orange"]), "reject"),
        (item(*HALF[1:], color=["orange"], size=["large"]), "options_open"),
    ],
)
def test_what_to_do_on_a_product_page(page, state):
    told = frontier(FrontierProgress, ("search[curtain]", LIST), ("click[b01]", page))
    assert told[-1][0] == f"item {state}"


def test_a_product_of_which_too_little_is_known_is_looked_into_once():
    page = item(*HALF[1:], color=["orange"], size=["large"])
    told = frontier(
        FrontierProgress,
        ("search[curtain]", LIST),
        ("click[b03]", page),
        ("click[orange]", page),
        ("click[large]", page),
        ("click[features]", SUB),
        ("click[< prev]", page),
    )
    assert [state for state, _ in told[4:]] == ["item needs_info", "sub -", "item -"]


def test_only_the_frontier_is_shared():
    made = FrontierProgress("x")
    assert made.shareable("ws item ready", "buy")
    assert not made.shareable("ws item -", "buy")
    for kind in ("other", "open:partial", "query:better", "malformed", "inadmissible"):
        assert not made.shareable("ws results candidate", kind)


# Compact -----------------------------------------------------------------------------------------


def test_compact_states_of_a_purchase():
    told = follow(
        CompactProgress,
        ("search[curtain]", results(DEAR, HALF)),
        ("click[back to search]", INDEX),
        ("search[stain repellent machine washable curtain]", LIST),
        ("click[next >]", results(HALF, number=2)),
        ("click[< prev]", LIST),
        ("click[b01]", ITEM),
        ("click[reviews]", SUB),
        ("click[< prev]", ITEM),
        ("click[orange]", ITEM),
        ("click[small]", ITEM),
        ("click[small]", ITEM),
        ("click[large]", ITEM),
        ("click[buy now]", ("Thank you", info("done"))),
        max_steps=15,
    )
    names = ("page", "query", "pg", "item", "options", "price", "looked", "budget")
    expected = [
        ("index none 1 n/a n/a n/a 0 early", "search:better"),
        ("results low 1 partial n/a n/a 0 early", "back"),
        ("index low 1 n/a n/a n/a 0 early", "search:better"),
        ("results high 1 strong n/a n/a 0 early", "next"),
        ("results high 2 partial n/a n/a 0 early", "prev"),
        ("results high 1 strong n/a n/a 0 early", "open:strong"),
        ("item high 1 strong 0 ok 0 early", "sub:reviews"),
        ("sub high 1 strong 0 ok 1 early", "prev"),
        ("item high 1 strong 0 ok 1 early", "option:required"),
        ("item high 1 strong part ok 1 early", "option:other"),
        ("item high 1 strong wrong ok 1 early", "option:repeat"),
        ("item high 1 strong wrong ok 1 late", "option:required"),
        ("item high 1 strong all ok 1 late", "buy"),
    ]
    assert told[:-1] == [
        (" ".join(["ws", *(f"{n}={v}" for n, v in zip(names, row.split(), strict=True))]), kind)
        for row, kind in expected
    ]


def test_searches_are_graded_by_the_one_before():
    told = follow(
        CompactProgress,
        ("search[machine washable curtain]", LIST),
        ("click[back to search]", INDEX),
        ("search[machine washable]", LIST),
        ("click[back to search]", INDEX),
        ("search[orange]", LIST),
        ("click[back to search]", INDEX),
        ("search[large]", LIST),
    )
    kinds = [kind for _, kind in told if kind.startswith("search")]
    assert kinds == ["search:better", "search:worse", "search:worse", "search:same"]


def test_options_of_free_instructions_are_those_that_stand_in_them():
    goal = "i need a white curtain in large, and price lower than 90.00 dollars"
    observation, told_info = ITEM
    made = CompactProgress("x")
    made.reset("WebShop", info("index") | {"goal": goal})
    made.update("search[curtain]", True, LIST[0].replace(GOAL, goal), 0.0, LIST[1] | {"goal": goal})
    made.update(
        "click[b01]", True, observation.replace(GOAL, goal), 0.0, told_info | {"goal": goal}
    )
    assert "options=0" in made.state()
    assert made.abstract("click[white]", True, True) == "option:required"
    assert made.abstract("click[orange]", True, True) == "option:other"


# Both --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PRESETS.values())
def test_what_was_refused_is_called_so(kind):
    made = kind("x")
    made.reset(*INDEX)
    assert made.abstract("search[a]", False, True) == "malformed"
    assert made.abstract("click[a]", True, False) == "inadmissible"
    assert made.abstract("dance", True, True) == "other"


@pytest.mark.parametrize("kind", PRESETS.values())
def test_contexts_are_of_the_instruction_and_the_text(kind):
    one, other = kind("x"), kind("y")
    one.reset(*INDEX)
    other.reset(INDEX[0], INDEX[1] | {"goal": f"  {GOAL.upper()} "})
    assert one.context("a") == other.context("a")
    assert one.context("a") != one.context("b")
    other.reset(INDEX[0], INDEX[1] | {"goal": "another"})
    assert one.context("a") != other.context("a")


def play(env, made, choose, seed, limit=12):
    """An episode: (state before, kind, action, admissible, state after) of each step."""
    observation, told_info = env.reset(seed=seed)
    made.reset(observation, told_info)
    told = []
    for _ in range(limit):
        action = choose()
        if action is None:
            break
        before = made.state()
        observation, reward, terminated, truncated, told_info = env.step(action)
        valid = told_info["action_valid"]
        found = made.abstract(action, True, valid)
        made.update(action, valid, observation, reward, told_info)
        told.append((before, found, action, valid, made.state()))
        if terminated or truncated:
            break
    return told


def test_every_action_of_the_oracle_is_of_the_kind_the_table_says():
    env = gym.make(
        "WebShop-v0", difficulty="small", observation_mode="text", catalogue="builtin:200"
    )
    for kind, names in (
        (CompactProgress, ("search:better", "open:strong", "option:required", "buy")),
        (FrontierProgress, ("query:better", "open:strong", "option:required", "buy")),
    ):
        strong = played = 0
        for seed in range(20):
            oracle = demonstrate(env, random.Random(0), 0.0)
            for _, found, action, valid, _ in play(
                env, kind("x", 8), lambda o=oracle: next(o), seed
            ):
                assert valid
                if action.startswith("search"):
                    assert found == names[0]
                elif action == "click[buy now]":
                    assert found == names[3]
                elif found.startswith("open"):
                    played += 1
                    strong += found == names[1]
                elif action not in ("click[next >]", "click[< prev]", "click[back to search]"):
                    assert found == names[2]
        assert strong >= 0.9 * played > 0


@pytest.mark.parametrize("kind", PRESETS.values())
def test_states_depend_on_the_past_alone_and_refused_actions_change_none(kind):
    env = gym.make("WebShop-v0", difficulty="small", observation_mode="text", max_steps=12)
    for seed in range(12):
        rng = random.Random(seed)

        def choose(rng=rng):
            if rng.random() < 0.3:
                return rng.choice(["click[nothing]", "buy", "search[]", "click[b000000000]"])
            legal = env.unwrapped.admissible_actions()
            return rng.choice(legal).replace("<query>", "machine washable curtain")

        told = play(env, kind("x", 12), choose, seed)
        for before, found, _, valid, after in told:
            assert valid or (before == after and found == "inadmissible")
        cut = len(told) // 2
        replayed = iter([*(step[2] for step in told[:cut]), "click[back to search]", "search[tea]"])
        again = play(env, kind("x", 12), lambda r=replayed: next(r, None), seed)
        assert [step[0] for step in again[:cut]] == [step[0] for step in told[:cut]]


@pytest.mark.parametrize("kind", PRESETS.values())
@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.text(max_size=20), st.sampled_from(["click[b01]", "search[x]", "click[]"])
            ),
            st.sampled_from(["results", "item", "index", "description", "done", "?"]),
            st.lists(
                st.sampled_from(
                    ["< Prev", "b01", "Price: $1", "color", "Page 1 (Total results: 50)"]
                )
            ),
        ),
        max_size=5,
    )
)
@settings(max_examples=30, derandomize=True, deadline=None, database=None)
def test_no_page_breaks_it(kind, steps):
    made = kind("x", 3)
    made.reset(*INDEX)
    for action, page, parts in steps:
        assert made.state()
        assert made.abstract(action, True, True)
        made.update(action, True, " [SEP] ".join(parts), 0.0, info(page, "b01", "color"))


@pytest.mark.data
@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_pages_of_the_original_are_read_alike_in_both_forms(kind, data_dir):
    folder = data_dir / "webshop"
    with gzip.open(folder / f"upstream_trace_goals_{kind}.json.gz") as file:
        goals = json.load(file)["goals"]
    read = 0
    with gzip.open(folder / f"upstream_trace_{kind}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in itertools.islice(file, 40):
            episode = json.loads(line)
            goal = goals[episode[0]["reset"]]["instruction_text"]
            for seen in (moment["obs"] for moment in episode):
                names = seen["avail"]["clickables"]
                page = "item" if "buy now" in names else "results"
                if page == "results" and "(Total results:" not in seen["text"]:
                    continue
                told_info = info(page, *names, goal=goal)
                found = read_page(seen["text"], told_info)
                assert found == read_page(seen["text_rich"], told_info)
                assert found.kind == page
                assert (found.title and found.price) if page == "item" else True
                read += 1
    assert read > 100
