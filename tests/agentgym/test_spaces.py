from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import toy_text
from gymnasium.vector.utils import batch_space, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

import agentgym
from agentgym.spaces import UnicodeText

agentgym.register(toy_text.SPEC)


@pytest.mark.parametrize(
    "text", ["", "plain", "naïve ☃", "日本語", "👩‍🚀🦊", "\x00\n\t", "\U0010ffff"]
)
def test_contains_any_encodable_text(text):
    assert UnicodeText(20).contains(text)


@pytest.mark.parametrize("value", ["\ud800", "ok \udfff", "x" * 21, None, 3, b"bytes", ["a"]])
def test_refuses_what_is_no_such_text(value):
    assert not UnicodeText(20).contains(value)


def test_length_counts_code_points():
    assert UnicodeText(3).contains("🦊🦊🦊")
    assert not UnicodeText(3).contains("🦊🦊🦊a")
    assert not UnicodeText(9, min_length=2).contains("a")


@pytest.mark.parametrize(("low", "high"), [(-1, 3), (4, 3)])
def test_impossible_lengths_are_refused(low, high):
    with pytest.raises(ValueError, match=rf"{low}, {high}"):
        UnicodeText(high, min_length=low)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 2**31))
def test_samples_lie_in_the_space_and_follow_the_seed(low, extra, seed):
    first, second = (UnicodeText(low + extra, min_length=low, seed=seed) for _ in range(2))
    drawn = [first.sample() for _ in range(5)]
    assert drawn == [second.sample() for _ in range(5)]
    assert all(text in first for text in drawn)


def test_sample_is_a_legal_action_with_placeholders_filled():
    offered = ("go north", "search[<query>]", "give <item> to <person_name>", "click[< prev]")
    space = UnicodeText(50, legal_actions=lambda: offered, seed=3)
    drawn = {space.sample() for _ in range(200)}
    assert {"go north", "click[< prev]"} <= drawn
    filled = [text for text in drawn if text.startswith("search[")]
    assert len(filled) > 10
    assert all(text[7:-1].isalpha() and len(text) == 14 for text in filled)
    assert any(text.startswith("give ") and "<" not in text for text in drawn)


@pytest.mark.parametrize("offered", [None, ()])
def test_without_legal_actions_sample_is_free_text(offered):
    space = UnicodeText(50, legal_actions=lambda: offered, seed=1)
    assert len({space.sample() for _ in range(20)}) > 10


def test_sampling_leaves_global_randomness_alone():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    UnicodeText(9).sample()
    assert (np.random.get_state()[1] == before).all()


def test_pickle_keeps_the_generator_and_drops_the_environment():
    env = toy_text.ToyDoors()
    env.action_space.seed(5)
    revived = pickle.loads(pickle.dumps(env.action_space))
    assert revived == env.action_space
    assert len(pickle.dumps(env.action_space)) < 2000
    plain = UnicodeText(env.max_action_chars, seed=5)
    assert [revived.sample() for _ in range(3)] == [plain.sample() for _ in range(3)]


def test_deepcopy_of_an_environment_keeps_its_legal_actions():
    env = toy_text.ToyDoors()
    env.reset(seed=1)
    env.action_space.seed(7)
    twin = copy.deepcopy(env)
    assert twin.action_space._legal_actions.__self__ is twin
    assert [twin.action_space.sample() for _ in range(9)] == [
        env.action_space.sample() for _ in range(9)
    ]
    alone = copy.deepcopy(env.action_space)
    assert alone == env.action_space
    assert alone._legal_actions is None


def test_equality_is_about_lengths_and_there_is_no_hash():
    assert UnicodeText(5) == UnicodeText(5, seed=1)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != UnicodeText(5, min_length=1)
    assert UnicodeText(5) != gym.spaces.Text(5)
    with pytest.raises(TypeError):
        hash(UnicodeText(5))
    assert repr(UnicodeText(5, min_length=1)) == "UnicodeText(1, 5)"


def test_json_round_trip():
    space = UnicodeText(9)
    texts = ["a", "🦊", ""]
    assert space.from_jsonable(space.to_jsonable(texts)) == texts
    assert not space.is_np_flattenable


def test_batching_follows_the_seed_and_differs_between_places():
    first, second = (batch_space(UnicodeText(30, seed=4), 3) for _ in range(2))
    drawn = first.sample()
    assert drawn == second.sample()
    assert len(set(drawn)) == 3
    assert drawn in first
    assert create_empty_array(UnicodeText(30), 2) == ("", "")
    space = UnicodeText(30, seed=4)
    batch_space(space, 3)
    assert space.sample() == UnicodeText(30, seed=4).sample()


def play(mode: str, **kwargs) -> list:
    """Ten steps of three copies, the first door each time, then saying an emoji."""
    envs = gym.make_vec("ToyDoors-v0", num_envs=3, vectorization_mode=mode, **kwargs)
    try:
        seen = [envs.reset(seed=[1, 2, 3])[0]]
        for step in range(10):
            actions = [f"open {step % 4 + 1}", "say 🦊鍵", "Öffne"]
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            seen.append((observations, rewards.tolist(), terminated.tolist(), truncated.tolist()))
            assert observations in envs.observation_space
            assert infos["task_type"].tolist() == ["doors"] * 3
        return seen
    finally:
        envs.close()


@pytest.mark.parametrize("shared", [True, False])
def test_vector_environments_agree_in_one_process_and_many(shared):
    inline = play("sync")
    assert play("async", vector_kwargs={"shared_memory": shared}) == inline
    texts = [text for row in inline[1:] for text in row[0]]
    assert any("🦊鍵" in text for text in texts)
    assert len(set(texts)) > 5


def test_uncopied_observations_are_a_live_view():
    envs = gym.make_vec(
        "ToyDoors-v0", num_envs=2, vectorization_mode="async", vector_kwargs={"copy": False}
    )
    try:
        first, _ = envs.reset(seed=[3, 4])
        before = tuple(first)
        assert len(first) == 2
        assert first[0] == before[0]
        assert first[0:1] == before[:1]
        assert first == before
        assert repr(first) == repr(before)
        envs.step(["say 鍵", "say 👩‍🚀"])
        assert tuple(first) == ("You said 鍵.", "You said 👩‍🚀.")
    finally:
        envs.close()


def test_environments_may_differ_in_all_but_the_longest_text():
    def make(attributes):
        return type("Doors", (toy_text.ToyDoors,), attributes)

    envs = gym.vector.SyncVectorEnv(
        [make({}), make({"max_action_chars": 1 << 16})], observation_mode="different"
    )
    observations, _ = envs.reset(seed=1)
    assert observations in envs.observation_space
    assert len(envs.observation_space) == 2
    envs.close()
    with pytest.raises(RuntimeError, match=r"UnicodeText\(0, 500\)"):
        gym.vector.SyncVectorEnv(
            [make({}), make({"max_observation_chars": 500})], observation_mode="different"
        )


@pytest.mark.filterwarnings("ignore:.*(Worker-0|Traceback|last exception)")
def test_an_observation_too_long_for_shared_memory_is_an_error():
    envs = gym.make_vec("ToyDoors-v0", num_envs=2, vectorization_mode="async")
    try:
        envs.reset(seed=0)
        with pytest.raises(ValueError, match=r"text of 401 characters does not fit"):
            envs.step(["overflow", "open 1"])
    finally:
        envs.close(terminate=True)
