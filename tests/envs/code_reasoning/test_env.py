"""The environment: episodes, rewards, attempts, data, the oracle, and the common contract."""

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
from agentgym.sandbox import Sandbox
from agentgym.trajectory import EpisodeSpec
from envs.code_reasoning import scoring
from envs.code_reasoning.baselines import baselines
from envs.code_reasoning.env import NO_CODE, NOT_CORRECT, CodeReasoningEnv
from envs.code_reasoning.oracle import demonstrate, solution

ROWS = [
    {
        "question": "Write `double(x)`.",
        "entry_point": "double",
        "tests": [{"args": [n], "expected": 2 * n} for n in range(4)],
        "solution": "def double(x):\n    return 2 * x",
    },
    {"question": "Write `one()`.", "tests": ["assert one() == 1"]},
]
VARIANTS = {
    "default": {},
    "small": {"difficulty": "small"},
    "attempts": {"turns": 3},
    "data": {"data": ROWS[:1]},
    "expert": {"expert": True},
}


@pytest.fixture
def make(sandbox: Sandbox):
    def made(**arguments) -> CodeReasoningEnv:
        return gym.make("CodeReasoning-v0", **arguments).unwrapped

    return made


def block(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```"


def half_right(env: CodeReasoningEnv) -> str:
    """Right for the first test alone."""
    first = env.program.tests[0]
    rest = ", ".join(["*rest"])
    return block(f"def {env.task.names[0]}(x, {rest}): return {first[1]!r}")


WRONG = block("def nothing(): pass")


# The contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_check_env_has_nothing_to_say(make, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(**VARIANTS[name]), skip_render_check=True)


@pytest.mark.parametrize("name", VARIANTS)
def test_info_is_json_and_the_same_everywhere(make, name):
    env = make(**VARIANTS[name])
    _, info = env.reset(seed=3)
    keys = set(info)
    json.dumps(info)
    *_, after = env.step(block(solution(env, np.random.default_rng(0))))
    json.dumps(after)
    assert set(after) == keys
    assert set(after["details"]) == set(info["details"])
    assert info["admissible_actions"] is None
    assert info["goal"] == env.task.question
    assert after["details"]["sandbox"]["level"] == "full"


def test_the_same_seed_gives_the_same_episode(make):
    one, other = make(), make()
    for seed in range(5):
        assert one.reset(seed=seed) == other.reset(seed=seed)
        assert one.step(WRONG) == other.step(WRONG)
    observation, info = one.reset(seed=0, options={"task_id": "test-7"})
    assert (info["task_id"], info["split"]) == ("test-7", "test")
    assert other.reset(seed=99, options={"task_id": "test-7"})[0] == observation


def test_replicas_of_a_group_agree():
    envs = [gym.make("CodeReasoning-v0") for _ in range(4)]
    assert len({observation for observation, _ in group_reset(envs, "train-5", seed=1)}) == 1


def test_a_sandbox_of_ones_own(make, sandbox):
    env = make(sandbox=sandbox)
    env.reset(seed=1)
    assert env.step(block("\n".join(env.task.reference)))[1] == 1.0
    assert env.sandbox is sandbox


def test_the_sandbox_is_opened_once_and_late(monkeypatch):
    opened = []

    def shared(*arguments, **more):
        opened.append((arguments, more))
        raise RuntimeError("opened")

    monkeypatch.setattr("envs.code_reasoning.env.shared_sandbox", shared)
    env = gym.make("CodeReasoning-v0").unwrapped
    env.reset(seed=0)
    env.step("no code at all")
    assert not opened
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="opened"):
        env.step(WRONG)
    (((backend,), more),) = opened
    assert (backend, more["minimum"].name, more["packages"]) == ("auto", "FULL", False)


# Attempts and rewards ---------------------------------------------------------------------------


def test_code_that_passes(make):
    env = make()
    env.reset(seed=1)
    step = env.step(block("\n".join(env.task.reference)))
    assert step[:4] == ("Correct.", 1.0, True, False)
    info = step[4]
    assert (info["success"], info["score"], info["stop_reason"]) == (True, 1.0, "solved")
    details = info["details"]
    assert (details["status"], details["passed"], details["tests"]) == ("ok", 8, 8)
    assert details["statuses"] == {"ok": 8}


def test_code_that_passes_in_part(make):
    env = make()
    for task_id in env.tasks.ids("train")[:20]:
        env.reset(options={"task_id": task_id})
        step = env.step(half_right(env))
        assert step[:4] == (NOT_CORRECT, 0.0, True, False)
        share = step[4]["score"]
        assert 0.0 < share < 1.0
        assert share == step[4]["details"]["passed"] / 8
        assert not step[4]["success"]


def test_no_code(make):
    env = make(turns=2)
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step("I do not know.")
    assert (observation, reward, terminated) == (NO_CODE, 0.0, False)
    assert info["details"]["status"] == "no_code"
    assert info["details"]["reason"]
    assert not info["action_valid"]
    *_, terminated, _, info = env.step("")
    assert terminated, "an attempt without code is spent"


def test_retries_never_pay_more(make):
    env = make(turns=4, discount=0.5)
    for attempt in range(4):
        env.reset(seed=2)
        right = block("\n".join(env.task.reference))
        for _ in range(attempt):
            assert env.step(half_right(env))[:4] == (NOT_CORRECT, 0.0, False, False)
        _, reward, terminated, _, info = env.step(right)
        assert terminated
        assert info["success"]
        assert reward == 0.5**attempt
    env.reset(seed=2)
    for _ in range(4):
        *_, terminated, truncated, info = env.step(WRONG)
    assert (terminated, truncated, info["stop_reason"]) == (True, False, "failed")


def test_rewards_by_success_and_by_share(make):
    env = make(turns=2, discount=0.0, reward="success")
    env.reset(seed=2)
    env.step(WRONG)
    assert env.step(block("\n".join(env.task.reference)))[1] == 1.0
    env = make(turns=2, discount=0.5, reward="share")
    env.reset(seed=2)
    assert env.step(half_right(env))[1] == 0.0, "only the last attempt pays"
    _, reward, _, _, info = env.step(half_right(env))
    assert reward == 0.5 * info["score"] > 0.0


def test_a_wrong_attempt_says_nothing_about_the_tests(make):
    env = make(turns=3)
    env.reset(seed=4)
    replies = {env.step(code)[0] for code in (WRONG, half_right(env))}
    assert replies == {NOT_CORRECT}


def test_the_thinking_part_is_not_the_answer(make):
    env = make()
    env.reset(seed=1)
    right = block("\n".join(env.task.reference))
    assert not env.step(f"<think>{right}</think>\n{WRONG}")[4]["success"]


def test_the_same_code_is_judged_once(make, monkeypatch):
    judged = []

    def counted(task, code, *rest):
        judged.append(code)
        return scoring_score(task, code, *rest)

    scoring_score = scoring.score
    monkeypatch.setattr(scoring, "score", counted)
    monkeypatch.setattr("envs.code_reasoning.env._VERDICTS", scoring.Verdicts(size=2))
    env = make(seconds=1)
    codes = [block("\n".join(["# one", "def g(): pass"])), block("def h(): pass")]
    for task_id in ("train-1", "train-2"):
        for code in (codes[0], codes[0], codes[1], codes[1]):
            env.reset(options={"task_id": task_id})
            assert env.step(code)[4]["details"]["status"] == "no_function"
    assert len(judged) == 4
    env.reset(options={"task_id": "train-1"})
    env.step(codes[0])
    assert len(judged) == 5, "the oldest verdicts are gone"
    name = env.task.names[0]
    for _ in range(2):
        env.reset(options={"task_id": "train-1"})
        code = block(f"import os\ndef {name}(*a): os._exit(0)")
        assert env.step(code)[4]["details"]["status"] == "early_exit"
    assert len(judged) == 7, "what may be another's fault is judged again"


# Data and arguments -----------------------------------------------------------------------------


def test_loaded_data(make, tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    env = make(data=str(path), expert=True)
    assert env.tasks.ids("train") == ("train-0", "train-1")
    _, info = env.reset(options={"task_id": "train-0"})
    assert info["reference"] == ("def double(x):", "    return 2 * x")
    assert info["details"]["solution"] == {
        "text": "def double(x):\n    return 2 * x",
        "answer_at": 15,
    }
    assert make(data=str(path))._bank is env._bank, "files are read once"
    _, info = env.reset(options={"task_id": "train-1"})
    assert info["details"]["solution"] is None
    with pytest.raises(ValueError, match="no solution of task 'train-1'"):
        next(demonstrate(env, np.random.default_rng(0)))
    assert make(data={"test": ROWS}).tasks.train_split == "test"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"turns": 0}, "turns"),
        ({"discount": 1.5}, "discount"),
        ({"reward": "dense"}, "reward"),
        ({"split": "dev"}, "split"),
        ({"difficulty": "hard"}, "difficulty"),
        ({"seconds": 0}, "seconds"),
        ({"memory": 1}, "memory"),
        ({"sandbox": "docker"}, "sandbox"),
        ({"packages": "yes"}, "packages"),
        ({"examples": -1}, "examples"),
        ({"max_steps": 0}, "max_steps"),
        ({"data": {"test": ROWS}, "split": "train"}, "split 'train' is empty"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        gym.make("CodeReasoning-v0", **arguments)


def test_generated_tasks_follow_the_arguments(make):
    env = make(steps=[3, 3], tests=5, examples=0, sizes=(20, 5, 5), generator_seed=4)
    assert [len(env.tasks.ids(split)) for split in env.tasks.splits] == [20, 5, 5]
    for task_id in env.tasks.ids("train"):
        _, info = env.reset(options={"task_id": task_id})
        assert len(env.program.plan.steps) == env.tasks.difficulty(task_id) == 3
        assert info["details"]["tests"] == 5
        assert "Examples" not in info["goal"]


def test_the_task_needs_a_reset():
    with pytest.raises(RuntimeError, match="reset"):
        _ = gym.make("CodeReasoning-v0").unwrapped.task


# The oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_the_oracle_is_right(make, name):
    env = make(**VARIANTS[name])
    rng = np.random.default_rng(0)
    for task_id in env.tasks.ids(env.tasks.train_split)[:15]:
        env.reset(seed=0, options={"task_id": task_id})
        (action, *_) = demonstrate(env, rng, 0.0)
        *_, terminated, _, info = env.step(action)
        assert terminated
        assert info["score"] == 1.0


def test_noise_makes_wrong_steps(make):
    env = make(steps=(2, 2))
    rng = np.random.default_rng(0)
    outcomes = []
    for noise in (0.3, 1.0):
        right = 0
        for task_id in env.tasks.ids("train")[:30]:
            env.reset(options={"task_id": task_id})
            right += env.step(next(iter(demonstrate(env, rng, noise))))[4]["success"]
        outcomes.append(right)
    assert 5 <= outcomes[0] <= 25
    assert outcomes[1] <= 3
    with pytest.raises(ValueError, match=r"noise .* got 2"):
        next(demonstrate(env, rng, 2.0))


def test_the_reference_is_the_demonstration(make):
    for arguments in ({}, {"difficulty": "small"}):
        env = make(**arguments, expert=True)
        _, info = env.reset(seed=5)
        text = solution(env, np.random.default_rng(0))
        assert text == env.reference_joiner.join(info["reference"])
        assert info["details"]["solution"]["text"] == text
        given = text[: info["details"]["solution"]["answer_at"]]
        assert given.startswith(env.program.head())
        last = env.program.solution()[-2]
        assert text[len(given) :].startswith(last), "the last step is never given"


def test_baselines_lie_where_they_should(make):
    env = make(difficulty="small")
    specs = [EpisodeSpec(task_id, "test", 0, "g") for task_id in env.tasks.ids("test")[:10]]
    found = baselines(env, specs)
    assert found["oracle"] == {"success": 1.0, "score": 1.0, "n": 10}
    assert found["identity"]["success"] == 0.0
    assert found["identity"]["score"] < 0.5


def test_the_registry_knows_it():
    entry = spec("CodeReasoning-v0")
    assert load(entry.env) is CodeReasoningEnv
    assert load(entry.oracle) is demonstrate
    env = gym.make("CodeReasoning-v0", **entry.tiny).unwrapped
    assert env.compact
    for key in entry.diagnostics.values():
        assert key in env.reset(seed=0)[1]["details"]
