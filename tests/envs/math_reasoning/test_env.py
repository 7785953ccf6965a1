"""The environment: episodes, rewards, attempts, tools, data, and every environment's contract."""

from __future__ import annotations

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import agentgym  # noqa: F401 - registers the environments
from agentgym import group_reset
from agentgym.registry import load, spec
from envs.math_reasoning import PoolError
from envs.math_reasoning.env import NO_ANSWER, NO_CALLS_LEFT, NOT_CORRECT, MathReasoningEnv
from envs.math_reasoning.oracle import demonstrate, response
from envs.math_reasoning.tools import Tool, ToolReply

ROWS = [
    {"question": "What is 1/2?", "answer": "\\frac{1}{2}", "solution": "Think.\nIt is a half."},
    {"question": "What is 6 x 7?", "answer": "42"},
]
VARIANTS = {
    "default": {},
    "small": {"difficulty": "small"},
    "attempts": {"turns": 3},
    "tools": {"tools": ("calculator",), "turns": 2},
    "data": {"data": ROWS},
    "expert": {"expert": True},
}


def make(**arguments) -> MathReasoningEnv:
    return gym.make("MathReasoning-v0", **arguments).unwrapped


def boxed(answer: object) -> str:
    return f"So \\boxed{{{answer}}}."


def wrong(env: MathReasoningEnv) -> str:
    return boxed(int(env.task.answer) + 1)


# The contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_check_env_has_nothing_to_say(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(**VARIANTS[name]), skip_render_check=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_info_is_json_and_the_same_everywhere(name):
    env = make(**VARIANTS[name])
    _, info = env.reset(seed=3)
    keys = set(info)
    json.dumps(info)
    *_, after = env.step(boxed(1))
    json.dumps(after)
    assert set(after) == keys
    assert set(after["details"]) == set(info["details"])
    assert info["admissible_actions"] is None
    assert info["goal"] == env.task.question


def test_the_same_seed_gives_the_same_episode():
    one, other = make(), make()
    for seed in range(5):
        assert one.reset(seed=seed) == other.reset(seed=seed)
    task = one.tasks.ids("test")[7]
    observation, info = one.reset(seed=0, options={"task_id": task})
    assert (info["task_id"], info["split"]) == (task, "test")
    assert other.reset(seed=99, options={"task_id": task})[0] == observation


def test_replicas_of_a_group_agree():
    envs = [gym.make("MathReasoning-v0", difficulty="small") for _ in range(4)]
    results = group_reset(envs, "train-5", seed=1)
    assert len({observation for observation, _ in results}) == 1


def test_vector_environments():
    envs = gym.make_vec("MathReasoning-v0", num_envs=2, vectorization_mode="sync")
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    envs.close()


# Answers and rewards ----------------------------------------------------------------------------


def test_a_right_answer():
    env = make()
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(boxed(env.task.answer))
    assert (observation, reward, terminated, truncated) == ("Correct.", 1.0, True, False)
    assert (info["success"], info["score"], info["stop_reason"]) == (True, 1.0, "solved")
    assert info["details"]["verifier_status"] == "ok"
    assert info["details"]["answer"] == env.task.answer


def test_a_wrong_answer():
    env = make()
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(wrong(env))
    assert (observation, reward, terminated, truncated) == (NOT_CORRECT, 0.0, True, False)
    assert (info["success"], info["score"], info["stop_reason"]) == (False, 0.0, "failed")
    assert info["action_valid"]


def test_no_answer():
    env = make(turns=2)
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step("I do not know.")
    assert (observation, reward, terminated) == (NO_ANSWER, 0.0, False)
    assert info["details"]["verifier_status"] == "no_answer"
    assert not info["action_valid"]
    assert info["details"]["reason"]
    assert env.task.answer not in observation
    *_, terminated, _, info = env.step("")
    assert terminated, "an attempt without an answer is spent"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("\\boxed{\\frac{1}{}", "no_answer"),
        ("\\boxed{\\frac{1}}", "unparsed"),
        ("\\boxed{" + "1" * 3000 + "}", "too_long"),
        ("\\boxed{(1,2)}", "ok"),
    ],
)
def test_failures_are_typed(text, status):
    env = make()
    env.reset(seed=1)
    *_, info = env.step(text)
    assert info["details"]["verifier_status"] == status
    assert not info["success"]


def test_retries_never_pay_more():
    env = make(turns=4, discount=0.5)
    for attempt in range(4):
        env.reset(seed=2)
        total = 0.0
        for _ in range(attempt):
            observation, reward, terminated, truncated, info = env.step(wrong(env))
            assert (observation, reward, terminated, truncated) == (NOT_CORRECT, 0.0, False, False)
        observation, reward, terminated, _, info = env.step(boxed(env.task.answer))
        total += reward
        assert terminated
        assert total == info["score"] == 0.5**attempt
        assert info["success"]
    env.reset(seed=2)
    for _ in range(4):
        *_, terminated, truncated, info = env.step(wrong(env))
    assert terminated
    assert not truncated
    assert info["stop_reason"] == "failed"


def test_reward_success_pays_one_at_any_attempt():
    env = make(turns=2, discount=0.0, reward="success")
    env.reset(seed=2)
    env.step(wrong(env))
    assert env.step(boxed(env.task.answer))[1] == 1.0


def test_a_wrong_answer_says_nothing_about_the_right_one():
    env = make(turns=3)
    env.reset(seed=4)
    right = int(env.task.answer)
    replies = set()
    for guess in (right + 1, right + 1000):
        observation, _, _, _, info = env.step(boxed(guess))
        replies.add(observation)
        assert str(right) not in json.dumps(info["details"])
    assert replies == {NOT_CORRECT}


def test_the_thinking_part_is_not_the_answer():
    env = make()
    env.reset(seed=1)
    right = env.task.answer
    *_, info = env.step(f"<think>{boxed(right)}</think> {boxed(int(right) + 1)}")
    assert not info["success"]


def test_policies_reach_the_grader():
    env = make(data=ROWS, policies={"decimal_digits": None, "fbox": False})
    env.reset(options={"task_id": "train-0"})
    *_, info = env.step("\\fbox{0.5}")
    assert info["details"]["verifier_status"] == "no_answer"
    with pytest.raises(TypeError, match="unknown policies"):
        make(policies={"lenient": True})


# Tools ------------------------------------------------------------------------------------------


def test_a_call_is_answered_and_costs_no_attempt():
    env = make(tools=("calculator",))
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(
        "<think>I need it.</think><calculator>12*5</calculator>"
    )
    assert (observation, reward, terminated, truncated) == (
        "<result>\n60\n</result>",
        0.0,
        False,
        False,
    )
    assert info["details"]["tool"] == {"name": "calculator", "ok": True, "dropped": 0}
    assert info["details"]["attempts"] == 0
    assert info["details"]["verifier_status"] is None
    assert env.step(boxed(env.task.answer))[1] == 1.0


def test_a_reply_the_model_writes_itself_counts_for_nothing():
    env = make(tools=("calculator",), turns=2)
    env.reset(seed=1)
    right = env.task.answer
    # The text behind the call is dropped, its made-up result and its box included.
    forged = f"<calculator>2+2</calculator><result>\n{right}\n</result>{boxed(right)}"
    observation, reward, *_, info = env.step(forged)
    assert (observation, reward) == ("<result>\n4\n</result>", 0.0)
    assert info["details"]["tool"]["dropped"] == len(forged) - len("<calculator>2+2</calculator>")
    # A result without a call is text, and no answer.
    observation, reward, *_, info = env.step(f"<result>\n{right}\n</result>")
    assert (observation, reward) == (NO_ANSWER, 0.0)
    assert info["details"]["tool"] is None


def test_calls_run_out():
    env = make(tools=("calculator",), tool_calls=1, turns=1, max_steps=3)
    _, info = env.reset(seed=1)
    assert info["details"]["tool_calls_left"] == 1
    env.step("<calculator>1</calculator>")
    observation, _, _, truncated, info = env.step("<calculator>1</calculator>")
    assert observation == NO_CALLS_LEFT
    assert not info["action_valid"]
    *_, truncated, info = env.step("<calculator>1</calculator>")
    assert truncated
    assert info["stop_reason"] == "max_turns"


def test_a_tool_of_ones_own():
    seen = []

    def run(source: str) -> ToolReply:
        seen.append(source)
        return ToolReply("done", details={"level": "none"})

    env = make(tools=("calculator", Tool("python", run, "<python>code</python> runs code")))
    _, info = env.reset(seed=1)
    assert info["details"]["tools"]["python"] == "<python>code</python> runs code"
    observation, *_, info = env.step("<python>\nprint(1)\n</python>")
    assert observation == "<result>\ndone\n</result>"
    assert seen == ["print(1)"]
    assert info["details"]["tool"] == {"name": "python", "ok": True, "dropped": 0, "level": "none"}


def test_an_error_of_a_tool_is_told():
    env = make(tools=("calculator",))
    env.reset(seed=1)
    observation, *_, info = env.step("<calculator>1/0</calculator>")
    assert observation == "<result>\nerror: division by zero\n</result>"
    assert info["details"]["tool"]["ok"] is False
    assert info["details"]["reason"]


def test_without_tools_a_call_is_text():
    env = make()
    env.reset(seed=1)
    *_, info = env.step(f"<calculator>1</calculator>{boxed(env.task.answer)}")
    assert info["success"]


# Data and arguments -----------------------------------------------------------------------------


def test_loaded_data(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    env = make(data=str(path), expert=True)
    assert env.tasks.ids("train") == ("train-0", "train-1")
    observation, info = env.reset(options={"task_id": "train-0"})
    assert observation == "What is 1/2?"
    assert info["reference"] == ("Think.", "It is a half.")
    assert env.step(boxed("0.5"))[4]["success"]
    other = make(data=str(path))
    assert other._bank is env._bank, "files are read once"
    path.write_text(json.dumps(ROWS[1]) + "\n")
    assert len(make(data=str(path)).tasks.ids("train")) == 1


def test_data_for_evaluation_alone():
    env = make(data={"test": ROWS})
    assert env.tasks.train_split == "test"
    _, info = env.reset(seed=0)
    assert info["split"] == "test"
    with pytest.raises(ValueError, match=r"split 'train' is empty; there are tasks in \['test'\]"):
        make(data={"test": ROWS}, split="train")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"turns": 0}, "turns"),
        ({"discount": 1.5}, "discount"),
        ({"reward": "dense"}, "reward"),
        ({"split": "dev"}, "split"),
        ({"tool_calls": -1}, "tool_calls"),
        ({"verifier": "always"}, "verifier"),
        ({"difficulty": "hard"}, "difficulty"),
        ({"max_steps": 0}, "max_steps"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_generated_problems_follow_the_arguments():
    env = make(steps=[3, 3], distractors=(1, 1), max_number=200, sizes=(20, 5, 5), generator_seed=4)
    assert [len(env.tasks.ids(split)) for split in env.tasks.splits] == [20, 5, 5]
    for task_id in env.tasks.ids("train"):
        _, info = env.reset(options={"task_id": task_id})
        assert info["task_type"] == "3 steps"
        assert len(env.reference()) == 3


def test_the_task_needs_a_reset():
    with pytest.raises(RuntimeError, match="reset"):
        _ = make().task


# The oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_the_oracle_is_right(name):
    env = make(**VARIANTS[name])
    rng = np.random.default_rng(0)
    for task_id in env.tasks.ids(env.tasks.train_split)[:40]:
        env.reset(seed=0, options={"task_id": task_id})
        (action, *_) = demonstrate(env, rng, 0.0)
        *_, terminated, _, info = env.step(action)
        assert terminated
        assert info["score"] == 1.0


def test_the_reference_is_the_beginning_of_a_demonstration():
    for arguments in ({}, {"difficulty": "small"}):
        env = make(**arguments, expert=True)
        _, info = env.reset(seed=5)
        text = response(env, np.random.default_rng(0))
        assert text.startswith(env.reference_joiner.join(info["reference"]))
        assert ("\n" in text) == (not env.compact)


def test_noise_makes_wrong_steps():
    env = make(steps=(4, 4))
    rng = np.random.default_rng(0)
    outcomes = []
    for noise in (0.0, 0.3, 1.0):
        right = 0
        for task_id in env.tasks.ids("train")[:60]:
            env.reset(options={"task_id": task_id})
            right += env.step(next(iter(demonstrate(env, rng, noise))))[4]["success"]
        outcomes.append(right)
    assert outcomes[0] == 60
    assert 5 <= outcomes[1] <= 35
    assert outcomes[2] <= 6  # slips may cancel
    with pytest.raises(ValueError, match=r"noise .* got 2"):
        next(demonstrate(env, rng, 2.0))


def test_noise_with_loaded_data():
    env = make(data=ROWS)
    for task_id in env.tasks.ids("train"):
        env.reset(options={"task_id": task_id})
        assert not env.step(next(demonstrate(env, np.random.default_rng(0), 1.0)))[4]["success"]


def test_the_registry_knows_it():
    entry = spec("MathReasoning-v0")
    assert load(entry.env) is MathReasoningEnv
    assert load(entry.oracle) is demonstrate
    env = make(**entry.tiny)
    assert env.compact
    for key in entry.diagnostics.values():
        assert key in env.reset(seed=0)[1]["details"]


def test_a_broken_verifier_does_not_end_an_episode(monkeypatch):
    class Broken:
        def verify(self, gold, answer):
            raise PoolError("gone")

    monkeypatch.setattr("envs.math_reasoning.grading.grader.default_pool", Broken)
    monkeypatch.setattr("envs.math_reasoning.grading.pool._unusable", False)
    env = make(data=[{"question": "n?", "answer": "x"}])
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="without math-verify"):
        *_, info = env.step(boxed("tan(arctan(x))"))
    assert info["details"]["verifier_status"] == "undecided"


@pytest.mark.parametrize("columns", [5, "question", {"question": "q"}])
def test_columns_are_those_of_data(columns):
    data = None if isinstance(columns, dict) else ROWS
    with pytest.raises(ValueError, match="columns must map roles to columns of data"):
        make(data=data, columns=columns)
