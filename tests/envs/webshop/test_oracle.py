import random

import gymnasium as gym
import numpy as np
import pytest

import agentgym  # noqa: F401 - registers the environments
from envs.webshop.baselines import oracle_actions, rates
from envs.webshop.catalogue import build_catalogue
from envs.webshop.goals import build_goals
from envs.webshop.oracle import (
    basket_of,
    best_basket,
    demonstrate,
    goal_words,
    judge,
    plan,
    practice_shops,
)
from envs.webshop.session import Session
from envs.webshop.shop import Shop, ShopConfig, open_shop
from envs.webshop.upstream import UpstreamSession

SPLITS = ("train", "validation", "test")


# Every goal can be met ---------------------------------------------------------------------------


@pytest.mark.parametrize("goals", ["synthetic", "human"])
@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_the_oracle_meets_every_goal_within_the_turn_limit(difficulty, goals):
    env = gym.make("WebShop-v0", difficulty=difficulty, goals=goals)
    for split in SPLITS:
        ids = env.unwrapped.tasks.ids(split)
        found = rates(env, oracle_actions, ids if split != "train" else ids[::4])
        assert found.success == found.score == 1.0
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("catalogue", ["builtin:1000", "builtin:1000:1", "builtin:3000:2"])
@pytest.mark.parametrize("goals", ["synthetic", "human"])
@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_the_oracle_meets_every_goal_of_other_catalogues(difficulty, goals, catalogue):
    shop = open_shop(ShopConfig(difficulty=difficulty, goals=goals, catalogue=catalogue))
    assert all(v.reward == 1.0 and v.turns <= 8 for v in judge(shop, shop.goals))


def test_the_oracle_buys_the_product_the_goal_was_made_from():
    shop = open_shop(ShopConfig(difficulty="full", catalogue="builtin:300"))
    for goal in shop.goals.goals[::5]:
        assert best_basket(shop, goal).asin == goal.asin


# From any state ----------------------------------------------------------------------------------


@pytest.mark.parametrize("goals", ["synthetic", "human"])
@pytest.mark.parametrize("difficulty", ["small", "full"])
@pytest.mark.parametrize("session_class", [Session, UpstreamSession])
def test_the_plan_works_from_wherever_a_random_walk_ends(difficulty, goals, session_class):
    compat = "strict" if session_class is Session else "upstream"
    shop = open_shop(
        ShopConfig(difficulty=difficulty, goals=goals, catalogue="builtin:300", compat=compat)
    )
    rng = random.Random(0)
    pages = set()
    for _ in range(150):
        goal = rng.choice(shop.goals.goals)
        session = session_class(shop, goal, lambda: 0)
        for _ in range(rng.randint(0, 12)):
            action = rng.choice([a for a in session.actions() if a != "click[buy now]"])
            if action == "search[<query>]":
                words = goal.instruction.split()
                action = f"search[{' '.join(rng.sample(words, rng.randint(1, 6)))}]"
            session.act(action)
        pages.add(session.page)
        actions = plan(session)
        for action in actions:
            assert session.is_admissible(action), (session.state(), action, actions)
            session.act(action)
        assert session.purchase is not None
        assert session.purchase.reward.total == 1.0
        assert plan(session) == ()
    assert pages == {"index", "results", "item", "sub"}


def test_the_plan_turns_pages_and_mends_options():
    shop = open_shop(ShopConfig(difficulty="small", catalogue="builtin:300"))
    goal = next(goal for goal in shop.goals if len(goal.options) == 2)
    session = Session(shop, goal, lambda: 0)
    target = shop.view(goal.asin)
    session.act(f"search[{goal_words(goal)}]")
    place = [view.asin for view in session.results].index(goal.asin)
    assert place < shop.page_size
    session.act("click[next >]")
    session.act("click[next >]")
    assert plan(session)[:3] == ("click[< prev]", "click[< prev]", target.click)
    for action in plan(session)[:3]:
        session.act(action)
    assert len(plan(session)) == 3
    group, labels = target.labels[0]
    wanted = dict(basket_of(shop, target, goal).choices)[group]
    wrong = next(label.name for label in labels if label.name != wanted)
    session.act(f"click[{wrong}]")
    assert f"click[{wanted}]" in plan(session)
    session.act(f"click[{wanted}]")
    assert f"click[{wanted}]" not in plan(session)
    session.act("click[features]")
    assert plan(session)[0] == "click[< prev]"


def test_the_reference_in_info_leads_to_the_goal():
    env = gym.make("WebShop-v0", difficulty="small", catalogue="builtin:90", expert=True)
    _, info = env.reset(seed=3)
    steps = 0
    while info["reference"]:
        expected = info["reference"][1:]
        _, reward, terminated, _, info = env.step(info["reference"][0])
        assert info["reference"] == expected
        steps += 1
    assert terminated
    assert reward == 1.0
    assert info["success"]
    assert steps <= 5
    env.close()


# Goals that cannot be met ------------------------------------------------------------------------


@pytest.fixture
def titanium(raw):
    """A shop whose only goal asks for a value that the reward takes for another colour."""
    raw.products[2]["customization_options"] = {"Color": [{"value": "titanium"}]}
    del raw.attributes["B00000000A"]["instruction"]
    catalogue = build_catalogue(raw)
    goals = build_goals(catalogue, "synthetic")
    return Shop(catalogue, goals, {"train": (), "validation": (), "test": ()}, ShopConfig())


def test_the_oracle_says_what_is_best_where_nothing_is_right(titanium):
    (verdict,) = judge(titanium, titanium.goals)
    assert verdict.reward == verdict.best.reward == pytest.approx(2 / 3)
    assert verdict.best.asin == "B000000000"
    assert verdict.turns == 3


def test_another_product_is_bought_where_it_is_worth_more(titanium, raw):
    raw.attributes["B000000003"] = {"attributes": ["easy clean"]}
    raw.products[5]["customization_options"] = {"Finish": [{"value": "color titanium"}]}
    catalogue = build_catalogue(raw)
    goals = build_goals(catalogue, "synthetic")
    shop = Shop(catalogue, goals, {"train": (), "validation": (), "test": ()}, ShopConfig())
    best = best_basket(shop, goals[0])
    assert best.reward <= 1.0
    everything = max(
        basket_of(shop, shop.view(product.asin), goals[0]).reward for product in catalogue
    )
    assert best.reward == everything


def test_values_that_meet_several_wishes_are_clicked_once(open_session):
    session = open_session(kind="human")
    view = session.shop.view(session.goal.asin)
    basket = basket_of(session.shop, view, session.goal)
    assert basket.reward == 1.0
    assert len(basket.choices) == 1


# Demonstrations ----------------------------------------------------------------------------------


def _demonstrate(noise, episodes, split="train", **arguments):
    env = gym.make(
        "WebShop-v0",
        difficulty="small",
        catalogue="builtin:300",
        observation_mode="text",
        **arguments,
    )
    ids = env.unwrapped.tasks.ids(split)
    played = []
    for number in range(episodes):
        _, info = env.reset(seed=number, options={"task_id": ids[number % len(ids)]})
        actions = []
        for action in demonstrate(env, np.random.default_rng([5, number]), noise):
            actions.append(action)
            _, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
        played.append((tuple(actions), info["success"], info["action_valid"]))
    env.close()
    return played


def test_noise_makes_demonstrations_worse_step_by_step():
    shares = []
    for noise in (0.0, 0.3, 0.6, 1.0):
        played = _demonstrate(noise, 300)
        assert all(valid for _, _, valid in played)
        assert max(len(actions) for actions, _, _ in played) <= 5
        shares.append(sum(success for _, success, _ in played) / len(played))
    assert shares[0] == 1.0
    assert 0.65 < shares[1] < 0.9
    assert 0.4 < shares[2] < 0.65
    assert 0.2 < shares[3] < 0.42


def test_demonstrations_repeat_with_their_generator():
    assert _demonstrate(0.7, 20) == _demonstrate(0.7, 20)


def test_each_kind_of_mistake_occurs():
    clean, sloppy = _demonstrate(0.0, 200), _demonstrate(1.0, 200)
    shorter = sum(
        len(a[0].split()) < len(b[0].split())
        for (a, *_), (b, *_) in zip(sloppy, clean, strict=True)
    )
    other = sum(a[1] != b[1] for (a, *_), (b, *_) in zip(sloppy, clean, strict=True))
    skipped = sum(len(a) < len(b) for (a, *_), (b, *_) in zip(sloppy, clean, strict=True))
    assert shorter > 100
    assert other > 60
    assert skipped > 20


@pytest.mark.parametrize("noise", [-0.1, 1.5, float("nan")])
def test_noise_out_of_range_is_refused(noise):
    env = gym.make("WebShop-v0", catalogue="builtin:90")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        demonstrate(env, np.random.default_rng(0), noise)
    env.close()


def test_other_shops_to_practise_in_speak_the_same_language():
    shops = practice_shops(3, difficulty="small", catalogue="builtin:200:4")
    assert [shop["catalogue"] for shop in shops] == [f"builtin:200:{seed}" for seed in (5, 6, 7)]
    assert all(shop["difficulty"] == "small" for shop in shops)
    assert practice_shops(1)[0]["catalogue"] == "builtin:1000:1"
    assert practice_shops(5, data="folder") == [{"data": "folder"}]
    with pytest.raises(ValueError, match="must be >= 1"):
        practice_shops(0)
    home = open_shop(ShopConfig(difficulty="small", catalogue="builtin:200:4"))
    away = open_shop(ShopConfig(difficulty="small", catalogue="builtin:200:5"))
    assert not {p.title for p in home.catalogue} & {p.title for p in away.catalogue}
