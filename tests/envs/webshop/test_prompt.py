import re

import gymnasium as gym
import pytest

import agentgym  # noqa: F401 - registers the environments
from agentgym.registry import load, spec
from envs.webshop.families import asin_pieces
from envs.webshop.oracle import demonstrate
from envs.webshop.prompt import (
    INVALID,
    WebShopPrompt,
    compact_page,
    vocabulary,
    without_instruction,
)

NO_NOISE = 0.0


class _Rng:
    def random(self):
        return 0.5


@pytest.fixture(params=["text", "text_rich"])
def mode(request):
    return request.param


def _episode(mode, *, goals="synthetic", number=0, **arguments):
    """Observations, infos and actions of the oracle with detours over the sub pages."""
    env = gym.make(
        "WebShop-v0",
        difficulty="small",
        catalogue="builtin:300",
        observation_mode=mode,
        goals=goals,
        max_steps=30,
        **arguments,
    )
    task_id = env.unwrapped.tasks.ids("train")[number]
    observation, info = env.reset(seed=0, options={"task_id": task_id})
    steps = [(observation, info, None)]

    def step(action):
        observation, _, terminated, _, info = env.step(action)
        steps.append((observation, info, action))
        return terminated

    step("click[nothing]")
    for action in demonstrate(env, _Rng(), NO_NOISE):
        if step(action):
            break
        if env.unwrapped.session.page == "item" and not env.unwrapped.session.options:
            for detour in (
                "click[description]",
                "click[< prev]",
                "click[features]",
                "click[< prev]",
            ):
                step(detour)
    assert info is not steps[-1][1]
    assert steps[-1][1]["success"]
    return steps


# Pages -------------------------------------------------------------------------------------------


def test_the_instruction_is_said_once(mode):
    prompt = WebShopPrompt("tags")
    steps = _episode(mode)
    goal = steps[0][1]["goal"]
    assert goal in prompt.first(*steps[0][:2])
    assert prompt.first(*steps[0][:2]).count(goal) == 1
    for observation, info, _ in steps[:-1]:
        assert goal in observation
        assert goal not in prompt.next(observation, info)
        assert "Instruction" not in without_instruction(observation, goal)
        assert prompt.windowed([], observation, info).count(goal) == 1


def test_pages_without_the_instruction_stay_as_they_are():
    assert without_instruction("Thank you [SEP] Bye", "find me") == "Thank you [SEP] Bye"


def test_the_compact_form_is_the_same_in_both_modes_but_for_what_was_clicked():
    text, rich = _episode("text"), _episode("text_rich")
    goal = text[0][1]["goal"]
    for (seen, info, _), (other, _, _) in zip(text[:-1], rich[:-1], strict=True):
        plain, marked = compact_page(seen, goal), compact_page(other, goal)
        marked = re.sub(r"^(you have clicked .*? \[SEP\] )+", "", marked)
        assert plain == marked
        assert plain == plain.lower().replace("[sep]", "[SEP]")
        assert info["goal"] == goal


def test_compact_results_put_the_price_before_the_id():
    steps = _episode("text")
    goal = steps[0][1]["goal"]
    page = next(seen for seen, info, _ in steps if info["details"]["page"] == "results")
    parts = page.split(" [SEP] ")
    asin, title, price = parts[5:8]
    assert re.fullmatch(r"B0[A-Z0-9]{8}", asin)
    compact = compact_page(page, goal)
    assert f" [SEP] {title.lower()} {price} {asin.lower()} [SEP] " in compact
    assert compact.startswith("back to search [SEP] page 1 (total results: 50) [SEP] next > [SEP] ")
    assert len(compact.split(" [SEP] ")) == 3 + 5


def test_results_that_are_no_triples_keep_their_order():
    page = "Back to Search [SEP] Page 1 (Total results: 1) [SEP] B000000001 [SEP] $3.0"
    assert compact_page(page, "x") == page.lower().replace("[sep]", "[SEP]")


# The bare form -----------------------------------------------------------------------------------


def test_bare_messages_are_short():
    prompt = WebShopPrompt("bare")
    steps = _episode("text")
    (observation, info, _), (_, refused, _) = steps[:2]
    assert prompt.system(info) is None
    assert prompt.first(observation, info) == info["goal"].lower()
    assert refused["action_valid"] is False
    assert prompt.next(steps[1][0], refused) == INVALID
    item = next(s for s in steps if s[1]["details"]["page"] == "item")
    message = prompt.next(*item[:2])
    assert message.startswith("back to search [SEP] < prev [SEP] color [SEP] ")
    assert message.endswith(
        "[SEP] rating: n.a. [SEP] description [SEP] features [SEP] reviews [SEP] buy now"
    )
    assert "admissible" not in message.lower()


def test_bare_windows_quote_compact_pages():
    prompt = WebShopPrompt("bare")
    steps = _episode("text")
    results = next(i for i, s in enumerate(steps) if s[1]["details"]["page"] == "results")
    history = [(steps[results - 1][0], steps[results][2])]
    message = prompt.windowed(history, *steps[results][:2])
    goal = steps[0][1]["goal"]
    assert message.splitlines() == [
        goal.lower(),
        "search",
        f"> {steps[results][2]}",
        compact_page(steps[results][0], goal),
    ]
    assert INVALID in prompt.windowed([], *steps[1][:2])
    assert prompt.parse("click[buy now]").action == "click[buy now]"


# The form for language models --------------------------------------------------------------------


def test_tags_explain_the_site_and_list_what_is_admissible(mode):
    prompt = WebShopPrompt("tags")
    steps = _episode(mode)
    observation, info, _ = steps[0]
    system = prompt.system(info)
    for word in ("search[", "click[", "<think>", "<action>", "buy now"):
        assert word in system
    assert "'search[<query>]'" in prompt.first(observation, info)
    for observation, info, _ in steps[:-1]:
        message = prompt.next(observation, info)
        assert all(f"'{action}'" in message for action in info["admissible_actions"])
        assert "'click[" not in WebShopPrompt("tags", list_admissible=False).next("page", info)
    parsed = prompt.parse("<think>cheap</think><action>click[buy now]</action>")
    assert parsed.action == "click[buy now]"
    assert parsed.format_ok


def test_tags_say_why_an_action_did_nothing():
    prompt = WebShopPrompt("tags")
    steps = _episode("text")
    observation, info, _ = steps[1]
    reason = info["details"]["reason"]
    assert f"Your last action did nothing: {reason}." in prompt.next(observation, info)
    assert f"Your last action did nothing: {reason}." in prompt.windowed([], observation, info)
    assert "did nothing" not in prompt.next(*steps[2][:2])


def test_windows_number_the_quoted_turns():
    prompt = WebShopPrompt("tags")
    steps = _episode("text")
    history = [(steps[i][0], steps[i + 1][2]) for i in (2, 3)]
    message = prompt.windowed(history, *steps[4][:2])
    assert "You have acted 4 times" in message
    assert f"[Page 3] {without_instruction(steps[2][0], steps[0][1]['goal'])}" in message
    assert f"[Action 4] {steps[4][2]}" in message
    assert "(turn 5)" in message


def test_windows_drop_the_oldest_turns_where_space_is_short():
    steps = _episode("text")
    history = [(steps[i][0], steps[i + 1][2]) for i in (2, 3)]
    whole = WebShopPrompt("tags").windowed(history, *steps[4][:2])
    shorter = WebShopPrompt("tags", max_chars=len(whole) - 1).windowed(history, *steps[4][:2])
    assert shorter == WebShopPrompt("tags").windowed(history[1:], *steps[4][:2])
    least = WebShopPrompt("tags", max_chars=1).windowed(history, *steps[4][:2])
    assert least == WebShopPrompt("tags").windowed([], *steps[4][:2])
    with pytest.raises(ValueError, match="max_chars must be >= 1, got 0"):
        WebShopPrompt("tags", max_chars=0)


def test_the_registry_names_this_prompt_and_vocabulary():
    entry = spec("WebShop-v0")
    assert load(entry.prompt) is WebShopPrompt
    assert load(entry.vocabulary) is vocabulary
    assert load(entry.oracle) is demonstrate


# Vocabulary --------------------------------------------------------------------------------------


def test_the_small_vocabulary_has_about_three_hundred_phrases():
    phrases = vocabulary(difficulty="small")
    assert len(phrases) == len(set(phrases)) <= 320
    assert all(phrase.strip() for phrase in phrases)
    for pieces in asin_pieces(1000):
        assert {piece.lower() for piece in pieces} <= set(phrases)


@pytest.mark.parametrize("goals", ["synthetic", "human"])
def test_the_small_vocabulary_covers_all_that_is_read_and_written(goals):
    phrases = sorted((p.strip() for p in vocabulary(difficulty="small")), key=len, reverse=True)
    cover = re.compile("|".join(map(re.escape, phrases)))
    prompt = WebShopPrompt("bare")
    for number in range(0, 60, 3):
        steps = _episode("text", goals=goals, number=number)
        texts = [prompt.first(*steps[0][:2])]
        for observation, info, action in steps[1:-1]:
            texts += [prompt.next(observation, info), action]
        for text in texts:
            if text != "click[nothing]":
                assert cover.sub("", text).replace(" ", "") == "", text


def test_other_catalogues_have_vocabularies_too():
    full = vocabulary(difficulty="full", catalogue="builtin:2000:3")
    assert {"gluten free", "navy blue", "looking for", "search["} <= set(full)
    assert len([p for p in full if re.fullmatch(r"b0[a-z0-9]{4}", p)]) == 64
    loaded = vocabulary(data="somewhere", observation_mode="text")
    assert "click[buy now]" in loaded
    assert "gluten free" not in loaded
    assert not any(p.startswith("b0") for p in loaded)


@pytest.mark.torch
def test_episodes_are_short_in_tokens():
    from adapters.policies.tokenization import build_tokenizer

    tokenizer = build_tokenizer(vocabulary(difficulty="small"))
    prompt = WebShopPrompt("bare")
    read, written, turns = [], [], []
    for number in range(0, 60, 3):
        steps = _episode("text", number=number)
        # The oracle's own five turns, without the detours that the helper adds.
        own = [s for s in steps[2:] if s[1]["details"]["page"] not in ("description", "features")]
        own = [s for s in own if s[2] != "click[< prev]"]
        texts = [prompt.first(*steps[0][:2]), *(prompt.next(*s[:2]) for s in own[:-1])]
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        acts = [tokenizer.encode(s[2], add_special_tokens=False) for s in own]
        for text, encoded in zip(texts, ids, strict=True):
            assert tokenizer.decode(encoded) == text
            assert not any(t.startswith("<0x") for t in tokenizer.convert_ids_to_tokens(encoded))
        read.append(sum(map(len, ids)))
        written.append(sum(map(len, acts)))
        turns.append(len(own))
    assert sum(read) / len(read) + sum(written) / len(written) <= 200
    assert sum(written) / len(written) <= 19
    assert max(turns) <= 5
