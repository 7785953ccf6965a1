"""From observations to token ids, in the two ways that agents are prompted.

``conversation``: an episode is one append-only token sequence; what the model wrote stays in it
token for token. ``windowed``: every decision is a fresh prompt that quotes the last few
observation/action pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

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


class ConversationRenderer:
    """Append-only conversations through a tokenizer's chat template.

    Some templates drop earlier thinking when a later turn is rendered. Then the tokens of one
    turn are not a prefix of the next, and training on the concatenation would teach a context
    that never occurs at deployment. ``on_rewrite`` says what to do: ``refuse`` raises
    :class:`PrefixError` here; ``branch`` renders every turn anew and starts a new sequence where
    the prefix breaks (said in a warning).

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
        self.tokenizer, self.prompt = tokenizer, prompt
        self.branches = self._rewrites()
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

    def text(self, messages: list[Message], generate: bool) -> str:
        """Messages through the template."""
        rendered = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=generate
        )
        return str(rendered)

    def encode(self, text: str) -> np.ndarray:
        """Template text to ids; the template itself writes the special tokens."""
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)

    def opening(self, observation: str, info: Info) -> list[Message]:
        """The messages before the first answer."""
        system = self.prompt.system(info)
        first = self.prompt.first(observation, info)
        head: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*head, {"role": "user", "content": first}]

    def bridge(self, message: str) -> np.ndarray:
        """Ids between the end of an answer and the start of the next one."""
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": _MARK},
            {"role": "user", "content": message},
        ]
        rendered = self.text(messages, generate=True)
        return self.encode(rendered[rendered.index(_MARK) + len(_MARK) :])

    def _rewrites(self) -> bool:
        opening = [{"role": "user", "content": "x"}]
        answer = f"<think>\n{_PROBE_THOUGHT}\n</think>\n\n{_MARK}"
        before = self.text(opening, generate=True)
        after = self.text(
            [
                *opening,
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "y"},
            ],
            generate=True,
        )
        return not after.startswith(before + answer)


def _drop_repeated_stop(action_ids: Sequence[int], bridge: np.ndarray) -> np.ndarray:
    """Leave out the closing token where the model has already written it."""
    if len(action_ids) and len(bridge) and int(action_ids[-1]) == int(bridge[0]):
        return bridge[1:]
    return bridge


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
        bridge = self.renderer.bridge(self.renderer.prompt.next(observation, info))
        context = _drop_repeated_stop(action_ids, bridge)
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


class WindowedRenderer:
    """A fresh prompt a decision, quoting the last ``window`` observation/action pairs.

    Args:
        tokenizer: Tokenizer with a chat template.
        prompt: The environment's words.
        window: Number of pairs quoted (2 in the published ALFWorld and WebShop settings).
    """

    def __init__(self, tokenizer: ChatTokenizer, prompt: EnvPrompt, window: int = 2) -> None:
        if window < 0:
            raise ValueError(f"window must be >= 0, got {window!r}")
        self.tokenizer, self.prompt, self.window = tokenizer, prompt, window

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
        system = renderer.prompt.system(info)
        user = renderer.prompt.windowed(self._history, self._observation, info)
        head: list[Message] = [{"role": "system", "content": system}] if system else []
        text = renderer.tokenizer.apply_chat_template(
            [*head, {"role": "user", "content": user}], tokenize=False, add_generation_prompt=True
        )
        ids = np.asarray(renderer.tokenizer.encode(str(text), add_special_tokens=False), np.int32)
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
