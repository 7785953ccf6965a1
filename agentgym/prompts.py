"""From observations to token ids, in the two ways that agents are prompted.

``conversation``: an episode is one append-only token sequence; what the model wrote stays in it
token for token. ``windowed``: every decision is a fresh prompt that quotes the last few
observation/action pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from agentgym.guidance import Solution
from agentgym.info import Info
from agentgym.parsing import ActionFormat, ParsedAction, parser

__all__ = [
    "ChatTokenizer",
    "ConversationRenderer",
    "Dialogue",
    "EnvPrompt",
    "PrefixError",
    "PromptMode",
    "Rendered",
    "WindowedRenderer",
    "make_renderer",
]

PromptMode = Literal["conversation", "windowed"]
Message = dict[str, str]

# Stands for an answer when the template's glue around answers is cut out. Plain letters: templates
# may strip white space or treat markup specially.
_MARK = "AGENTGYMANSWER"
_PROBE_THOUGHT = "AGENTGYMTHOUGHT"
# Texts whose ids are kept.
_REMEMBERED = 512


class PrefixError(ValueError):
    """The chat template rewrites earlier turns, so a conversation cannot be append-only."""


class ChatTokenizer(Protocol):
    """What the suite needs of a tokenizer; Hugging Face's fast tokenizers have it."""

    def apply_chat_template(self, conversation: list[Message], **kwargs: Any) -> Any:
        """Render messages to text with ``tokenize=False``."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> Any:
        """Token ids to text."""
        ...


class EnvPrompt:
    """The words around an environment's observations; subclass it for a better prompt.

    Args:
        action_format: ``tags`` asks for ``<think>``/``<action>``; ``bare`` for the action alone
            (small models, no instructions).
        list_admissible: Quote the admissible actions where the environment lists them.
    """

    def __init__(self, action_format: ActionFormat = "tags", list_admissible: bool = True) -> None:
        self.action_format: ActionFormat = action_format
        self.list_admissible = list_admissible
        self._parse = parser(action_format)

    def parse(self, text: str) -> ParsedAction:
        """The action in the model's text."""
        return self._parse(text)

    def written(self, action: str) -> str:
        """An action as the model is to write it."""
        return action if self.action_format == "bare" else f"<action>{action}</action>"

    def solution(self, info: Info) -> Solution | None:
        """The reference as one response to the first prompt, or None.

        None, where ``info["reference"]`` holds actions, one a turn. An environment whose reference
        is reasoning overrides this, and says where the final answer begins.

        Args:
            info: What ``reset`` returned, of an environment made with ``expert=True``.
        """
        return None

    def system(self, info: Info) -> str | None:
        """Instructions that open the conversation, or None."""
        if self.action_format == "bare":
            return None
        return (
            "You act in a text environment, one action a turn. Think inside <think> </think>, "
            "then give exactly one action inside <action> </action>."
        )

    def first(self, observation: str, info: Info) -> str:
        """The first user message."""
        return self._with_actions(observation, info)

    def next(self, observation: str, info: Info) -> str:
        """A later user message."""
        return self._with_actions(observation, info)

    def windowed(self, history: Sequence[tuple[str, str]], observation: str, info: Info) -> str:
        """The whole user message of one decision.

        Args:
            history: The last (observation, action) pairs, oldest first.
            observation: What the agent sees now.
            info: The environment's info.
        """
        turn = info.get("turn", 0)
        lines = []
        if info.get("goal"):
            lines.append(f"Your task: {info['goal']}")
        if history:
            lines.append(f"You have taken {turn} actions; the last {len(history)}:")
            start = turn - len(history)
            for offset, (seen, done) in enumerate(history, 1):
                lines.append(f"[Observation {start + offset}: {seen}]")
                lines.append(f"[Action {start + offset}: {done}]")
        lines.append(f"You are at turn {turn + 1}. Now you see: {observation}")
        return self._with_actions("\n".join(lines), info)

    def _with_actions(self, text: str, info: Info) -> str:
        actions = info.get("admissible_actions")
        if self.action_format == "bare" or not self.list_admissible or not actions:
            return text
        return f"{text}\nAdmissible actions: {', '.join(actions)}"


@dataclass(slots=True)
class Rendered:
    """A prompt ready for the policy.

    Attributes:
        ids: The whole prompt, int32 (n,).
        context_ids: The part that is new since the previous action (``extends``), or all of it.
        extends: The prompt is the previous prompt, the previous action and ``context_ids``.
    """

    ids: np.ndarray
    context_ids: np.ndarray
    extends: bool

    def begun(self, response_ids: np.ndarray) -> Rendered:
        """The prompt with the beginning of its response, token for token."""
        return Rendered(
            np.concatenate([self.ids, response_ids]),
            np.concatenate([self.context_ids, response_ids]),
            self.extends,
        )


class Dialogue(Protocol):
    """The prompts of one episode."""

    def open(self, observation: str, info: Info) -> Rendered:
        """Prompt of the first decision."""
        ...

    def reply(
        self, action_ids: Sequence[int], text: str, action: str, observation: str, info: Info
    ) -> Rendered:
        """Prompt of the next decision, after the model wrote ``action_ids``."""
        ...


class _ChatRenderer:
    """Messages to token ids through a tokenizer's chat template."""

    def __init__(self, tokenizer: ChatTokenizer, prompt: EnvPrompt) -> None:
        self.tokenizer, self.prompt = tokenizer, prompt
        # Members of a group read the same pages, and so does who looks at one again.
        self.encode = lru_cache(_REMEMBERED)(self._encode)
        #: The instructions open the first user message: the template has no place of their own.
        self.folds_system = not self._takes_system()

    def text(self, messages: list[Message], generate: bool) -> str:
        """Messages through the template."""
        rendered = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=generate
        )
        return str(rendered)

    def _encode(self, text: str) -> np.ndarray:
        """Template text to ids; the template itself writes the special tokens."""
        ids = np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)
        ids.setflags(write=False)
        return ids

    def messages(self, user: str, info: Info) -> list[Message]:
        """The instructions and one user message."""
        system = self.prompt.system(info)
        if not system:
            return [{"role": "user", "content": user}]
        if self.folds_system:
            return [{"role": "user", "content": f"{system}\n\n{user}"}]
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def _takes_system(self) -> bool:
        messages = [{"role": "system", "content": _MARK}, {"role": "user", "content": "x"}]
        try:
            return _MARK in self.text(messages, generate=True)
        except Exception:  # templates refuse a role by raising whatever their engine raises
            return False


class ConversationRenderer(_ChatRenderer):
    """Append-only conversations through a tokenizer's chat template.

    Some templates drop earlier thinking when a later turn is rendered. Then the tokens of one
    turn are not a prefix of the next, and training on the concatenation would teach a context
    that never occurs at deployment. ``on_rewrite`` says what to do: ``refuse`` raises
    :class:`PrefixError` here; ``branch`` renders every turn anew and starts a new sequence where
    the prefix breaks (said in a warning).

    Some templates refuse a system message, or move it to the latest user message. There the
    instructions open the first user message instead.

    Args:
        tokenizer: Tokenizer with a chat template.
        prompt: The environment's words.
        on_rewrite: ``refuse`` or ``branch``.

    Raises:
        PrefixError: If the template rewrites earlier turns and ``on_rewrite="refuse"``.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        prompt: EnvPrompt,
        on_rewrite: Literal["refuse", "branch"] = "refuse",
    ) -> None:
        if on_rewrite not in ("refuse", "branch"):
            raise ValueError(f"on_rewrite must be 'refuse' or 'branch', got {on_rewrite!r}")
        super().__init__(tokenizer, prompt)
        self._following = lru_cache(_REMEMBERED)(self._follow)
        self.branches = not self._keeps_earlier_turns([])
        if not self.branches and not self.folds_system:
            system = {"role": "system", "content": "s"}
            self.folds_system = not self._keeps_earlier_turns([system])
        if self.branches and on_rewrite == "refuse":
            raise PrefixError(
                "the tokenizer's chat template rewrites earlier assistant turns (it strips their "
                "thinking), so conversation mode cannot keep one append-only sequence; use "
                "prompt mode 'windowed', on_rewrite='branch', or a template that keeps them"
            )
        if self.branches:
            warnings.warn(
                "the chat template rewrites earlier turns: each turn becomes a sequence of its own",
                stacklevel=2,
            )

    def dialogue(self) -> Dialogue:
        """Start an episode."""
        return _Branching(self) if self.branches else _AppendOnly(self)

    def opening(self, observation: str, info: Info) -> list[Message]:
        """The messages before the first answer."""
        return self.messages(self.prompt.first(observation, info), info)

    def bridge(self, action_ids: Sequence[int], message: str) -> np.ndarray:
        """Ids between an answer, as it was sampled, and the start of the next one."""
        return self._drop_repeated_stop(action_ids, self._following(message))

    def _follow(self, message: str) -> np.ndarray:
        """Ids of what follows an answer: its end, a message, and the start of the next answer."""
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": message},
        ]
        rendered = self.text(messages, generate=True)
        return self._encode(rendered[rendered.index(_MARK) + len(_MARK) :])

    def _drop_repeated_stop(self, action_ids: Sequence[int], bridge: np.ndarray) -> np.ndarray:
        """Leave out the closing token where the model has already written it.

        Templates may put white space between an answer and its closing token; it goes too.
        """
        if not len(action_ids):
            return bridge
        last = int(action_ids[-1])
        for index, token in enumerate(bridge):
            if int(token) == last:
                return bridge[index + 1 :]
            if str(self.tokenizer.decode([int(token)])).strip():
                break
        return bridge

    def _keeps_earlier_turns(self, head: list[Message]) -> bool:
        """Whether an answered turn is rendered as it was when the answer was asked for."""
        opening = [*head, {"role": "user", "content": "x"}]
        answer = f"<think>\n{_PROBE_THOUGHT}\n</think>\n\n{_MARK}"
        before = self.text(opening, generate=True)
        reply = [{"role": "assistant", "content": answer}, {"role": "user", "content": "y"}]
        after = self.text([*opening, *reply], generate=True)
        if before.rstrip().endswith("<think>"):  # the prompt opens the thought
            answer = answer.removeprefix("<think>").lstrip()
        # White space that the template puts before an answer is glue, not a rewrite.
        return after.startswith(before) and after[len(before) :].lstrip().startswith(answer)


@dataclass(slots=True)
class _AppendOnly:
    renderer: ConversationRenderer
    _ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def open(self, observation: str, info: Info) -> Rendered:
        renderer = self.renderer
        text = renderer.text(renderer.opening(observation, info), generate=True)
        self._ids = renderer.encode(text)
        return Rendered(self._ids, self._ids, extends=False)

    def reply(
        self, action_ids: Sequence[int], text: str, action: str, observation: str, info: Info
    ) -> Rendered:
        context = self.renderer.bridge(action_ids, self.renderer.prompt.next(observation, info))
        self._ids = np.concatenate([self._ids, np.asarray(action_ids, np.int32), context])
        return Rendered(self._ids, context, extends=True)


@dataclass(slots=True)
class _Branching:
    renderer: ConversationRenderer
    _messages: list[Message] = field(default_factory=list)
    _ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))

    def open(self, observation: str, info: Info) -> Rendered:
        self._messages = self.renderer.opening(observation, info)
        return self._render(np.zeros(0, np.int32))

    def reply(
        self, action_ids: Sequence[int], text: str, action: str, observation: str, info: Info
    ) -> Rendered:
        written = np.concatenate([self._ids, np.asarray(action_ids, np.int32)])
        self._messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": self.renderer.prompt.next(observation, info)},
        ]
        return self._render(written)

    def _render(self, written: np.ndarray) -> Rendered:
        self._ids = self.renderer.encode(self.renderer.text(self._messages, generate=True))
        n = len(written)
        if n and len(self._ids) > n and np.array_equal(self._ids[:n], written):
            return Rendered(self._ids, self._ids[n:], extends=True)
        return Rendered(self._ids, self._ids, extends=False)


class WindowedRenderer(_ChatRenderer):
    """A fresh prompt a decision, quoting the last ``window`` observation/action pairs.

    Args:
        tokenizer: Tokenizer with a chat template.
        prompt: The environment's words.
        window: Number of pairs quoted (2 in the published ALFWorld and WebShop settings).
    """

    def __init__(self, tokenizer: ChatTokenizer, prompt: EnvPrompt, window: int = 2) -> None:
        if window < 0:
            raise ValueError(f"window must be >= 0, got {window!r}")
        super().__init__(tokenizer, prompt)
        self.window = window

    def dialogue(self) -> Dialogue:
        """Start an episode."""
        return _Windowed(self)


@dataclass(slots=True)
class _Windowed:
    renderer: WindowedRenderer
    _history: list[tuple[str, str]] = field(default_factory=list)
    _observation: str = ""

    def open(self, observation: str, info: Info) -> Rendered:
        self._observation = observation
        return self._render(info)

    def reply(
        self, action_ids: Sequence[int], text: str, action: str, observation: str, info: Info
    ) -> Rendered:
        self._history.append((self._observation, action))
        keep = self.renderer.window
        self._history = self._history[-keep:] if keep else []
        self._observation = observation
        return self._render(info)

    def _render(self, info: Info) -> Rendered:
        renderer = self.renderer
        user = renderer.prompt.windowed(self._history, self._observation, info)
        ids = renderer.encode(renderer.text(renderer.messages(user, info), generate=True))
        return Rendered(ids, ids, extends=False)


def make_renderer(
    mode: PromptMode,
    tokenizer: ChatTokenizer,
    prompt: EnvPrompt,
    *,
    window: int = 2,
    on_rewrite: Literal["refuse", "branch"] = "refuse",
) -> ConversationRenderer | WindowedRenderer:
    """The renderer of that name.

    Raises:
        ValueError: If the mode is unknown.
        PrefixError: See :class:`ConversationRenderer`.
    """
    if mode == "conversation":
        return ConversationRenderer(tokenizer, prompt, on_rewrite)
    if mode == "windowed":
        return WindowedRenderer(tokenizer, prompt, window)
    raise ValueError(f"unknown prompt mode {mode!r}; known: conversation, windowed")
