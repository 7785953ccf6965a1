import gc
import itertools
import json
import random
import subprocess
import sys
import threading
import tracemalloc
import warnings
import weakref

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agentgym  # noqa: F401 - registers the environments
from agentgym.env import group_reset
from agentgym.info import StopReason
from envs.webshop.env import TURN_LIMITS

SMALL = {"catalogue": "builtin:90"}


@pytest.fixture(scope="module", autouse=True)
def shop_stays_open():
    """One environment that keeps the shared shop alive between tests."""
    env = gym.make("WebShop-v0", **SMALL)
    yield
    env.close()


@pytest.fixture
def env():
    made = gym.make("WebShop-v0", **SMALL).unwrapped
    yield made
    made.close()


def _play(env, rng, steps):
    """A random walk; the texts seen."""
    observation, info = env.reset(seed=int(rng.random() * 1e6))
    seen = [observation]
    for _ in range(steps):
        action = rng.choice(info["admissible_actions"])
        if action == "search[<query>]":
            action = f"search[{' '.join(rng.sample(info['goal'].split(), 2))}]"
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((action, observation, reward, terminated, truncated, json.dumps(info)))
        if terminated or truncated:
            break
    return seen


def _buy_first(env):
    env.step(f"search[{env.goal()}]")
    env.step(env.session.shown()[0].click)
    return env.step("click[buy now]")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"compat": "upstream"},
        {"observation_mode": "text"},
        {"observation_mode": "url", "difficulty": "small"},
        {"goals": "human", "reward": "success"},
        {"expert": True},
    ],
    ids=str,
)
def test_gymnasium_check_env_without_a_warning(arguments):
    made = gym.make("WebShop-v0", **SMALL, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)
    made.close()


def test_first_page_and_info(env):
    observation, info = env.reset(seed=3)
    assert observation.startswith("WebShop\nInstruction: \n" + info["goal"])
    assert info["admissible_actions"] == ("search[<query>]",)
    assert info["split"] == "train"
    assert info["action_valid"] is True
    assert info["details"] == {
        "page": "index",
        "goal_index": env.current_goal.index,
        "difficulty": "full",
        "max_steps": 15,
        "reason": None,
    }
    assert info["task_id"] == env.current_goal.task_id
    assert info["task_type"] == env.current_goal.category
    json.dumps(info)


def test_inadmissible_action_takes_a_turn_and_says_why(env):
    env.reset(seed=3)
    first = env.step("search[lamp]")
    observation, reward, terminated, truncated, info = env.step("click[nothing]")
    assert (observation, reward, terminated, truncated) == (first[0], 0.0, False, False)
    assert info["action_valid"] is False
    assert info["turn"] == 2
    assert info["details"]["reason"] == "nothing called 'nothing' can be clicked on this page"


def test_purchase_ends_the_episode(env):
    env.reset(seed=3)
    _, reward, terminated, truncated, info = _buy_first(env)
    assert terminated
    assert not truncated
    assert info["score"] == reward == env.session.purchase.reward.total
    assert info["success"] == (reward == 1.0)
    assert info["stop_reason"] == (StopReason.SOLVED if reward == 1.0 else StopReason.FAILED)
    assert info["admissible_actions"] == ()
    details = info["details"]
    assert details["page"] == "done"
    assert details["purchase"]["asin"] == env.session.view.asin
    assert set(details["reward_parts"]) >= {"r_type", "r_att", "r_price", "title_score"}
    json.dumps(info)
    with pytest.raises(RuntimeError, match="ended"):
        env.step("click[buy now]")


@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_step_limit_truncates(difficulty):
    made = gym.make("WebShop-v0", **SMALL, difficulty=difficulty).unwrapped
    _, info = made.reset(seed=0)
    limit = TURN_LIMITS[difficulty]
    assert info["details"]["max_steps"] == limit
    for turn in range(1, limit + 1):
        *_, terminated, truncated, info = made.step("foo")
        assert (terminated, truncated) == (False, turn == limit)
    assert info["stop_reason"] == StopReason.MAX_TURNS
    made.close()


def test_reward_of_success_only():
    score = gym.make("WebShop-v0", **SMALL).unwrapped
    success = gym.make("WebShop-v0", **SMALL, reward="success").unwrapped
    paid = set()
    for task_id in score.tasks.ids("train")[:60]:
        results = []
        for made in (score, success):
            made.reset(options={"task_id": task_id})
            results.append(_buy_first(made))
        full, only = results[0][1], results[1][1]
        assert only == float(full == 1.0)
        assert results[1][4]["score"] == full
        paid.add(full)
    assert len(paid) > 1
    score.close()
    success.close()


def test_same_seed_same_episode_in_another_process(env):
    program = (
        "import random, agentgym, gymnasium as gym;"
        "env = gym.make('WebShop-v0', catalogue='builtin:90').unwrapped;"
        "o, i = env.reset(seed=11); print(repr((o, i['task_id'])));"
        "print(repr([env.step(a)[0] for a in ('search[<r>]', 'click[next >]')]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    random.seed(99)
    observation, info = env.reset(seed=11)
    assert repr((observation, info["task_id"])) == out[0]
    assert repr([env.step(a)[0] for a in ("search[<r>]", "click[next >]")]) == out[1]


def test_replicas_of_a_group_start_alike():
    group = [gym.make("WebShop-v0", **SMALL) for _ in range(3)]
    task_id = group[0].unwrapped.tasks.ids("test")[0]
    results = group_reset(group, task_id, seed=5, split="test")
    assert len({observation for observation, _ in results}) == 1
    assert {info["split"] for _, info in results} == {"test"}
    for made in group:
        made.close()


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_splits_share_no_product_and_no_task(goals):
    made = gym.make("WebShop-v0", catalogue="builtin:200", goals=goals).unwrapped
    products = {}
    for split in made.tasks.splits:
        assert made.tasks.ids(split)
        products[split] = {made.shop.goals[i].asin for i in made.tasks.ids(split)}
    for a, b in itertools.combinations(products.values(), 2):
        assert not a & b
    made.close()


def test_task_order_does_not_depend_on_seed_or_worker():
    def ids():
        made = gym.make("WebShop-v0", catalogue="builtin:90:4").unwrapped
        made.reset(seed=random.randrange(1000))
        found = [made.tasks.ids(split) for split in made.tasks.splits]
        made.close()
        return found

    random.seed(0)
    first = ids()
    random.seed(1)
    np.random.seed(1)
    assert ids() == first


def test_every_goal_of_a_split_can_be_swept(env):
    ids = env.tasks.ids("validation")
    seen = [env.reset(options={"task_id": i, "split": "validation"})[1]["task_id"] for i in ids]
    assert tuple(seen) == ids
    assert len(set(ids)) == len(ids)


def test_strict_draw_reaches_every_goal():
    made = gym.make("WebShop-v0", catalogue="builtin:36", split="test").unwrapped
    rng = np.random.default_rng(0)
    ids = made.tasks.ids("test")
    drawn = {made.tasks.sample(rng, "test") for _ in range(60 * len(ids))}
    assert drawn == set(ids)
    made.close()


def test_upstream_draw_misses_the_first_goal_and_doubles_the_last(raw, tmp_path):
    raw.save(tmp_path)
    made = gym.make(
        "WebShop-v0", data=tmp_path, nouns=raw.nouns, compat="upstream", goals=_four_goals(raw)
    ).unwrapped
    rng = np.random.default_rng(0)
    drawn = [made.shop.goals[made.tasks.sample(rng)].index for _ in range(4000)]
    counts = np.bincount(drawn, minlength=4) / 4000
    np.testing.assert_allclose(counts, [0.0, 0.25, 0.25, 0.5], atol=0.03)
    indices = {made.reset(seed=s)[1]["details"]["goal_index"] for s in range(40)}
    assert indices == {1, 2, 3}
    # A goal that is asked for by id is given, the first one too.
    _, info = made.reset(options={"task_id": made.shop.goals[0].task_id})
    assert info["details"]["goal_index"] == 0
    made.close()


def _four_goals(raw):
    return [
        {
            "asin": row["asin"],
            "category": "garden",
            "query": "lamps",
            "name": row["name"],
            "product_category": row["product_category"],
            "instruction_text": f"find number {number}",
            "attributes": ["dimmable"],
            "price_upper": 50.0,
            "goal_options": [],
            "weight": 1,
        }
        for number, row in enumerate(raw.products[:4])
    ]


def test_upstream_goes_on_after_a_purchase(raw, tmp_path):
    raw.save(tmp_path)
    made = gym.make(
        "WebShop-v0", data=tmp_path, nouns=raw.nouns, compat="upstream", goals=_four_goals(raw)
    ).unwrapped
    made.reset(seed=0)
    paid = []
    for _ in range(2):
        made.step("search[brass]")
        made.step("click[b00000000a]")
        _, reward, terminated, truncated, _ = made.step("click[buy now]")
        paid.append(reward)
        assert terminated
        assert not truncated
    assert paid[0] == paid[1] > 0
    for _ in range(40):
        assert made.step("foo")[2:4] == (False, False)
    made.close()


def test_split_argument(env):
    with pytest.raises(ValueError, match=r"split must be one of .*'dev'"):
        gym.make("WebShop-v0", **SMALL, split="dev")
    made = gym.make("WebShop-v0", **SMALL, split="test").unwrapped
    assert made.reset(seed=0)[1]["split"] == "test"
    assert made.reset(options={"split": "train"})[1]["split"] == "train"
    made.close()
    task_id = env.tasks.ids("test")[0]
    with pytest.raises(ValueError, match="is in split 'test', not in 'train'"):
        env.reset(options={"task_id": task_id, "split": "train"})
    with pytest.raises(KeyError, match="unknown task_id 'B/x'"):
        env.reset(options={"task_id": "B/x"})


def test_empty_split_of_loaded_data(raw, tmp_path):
    raw.save(tmp_path)
    arguments = {"data": tmp_path, "nouns": raw.nouns}
    with pytest.raises(ValueError, match="split 'train' is empty: there are 13 goals"):
        gym.make("WebShop-v0", **arguments, split="train")
    made = gym.make("WebShop-v0", **arguments, split_by="product").unwrapped
    assert made.reset(seed=0)[1]["split"] == "train"
    made.close()
    made = gym.make("WebShop-v0", **arguments, split="test").unwrapped
    assert made.reset(seed=0)[1]["split"] == "test"
    made.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation_mode": "image"}, "observation_mode must be one of"),
        ({"reward": "dense"}, "reward must be one of"),
        ({"max_steps": 0}, "max_steps must be a positive int"),
        ({"difficulty": "hard"}, "difficulty must be one of"),
        ({"data": "/nowhere"}, "no such file or folder: /nowhere"),
        ({"render_mode": "human"}, "render_mode 'human'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        gym.make("WebShop-v0", **arguments)


def test_search_on_the_default_catalogue_finds_products():
    made = gym.make("WebShop-v0").unwrapped
    assert len(made.shop.catalogue) == 1000
    made.reset(seed=0)
    made.step(f"search[{made.goal()}]")
    assert len(made.session.results) == 50
    made.close()


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ({}, 10),
        ({"difficulty": "small"}, 5),
        ({"difficulty": "small", "compat": "upstream"}, 10),
        ({"difficulty": "small", "page_size": 7}, 7),
    ],
)
def test_page_size(arguments, size):
    made = gym.make("WebShop-v0", **SMALL, **arguments).unwrapped
    made.reset(seed=0)
    _, _, _, _, info = made.step("search[<r>]")
    shown = [a for a in info["admissible_actions"] if a.startswith("click[b0")]
    assert len(shown) == made.session.page_size == size
    made.step("click[next >]")
    assert [v.click for v in made.session.shown()] != shown
    made.close()


def test_option_action_and_purchase_score(env):
    goal = next(g for g in env.shop.goals if len(g.options) > 1)
    env.reset(options={"task_id": goal.task_id})
    with pytest.raises(RuntimeError, match="no product is open on the index page"):
        env.option_action("color", "red")
    env.step(f"search[{env.shop.catalogue[goal.asin].title}]")
    page = env.session.shown()
    env.step(next(view.click for view in page if view.asin == goal.asin))
    before = env.purchase_score()
    assert before.options_met < len(goal.options)
    for group, value in goal.options:
        env.step(env.option_action(group, value))
    assert env.purchase_score().options_met == len(goal.options)
    assert env.purchase_score().total == 1.0
    *_, info = env.step("click[buy now]")
    assert info["success"]

    env.reset(options={"task_id": goal.task_id})
    env.step(f"search[{env.shop.catalogue[goal.asin].title}]")
    env.step(env.session.shown()[0].click)
    with pytest.raises(KeyError, match="has no option 'color': 'no such'"):
        env.option_action("color", "no such")


def test_action_space_offers_legal_actions(env):
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(10):
        action = env.action_space.sample()
        assert env.is_admissible(action)
        if env.step(action)[2]:
            break


def test_two_environments_never_mix():
    envs = [gym.make("WebShop-v0", **SMALL).unwrapped for _ in range(2)]
    assert envs[0].shop is envs[1].shop
    alone = [_play(made, random.Random(seed), 12) for seed, made in enumerate(envs)]
    # The same two walks again, a step of each in turn.
    walks = []
    for seed, made in enumerate(envs):
        made.reset(seed=int(random.Random(seed).random() * 1e6))
        walks.append([entry[0] for entry in alone[seed][1:]])
    again = [[], []]
    for i in range(max(map(len, walks))):
        for which, made in enumerate(envs):
            if i < len(walks[which]):
                again[which].append(made.step(walks[which][i])[0])
    for which in range(2):
        assert again[which] == [entry[1] for entry in alone[which][1:]]
    for made in envs:
        made.close()


def test_threads_never_mix():
    expected = {}
    for seed in range(8):
        made = gym.make("WebShop-v0", **SMALL).unwrapped
        expected[seed] = [_play(made, random.Random(100 * seed + i), 15) for i in range(10)]
        made.close()
    got = {}

    def work(seed):
        made = gym.make("WebShop-v0", **SMALL).unwrapped
        got[seed] = [_play(made, random.Random(100 * seed + i), 15) for i in range(10)]
        made.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


def test_close_frees_the_shop(monkeypatch):
    monkeypatch.setattr("envs.webshop.shop._KEPT_PRODUCTS", 44)
    made = gym.make("WebShop-v0", catalogue="builtin:45:9").unwrapped
    made.reset(seed=0)
    made.step("search[lamp]")
    other = gym.make("WebShop-v0", catalogue="builtin:45:9").unwrapped
    shop = weakref.ref(made.shop)
    gc.disable()
    try:
        made.close()
        assert shop() is not None
        other.close()
        assert shop() is None  # at once, not at some later collection
    finally:
        gc.enable()
    with pytest.raises(RuntimeError, match="closed"):
        made.reset(seed=0)
    with pytest.raises(RuntimeError, match="closed"):
        _ = made.shop


def test_the_last_small_shop_that_was_generated_stays_open():
    made = gym.make("WebShop-v0", catalogue="builtin:41:9").unwrapped
    shop = weakref.ref(made.shop)
    made.close()
    again = gym.make("WebShop-v0", catalogue="builtin:41:9").unwrapped
    assert again.shop is shop()
    again.close()
    gym.make("WebShop-v0", catalogue="builtin:42:9").close()
    assert shop() is None


def test_a_thousand_environments_share_one_shop(env):
    tracemalloc.start()
    try:
        many = [gym.make("WebShop-v0", **SMALL) for _ in range(1000)]
        for made in many:
            made.reset(seed=1)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(made.unwrapped.shop is env.shop for made in many)
    # Far below what even one catalogue takes, a thousand times.
    assert size < 1000 * 40_000
    for made in many:
        made.close()


@pytest.mark.parametrize("vectorization_mode", ["sync", "async"])
def test_vector_environments(vectorization_mode):
    made = gym.make_vec(
        "WebShop-v0", num_envs=2, vectorization_mode=vectorization_mode, vector_kwargs={}, **SMALL
    )
    observations, _ = made.reset(seed=[1, 2])
    assert len(observations) == 2
    assert all(text.startswith("WebShop\n") for text in observations)
    observations, *_ = made.step(("search[<r>]", "foo"))
    assert "Total results: 50" in observations[0]
    assert observations[1].startswith("WebShop\n")
    made.close()


def test_nothing_heavy_is_imported():
    program = (
        "import sys, agentgym, gymnasium as gym;"
        "env = gym.make('WebShop-v0', catalogue='builtin:90'); env.reset(seed=0);"
        "env.step('search[lamp]'); env.close();"
        "bad = {'torch', 'spacy', 'regex', 'nltk', 'transformers', 'selenium', 'jnius'};"
        "print(sorted(bad & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_render(env):
    made = gym.make("WebShop-v0", **SMALL, render_mode="ansi").unwrapped
    observation, _ = made.reset(seed=0)
    assert made.render() == observation
    made.close()


def test_session_before_reset():
    made = gym.make("WebShop-v0", **SMALL).unwrapped
    with pytest.raises(RuntimeError, match="call reset"):
        _ = made.session
    with pytest.raises(RuntimeError, match="call reset"):
        made.step("search[x]")
    assert made.admissible_actions() is None
    assert not made.is_admissible("search[x]")
    made.close()
