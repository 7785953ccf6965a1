"""The policy over OpenAI-compatible servers, against a real local server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any

import numpy as np
import pytest
from asking import ASKED, Waits, ask, make, prompt
from chat_server import Answer, ChatServer, always, in_turn
from hypothesis import given
from hypothesis import strategies as st
from processes import run_ok
from scripted import episodes
from toy_text import ToyDoors, ToyPrompt

from adapters.policies.chat_text import END, ChatText
from adapters.policies.http_json import HttpClient
from adapters.policies.openai_policy import EndpointConfig, OpenAIPolicy, open_policy
from agentgym.collector import Collector, CollectorConfig
from agentgym.info import StopReason
from agentgym.policy import FinishReason, PolicyError, Request, Sampling
from agentgym.prompts import ConversationRenderer, WindowedRenderer

KEY = "sk-very-secret-0123"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# Conversations as tokens ------------------------------------------------------------------------

CONTENT = st.text(max_size=30) | st.sampled_from(["\ufdd0user\ufdd1", "\ufdd2", "é\u200f→ 鍵", ""])


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), CONTENT), max_size=5))
def test_a_conversation_comes_back_as_it_was(messages: list[tuple[str, str]]) -> None:
    safe = [
        {
            "role": role,
            "content": "".join("\ufffd" if "\ufdd0" <= c <= "\ufdd2" else c for c in text),
        }
        for role, text in messages
    ]
    assert ChatText().messages(prompt(*messages)) == safe


@pytest.mark.parametrize(
    "text", ["", "hello", "\ufdd0user\ufdd1x\ufdd2", "\ufdd0user x\ufdd0assistant\ufdd1"]
)
def test_what_is_no_conversation_is_refused(text: str) -> None:
    chat = ChatText()
    with pytest.raises(ValueError, match=r"framed message|no conversation that asks"):
        chat.messages(chat.encode(text))


@pytest.mark.parametrize("windowed", [False, True])
def test_episodes_are_played_through_a_server(windowed: bool) -> None:
    """The model sees its own words and the environment's, turn by turn."""

    def answer(number: int, body: dict[str, Any]) -> Answer:
        tried = sum(message["content"].count("was wrong") for message in body["messages"])
        said = sum(message["role"] == "assistant" for message in body["messages"])
        door = 1 + (tried if windowed else said)
        return Answer(f"<think>é 鍵</think>\n<action>open {door}</action>", prompt_tokens=11)

    with ChatServer(answer) as server:
        policy = make(server)
        words = ToyPrompt()
        chat = policy.tokenizer
        renderer = (
            WindowedRenderer(chat, words, 6) if windowed else ConversationRenderer(chat, words)
        )
        limits = CollectorConfig(slots=4, sampling=Sampling(0.5, 50))
        collector = Collector(ToyDoors, renderer, policy, limits)

        async def play() -> Any:
            try:
                return await collector.collect(episodes(6))
            finally:
                await policy.aclose()

        played = asyncio.run(play())
    assert [item.stop_reason for item in played] == [StopReason.SOLVED] * 6
    for item in played:
        assert [turn.action for turn in item.turns] == [
            f"open {number + 1}" for number in range(len(item.turns))
        ]
        assert all(turn.format_ok and turn.action_valid for turn in item.turns)
        assert not any(turn.trainable.any() for turn in item.turns)
    turns = sum(len(item.turns) for item in played)
    assert turns > 6
    assert policy.stats["completions"] == turns == len(server.seen)
    assert policy.stats["prompt_tokens"] == 11 * turns
    assert server.most_at_once <= 4
    last = server.seen[-1].body["messages"]
    assert last[0]["role"] == "system"
    assert last[-1]["role"] == "user"
    if not windowed:
        assert last[2]["content"] == "<think>é 鍵</think>\n<action>open 1</action>"


# What is sent and what comes back ---------------------------------------------------------------


def test_a_request_and_its_answer() -> None:
    with ChatServer(always("<action>go</action>")) as server:
        policy = make(server, extra_body={"user": "u", "top_p": None})
        completion = ask(policy)
    seen = server.seen[0]
    assert seen.path == "/v1/chat/completions"
    assert seen.body.pop("seed") >= 0
    assert seen.body == {
        "model": "m",
        "temperature": 0.7,
        "max_tokens": 9,
        "user": "u",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "Where am I?"},
        ],
    }
    assert "Authorization" not in seen.headers
    assert completion.finish_reason is FinishReason.STOP
    assert completion.token_ids == (*map(ord, "<action>go</action>"), END)
    assert not completion.trainable.any()
    assert completion.details["usage"] == {"prompt_tokens": 7, "completion_tokens": 1}
    assert completion.details["tries"] == 1


def test_equal_keys_give_equal_seeds() -> None:
    with ChatServer(always()) as server:
        for key in ((1, 2), (1, 2), (1, 3)):
            ask(make(server), Request(ASKED, Sampling(), key))
    seeds = [seen.body["seed"] for seen in server.seen]
    assert seeds[0] == seeds[1] != seeds[2]
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("finish", "reason", "detail"),
    [
        ("stop", FinishReason.STOP, None),
        ("eos_token", FinishReason.STOP, "eos_token"),
        ("tool_calls", FinishReason.STOP, "tool_calls"),
        ("length", FinishReason.LENGTH, None),
        ("model_length", FinishReason.LENGTH, "model_length"),
        ("content_filter", FinishReason.LENGTH, "content_filter"),
    ],
)
def test_why_an_answer_ended(finish: str, reason: FinishReason, detail: str | None) -> None:
    with ChatServer(in_turn(Answer("a", finish=finish))) as server:
        policy = make(server)
        completion = ask(policy)
    assert completion.finish_reason is reason
    assert completion.details.get("finish_reason") == detail
    assert (END in completion.token_ids) == (reason is FinishReason.STOP)
    assert not any(name.startswith("finish_reason") for name in policy.stats)


@pytest.mark.parametrize(
    ("finish", "kind", "said"),
    [(None, "missing", "is missing"), ("weary", "unknown", "is 'weary', a word unknown here")],
)
def test_why_an_answer_ended_is_inferred_where_it_is_not_told(
    finish: str | None, kind: str, said: str
) -> None:
    """Counted each time and said once."""
    answers = [Answer("a", finish=finish, completion_tokens=count) for count in (9, 8, 10)]
    with ChatServer(in_turn(*answers)) as server:
        policy = make(server)

        async def some() -> list[Any]:
            request = Request(ASKED, Sampling(1.0, 9))
            return [await policy.generate(request) for _ in range(3)]

        with pytest.warns(UserWarning, match="finish_reason") as caught:
            completions = asyncio.run(some())
        asyncio.run(policy.aclose())
    assert [item.finish_reason for item in completions] == [
        FinishReason.LENGTH, FinishReason.STOP, FinishReason.LENGTH,
    ]  # fmt: skip
    assert [END in item.token_ids for item in completions] == [False, True, False]
    assert {item.details["finish_reason"] for item in completions} == {finish or "missing"}
    assert policy.stats[f"finish_reason/{kind}"] == 3
    (warning,) = caught
    assert said in str(warning.message)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("ab\x02", FinishReason.STOP), ("abc", FinishReason.LENGTH), ("ab", FinishReason.STOP)],
)
def test_why_tokens_ended_is_inferred_from_them(text: str, reason: FinishReason) -> None:
    with ChatServer(in_turn(Answer(text, finish=None))) as server:
        policy = make(server, api="tokens")
        with pytest.warns(UserWarning, match="is missing"):
            completion = ask(policy, Request([5, 6], Sampling(1.0, 3, (2,)), (1,)))
    assert completion.finish_reason is reason
    assert len(completion.token_ids) == len(text)


def test_signs_of_the_frame_cannot_be_smuggled_in() -> None:
    with ChatServer(always("a\ufdd2\ufdd0system\ufdd1b\ud800")) as server:
        completion = ask(make(server))
    text = ChatText().decode(completion.token_ids[:-1])
    assert text == "a\ufffd\ufffdsystem\ufffdb\ufffd"


def test_an_answer_without_words_is_empty() -> None:
    body = json.dumps({"choices": [{"message": {"content": None}, "finish_reason": "tool_calls"}]})
    with ChatServer(in_turn(Answer(body=body.encode()))) as server:
        completion = ask(make(server))
    assert completion.token_ids == (END,)
    assert completion.details["usage"] == {"prompt_tokens": 0, "completion_tokens": 0}


@pytest.mark.parametrize(
    ("temperature", "exact", "trainable"),
    [(1.0, False, True), (0.7, False, False), (0.7, True, True)],
)
def test_token_ids_and_logprobs_are_taken_as_they_come(
    temperature: float, exact: bool, trainable: bool
) -> None:
    with ChatServer(always("abc")) as server:
        policy = make(server, api="tokens", exact_logprobs=exact, version=3)
        completion = ask(policy, Request([5, 6], Sampling(temperature, 4, (2,)), (1,)))
    seen = server.seen[0]
    assert seen.path == "/v1/completions"
    assert seen.body["prompt"] == [5, 6]
    assert seen.body["stop_token_ids"] == [2]
    assert seen.body["return_token_ids"] is True
    assert (seen.body["top_p"], seen.body["top_k"]) == (1.0, 0)
    assert completion.token_ids == tuple(map(ord, "abc"))
    np.testing.assert_array_equal(completion.logprobs, np.full(3, -0.5, np.float32))
    assert completion.versions.tolist() == [3, 3, 3]
    assert completion.trainable.tolist() == [trainable] * 3


def test_a_server_without_token_ids_is_named() -> None:
    body = json.dumps({"choices": [{"text": "a", "finish_reason": "stop", "logprobs": None}]})
    with ChatServer(in_turn(Answer(body=body.encode()))) as server:
        with pytest.raises(PolicyError, match="returns no token ids"):
            ask(make(server, api="tokens"), Request([5], Sampling()))
        assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("ids", "logprobs", "message"),
    [
        ([1], [None], "None is no log-prob"),
        ([1], [float("nan")], "nan is no log-prob"),
        ([1], [0.5], "0.5 is no log-prob"),
        ([1], ["-1"], "'-1' is no log-prob"),
        ([-1], [-1.0], "-1 is no token id"),
        ([1.5], [-1.0], "1.5 is no token id"),
        ([2**31], [-1.0], "2147483648 is no token id"),
        ([1, 2, 3], [-1.0] * 3, "3 tokens came where at most 2"),
    ],
)
def test_tokens_that_are_none_are_not_taken(ids: Any, logprobs: Any, message: str) -> None:
    choice = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
    body = json.dumps({"choices": [choice]}).encode()
    with ChatServer(in_turn(Answer(body=body))) as server:
        policy = make(server, Waits(), api="tokens", retries=1, failures_in_row=1)
        with pytest.raises(PolicyError, match=message):
            ask(policy, Request([5], Sampling(max_tokens=2)))
        assert len(server.seen) == 2


# Keys -------------------------------------------------------------------------------------------


def test_the_key_travels_in_the_header_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(0)
    refusal = Answer(status=401, error={"message": f"Incorrect API key provided: {KEY}."})
    with ChatServer(in_turn(refusal)) as server:
        policy = make(server, key_variable="MY_KEY")
        with pytest.raises(PolicyError, match=r"401.*\[key\]") as caught:
            ask(policy)
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert len(server.seen) == 1, "a wrong key is not tried again"
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in f"{error}{error!r}"
        error = error.__cause__
    assert KEY not in repr(policy) + repr(policy.config) + caplog.text
    assert KEY not in json.dumps(server.seen[0].body)


@pytest.mark.parametrize("before", [0, 190, 490])
@pytest.mark.parametrize("status", [200, 401])
def test_no_part_of_a_key_that_a_server_repeats_is_told(
    before: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    page = b"x" * before + KEY.encode()
    with ChatServer(in_turn(Answer(status=status, error=page, body=page))) as server:
        policy = make(server, Waits(), retries=0, failures_in_row=1)
        with pytest.raises(PolicyError) as caught:
            ask(policy)
    assert KEY[:4] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("key", ["sk-hush\n0123", "sk-hush\u20ac"])
def test_a_key_that_no_header_can_carry_is_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ValueError, match="key in OPENAI_API_KEY holds") as caught:
        OpenAIPolicy(EndpointConfig(base_url="http://127.0.0.1:1/v1", model="m"))
    assert "hush" not in repr(caught.value)


def test_a_server_elsewhere_wants_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        OpenAIPolicy(EndpointConfig(base_url="https://models.invalid/v1", model="m"))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIPolicy(EndpointConfig(base_url="https://models.invalid/v1", model="m"))
    with pytest.warns(UserWarning, match="without encryption"):
        OpenAIPolicy(EndpointConfig(base_url="http://models.invalid/v1", model="m"))


@pytest.mark.parametrize(
    "url",
    ["", "models.invalid/v1", "ftp://h/v1", "http://h/v1?x=1", "http:///v1", "http://h/v1#x",
     "http://h:0/v1", "http://h:99999/v1", "http://h:port/v1", "http://[::1/v1", "http://h/v 1",
     "http://h\n/v1", "http://h\u00e9/v1"],
)  # fmt: skip
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        HttpClient(url)


@pytest.mark.parametrize(
    "url", ["https://user:hush@h/v1", "https://user:hush@[h/v1", "user:hush@h/v1", "//u:hush@h"]
)
def test_a_url_with_a_password_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"holds a user|not of the form") as caught:
        HttpClient(url)
    assert "hush" not in str(caught.value)


def test_redirects_do_not_carry_the_key_away() -> None:
    with ChatServer(always()) as other:
        away = Answer(status=307, headers={"Location": other.url}, error="moved")
        with ChatServer(in_turn(away)) as server, pytest.raises(PolicyError, match="answers 307"):
            ask(make(server))
    assert not other.seen


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", ""), ("api", "x"), ("deadline", 0), ("backoff", float("nan")), ("retries", -1),
     ("concurrency", 0), ("failures_in_row", 0), ("max_context", 0), ("version", -1),
     ("requests_per_minute", 0), ("tokens_per_minute", -5), ("request_timeout", float("inf")),
     ("extra_body", {"stream": True}), ("extra_body", {"x": {1}}), ("extra_body", {"x": 1e999})],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name: str, value: Any) -> None:
    settings = {"base_url": "http://127.0.0.1/v1", "model": "m", name: value}
    with pytest.raises(ValueError, match=name):
        EndpointConfig(**settings)


def test_nothing_may_bend_a_distribution_whose_log_probs_are_recorded() -> None:
    settings: dict[str, Any] = {"base_url": "http://127.0.0.1/v1", "model": "m"}
    bent = {"top_p": 0.9, "user": "u"}
    assert EndpointConfig(**settings, extra_body=bent).extra_body == bent
    with pytest.raises(ValueError, match="must not set top_p: the policy"):
        EndpointConfig(**settings, extra_body=bent, api="tokens")


def test_without_a_server_the_command_line_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="--base-url"):
        open_policy(model="m")


# Imports ----------------------------------------------------------------------------------------


def test_it_needs_the_core_alone() -> None:
    code = (
        "import sys\nimport adapters.policies.openai_policy\n"
        "heavy = {'torch', 'transformers', 'httpx', 'openai', 'requests'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    assert run_ok(code) == "[]"
