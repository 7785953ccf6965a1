from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from adapters.policies.tokenization import ACT, END, PAD, build_tokenizer, marked
from agentgym.info import Info
from agentgym.prompts import ConversationRenderer, EnvPrompt

PHRASES = [
    " [SEP] ", "[SEP] < prev [SEP]", "back to search", "click[", "search[", "]", "red",
    "gluten free", "x-large", " $40.0", "40.00 dollars", "b0c1ht", "4qt0", "price lower than",
]  # fmt: skip
TEXTS = ["find me some shoes, and take two", "find me Schuhe: größer als 7"]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(PHRASES, TEXTS)


def pieces(tokenizer, text: str) -> list[str]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [str(tokenizer.decode([token])).strip() for token in ids]


ANY = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
NEAR = st.text(
    st.sampled_from("ab1 .,:;[](){}%$-'>\n\t\ue000\ue001\ue002~^=é\u0301鍵"), max_size=30
)
SPOKEN = st.lists(st.sampled_from([*PHRASES, " ", "  ", "7", ",", "zebra"]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(ANY | NEAR | SPOKEN.map("".join))
@example("1,000 2, 3.a .5 3.14.15")
@example(" leading and trailing ")
@example("\ue000a \ue002^ \ue001b")
def test_every_text_comes_back(text: str) -> None:
    tokenizer = test_every_text_comes_back.tokenizer  # type: ignore[attr-defined]
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert all(0 <= token < len(tokenizer) for token in ids)


test_every_text_comes_back.tokenizer = build_tokenizer(PHRASES, TEXTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("page", "action"),
    [
        ("color [SEP] red [SEP] blue", "click[red]"),
        ("a gluten free snack", "search[gluten free]"),
        ("size\n[button] x-large [button_]", "click[x-large]"),
        ("name b0c1ht4qt0 $40.0", "click[b0c1ht4qt0]"),
    ],
)
def test_a_name_is_the_same_tokens_on_the_page_and_in_the_action(
    tokenizer, page: str, action: str
) -> None:
    name = tokenizer.encode(action, add_special_tokens=False)[1:-1]
    whole = tokenizer.encode(page, add_special_tokens=False)
    assert 1 <= len(name) <= 2
    assert any(whole[at : at + len(name)] == name for at in range(len(whole)))


def test_phrases_words_and_blanks_cost_what_they_should(tokenizer) -> None:
    assert pieces(tokenizer, "click[b0c1ht4qt0]") == ["click[", "b0c1ht", "4qt0", "]"]
    assert pieces(tokenizer, "red [SEP] red") == ["red", "[SEP]", "red"]
    assert pieces(tokenizer, "back to search [SEP] < prev [SEP] red") == [
        "back to search", "[SEP] < prev [SEP]", "red",
    ]  # fmt: skip
    assert pieces(tokenizer, "find me two shoes") == ["find", "me", "two", "shoes"]
    assert pieces(tokenizer, "red $40.0 red") == ["red", "$40.0", "red"]
    assert len(pieces(tokenizer, "1234")) == 4  # numbers digit by digit
    assert len(pieces(tokenizer, "zebra")) == 6  # never seen: its mark and its bytes


def test_special_tokens_and_template(tokenizer) -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "red"},
        {"role": "assistant", "content": "click[red]"},
        {"role": "user", "content": " [SEP] red\n"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == f"<|system|>s<|user|>red{ACT}click[red]{END}<|user|> [SEP] red\n{ACT}"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert ids.count(tokenizer.eos_token_id) == 1
    plain = tokenizer.decode(ids, skip_special_tokens=True)
    assert plain == "s red click[red] [SEP] red\n"  # words stay apart
    assert tokenizer.pad_token == PAD
    assert tokenizer.eos_token == END


def test_conversations_are_append_only(tokenizer) -> None:
    info: Info = {"admissible_actions": None, "goal": "", "turn": 0}  # type: ignore[typeddict-item]
    dialogue = ConversationRenderer(tokenizer, EnvPrompt("bare")).dialogue()
    prompt = dialogue.open("find me red shoes", info)
    end = tokenizer.eos_token_id
    for action, page in (("click[red]", "a [SEP] b"), ("search[x-large]", " [SEP] é\n"), ("", "")):
        ids = [*tokenizer.encode(action, add_special_tokens=False), end]
        following = dialogue.reply(ids, action, action, page, info)
        assert following.extends
        n = len(prompt.ids)
        assert following.ids[:n].tolist() == prompt.ids.tolist()
        assert following.ids[n : n + len(ids)].tolist() == ids
        shown = tokenizer.decode(following.ids[n + len(ids) :].tolist())
        assert shown == f"<|user|>{page}{ACT}"
        prompt = following


def test_saved_and_loaded_without_this_package(tokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "find me größer, gluten free [SEP] < prev [SEP] b0c1ht4qt0 zebra $40.0\n\ue000"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert loaded.encode(text, add_special_tokens=False) == ids
    assert loaded.decode(ids) == text
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.eos_token, loaded.pad_token, loaded.is_fast) == (END, PAD, True)


def test_the_same_words_make_the_same_vocabulary() -> None:
    first, second = (build_tokenizer(PHRASES, TEXTS).get_vocab() for _ in range(2))
    assert first == second
    most = build_tokenizer([], ["b b b a a c"], max_words=2)
    assert len(pieces(most, "b a")) == 2
    assert len(pieces(most, "c")) == 2


@pytest.mark.parametrize("phrase", ["", "  ", f"a {END}"])
def test_bad_phrases_are_refused(phrase: str) -> None:
    with pytest.raises(ValueError, match="phrase"):
        build_tokenizer(["red", phrase])


def test_marks() -> None:
    assert marked("a b") == "\ue000a\ue000b"
    assert marked("[a") == "[\ue000a"
    assert marked("a,b 1.5") == "\ue000a,\ue001\ue000b\ue0001.5"
