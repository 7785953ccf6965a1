"""Chat templates of the kinds in use, written for these tests, and a tokenizer of characters."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2.sandbox


@dataclass(frozen=True)
class Template:
    """A chat template, the tokens it writes and the one that ends an answer."""

    jinja: str
    specials: tuple[str, ...]
    stop: str


_CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CHATML_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")

#: Templates that leave earlier turns as they were.
KEEPING = {
    "chatml": Template(_CHATML, _CHATML_TOKENS, "<|im_end|>"),
    "chatml with a default system message": Template(
        "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n"
        "{% endif %}" + _CHATML,
        _CHATML_TOKENS,
        "<|im_end|>",
    ),
    "headers, content trimmed": Template(
        "<|begin|>{% for m in messages %}<|head|>{{ m['role'] }}<|/head|>\n\n"
        "{{ m['content'] | trim }}<|eot|>{% endfor %}"
        "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}",
        ("<|begin|>", "<|head|>", "<|/head|>", "<|eot|>"),
        "<|eot|>",
    ),
    "instructions in brackets, system message moved to the last turn": Template(
        "<s>{% set ns = namespace(system='') %}{% for m in messages %}"
        "{% if m['role'] == 'system' %}{% set ns.system = m['content'] + '\n\n' %}{% endif %}"
        "{% endfor %}{% for m in messages %}{% if m['role'] == 'user' %}"
        "[INST] {% if loop.last %}{{ ns.system }}{% endif %}{{ m['content'] }}[/INST]"
        "{% elif m['role'] == 'assistant' %} {{ m['content'] | trim }}</s>{% endif %}{% endfor %}",
        ("<s>", "</s>", "[INST]", "[/INST]"),
        "</s>",
    ),
    "instructions in plain brackets, answers spaced, system message refused": Template(
        "{% for m in messages %}{% if m['role'] == 'user' %}<s>[INST] {{ m['content'] | trim }} "
        "[/INST]{% elif m['role'] == 'assistant' %} {{ m['content'] | trim }} </s>{% else %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}",
        ("<s>", "</s>"),
        "</s>",
    ),
    "compact": Template(
        "{% for m in messages %}{{ m['content'] }}"
        "{{ '<eos>' if m['role'] == 'assistant' else '\n' if m['role'] == 'system' else '<act>' }}"
        "{% endfor %}",
        ("<eos>", "<act>"),
        "<eos>",
    ),
    "plain lines without a special token": Template(
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
        (),
        "\n",
    ),
    "the prompt opens the thought": Template(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' and "
        "not m['content'].startswith('<think>') %}<think>\n{% endif %}{{ m['content'] }}<|im_end|>"
        "\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
        _CHATML_TOKENS,
        "<|im_end|>",
    ),
}

#: Templates that rewrite them.
REWRITING = {
    "thinking stripped before the last question": Template(
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m['role'] == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
        "{% set text = m['content'] %}{% if m['role'] == 'assistant' and loop.index0 < ns.last and "
        "'</think>' in text %}{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "<|im_start|>{{ m['role'] }}\n{{ text }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        _CHATML_TOKENS,
        "<|im_end|>",
    ),
    "thinking stripped always, opened by the prompt": Template(
        "{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}"
        "{% elif m['role'] == 'assistant' %}<|bot|>{{ m['content'].split('</think>')[-1] }}<|end|>"
        "{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|bot|><think>\n{% endif %}",
        ("<|user|>", "<|bot|>", "<|end|>"),
        "<|end|>",
    ),
    "messages counted in the head": Template(
        "<|im_start|>{{ messages | length }} messages<|im_end|>\n" + _CHATML,
        _CHATML_TOKENS,
        "<|im_end|>",
    ),
    "only the last two messages shown": Template(
        "{% for m in messages[-2:] %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        _CHATML_TOKENS,
        "<|im_end|>",
    ),
}


class CharTokenizer:
    """One token a character, and one a special token: the least that the suite asks for."""

    def __init__(self, template: Template) -> None:
        self.template = template
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True
        )
        environment.globals["raise_exception"] = _refuse
        self._render = environment.from_string(template.jinja).render
        self._ids = {token: 0x110000 + index for index, token in enumerate(template.specials)}
        self._tokens = {index: token for token, index in self._ids.items()}
        self._cut = re.compile("|".join(map(re.escape, template.specials)) or r"(?!)")

    @property
    def stop_id(self) -> int:
        return self.encode(self.template.stop)[0]

    def apply_chat_template(
        self,
        conversation: list[dict[str, str]],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = False,
    ) -> str:
        assert not tokenize
        return self._render(messages=conversation, add_generation_prompt=add_generation_prompt)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in self._cut.finditer(text):
            ids += map(ord, text[at : found.start()])
            ids.append(self._ids[found[0]])
            at = found.end()
        return [*ids, *map(ord, text[at:])]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(self._tokens.get(index) or chr(index) for index in token_ids)


def _refuse(message: str) -> Any:
    raise jinja2.exceptions.TemplateError(message)


@functools.cache
def char_tokenizer(name: str) -> CharTokenizer:
    """The tokenizer of characters with the template of that name."""
    return CharTokenizer((KEEPING | REWRITING)[name])
