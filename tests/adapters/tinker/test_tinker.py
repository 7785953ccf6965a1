from __future__ import annotations

import asyncio
import pickle
import runpy
import threading
from pathlib import Path

import adapter_battery
import pytest
from adapter_battery import ENV_ID, LEDGER, SPEC, WINNING, Job, Played, TokenBattery
from templates import KEEPING, CharTokenizer
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.metric_util import RLTestSetEvaluator
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.tokenizer_utils import register_tokenizer

import agentgym
from adapters.task_rows import task_rows
from adapters.tinker import AgentGymDatasetBuilder, AgentGymGroup
from agentgym.evaluation import evaluation_specs
from agentgym.guarded import env_maker

ROOT = Path(__file__).resolve().parents[3]
agentgym.register(SPEC)


class Tokenizer(CharTokenizer):
    """With the one attribute more that Tinker's have."""

    @property
    def eos_token_id(self):
        return self.stop_id


TOKENIZER = Tokenizer(KEEPING["compact"])
register_tokenizer("characters", lambda: TOKENIZER)


class Scripted(TokenCompleter):
    """The n-th action after n answers."""

    def __init__(self, actions):
        self.actions = actions

    async def __call__(self, model_input, stop, *, max_tokens=None):
        assert stop == [TOKENIZER.stop_id]
        text = self.actions[model_input.to_ints().count(TOKENIZER.stop_id)]
        ids = [*TOKENIZER.encode(text), TOKENIZER.stop_id]
        return TokensWithLogprobs(ids, [-0.5] * len(ids))


def group_of(job, size=1, call_s=60.0, **settings):
    row = {"task_id": job.task_id, "seed": job.seed}
    settings = {"action_format": "bare", **settings}
    return AgentGymGroup(ENV_ID, "characters", row, size, settings, call_s)


def played(trajectory):
    last = trajectory.transitions[-1]
    reward = sum(transition.reward for transition in trajectory.transitions)
    truncated, reason = bool(last.metrics["truncated"]), trajectory.stop_reason
    assert last.metrics[f"stop/{reason}"] == 1.0
    assert last.metrics["success"] == float(reason == "solved")
    assert all(not transition.metrics for transition in trajectory.transitions[:-1])
    if not last.ac.tokens:  # over before the first answer
        assert trajectory_to_data(trajectory, 1.0) == []
        return Played(reward, last.episode_done, truncated, reason)
    (datum,) = trajectory_to_data(trajectory, 2.0)
    inputs = {name: value.data for name, value in datum.loss_fn_inputs.items()}
    ids = [*datum.model_input.to_ints(), inputs["target_tokens"][-1]]
    mask = [False, *(value == 1.0 for value in inputs["mask"])]
    assert [value == 2.0 for value in inputs["advantages"]] == mask[1:]
    assert [value == -0.5 for value in inputs["logprobs"]] == mask[1:]
    start = mask.index(True)
    own = [token for token, mine in zip(ids, mask, strict=True) if mine]
    decode = TOKENIZER.decode
    return Played(
        reward, last.episode_done, truncated, reason, decode(ids[:start]), ids[start:],
        mask[start:], decode(own), decode(ids),
    )  # fmt: skip


class TestBattery(TokenBattery):
    def play(self, jobs, actions, **env_args):
        async def run():
            groups = [group_of(job, **env_args) for job in jobs]
            return await asyncio.gather(
                *(do_group_rollout(group, Scripted(actions)) for group in groups)
            )

        return [played(group.trajectories_G[0]) for group in asyncio.run(run())]


def test_a_group_plays_one_episode_and_is_closed():
    LEDGER.__init__()
    group = asyncio.run(do_group_rollout(group_of(Job("train-3", 7), 4), Scripted(WINNING)))
    assert LEDGER.resets == {("train-3", 7): 4}
    assert (LEDGER.made, LEDGER.closed) == (4, 4)
    assert group.get_total_rewards() == [1.0] * 4
    first = [trajectory.transitions[0].ob.to_ints() for trajectory in group.trajectories_G]
    assert first == first[:1] * 4


def test_an_environment_that_hangs_ends_its_episode(monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(adapter_battery.BatteryDoors, "step", lambda *_: go_on.wait(60))
    job = Job("train-0", 1)
    group = asyncio.run(do_group_rollout(group_of(job, call_s=0.2), Scripted(WINNING)))
    go_on.set()
    item = played(group.trajectories_G[0])
    assert (item.stop_reason, item.reward, item.truncated) == ("deadline", 0.0, True)


def test_episodes_stay_within_the_prompt_length():
    job = Job("train-0", 1)
    group = group_of(job, max_prompt_tokens=60)
    (trajectory,) = asyncio.run(do_group_rollout(group, Scripted(["say hello"] * 9))).trajectories_G
    item = played(trajectory)
    assert (item.stop_reason, item.truncated) == ("max_tokens", True)
    assert max(transition.ob.length for transition in trajectory.transitions) <= 60


def test_a_first_prompt_that_is_too_long_ends_its_episode_and_no_other():
    LEDGER.__init__()
    length = asyncio.run(do_group_rollout(group_of(Job("train-0", 1)), Scripted(WINNING)))
    length = length.trajectories_G[0].transitions[0].ob.length
    for limit, reason in ((length, "max_tokens"), (length - 1, "max_tokens")):
        group = group_of(Job("train-0", 1), 2, max_prompt_tokens=limit)
        done = asyncio.run(do_group_rollout(group, Scripted(["say hello"] * 9)))
        for trajectory in done.trajectories_G:
            item = played(trajectory)
            assert (item.done, item.truncated, item.stop_reason) == (True, True, reason)
            assert item.reward == 0.0
            (only,) = trajectory.transitions
            assert bool(only.ac.tokens) is (limit == length)  # the limit itself may be reached
    assert LEDGER.closed == LEDGER.made == 5
    # A broken environment is told as such, however short prompts have to be.
    broken = group_of(Job("train-0", 1), max_prompt_tokens=2, faults={"train-0": "reset"})
    (lost,) = asyncio.run(do_group_rollout(broken, Scripted(WINNING))).trajectories_G
    assert played(lost).stop_reason == "infra_error"


def test_the_data_set_has_a_group_for_each_row():
    builder = AgentGymDatasetBuilder(
        env_id=ENV_ID, model_name="characters", batch_size=2, group_size=3, rows=5, seed=4,
        settings={"action_format": "bare"}, env_args={"max_steps": 2},
    )  # fmt: skip
    train, test = asyncio.run(builder())
    assert test is None
    assert len(train) == 2
    groups = [group for index in range(2) for group in train.get_batch(index)]
    rows = task_rows(ENV_ID, 5, seed=4)[:4]
    assert [group.row for group in groups] == rows
    again = pickle.loads(pickle.dumps(groups[0]))
    assert again == groups[0]
    assert again.logging_tags() == [ENV_ID]
    LEDGER.__init__()
    done = asyncio.run(do_group_rollout(again, Scripted(["say hello"] * 9)))
    assert [len(trajectory.transitions) for trajectory in done.trajectories_G] == [2] * 3
    assert LEDGER.closed == LEDGER.made == 3


def builder_of(**changes):
    return AgentGymDatasetBuilder(
        env_id=ENV_ID, model_name="characters", batch_size=1, group_size=3, rows=1,
        settings={"action_format": "bare"}, **changes,
    )  # fmt: skip


def test_the_test_set_is_of_an_evaluation_split():
    spare = env_maker(ENV_ID)()
    tasks = spare.unwrapped.tasks
    spare.close()
    for split, count in ((None, 3), ("validation", 2)):
        _, test = asyncio.run(builder_of(test_rows=count, test_split=split)())
        assert len(test) == 1  # no row is left out
        groups = test.get_batch(0)
        assert [group.group_size for group in groups] == [1] * count
        ids = [group.row["task_id"] for group in groups]
        assert len(set(ids)) == count
        assert {tasks.split_of(task_id) for task_id in ids} == {split or "test"}
        specs = evaluation_specs(tasks.ids(split or "test"), split or "test", count)
        expected = [(item.task_id, item.seed) for item in specs]
        assert [(group.row["task_id"], group.row["seed"]) for group in groups] == expected
    evaluator = RLTestSetEvaluator(test, max_tokens=32, num_groups_to_log=0)
    metrics = asyncio.run(evaluator.eval_token_completer(Scripted(WINNING)))
    assert metrics["test/env/all/reward/total"] == 1.0
    with pytest.raises(ValueError, match="unknown split 'exam'"):
        asyncio.run(builder_of(test_rows=1, test_split="exam")())
    with pytest.raises(ValueError, match="must be positive, got -1"):
        asyncio.run(builder_of(test_rows=-1)())


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/adapters/tinker_webshop.py"), run_name="__main__")
    assert "max_turns" in capsys.readouterr().out


@pytest.mark.parametrize("size", [0, 4])
def test_a_batch_that_the_rows_do_not_fill_is_refused(size):
    builder = AgentGymDatasetBuilder(
        env_id=ENV_ID, model_name="characters", batch_size=size, group_size=2, rows=3
    )
    with pytest.raises(ValueError, match=f"batch_size must be 1 to 3, the rows; got {size}"):
        asyncio.run(builder())


def test_the_deadline_of_a_call_reaches_the_groups():
    builder = AgentGymDatasetBuilder(
        env_id=ENV_ID, model_name="characters", batch_size=1, group_size=2, rows=1, call_s=7.0
    )
    train, _ = asyncio.run(builder())
    assert train.get_batch(0)[0].call_s == 7.0
