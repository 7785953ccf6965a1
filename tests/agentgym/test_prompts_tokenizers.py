"""The promise of conversation mode with real tokenizers: byte-level BPE, words, and our own."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from templates import KEEPING, REWRITING

from agentgym.prompts import ConversationRenderer, EnvPrompt, PrefixError, WindowedRenderer

pytestmark = pytest.mark.torch

TEXT = [
    "You see a red door and a blue door. Which one do you open?",
    "system user assistant Admissible actions: open 1, open 2, say something.",
    "<think> The red door, maybe. </think><action> open 1 </action>",
    "Your task: find the prize behind one of the doors, 鍵 ключ 🦊.",
]
INFO = {"goal": "Find it.", "turn": 0, "admissible_actions": ("open 1", "say <word>")}


@functools.cache
def tokenizer(kind: str, name: str):
    """A fast tokenizer made here, with the chat template of that name."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    template = (KEEPING | REWRITING)[name]
    if kind == "bytes":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
    else:
        backend = Tokenizer(models.WordLevel(unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Punctuation(), pre_tokenizers.Split("\n", "isolated")]
            + [pre_tokenizers.Whitespace()] * (name != "plain lines without a special token")
        )
        trainer = trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)
    backend.train_from_iterator([*TEXT, "\n"], trainer)
    backend.add_special_tokens([AddedToken(token, special=True) for token in template.specials])
    made = PreTrainedTokenizerFast(tokenizer_object=backend)
    made.chat_template = template.jinja
    return made


def stop_ids(made, name: str) -> list[int]:
    return made.encode(KEEPING[name].stop, add_special_tokens=False)[:1]


texts = st.one_of(
    st.sampled_from(TEXT),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.lists(st.sampled_from(["<|im_end|>", "</s>", "open 1", " ", "\n", "🦊"]), max_size=4).map(
        "".join
    ),
)


def check_growth(renderer, observations, answers):
    dialogue = renderer.dialogue()
    prompt = dialogue.open(observations[0], INFO)
    for ids, observation in zip(answers, observations[1:], strict=True):
        old = [*prompt.ids.tolist(), *ids]
        prompt = dialogue.reply(ids, "", "open 1", observation, INFO)
        assert prompt.extends
        assert prompt.ids[: len(old)].tolist() == old
        assert prompt.ids[len(old) :].tolist() == prompt.context_ids.tolist()
        assert prompt.ids.dtype == np.int32
        assert prompt.context_ids.size


def grow(kind, name, data):
    made = tokenizer(kind, name)
    renderer = ConversationRenderer(made, EnvPrompt())
    stop = stop_ids(made, name)
    written = texts.map(lambda text: made.encode(text, add_special_tokens=False))
    sampled = st.lists(st.integers(0, len(made) - 1), max_size=6)
    answers = data.draw(
        st.lists(st.one_of(sampled, written, written.map(lambda ids: [*ids, *stop])), max_size=3)
    )
    observations = data.draw(st.lists(texts, min_size=len(answers) + 1, max_size=len(answers) + 1))
    check_growth(renderer, observations, answers)


@pytest.mark.parametrize("kind", ["bytes", "words"])
@pytest.mark.parametrize("name", KEEPING)
@given(data=st.data())
def test_a_conversation_only_grows(kind, name, data):
    grow(kind, name, data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "words"])
@pytest.mark.parametrize("name", KEEPING)
@settings(max_examples=600)
@given(data=st.data())
def test_a_conversation_only_grows_in_many_more_cases(kind, name, data):
    grow(kind, name, data)


@pytest.mark.parametrize("name", KEEPING)
def test_the_whole_conversation_reads_as_the_template_writes_it(name):
    """For text that a template has no reason to trim, ids of pieces equal ids of the whole."""
    made = tokenizer("bytes", name)
    renderer = ConversationRenderer(made, EnvPrompt("bare"))
    answers = ["open 1", "say 鍵"]
    if name == "the prompt opens the thought":
        answers = [f"hm\n</think>\n\n{text}" for text in answers]
    observations = ["A red door.", "A blue door 🦊.", "No door."]
    dialogue = renderer.dialogue()
    prompt = dialogue.open(observations[0], INFO)
    messages = [{"role": "user", "content": observations[0]}]
    for text, observation in zip(answers, observations[1:], strict=True):
        ids = made.encode(text, add_special_tokens=False) + stop_ids(made, name)
        prompt = dialogue.reply(ids, text, text, observation, INFO)
        messages += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": observation},
        ]
    whole = made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    got = made.decode(prompt.ids.tolist())
    if "brackets" in name:
        whole, got = whole.replace(" ", ""), got.replace(" ", "")
    assert got == whole


@pytest.mark.parametrize("kind", ["bytes", "words"])
@pytest.mark.parametrize("name", REWRITING)
def test_rewriting_templates_are_refused_and_can_branch(kind, name):
    made = tokenizer(kind, name)
    with pytest.raises(PrefixError):
        ConversationRenderer(made, EnvPrompt())
    with pytest.warns(UserWarning, match="a sequence of its own"):
        renderer = ConversationRenderer(made, EnvPrompt(), "branch")
    dialogue = renderer.dialogue()
    dialogue.open(TEXT[0], INFO)
    ids = made.encode(TEXT[2], add_special_tokens=False)
    after = dialogue.reply(ids, TEXT[2], "open 1", TEXT[3], INFO)
    assert not after.extends
    messages = renderer.opening(TEXT[0], INFO)
    messages += [
        {"role": "assistant", "content": TEXT[2]},
        {"role": "user", "content": renderer.prompt.next(TEXT[3], INFO)},
    ]
    assert after.ids.tolist() == made.encode(
        made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
        add_special_tokens=False,
    )
    window = WindowedRenderer(made, EnvPrompt(), 2).dialogue()
    assert not window.open(TEXT[0], INFO).extends


def test_special_tokens_are_written_by_the_template_alone():
    """A tokenizer that adds a start token to every text must not add one to every turn."""
    from tokenizers.processors import TemplateProcessing

    name = "headers, content trimmed"
    made = tokenizer("bytes", name)
    start = made.encode("<|begin|>", add_special_tokens=False)[0]
    twin = made.__class__(tokenizer_object=made.backend_tokenizer)
    twin.chat_template = made.chat_template
    twin.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", start)]
    )
    assert twin.encode("a")[0] == start
    dialogue = ConversationRenderer(twin, EnvPrompt()).dialogue()
    dialogue.open("a", INFO)
    ids = dialogue.reply(twin.encode("b", add_special_tokens=False), "b", "b", "c", INFO).ids
    assert ids.tolist().count(start) == 1


@given(data=st.data())
def test_the_suites_own_tokenizer_keeps_the_promise(data):
    from adapters.policies.tokenization import END, build_tokenizer

    made = _own(build_tokenizer)
    renderer = ConversationRenderer(made, EnvPrompt("bare"))
    end = made.encode(END, add_special_tokens=False)
    written = texts.map(lambda text: made.encode(text, add_special_tokens=False))
    answers = data.draw(st.lists(written.map(lambda ids: [*ids, *end]), max_size=3))
    observations = data.draw(st.lists(texts, min_size=len(answers) + 1, max_size=len(answers) + 1))
    check_growth(renderer, observations, answers)


@functools.cache
def _own(build):
    return build(["red door", "blue door", "open", "say"], TEXT)
