"""Episodes that begin with tokens or turns of a reference."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import ScriptedPolicy
from templates import char_tokenizer
from toy_recital import TEXT, RecitalPrompt, ToyOracle, ToyRecital
from toy_rounds import ToyPrompt, ToyRounds

from agentgym.collector import Collector, CollectorConfig
from agentgym.env import Outcome
from agentgym.guidance import Guidance, Solution, given_tokens, given_turns
from agentgym.info import StopReason
from agentgym.packing import pack
from agentgym.policy import Sampling
from agentgym.prompts import make_renderer
from agentgym.trajectory import EpisodeSpec

TOKENIZER = char_tokenizer("compact")


class Pairs:
    """Two characters a token, from the left; a token may reach past the answer."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        pairs = [text[at : at + 2] for at in range(0, len(text), 2)]
        return [ord(pair[0]) * 65536 + (ord(pair[1]) if len(pair) > 1 else 0) for pair in pairs]

    def decode(self, token_ids, *, skip_special_tokens: bool = False) -> str:
        return "".join(chr(t // 65536) + (chr(t % 65536) if t % 65536 else "") for t in token_ids)


# How much is given -------------------------------------------------------------------------------


@given(
    st.text("abc 123", min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(0, 40),
    st.integers(0, 10),
    st.integers(0, 40),
)
def test_given_tokens_are_the_longest_prefix_allowed(text, at, length, tenths, room) -> None:
    solution = Solution(text, min(at, len(text)))
    guidance = Guidance(length, tenths / 10)
    found = given_tokens(Pairs(), solution, guidance, room)
    ids = Pairs().encode(text)
    allowed = [
        count
        for count in range(len(ids) + 1)
        if count <= length
        and 10 * count <= tenths * len(ids)
        and count <= room
        and len(Pairs().decode(ids[:count])) <= solution.answer_at
    ]
    assert found.tolist() == ids[: max(allowed)]
    assert found.dtype == np.int32


def test_half_a_character_is_not_given() -> None:
    class Bytes:
        def encode(self, text, *, add_special_tokens=True):
            return list(text.encode())

        def decode(self, token_ids, *, skip_special_tokens=False):
            return bytes(token_ids).decode(errors="replace")

    found = given_tokens(Bytes(), Solution("aß1", 2), Guidance(2, 1.0), 9)
    assert bytes(found.tolist()) == b"a"
    assert (
        bytes(given_tokens(Bytes(), Solution("aß1", 2), Guidance(3, 1.0), 9).tolist())
        == "aß".encode()
    )


@pytest.mark.parametrize(
    ("size", "length", "share", "turns"),
    [
        (5, 3, 1.0, 3),
        (5, 9, 1.0, 4),
        (5, 9, 0.8, 4),
        (5, 9, 0.5, 2),
        (1, 9, 1.0, 0),
        (0, 9, 1.0, 0),
    ],
)
def test_the_last_turn_is_never_given(size, length, share, turns) -> None:
    assert given_turns(["x"] * size, Guidance(length, share)) == turns


def test_shares_are_decimal() -> None:
    assert Guidance(1000, 0.29).most(100) == 29
    assert Guidance(1000, 0.8).most(15) == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1,), "length of guidance must be >= 0"), ((1, 1.5), "share of guidance must lie in")],
)
def test_numbers_out_of_range_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Guidance(*arguments)


# What is played ----------------------------------------------------------------------------------


def play(env, prompt, specs, answer=lambda request, text: "xyz", *, mode="conversation", **config):
    """Trajectories, and the policy's requests."""
    context = config.pop("max_context", 100_000)
    policy = ScriptedPolicy(TOKENIZER, answer, max_context=context)
    made = Collector(
        env,
        make_renderer(mode, TOKENIZER, prompt("bare")),
        policy,
        CollectorConfig(**config),
        lambda: env(expert=True),
    )
    played = asyncio.run(made.collect(specs))
    made.close()
    turns = [turn for item in played for turn in item.turns]
    assert made.counters["action_tokens"] == sum(turn.n_actions for turn in turns)
    assert made.counters["prompt_tokens"] == sum(len(turn.context_ids) for turn in turns)
    return played, policy.requests


def spec(guidance: Guidance | None, member: int = 0, task: str = "train-0") -> EpisodeSpec:
    return EpisodeSpec(task, None, 7, "g", member, guidance)


def test_a_response_goes_on_where_its_guidance_ends() -> None:
    """4 given and 3 new tokens; what is trained on is what was read and sampled, id for id."""
    (guided, free), requests = play(
        ToyRecital, RecitalPrompt, [spec(Guidance(4)), spec(None, 1)], lambda r, t: "xy"
    )
    (turn,), (plain,) = guided.turns, free.turns
    given_ids = TOKENIZER.encode(TEXT)[:4]
    assert turn.given == 4
    assert turn.n_actions == 3  # with the stop token
    assert turn.context_ids.tolist() == [*plain.context_ids.tolist(), *given_ids]
    assert list(requests[0].token_ids) == turn.context_ids.tolist()
    assert turn.response_ids.tolist() == [*given_ids, *turn.action_ids.tolist()]
    assert turn.text == turn.action == "abc xy"
    assert guided.details["heard"] == "abc xy"
    assert turn.action_ids.tolist() == plain.action_ids.tolist()
    (row,) = pack([guided])
    assert row.token_ids.tolist() == [*requests[0].token_ids, *turn.action_ids.tolist()]
    assert row.loss_mask.tolist() == [False] * len(turn.context_ids) + [True] * 3
    assert (row.action_mask == row.loss_mask).all()
    assert (guided.given, free.given) == (4, 0)
    assert guided.success is True


@pytest.mark.parametrize("length", [0, 1, 4, 11, 15, 16, 999])
def test_the_answer_is_never_given(length) -> None:
    (played,), _ = play(ToyRecital, RecitalPrompt, [spec(Guidance(length, 1.0))])
    text = TOKENIZER.decode(played.turns[0].response_ids[: played.turns[0].given].tolist())
    assert text == TEXT[: min(length, TEXT.index("7"))]
    assert "7" not in text


def test_given_tokens_count_against_the_budget_of_the_response() -> None:
    for length, given_count in ((4, 4), (15, 9)):
        (played,), (request,) = play(
            ToyRecital,
            RecitalPrompt,
            [spec(Guidance(length, 1.0))],
            lambda r, t: "w" * 50,
            sampling=Sampling(max_tokens=10),
        )
        (turn,) = played.turns
        assert turn.given == given_count
        assert request.sampling.max_tokens == 10 - given_count
        assert turn.given + turn.n_actions == 10


def test_given_tokens_leave_room_in_the_context() -> None:
    _, (request,) = play(ToyRecital, RecitalPrompt, [spec(None)])
    context = len(request.token_ids) + 4
    (played,), _ = play(
        ToyRecital,
        RecitalPrompt,
        [spec(Guidance(99, 1.0))],
        lambda r, t: "w" * 50,
        max_context=context,
    )
    assert (played.turns[0].given, played.turns[0].n_actions) == (3, 1)


@pytest.mark.parametrize("mode", ["conversation", "windowed"])
def test_turns_of_the_oracle_are_played_and_not_trained_on(mode) -> None:
    (guided, _), requests = play(
        ToyOracle,
        ToyPrompt,
        [spec(Guidance(5, 1.0)), spec(None, 1)],
        lambda request, text: "ab",
        mode=mode,
    )
    first, second = guided.turns
    assert first.replayed
    assert not second.replayed
    assert (first.action, first.n_actions, first.reward) == ("ab", 0, 0.5)
    assert first.text == TOKENIZER.decode(first.response_ids.tolist()) == "ab"
    assert (second.given, second.action) == (0, "ab")
    assert guided.stop_reason is StopReason.SOLVED
    assert guided.total_reward == 1.0
    assert guided.given == 1
    # The policy is asked once, after what it would have read had it said that itself. Free turns
    # end with the stop token, which the template writes where the policy did not.
    asked = list(next(r for r in requests if r.key[-1] == 1 and r.key[-2] == 0).token_ids)
    own = list(next(r for r in requests if r.key[-1] == 1 and r.key[-2] == 1).token_ids)
    assert asked == own
    rows = pack([guided])
    assert len(rows) == 1
    assert rows[0].token_ids.tolist() == [*asked, *second.action_ids.tolist()]
    assert rows[0].loss_mask.sum() == second.n_actions
    assert [span[0] for span in rows[0].spans] == [1]


def test_guided_and_free_episodes_draw_with_the_same_keys() -> None:
    _, guided = play(ToyRecital, RecitalPrompt, [spec(Guidance(3))])
    _, free = play(ToyRecital, RecitalPrompt, [spec(None)])
    assert guided[0].key == free[0].key


def test_without_reference_steps_nothing_is_given() -> None:
    class Empty(ToyRecital):
        def __init__(self, **kwargs) -> None:
            super().__init__(empty=True, **kwargs)

    (played,), _ = play(Empty, RecitalPrompt, [spec(Guidance(9))])
    assert (played.given, played.turns[0].given) == (0, 0)


def test_an_environment_without_an_oracle_loses_the_episode_and_says_so() -> None:
    (played,), _ = play(ToyRounds, ToyPrompt, [spec(Guidance(2))])
    assert played.stop_reason is StopReason.INFRA_ERROR
    assert "has no oracle" in played.error


@pytest.mark.parametrize(
    ("action", "message"), [("zz", "action was refused: 'zz'"), ("", "action is empty")]
)
def test_an_action_of_the_oracle_that_is_none_is_a_fault(action, message) -> None:
    class Wrong(ToyOracle):
        def reference(self) -> tuple[str, ...]:
            return (action, "ab")

        def _act(self, action: str) -> Outcome:
            return dataclasses.replace(super()._act(action), action_valid=action != "zz")

    (played,), _ = play(Wrong, ToyPrompt, [spec(Guidance(2, 1.0))])
    assert played.stop_reason is StopReason.INFRA_ERROR
    assert f"the oracle's {message}" in played.error


def test_a_reference_that_is_no_tuple_of_texts_is_a_fault() -> None:
    class Odd(ToyOracle):
        def reference(self):
            return ("ab", 7)

    (played,), _ = play(Odd, ToyPrompt, [spec(Guidance(2))])
    assert "not a tuple of str" in played.error


def test_a_collector_without_experts_refuses_guidance() -> None:
    policy = ScriptedPolicy(TOKENIZER, lambda request, text: "x")
    made = Collector(
        ToyRecital, make_renderer("conversation", TOKENIZER, RecitalPrompt("bare")), policy
    )
    with pytest.raises(ValueError, match="make_expert_env"):
        asyncio.run(made.collect([spec(Guidance(2))]))
    made.close()
