"""A policy over any OpenAI-compatible server, for evaluation and for collecting data."""

from __future__ import annotations

import asyncio
import email.utils
import math
import os
import random
import re
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from adapters.policies import chat_text
from adapters.policies.chat_text import ChatText
from adapters.policies.endpoint import EndpointConfig
from adapters.policies.http_json import HttpClient, Reply, TransportError
from adapters.policies.throttle import Admission, Throttle
from agentgym.policy import Completion, FinishReason, PolicyError, Request, Sampling

__all__ = ["EndpointConfig", "OpenAIPolicy", "open_policy"]

_NO_LIMIT = 1 << 30
# Why answers end, in the words of different servers. One that was cut off is no whole answer,
# whatever cut it off; one that calls a tool is.
_FINISH = dict.fromkeys(
    ("stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls", "function_call"),
    FinishReason.STOP,
) | dict.fromkeys(("length", "max_tokens", "model_length", "content_filter"), FinishReason.LENGTH)
# The server gave the request up.
_BROKEN = ("abort", "error")
# What reading an answer of any shape whatever can raise.
_MALFORMED = (
    TransportError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError,
)  # fmt: skip
# No trouble of the moment: waiting does not mend these, whatever their status.
_FINAL = ("insufficient_quota", "billing_hard_limit_reached")
_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|context window|max_model_len|"
    r"prompt is too long|input is too long",
    re.IGNORECASE,
)


class _Refused(PolicyError):
    """An answer other than a completion; ``passing`` if a later try may succeed."""

    def __init__(self, message: str, passing: bool, wait: float | None = None) -> None:
        super().__init__(message)
        self.passing, self.wait = passing, wait


class OpenAIPolicy:
    """A :class:`~agentgym.policy.Policy` over an OpenAI-compatible server.

    With ``api="chat"`` prompts must be rendered with :attr:`tokenizer` (messages travel, not
    tokens): log-probs are 0 and no token is trainable. ``completion.details["usage"]`` has the
    server's own counts of ``prompt_tokens`` and ``completion_tokens``.

    Busy servers (408, 409, 425, 429 and 5xx), broken connections, time-outs and answers that are no
    completion are tried again; a prompt that is too long ends the episode; what no retry mends (an
    unknown model, a wrong key, an exhausted quota) is a :class:`PolicyError` at once. The key is
    read from the environment, goes into the request's header and nowhere else: messages, ``repr``
    and what the server says are free of it.

    Args:
        config: The server.
        sleep: How to wait between tries.

    Raises:
        ValueError: If a server elsewhere is named and the variable for its key is not set.
    """

    def __init__(
        self,
        config: EndpointConfig,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.config, self.tokenizer = config, ChatText()
        key = os.environ.get(config.key_variable, "").strip()
        headers = {"User-Agent": "agentgym"}
        if not (key.isascii() and key.isprintable()):  # and without telling what it is
            raise ValueError(
                f"the key in {config.key_variable} holds a line break or another sign that cannot "
                "stand in a header; copy it again"
            )
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = HttpClient(config.base_url, headers, config.concurrency)
        local = self._client.host in ("localhost", "127.0.0.1", "::1")
        if not key and not local and config.base_url.startswith("https:"):
            raise ValueError(
                f"{config.base_url} wants a key; put it into the environment variable "
                f"{config.key_variable} (or any word, if the server asks for none)"
            )
        if key and not local and config.base_url.startswith("http:"):
            warnings.warn(f"the key goes to {config.base_url} without encryption", stacklevel=2)
        self._secret = re.compile(re.escape(key)) if key else None
        self._throttle = Throttle(config.requests_per_minute, config.tokens_per_minute, sleep)
        self._places: asyncio.Semaphore | None = None
        self._sleep = sleep
        self._jitter = random.Random()
        self._length_field = "max_tokens"
        self._failures = 0
        self._failed: PolicyError | None = None
        self._closed = False
        #: Totals: ``requests``, ``completions``, ``retries``, ``status/<code>``, ``failures``,
        #: ``prompt_tokens``, ``completion_tokens``, ``finish_reason/missing`` and ``/unknown``;
        #: seconds waited between tries are in :attr:`waited`.
        self.stats: Counter[str] = Counter()
        self.waited = 0.0

    def __repr__(self) -> str:
        return f"OpenAIPolicy({self.config.base_url!r}, model={self.config.model!r})"

    # The protocol -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of the weights, as configured: a server does not tell."""
        return self.config.version

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and answer that are asked for."""
        return self.config.max_context or _NO_LIMIT

    async def generate(self, request: Request) -> Completion:
        """Continue ``request.token_ids``; see :meth:`agentgym.policy.Policy.generate`.

        Raises:
            ValueError: If the prompt is none of this policy's.
            PolicyError: If the server refuses for good, or failed too often in a row.
        """
        if self._failed is not None:
            raise PolicyError(str(self._failed)) from self._failed
        if self._closed:
            raise PolicyError("the policy is closed")
        if len(request.token_ids) >= self.max_context:
            return _empty(FinishReason.CONTEXT_OVERFLOW)
        path, body = self._body(request)
        began = time.monotonic()
        if self._places is None:
            self._places = asyncio.Semaphore(self.config.concurrency)
        async with self._places:
            try:
                completion = await self._persist(path, body, request)
            except _Refused as error:
                return self._give_up(error)
        self._failures = 0
        self.stats["completions"] += 1
        completion.details["seconds"] = time.monotonic() - began
        return completion

    async def load_weights(self, state: Mapping[str, Any], version: int) -> None:
        """Refused: the weights are the server's.

        Raises:
            PolicyError: Always.
        """
        raise PolicyError(
            f"the weights behind {self.config.base_url} cannot be replaced from here; train with "
            "--policy torch or --policy vllm"
        )

    def release(self, session: str) -> None:
        """Nothing is kept between requests."""

    async def aclose(self) -> None:
        """Close the connections."""
        self._closed = True
        self._client.close()

    # Requests ---------------------------------------------------------------------------------

    def _body(self, request: Request) -> tuple[str, dict[str, Any]]:
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.config.model,
            "temperature": sampling.temperature,
            "top_p": 1.0,  # some servers have other defaults, from the model's folder
        }
        if request.key:
            body["seed"] = _seed(request.key)
        ids = [int(token) for token in request.token_ids]
        if self.config.api == "chat":
            path = "/chat/completions"
            body["messages"] = self.tokenizer.messages(ids)
            body[self._length_field] = sampling.max_tokens
        else:
            path = "/completions"
            body |= {
                "prompt": ids,
                "max_tokens": sampling.max_tokens,
                "logprobs": 0,
                "return_token_ids": True,
                "skip_special_tokens": False,
                # Whatever the model's folder recommends would bend the distribution.
                "top_k": 0,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
            }
            if sampling.stop_token_ids:
                body["stop_token_ids"] = list(sampling.stop_token_ids)
        body |= self.config.extra_body
        return path, {name: value for name, value in body.items() if value is not None}

    async def _persist(self, path: str, body: dict[str, Any], request: Request) -> Completion:
        """Try until it works, or no more can be hoped for."""
        clock = asyncio.get_running_loop().time
        left = self.config.deadline
        tries = 0
        while True:
            # Waiting for one's turn within the rate limits is no trouble of the server's, and may
            # take longer than any deadline.
            admission = await self._throttle.admit(self._estimate(request))
            end = clock() + left
            tries += 1
            try:
                async with asyncio.timeout_at(end):
                    completion = await self._try(path, body, request, admission, end)
            except TimeoutError:
                raise _Refused(
                    f"no completion from {self.config.base_url} within the deadline of "
                    f"{self.config.deadline:g} s ({tries} tries)",
                    passing=True,
                ) from None
            except _Refused as error:
                if not error.passing:
                    raise
                wait = self._pause(tries) if error.wait is None else error.wait
                if tries > self.config.retries or clock() + wait > end:
                    raise _Refused(f"{error} (after {tries} tries)", passing=True) from error
                self.stats["retries"] += 1
                self.waited += wait
                await self._sleep(wait)
            else:
                if completion is not None:
                    completion.details["tries"] = tries
                    return completion
                tries -= 1
            left = end - clock()

    async def _try(
        self, path: str, body: dict[str, Any], request: Request, admission: Admission, end: float
    ) -> Completion | None:
        """Send it once; None if it is to be sent again under another name of a field."""
        loop = asyncio.get_running_loop()
        self.stats["requests"] += 1
        try:
            left = max(0.001, min(self.config.request_timeout, end - loop.time()))
            reply = await self._client.post(path, body, left)
        except (TransportError, TimeoutError) as error:
            self.stats["transport_errors"] += 1
            raise _Refused(self._clean(f"{self.config.base_url}: {error}"), passing=True) from None
        self.stats[f"status/{reply.status}"] += 1
        if reply.status != 200:
            # First: vLLM names both fields of the length when it says that the prompt is too long.
            if reply.status in (400, 413, 422) and _OVERFLOW.search(reply.text(2000)):
                return _empty(FinishReason.CONTEXT_OVERFLOW)
            if self._renames_length(reply, body):
                return None
            self._refuse(reply)
        try:
            completion = self._completion(reply, request, body)
        except _MALFORMED as error:
            said = self._clean(f"{error!r}")
            raise _Refused(
                f"{self.config.base_url} sent no completion: {said} in "
                f"{reply.text(200, self._clean)!r}",
                passing=True,
            ) from None  # what the server said may hold the key
        usage = completion.details["usage"]
        self._throttle.correct(admission, sum(usage.values()))
        self.stats.update(usage)
        return completion

    def _refuse(self, reply: Reply) -> NoReturn:
        text = reply.text(clean=self._clean)
        status = reply.status
        passing = status in (408, 409, 425, 429) or status >= 500
        if any(word in text for word in _FINAL):
            passing = False
        wait = _retry_after(reply.headers) if passing else None
        if wait is not None:
            # What the others wait here counts towards no deadline: it must not be without end.
            self._throttle.pause(min(wait, self.config.deadline))
        raise _Refused(f"{self.config.base_url} answers {status}: {text}", passing, wait)

    def _renames_length(self, reply: Reply, body: dict[str, Any]) -> bool:
        """Newer models of some servers want another name for the same field."""
        if reply.status != 400 or "max_completion_tokens" not in reply.text(2000):
            return False
        if self.config.api != "chat" or "max_tokens" not in body:
            return False
        self._length_field = "max_completion_tokens"
        body[self._length_field] = body.pop("max_tokens")
        return True

    def _give_up(self, error: _Refused) -> Completion:
        self.stats["failures"] += 1
        self._failures += 1
        if not error.passing or self._failures >= self.config.failures_in_row:
            row = f"; {self._failures} generations failed in a row" if error.passing else ""
            self._failed = PolicyError(f"{error}{row}")
            raise self._failed from error
        completion = _empty(FinishReason.ABORT)
        completion.details["error"] = str(error)
        return completion

    # Answers ----------------------------------------------------------------------------------

    def _completion(self, reply: Reply, request: Request, body: Mapping[str, Any]) -> Completion:
        answer = reply.json()
        choice = answer["choices"][0]
        given = answer.get("usage") or {}
        usage = {
            name: max(0, int(given.get(name) or 0))
            for name in ("prompt_tokens", "completion_tokens")
        }
        details: dict[str, Any] = {"usage": usage}
        if self.config.api == "chat":
            most = body.get("max_completion_tokens") or body.get("max_tokens")
            return self._chat(choice, most or request.sampling.max_tokens, details)
        return self._tokens(choice, request.sampling, details)

    def _finish(self, reason: Any, full: bool, details: dict[str, Any]) -> FinishReason:
        """Why an answer ended; ``full`` says whether it has all the tokens that it may have."""
        if reason in _BROKEN:
            raise ValueError(f"the server broke off its answer ({reason})")
        if reason not in ("stop", "length"):
            details["finish_reason"] = reason or "missing"
        if reason in _FINISH:
            return _FINISH[reason]
        kind = "unknown" if reason else "missing"
        self.stats[f"finish_reason/{kind}"] += 1
        if self.stats[f"finish_reason/{kind}"] == 1:
            said = f"{str(reason)[:40]!r}, a word unknown here" if reason else "missing"
            warnings.warn(
                self._clean(
                    f"finish_reason in an answer of {self.config.base_url} is {said}: such answers "
                    "are taken for cut off where they have all the tokens they may have, and for "
                    "whole where they have fewer"
                ),
                stacklevel=2,
            )
        return FinishReason.LENGTH if full else FinishReason.STOP

    def _chat(self, choice: Any, most: int, details: dict[str, Any]) -> Completion:
        text = choice["message"].get("content") or ""
        if not isinstance(text, str):
            raise TypeError(f"the answer's content is {type(text).__name__}, not text")
        full = details["usage"]["completion_tokens"] >= most
        finish = self._finish(choice.get("finish_reason"), full, details)
        ids = tuple(self.tokenizer.encode(chat_text.clean(text)))
        if finish is FinishReason.STOP:
            ids = (*ids, chat_text.END)
        return self._recorded(ids, np.zeros(len(ids), np.float32), finish, False, details)

    def _tokens(self, choice: Any, sampling: Sampling, details: dict[str, Any]) -> Completion:
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or logprobs is None or len(ids) != len(logprobs):
            raise _Refused(
                f"{self.config.base_url} returns no token ids with log-probs (vLLM's server does); "
                "use api='chat'",
                passing=False,
            )
        if len(ids) > sampling.max_tokens:
            raise ValueError(
                f"{len(ids)} tokens came where at most {sampling.max_tokens} were asked for"
            )
        for token, logprob in zip(ids, logprobs, strict=True):
            if type(token) is not int or not 0 <= token < 1 << 31:
                raise ValueError(f"{token!r} is no token id")
            if type(logprob) not in (int, float) or not -math.inf < logprob < 1e-3:
                raise ValueError(f"{logprob!r} is no log-prob")
        usage = details["usage"]
        usage["completion_tokens"] = usage["completion_tokens"] or len(ids)
        ended = bool(ids) and ids[-1] in sampling.stop_token_ids
        finish = self._finish(
            choice.get("finish_reason"), not ended and len(ids) >= sampling.max_tokens, details
        )
        exact = self.config.exact_logprobs or sampling.temperature in (0.0, 1.0)
        return self._recorded(tuple(ids), np.asarray(logprobs, np.float32), finish, exact, details)

    def _recorded(
        self,
        ids: tuple[int, ...],
        logprobs: np.ndarray,
        finish: FinishReason,
        trainable: bool,
        details: dict[str, Any],
    ) -> Completion:
        return Completion(
            ids,
            logprobs,
            np.full(len(ids), self.config.version, np.int32),
            finish,
            np.full(len(ids), trainable),
            details,
        )

    # Waiting ----------------------------------------------------------------------------------

    def _pause(self, tries: int) -> float:
        return min(60.0, self.config.backoff * 2 ** (tries - 1)) * self._jitter.uniform(0.5, 1.0)

    def _estimate(self, request: Request) -> int:
        """Tokens of a request, before the server has counted them."""
        characters = 4 if self.config.api == "chat" else 1
        return len(request.token_ids) // characters + request.sampling.max_tokens

    def _clean(self, text: str) -> str:
        """A message without the key: some servers quote it."""
        return self._secret.sub("[key]", text) if self._secret else text


def _empty(reason: FinishReason) -> Completion:
    none = np.zeros(0, np.float32)
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    return Completion((), none, none.astype(np.int32), reason, details={"usage": usage})


def _seed(key: tuple[int, ...]) -> int:
    """A seed of 31 bits from a request's key."""
    return int(np.random.SeedSequence([abs(part) for part in key]).generate_state(1)[0]) >> 1


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: a number, or a date; None where it says nothing."""
    if "retry-after-ms" in headers:
        wait = _number(headers["retry-after-ms"])
        if wait is not None:
            return wait / 1000
    text = headers.get("retry-after", "")
    wait = _number(text)
    if wait is not None or not text:
        return wait
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def open_policy(
    *,
    model: str,
    base_url: str | None = None,
    tokenizer: str | None = None,
    **options: Any,
) -> tuple[OpenAIPolicy, Any]:
    """The policy and the tokenizer its prompts are rendered with, for command lines.

    Args:
        model: What the server calls the model.
        base_url: The server; None is an error that says what to give.
        tokenizer: Folder or hub id of the tokenizer; needed for ``api="tokens"`` alone.
        options: Fields of :class:`EndpointConfig`.

    Raises:
        ValueError: If something is missing or out of range.
        ImportError: If a tokenizer is to be loaded and transformers is not installed.
    """
    if base_url is None:
        raise ValueError("--policy openai needs --base-url, for instance http://127.0.0.1:8000/v1")
    config = EndpointConfig(base_url=base_url, model=model, **options)
    if config.api == "chat":
        policy = OpenAIPolicy(config)
        return policy, policy.tokenizer
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        from agentgym.registry import missing_extra

        raise missing_extra("transformers", "torch") from error
    return OpenAIPolicy(config), AutoTokenizer.from_pretrained(tokenizer or model)
