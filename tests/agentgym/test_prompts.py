from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from templates import KEEPING, REWRITING, CharTokenizer, char_tokenizer

from agentgym.prompts import (
    ConversationRenderer,
    EnvPrompt,
    PrefixError,
    WindowedRenderer,
    make_renderer,
)

INFO = {"goal": "Find it.", "turn": 0, "admissible_actions": ("go", "say <word>")}
SPECIALS = sorted({token for kind in KEEPING.values() for token in kind.specials})

odd_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.lists(
        st.sampled_from([*SPECIALS, "<think>", "</think>", " ", "\n", "open 1", "🦊", "AGENTGYM"]),
        max_size=5,
    ).map("".join),
)


def conversation(name: str, action_format: str = "tags") -> ConversationRenderer:
    return ConversationRenderer(char_tokenizer(name), EnvPrompt(action_format))


def play(renderer, observations, answers):
    """Prompts of an episode: the first, and one after each answer."""
    dialogue = renderer.dialogue()
    prompts = [dialogue.open(observations[0], INFO)]
    for turn, (ids, observation) in enumerate(zip(answers, observations[1:], strict=True), 1):
        text = renderer.tokenizer.decode(ids)
        prompts.append(dialogue.reply(ids, text, "go", observation, INFO | {"turn": turn}))
    return prompts


@pytest.mark.parametrize("name", KEEPING)
@given(data=st.data())
def test_a_conversation_only_grows(name, data):
    """The ids of turn n and the answer to it are how turn n + 1 begins, whatever was written."""
    renderer = conversation(name, data.draw(st.sampled_from(["tags", "bare"])))
    tokenizer = renderer.tokenizer
    stop = tokenizer.stop_id
    known = [tokenizer.encode(token)[0] for token in tokenizer.template.specials]
    any_ids = st.lists(st.sampled_from([*known, 32, 10, 97, 0x1F98A, stop]), max_size=8)
    written = odd_text.map(tokenizer.encode)
    answers = data.draw(
        st.lists(st.one_of(any_ids, written, written.map(lambda ids: [*ids, stop])), max_size=4)
    )
    observations = data.draw(
        st.lists(odd_text, min_size=len(answers) + 1, max_size=len(answers) + 1)
    )
    prompts = play(renderer, observations, answers)
    assert not prompts[0].extends
    assert prompts[0].context_ids.tolist() == prompts[0].ids.tolist()
    for before, answer, after in zip(prompts[:-1], answers, prompts[1:], strict=True):
        old = [*before.ids.tolist(), *answer]
        assert after.extends
        assert after.ids[: len(old)].tolist() == old
        assert after.ids[len(old) :].tolist() == after.context_ids.tolist()
        assert after.ids.dtype == after.context_ids.dtype == np.int32
        assert len(after.context_ids) > 0


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("stopped", [True, False])
@given(words=st.lists(st.sampled_from(["open 1", "ключ", "鍵 🦊", "a<b"]), min_size=3, max_size=9))
def test_a_conversation_is_what_the_template_renders(name, stopped, words):
    """One closing token an answer, written by the model or by the template; glue may differ."""
    renderer = conversation(name)
    tokenizer = renderer.tokenizer
    observations, texts = words[::2], words[1::2]
    assume(len(observations) == len(texts) + 1)
    answers = [tokenizer.encode(text) + [tokenizer.stop_id] * stopped for text in texts]
    messages = renderer.opening(observations[0], INFO)
    for text, observation in zip(texts, observations[1:], strict=True):
        user = renderer.prompt.next(observation, INFO)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": user}]
    expected = renderer.text(messages, generate=True)
    if "the prompt opens" in name:
        # There an answer goes on from an opened thought; the text alone does not show it.
        messages = [
            m if m["role"] != "assistant" else m | {"content": "<think>\n" + m["content"]}
            for m in messages
        ]
        expected = renderer.text(messages, generate=True)
    got = tokenizer.decode(play(renderer, observations, answers)[-1].ids.tolist())
    if "brackets" in name:  # these put blanks around an answer that no model has to write
        got, expected = re.sub(r"\s", "", got), re.sub(r"\s", "", expected)
    assert squeezed(got) == squeezed(expected)


def test_an_empty_answer_is_closed_once():
    renderer = conversation("chatml")
    tokenizer = renderer.tokenizer
    end = tokenizer.encode("<|im_end|>")
    for answer in ([], end):
        after = play(renderer, ["a", "b"], [answer])[-1]
        text = tokenizer.decode(after.ids.tolist())
        assert "assistant\n<|im_end|>\n<|im_start|>user\nb" in text
        assert len(after.context_ids) == len(tokenizer.encode(text)) - len(
            play(renderer, ["a"], [])[0].ids
        ) - len(answer)


def test_another_stop_token_is_kept_and_the_turn_still_closed():
    renderer = conversation("chatml")
    tokenizer = renderer.tokenizer
    after = play(renderer, ["a", "b"], [tokenizer.encode("go<|endoftext|>")])[-1]
    assert "go<|endoftext|><|im_end|>\n<|im_start|>user" in tokenizer.decode(after.ids.tolist())


@pytest.mark.parametrize("name", REWRITING)
def test_a_template_that_rewrites_earlier_turns_is_refused(name):
    with pytest.raises(PrefixError, match=r"rewrites earlier assistant turns.*windowed.*branch"):
        conversation(name)
    with pytest.raises(ValueError, match="rewrites"):
        make_renderer("conversation", char_tokenizer(name), EnvPrompt())


@pytest.mark.parametrize("name", KEEPING)
def test_a_template_that_keeps_them_is_taken_without_a_word(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("refuse", "branch"):
            renderer = ConversationRenderer(char_tokenizer(name), EnvPrompt(), mode)
            assert not renderer.branches


def branching(name: str) -> ConversationRenderer:
    with pytest.warns(UserWarning, match="each turn becomes a sequence of its own"):
        return ConversationRenderer(char_tokenizer(name), EnvPrompt(), "branch")


@pytest.mark.parametrize("name", REWRITING)
@given(
    observations=st.lists(odd_text, min_size=4, max_size=4),
    thoughts=st.lists(st.sampled_from(["", "<think>\nhm\n</think>\n\n"]), min_size=3, max_size=3),
)
def test_branching_renders_what_the_template_shows_and_says_where_it_breaks(
    name, observations, thoughts
):
    renderer = branching(name)
    tokenizer = renderer.tokenizer
    texts = [f"{thought}<action>go</action>" for thought in thoughts]
    answers = [[*tokenizer.encode(text), tokenizer.stop_id] for text in texts]
    dialogue = renderer.dialogue()
    prompt = dialogue.open(observations[0], INFO)
    messages = renderer.opening(observations[0], INFO)
    for ids, text, observation in zip(answers, texts, observations[1:], strict=True):
        old = [*prompt.ids.tolist(), *ids]
        prompt = dialogue.reply(ids, text, "go", observation, INFO)
        user = renderer.prompt.next(observation, INFO)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": user}]
        rendered = renderer.encode(renderer.text(messages, generate=True)).tolist()
        assert prompt.ids.tolist() == rendered
        assert prompt.extends == (rendered[: len(old)] == old)
        fresh = rendered[len(old) :] if prompt.extends else rendered
        assert prompt.context_ids.tolist() == fresh


def test_branching_breaks_at_thoughts_alone():
    renderer = branching("thinking stripped before the last question")
    encode, stop = renderer.tokenizer.encode, renderer.tokenizer.stop_id
    plain = [*encode("<action>go</action>"), stop]
    thought = [*encode("<think>\nhm\n</think>\n\n<action>go</action>"), stop]
    dialogue = renderer.dialogue()
    dialogue.open("a", INFO)
    kinds = [
        dialogue.reply(ids, renderer.tokenizer.decode(ids[:-1]), "go", "b", INFO).extends
        for ids in (plain, plain, thought, plain)
    ]
    assert kinds == [True, True, False, True]


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("chatml", False),
        ("headers, content trimmed", False),
        ("instructions in brackets, system message moved to the last turn", True),
        ("instructions in plain brackets, answers spaced, system message refused", True),
    ],
)
def test_instructions_open_the_first_message_where_the_template_has_no_place(name, folded):
    renderer = conversation(name)
    assert renderer.folds_system == folded
    roles = [message["role"] for message in renderer.opening("look", INFO)]
    assert roles == (["user"] if folded else ["system", "user"])
    text = renderer.tokenizer.decode(play(renderer, ["look"], [])[0].ids.tolist())
    assert text.count("You act in a text environment") == 1
    assert text.index("You act in") < text.index("look")


def test_the_bare_format_gives_no_instructions():
    renderer = conversation("compact", "bare")
    prompt = play(renderer, ["look"], [])[0]
    assert renderer.tokenizer.decode(prompt.ids.tolist()) == "look<act>"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [((), True), (("tags", False), False), (("bare",), False)],
)
def test_admissible_actions_are_quoted_where_asked(arguments, shown):
    prompt = EnvPrompt(*arguments)
    text = prompt.first("look", INFO)
    assert text == ("look\nAdmissible actions: go, say <word>" if shown else "look")
    assert prompt.next("look", INFO) == text
    assert prompt.next("look", INFO | {"admissible_actions": None}) == "look"


def window(size: int, name: str = "chatml") -> WindowedRenderer:
    return WindowedRenderer(char_tokenizer(name), EnvPrompt(), size)


def windowed_texts(renderer: WindowedRenderer, turns: int) -> list[str]:
    dialogue = renderer.dialogue()
    prompts = [dialogue.open("seen 0", INFO)]
    for turn in range(1, turns):
        prompts.append(
            dialogue.reply([1], "raw text", f"act {turn}", f"seen {turn}", INFO | {"turn": turn})
        )
    for prompt in prompts:
        assert not prompt.extends
        assert prompt.ids.tolist() == prompt.context_ids.tolist()
    return [renderer.tokenizer.decode(prompt.ids.tolist()) for prompt in prompts]


def test_a_window_quotes_the_last_pairs_with_their_numbers():
    first, second, _, fourth = windowed_texts(window(2), 4)
    assert "You have taken" not in first
    assert "You are at turn 1. Now you see: seen 0" in first
    assert "[Observation 1: seen 0]\n[Action 1: act 1]\nYou are at turn 2." in second
    expected = (
        "Your task: Find it.\nYou have taken 3 actions; the last 2:\n"
        "[Observation 2: seen 1]\n[Action 2: act 2]\n"
        "[Observation 3: seen 2]\n[Action 3: act 3]\n"
        "You are at turn 4. Now you see: seen 3\nAdmissible actions: go, say <word>"
    )
    assert f"<|im_start|>user\n{expected}<|im_end|>\n<|im_start|>assistant\n" in fourth
    assert "raw text" not in fourth


def test_a_window_of_none_and_of_many():
    assert all("[Observation" not in text for text in windowed_texts(window(0), 3))
    assert windowed_texts(window(99), 5)[-1].count("[Action") == 4
    with pytest.raises(ValueError, match="window must be >= 0, got -1"):
        window(-1)


@pytest.mark.parametrize("name", KEEPING | REWRITING)
def test_windows_work_with_every_template(name):
    texts = windowed_texts(window(1, name), 3)
    assert all(text.count("You act in a text environment") == 1 for text in texts)


def test_dialogues_of_one_renderer_do_not_mix():
    for renderer in (conversation("chatml"), window(2)):
        first, second = renderer.dialogue(), renderer.dialogue()
        first.open("a", INFO)
        first.reply([1], "x", "x", "b", INFO)
        fresh = renderer.dialogue().open("c", INFO).ids.tolist()
        assert second.open("c", INFO).ids.tolist() == fresh


def test_names_that_do_not_exist():
    tokenizer = char_tokenizer("chatml")
    with pytest.raises(
        ValueError, match="unknown prompt mode 'chat'; known: conversation, windowed"
    ):
        make_renderer("chat", tokenizer, EnvPrompt())
    with pytest.raises(ValueError, match="on_rewrite must be 'refuse' or 'branch', got 'ignore'"):
        ConversationRenderer(tokenizer, EnvPrompt(), "ignore")
    with pytest.raises(ValueError, match="unknown action format 'json'"):
        EnvPrompt("json")
    renderer = make_renderer("windowed", tokenizer, EnvPrompt(), window=5)
    assert isinstance(renderer, WindowedRenderer)
    assert renderer.window == 5


def test_a_template_that_cannot_render_a_conversation_raises_its_own_error():
    broken = KEEPING["chatml"].__class__("{{ raise_exception('no roles at all') }}", (), "\n")
    with pytest.raises(Exception, match="no roles at all"):
        ConversationRenderer(CharTokenizer(broken), EnvPrompt())
