"""Conversations as token ids for engines that take messages, not tokens.

Behind most endpoints the tokenizer is out of sight. Here a conversation is framed as text that can
be read back, and a token is a Unicode code point, so that renderers, collector and trajectories
need not know the difference. Frames are made of noncharacters (U+FDD0 and following), which Unicode
sets aside for such use; one that stands in a message becomes U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["END", "ChatText"]

_OPEN, _BODY, _CLOSE = "\ufdd0", "\ufdd1", "\ufdd2"
_REPLACEMENT = "\ufffd"
# What no message may hold: the frames' signs, and surrogates, which no encoding carries.
_FOREIGN = re.compile("[\ufdd0-\ufdd2\ud800-\udfff]")

#: The token that ends an answer.
END = ord(_CLOSE)


class ChatText:
    """A :class:`~agentgym.prompts.ChatTokenizer` whose tokens are code points."""

    def apply_chat_template(self, conversation: list[dict[str, str]], **kwargs: Any) -> str:
        """Messages to framed text; ``add_generation_prompt`` opens an answer."""
        text = "".join(
            f"{_OPEN}{message['role']}{_BODY}{clean(message['content'])}{_CLOSE}"
            for message in conversation
        )
        return text + (f"{_OPEN}assistant{_BODY}" if kwargs.get("add_generation_prompt") else "")

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Text to code points."""
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Code points to text."""
        return "".join(map(chr, token_ids))

    def messages(self, token_ids: Sequence[int]) -> list[dict[str, str]]:
        """The conversation that a prompt frames, without the answer it opens.

        Raises:
            ValueError: If the ids are no framed conversation that asks for an answer.
        """
        text = self.decode(token_ids)
        *whole, last = text.split(_OPEN)[1:] or [""]
        found = []
        for part in whole:
            role, body, content = part.partition(_BODY)
            if not body or not content.endswith(_CLOSE) or _CLOSE in content[:-1]:
                raise ValueError(f"this is no framed message: {part[:80]!r}")
            found.append({"role": role, "content": content[:-1]})
        if last != f"assistant{_BODY}" or not text.startswith(_OPEN):
            raise ValueError(
                "the prompt is no conversation that asks for an answer; render prompts for this "
                f"policy with its own tokenizer, {type(self).__name__}"
            )
        return found


def clean(text: str) -> str:
    """Text without what a message cannot hold."""
    return _FOREIGN.sub(_REPLACEMENT, text)
