"""The policy over OpenAI-compatible servers: trouble, deadlines and rate limits."""

from __future__ import annotations

import asyncio
import email.utils
import gc
import threading
import time
from typing import Any

import pytest
from asking import ASKED, Waits, ask, make
from chat_server import Answer, ChatServer, always, in_turn
from hypothesis import given
from hypothesis import strategies as st

from adapters.policies.chat_text import ChatText
from adapters.policies.openai_policy import EndpointConfig, OpenAIPolicy
from adapters.policies.throttle import Throttle
from agentgym.policy import FinishReason, PolicyError, Request, Sampling


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


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
