"""The policy over OpenAI-compatible servers, against a real local server that misbehaves."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import json
import threading
import time
import traceback
from typing import Any

import numpy as np
import pytest
from chat_server import Answer, ChatServer, always, in_turn
from hypothesis import given
from hypothesis import strategies as st
from processes import run_ok
from scripted import episodes
from toy_text import ToyDoors, ToyPrompt

from adapters.policies.chat_text import END, ChatText
from adapters.policies.http_json import HttpClient
from adapters.policies.openai_policy import EndpointConfig, OpenAIPolicy, open_policy
from adapters.policies.throttle import Throttle
from agentgym.collector import Collector, CollectorConfig
from agentgym.info import StopReason
from agentgym.policy import FinishReason, PolicyError, Request, Sampling
from agentgym.prompts import ConversationRenderer, WindowedRenderer

KEY = "sk-very-secret-0123"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def prompt(*messages: tuple[str, str]) -> list[int]:
    chat = ChatText()
    listed = [{"role": role, "content": content} for role, content in messages]
    return chat.encode(chat.apply_chat_template(listed, add_generation_prompt=True))


ASKED = prompt(("system", "s"), ("user", "Where am I?"))


class Waits(list[float]):
    """Waits by noting them."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


def make(server: ChatServer, sleep: Any = asyncio.sleep, **settings: Any) -> OpenAIPolicy:
    return OpenAIPolicy(EndpointConfig(base_url=server.url, model="m", **settings), sleep)


def ask(policy: OpenAIPolicy, request: Request | None = None) -> Any:
    async def once() -> Any:
        try:
            return await policy.generate(request or Request(ASKED, Sampling(0.7, 9), (1, 2)))
        finally:
            await policy.aclose()

    return asyncio.run(once())


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


# Trouble ----------------------------------------------------------------------------------------

TROUBLE = {
    "429": Answer(status=429, error={"message": "slow down"}),
    "500": Answer(status=500, error=b"<html>oops</html>"),
    "503": Answer(status=503, error={}),
    "408": Answer(status=408, error={}),
    "hang up": Answer(hang_up=True),
    "half": Answer("a long answer", cut=20),
    "no JSON": Answer(body=b"<html>"),
    "no choices": Answer(body=b'{"choices": []}'),
    "a list": Answer(body=b"[1]"),
    "content": Answer(body=b'{"choices": [{"message": {"content": [1]}}]}'),
    "no choice": Answer(body=b'{"choices": ["x"]}'),
    "no message": Answer(body=b'{"choices": [{"message": null}]}'),
    "usage": Answer(body=b'{"choices": [{"message": {"content": ""}}], "usage": [1]}'),
    "infinite": Answer(
        body=b'{"choices": [{"message": {"content": ""}}], "usage": {"prompt_tokens": 1e999}}'
    ),
    "deep": Answer(body=b"[" * 100_000),
    "broken off": Answer(finish="abort"),
    "error": Answer(finish="error"),
}


@pytest.mark.parametrize("kind", TROUBLE)
def test_passing_trouble_is_tried_again(kind: str) -> None:
    waits = Waits()
    with ChatServer(in_turn(TROUBLE[kind], TROUBLE[kind], Answer("fine"))) as server:
        policy = make(server, waits, backoff=0.5)
        completion = ask(policy)
    assert ChatText().decode(completion.token_ids[:-1]) == "fine"
    assert completion.details["tries"] == 3
    assert len(server.seen) == 3
    assert len(waits) == 2
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0
    assert policy.stats["retries"] == 2
    assert policy.waited == pytest.approx(sum(waits))


def test_the_server_says_when_to_come_back() -> None:
    waits = Waits()
    date = email.utils.formatdate(time.time() + 30, usegmt=True)
    answers = [
        Answer(status=429, error={}, headers={"Retry-After": "7"}),
        Answer(status=503, error={}, headers={"Retry-After": date}),
        Answer(status=429, error={}, headers={"retry-after-ms": "1500", "Retry-After": "9"}),
        Answer(status=429, error={}, headers={"Retry-After": "soon"}),
        Answer("fine"),
    ]
    with ChatServer(in_turn(*answers)) as server:
        policy = make(server, waits, backoff=0.001)
        # The throttle would really wait: time does not pass in this test.
        policy._throttle.pause = lambda seconds: None  # type: ignore[method-assign]
        ask(policy)
    assert waits[0] == 7.0
    assert 25 < waits[1] <= 30
    assert waits[2] == 1.5
    assert waits[3] <= 0.008


def test_one_answer_of_busy_holds_all_requests_back() -> None:
    busy = Answer(status=429, error={}, headers={"Retry-After": "0.3"})
    began: list[float] = []

    def answer(number: int, body: dict[str, Any]) -> Answer:
        began.append(time.monotonic())
        return busy if number == 0 else Answer()

    async def both() -> None:
        with ChatServer(answer) as server:
            policy = make(server)
            first = asyncio.create_task(policy.generate(Request(ASKED, Sampling())))
            while policy.stats["status/429"] == 0:
                await asyncio.sleep(0.005)
            await asyncio.gather(first, policy.generate(Request(ASKED, Sampling())))
            await policy.aclose()

    asyncio.run(both())
    assert len(began) == 3
    assert all(later - began[0] >= 0.29 for later in began[1:])


@pytest.mark.parametrize(
    ("status", "message"),
    [(400, "bad field"), (401, "who?"), (403, "no"), (404, "no such model"),
     (429, "insufficient_quota")],
)  # fmt: skip
def test_what_no_retry_mends_is_said_at_once(status: int, message: str) -> None:
    waits = Waits()
    with ChatServer(in_turn(Answer(status=status, error={"message": message}))) as server:
        policy = make(server, waits)
        with pytest.raises(PolicyError, match=f"answers {status}.*{message}"):
            ask(policy)
        assert len(server.seen) == 1
    assert not waits


@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "too many"},
        {"message": "This model's maximum context length is 4096 tokens."},
    ],
)
def test_a_prompt_that_is_too_long_ends_the_episode(error: dict[str, str]) -> None:
    with ChatServer(in_turn(Answer(status=400, error=error))) as server:
        completion = ask(make(server))
    assert completion.finish_reason is FinishReason.CONTEXT_OVERFLOW
    assert completion.token_ids == ()
    with ChatServer(always()) as server:
        completion = ask(make(server, max_context=len(ASKED)))
        assert completion.finish_reason is FinishReason.CONTEXT_OVERFLOW
        assert not server.seen


@pytest.mark.parametrize("api", ["chat", "tokens"])
def test_both_names_of_the_length_in_one_message_are_no_other_name(api: Any) -> None:
    """vLLM says it so when prompt and answer do not fit; the field is right as it is."""
    error = {
        "message": "'max_tokens' or 'max_completion_tokens' is too large: 9. This model's maximum "
        "context length is 12 tokens and your request has 5 input tokens"
    }
    with ChatServer(in_turn(Answer(status=400, error=error))) as server:
        completion = ask(make(server, api=api), Request(ASKED, Sampling(max_tokens=9)))
        assert len(server.seen) == 1
    assert completion.finish_reason is FinishReason.CONTEXT_OVERFLOW


def test_the_other_name_of_the_length_is_learned() -> None:
    def answer(number: int, body: dict[str, Any]) -> Answer:
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Answer(status=400, error={"message": message})
        return Answer()

    async def twice() -> None:
        with ChatServer(answer) as server:
            policy = make(server)
            for _ in range(2):
                await policy.generate(Request(ASKED, Sampling(max_tokens=5)))
            await policy.aclose()
            assert [seen.body.get("max_completion_tokens") for seen in server.seen] == [None, 5, 5]

    asyncio.run(twice())


def test_failures_end_their_episode_and_then_the_run() -> None:
    waits = Waits()
    with ChatServer(in_turn(TROUBLE["500"])) as server:
        policy = make(server, waits, retries=2, failures_in_row=3)

        async def some() -> list[Any]:
            request = Request(ASKED, Sampling())
            out: list[Any] = [await policy.generate(request) for _ in range(2)]
            for _ in range(2):
                with pytest.raises(PolicyError, match="3 generations failed in a row") as caught:
                    await policy.generate(request)
                out.append(caught.value)
            await policy.aclose()
            return out

        first, second, third, fourth = asyncio.run(some())
        assert len(server.seen) == 9, "three tries each, and none after the policy gave up"
    for completion in (first, second):
        assert completion.finish_reason is FinishReason.ABORT
        assert "answers 500" in completion.details["error"]
        assert "after 3 tries" in completion.details["error"]
    assert third.__cause__ is not None
    assert fourth.__cause__ is third


def test_a_success_in_between_counts_from_the_start_again() -> None:
    answers = [TROUBLE["500"], Answer(), TROUBLE["500"], Answer()]
    with ChatServer(in_turn(*answers)) as server:
        policy = make(server, Waits(), retries=0, failures_in_row=2)

        async def some() -> list[FinishReason]:
            request = Request(ASKED, Sampling())
            reasons = [(await policy.generate(request)).finish_reason for _ in range(4)]
            await policy.aclose()
            return reasons

        stop, abort = FinishReason.STOP, FinishReason.ABORT
        assert asyncio.run(some()) == [abort, stop, abort, stop]


def test_nobody_at_home() -> None:
    with ChatServer(always()) as server:
        url = server.url
    config = EndpointConfig(base_url=url, model="m", retries=1, failures_in_row=1)
    with pytest.raises(PolicyError, match="Connection refused"):
        ask(OpenAIPolicy(config, Waits()))


def test_a_kept_connection_that_the_server_closed_is_opened_again() -> None:
    closing = Answer(headers={"X": "y"})

    async def twice() -> None:
        with ChatServer(in_turn(closing)) as server:
            policy = make(server, retries=0, failures_in_row=1)
            await policy.generate(Request(ASKED, Sampling()))
            (connection,) = policy._client._idle
            connection.sock.shutdown(2)  # as an idle limit of the server would
            await policy.generate(Request(ASKED, Sampling()))
            assert len(server.seen) == 2
            await policy.aclose()

    asyncio.run(twice())


def test_a_server_that_hangs_is_given_up_and_its_thread_freed() -> None:
    with ChatServer(in_turn(Answer(hang=60))) as server:
        policy = make(server, request_timeout=0.2, deadline=0.5, backoff=0.01, failures_in_row=1)
        with pytest.raises(PolicyError, match=r"deadline|no answer within"):
            ask(policy)
        assert threads_gone()


def test_retry_after_beyond_the_deadline_is_not_waited_for() -> None:
    waits = Waits()
    busy = Answer(status=429, error={}, headers={"Retry-After": "3600"})
    with ChatServer(in_turn(busy)) as server:
        policy = make(server, waits, deadline=5, failures_in_row=1)
        with pytest.raises(PolicyError, match="answers 429"):
            ask(policy)
        assert len(server.seen) == 1
    assert not waits


def test_cancelling_a_call_frees_its_thread() -> None:
    async def cancel() -> None:
        with ChatServer(in_turn(Answer(hang=60), Answer("fine"))) as server:
            policy = make(server, concurrency=1)
            task = asyncio.create_task(policy.generate(Request(ASKED, Sampling())))
            while not server.seen:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            completion = await policy.generate(Request(ASKED, Sampling()))
            assert completion.finish_reason is FinishReason.STOP
            await policy.aclose()

    asyncio.run(cancel())
    assert threads_gone()


def threads_gone() -> bool:
    for _ in range(1000):
        gc.collect()  # idle executors end their threads
        if not any(t.name.startswith("agentgym-http") for t in threading.enumerate()):
            return True
        time.sleep(0.01)
    return False


def test_no_more_requests_at_a_time_than_allowed() -> None:
    async def many() -> None:
        with ChatServer(in_turn(Answer(hang=0.02))) as server:
            policy = make(server, concurrency=3)
            await asyncio.gather(
                *(policy.generate(Request(ASKED, Sampling(), (n,))) for n in range(12))
            )
            await policy.aclose()
            assert server.most_at_once == 3

    asyncio.run(many())


def test_a_closed_policy_and_foreign_weights_are_refused() -> None:
    with ChatServer(always()) as server:
        policy = make(server)
        ask(policy)
        with pytest.raises(PolicyError, match="closed"):
            ask(policy)
        with pytest.raises(PolicyError, match="cannot be replaced"):
            asyncio.run(policy.load_weights({}, 1))
        assert policy.version == 0
        policy.release("x")


# Rate limits ------------------------------------------------------------------------------------


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when somebody sleeps."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def ask(self, server: ChatServer, number: int, **settings: Any) -> list[Any]:
        """Completions, or what was raised, of so many generations, and when each ended."""
        policy = make(server, self.sleep, **settings)

        async def one() -> Any:
            try:
                return await policy.generate(Request(ASKED, Sampling(1.0, 9))), self.now
            except PolicyError as error:
                return error, self.now

        async def all_of_them() -> list[Any]:
            out = [await one() for _ in range(number)]
            await policy.aclose()
            return out

        try:
            return self.run_until_complete(all_of_them())
        finally:
            self.close()


def test_waiting_for_the_rate_limits_counts_towards_no_deadline() -> None:
    with ChatServer(always()) as server:
        found = Clock().ask(server, 3, requests_per_minute=1, deadline=5, failures_in_row=1)
    assert [item.finish_reason for item, _ in found] == [FinishReason.STOP] * 3
    assert [at for _, at in found] == [0.0, 60.0, 120.0]


def test_the_deadline_bounds_tries_and_pauses_between_waits_for_the_limits() -> None:
    busy = Answer(status=429, error={}, headers={"Retry-After": "3"})
    with ChatServer(in_turn(busy)) as server:
        ((error, at),) = Clock().ask(
            server, 1, requests_per_minute=1, deadline=5, failures_in_row=1
        )
        assert len(server.seen) == 2
    assert "after 2 tries" in str(error)
    assert at == 60.0, "3 s of pause, 57 s for the limit, and no pause beyond the deadline"


def test_nobody_waits_longer_than_a_deadline_because_a_server_says_so() -> None:
    busy = Answer(status=429, error={}, headers={"Retry-After": "3600"})
    with ChatServer(in_turn(busy, Answer())) as server:
        (first, began), (second, ended) = Clock().ask(server, 2, deadline=5)
    assert first.finish_reason is FinishReason.ABORT
    assert second.finish_reason is FinishReason.STOP
    assert (began, ended) == (0.0, 5.0)


@given(
    requests=st.none() | st.integers(1, 5),
    tokens=st.none() | st.integers(5, 60),
    arrivals=st.lists(
        st.tuples(st.floats(0, 30), st.integers(1, 40), st.integers(1, 40)), max_size=25
    ),
)
def test_no_minute_holds_more_than_the_limits(
    requests: int | None, tokens: int | None, arrivals: list[tuple[float, int, int]]
) -> None:
    loop = Clock()
    let_through: list[tuple[float, int]] = []

    async def sleep(seconds: float) -> None:
        loop.now += seconds

    async def run() -> None:
        throttle = Throttle(requests, tokens, sleep)
        for gap, estimate, real in arrivals:
            loop.now += gap
            admission = await throttle.admit(estimate)
            let_through.append((admission.at, min(estimate, real)))
            throttle.correct(admission, min(estimate, real))

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    for number, (at, _) in enumerate(let_through):
        window = [size for then, size in let_through[: number + 1] if then > at - 60.0 + 1e-6]
        if requests is not None:
            assert len(window) <= requests
        if tokens is not None and len(window) > 1:
            assert sum(window) <= tokens


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="requests a minute must be >= 1"):
        Throttle(0)


# Imports ----------------------------------------------------------------------------------------


def test_it_needs_the_core_alone() -> None:
    code = (
        "import sys\nimport adapters.policies.openai_policy\n"
        "heavy = {'torch', 'transformers', 'httpx', 'openai', 'requests'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    assert run_ok(code) == "[]"
