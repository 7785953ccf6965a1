r"""A tokenizer for one environment: what must be copied is one token, wherever it stands.

A small model copies a name only if it sees the same token in the page it reads and in the action
it writes. Ordinary tokenizers give ``red`` after a blank and ``red`` after ``[`` two different
tokens. Here a word is the same token in both places: the blank before a word is not part of it
but follows from the character before, and only exceptions are written out.

The rule, with ``W`` for the mark that opens every word (a run of letters and digits):

* After a word or one of ``, . ; : ! ? ) ] } %`` a blank is expected: ``a b`` is ``WaWb``. Where it
  is missing, the joiner ``J`` says so: ``a,b`` is ``Wa,JWb``.
* Elsewhere none is expected: ``[a`` is ``[Wa``, and a blank is written as itself: ``[ a`` is
  ``[ Wa``.
* A decimal point or comma between two digits is part of the number.

Marks are characters of Unicode's private use area; where they occur in the text they are escaped,
so ``decode(encode(x)) == x`` for every text that does not spell a special token. What no phrase
and no word covers falls back to bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

__all__ = ["ACT", "CHAT_TEMPLATE", "END", "NUMBERED", "PAD", "build_tokenizer", "marked"]

PAD, END, USER, ACT, SYSTEM = "<|pad|>", "<|end|>", "<|user|>", "<|act|>", "<|system|>"

#: One token a role, nothing between them: an episode is as short as it can be.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}"
    f"{{{{- '{ACT}' + message['content'] + '{END}' -}}}}"
    "{%- elif message['role'] == 'system' -%}"
    f"{{{{- '{SYSTEM}' + message['content'] -}}}}"
    "{%- else -%}"
    f"{{{{- '{USER}' + message['content'] -}}}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    f"{{%- if add_generation_prompt -%}}{{{{- '{ACT}' -}}}}{{%- endif -%}}"
)

_WORD, _JOIN, _ESCAPE = "\ue000", "\ue001", "\ue002"
#: A token of the vocabulary that is a kind and a number, such as ``mug 2``.
NUMBERED = re.compile(rf"(?P<kind>{_WORD}.*[^\W\d]){_WORD}(?P<number>\d+)", re.DOTALL)
# The second character must neither open a word nor expect a blank after it.
_ESCAPES = ((_ESCAPE, _ESCAPE + "~"), (_WORD, _ESCAPE + "^"), (_JOIN, _ESCAPE + "="))

_LETTER = r"\p{L}\p{M}\p{N}"
_CLOSING = r",.;:!?)\]}%"
# Inside a number no word begins.
_OPENS_WORD = rf"(?:(?<![0-9][.,])(?=[{_LETTER}])|(?<=[0-9][.,])(?=[{_LETTER}])(?![0-9]))"
_MARK_WORD = (
    rf"(?<=[{_LETTER}{_CLOSING}]) (?=[{_LETTER}])"  # the blank that is expected becomes the mark
    rf"|(?<=[^{_LETTER}{_CLOSING}])(?=[{_LETTER}])"
    rf"|\A(?=[{_LETTER}])"
)
_MARK_JOIN = rf"(?<=[{_CLOSING}]){_OPENS_WORD}"
_NO_BLANK = rf"(?<=[^{_LETTER}{_CLOSING}]){_WORD}|\A{_WORD}"

_DIGITS = tuple("0123456789")
_CODE = re.compile(r"(?=[^\W_]*\d)[^\W_]+")
_SEEN_WORD = re.compile(rf"{_WORD}[^\W\d_]+")


def marked(text: str) -> str:
    """The text as the vocabulary sees it, blanks turned into marks."""
    return str(_normalizer().normalize_str(text))


def build_tokenizer(
    phrases: Sequence[str], texts: Iterable[str] = (), *, max_words: int = 4000
) -> PreTrainedTokenizerFast:
    """Make a tokenizer from an environment's own words.

    A text is cut into as few tokens as possible. Blanks around a phrase are immaterial unless they
    stand between a sign and another sign (`` [SEP] `` then covers both of its blanks). A phrase
    of letters and digits that holds a digit is also known as a later part of a word, so that long
    codes can be given as two lists of halves.

    Args:
        phrases: What is to be a single token: names, buttons, fixed sentences.
        texts: Samples of observations and actions; words in them that no phrase covers become
            tokens too.
        max_words: Most words taken from ``texts``, by frequency.

    Returns:
        A fast tokenizer with a chat template; it needs no code of this package to be loaded.

    Raises:
        ValueError: If a phrase is empty or spells a special token.
    """
    specials = (PAD, END, USER, ACT, SYSTEM)
    pieces: dict[str, None] = {}
    for phrase in phrases:
        if not phrase.strip():
            raise ValueError(f"a phrase of the vocabulary is empty: {phrase!r}")
        if any(special in phrase for special in specials):
            raise ValueError(f"phrase {phrase!r} spells one of the special tokens {specials}")
        pieces.update(dict.fromkeys(_forms(phrase)))
    for digit in _DIGITS:
        pieces[digit] = pieces[_WORD + digit] = None
    pieces.update(dict.fromkeys((_WORD, _JOIN, " ", "\n")))
    known = _tokenizer(list(pieces))
    for word in _uncovered_words(known, texts, max_words):
        pieces.setdefault(word)
    backend = _tokenizer(list(pieces))
    backend.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ACT, SYSTEM],
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _forms(phrase: str) -> list[str]:
    """How a phrase may stand in a marked text."""
    inner = marked(phrase.strip(" "))
    if inner.startswith(_WORD):
        # The blank before a word is in its mark. A code such as ``b07x`` may go on where another
        # one ends, which words do not.
        return [inner, inner[1:]] if _CODE.fullmatch(inner[1:]) else [inner]
    # A sign has no mark: with and without the blanks around it. The blank after it is written
    # only where it is not expected; before a word that follows it is part of the word's mark.
    forms = [inner, " " + inner]
    if phrase.endswith(" ") and not re.search(rf"[\w{_CLOSING}]\Z", inner):
        forms += [form + " " for form in list(forms)]
    return forms


def _uncovered_words(known: Tokenizer, texts: Iterable[str], most: int) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_SEEN_WORD.findall(marked(text)))
    missing = [
        (-count, word)
        for word, count in counts.items()
        if any(token.startswith("<0x") for token in _pieces(known, word))
    ]
    return [word for _, word in sorted(missing)[:most]]


def _pieces(known: Tokenizer, piece: str) -> list[str]:
    return [token.value for token in known.model.tokenize(piece)]


def _tokenizer(pieces: list[str]) -> Tokenizer:
    bytes_ = [f"<0x{value:02X}>" for value in range(256)]
    # Equal scores: the best path is the one with the fewest tokens.
    vocabulary = [("<unk>", -10.0), *((piece, -1.0) for piece in [*bytes_, *pieces])]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    backend.normalizer = _normalizer()
    undo: list[Any] = [decoders.Replace(code, char) for char, code in reversed(_ESCAPES)]
    backend.decoder = decoders.Sequence(
        [
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace(_JOIN + _WORD, ""),
            decoders.Replace(Regex(_NO_BLANK), ""),
            decoders.Replace(_WORD, " "),
            decoders.Replace(_JOIN, ""),
            *undo,
        ]
    )
    return backend


def _normalizer() -> Any:
    return normalizers.Sequence(
        [
            *(normalizers.Replace(char, code) for char, code in _ESCAPES),
            normalizers.Replace(Regex(_MARK_WORD), _WORD),
            normalizers.Replace(Regex(_MARK_JOIN), _JOIN + _WORD),
        ]
    )
