"""What every adapter has to do, whichever library it is for: one battery, many subclasses."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from toy_text import ToyDoors

import agentgym

ENV_ID = "BatteryDoors-v0"
SPEC = agentgym.EnvSpec(id=ENV_ID, env="adapter_battery:BatteryDoors", prompt="toy_text:ToyPrompt")
#: Opens every door; one of them wins.
WINNING = ("open 1", "open 2", "open 3", "open 4")
#: Admissible, and never ends the episode.
IDLE = ("say hello",) * 6


@dataclass
class Ledger:
    """What happened to the environments."""

    made: int = 0
    closed: int = 0
    resets: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    actions: list[str] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    hung: int = 0


LEDGER = Ledger()


class BatteryDoors(ToyDoors):
    """Doors that keep a ledger, and fail where they are told to.

    Args:
        faults: Task id to the method that raises, ``reset`` or ``step``; or to ``hang``, for a step
            that waits until the gate of the ledger is opened.
        kwargs: See :class:`toy_text.ToyDoors`.
    """

    def __init__(self, *, faults: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.faults, self.open = faults or {}, True
        LEDGER.made += 1

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        LEDGER.resets[self.task_id, seed] += 1
        self._fail("reset")
        return result

    def step(self, action):
        LEDGER.actions.append(action)
        self._fail("step")
        if self.faults.get(self.task_id) == "hang":
            LEDGER.hung += 1
            LEDGER.gate.wait(60)
        return super().step(action)

    def close(self) -> None:
        LEDGER.closed += self.open
        self.open = False

    def _fail(self, method: str) -> None:
        if self.faults.get(self.task_id) == method:
            raise OSError(f"{method} of {self.task_id} is broken")


@dataclass(frozen=True)
class Job:
    """An episode to play."""

    task_id: str
    seed: int


@dataclass
class Played:
    """What the library got to know of an episode.

    Attributes:
        reward: Sum of its rewards.
        done: It ended.
        truncated: It was cut off; None where the library has no word for it.
        stop_reason: Why it ended.
        first: The first observation, where it is text.
        token_ids: Tokens from the first answer on, where the adapter works with tokens.
        mask: Which of them the model wrote.
        model_text: What the scripted model wrote, the tokens that end its answers included.
        text: All tokens as text.
    """

    reward: float
    done: bool
    truncated: bool | None
    stop_reason: str | None
    first: str | None = None
    token_ids: list[int] | None = None
    mask: list[bool] | None = None
    model_text: str | None = None
    text: str | None = None


class AdapterBattery:
    """Subclass it in the test of an adapter and implement :meth:`play`."""

    #: The library has a word for truncation.
    knows_truncation = True
    #: The library starts another episode after each one.
    resets_by_itself = False

    def play(self, jobs: Sequence[Job], actions: Sequence[str], **env_args: Any) -> list[Played]:
        """Play each job with the actions, through the library; close everything in the end."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _ledger(self):
        agentgym.register(SPEC)
        LEDGER.__init__()
        yield
        LEDGER.gate.set()
        end = time.monotonic() + 60
        while LEDGER.hung and LEDGER.closed < LEDGER.made and time.monotonic() < end:
            time.sleep(0.01)
        assert LEDGER.made > 0
        assert LEDGER.closed == LEDGER.made, "an environment was left open"

    def test_group_seeds_reach_the_environment(self):
        jobs = [Job("train-3", 11)] * 3 + [Job("train-3", 12), Job("test-1", 11)]
        played = self.play(jobs, WINNING)
        resets = Counter((job.task_id, job.seed) for job in jobs)
        assert LEDGER.resets & resets == resets
        assert self.resets_by_itself or LEDGER.resets == resets
        firsts = [item.first for item in played]
        if firsts[0] is not None:
            assert "train-3" in firsts[0]
            assert "test-1" in firsts[4]
            assert len(set(firsts[:3])) == 1

    def test_a_win_arrives(self):
        (item,) = self.play([Job("train-0", 5)], WINNING)
        assert item.reward == 1.0
        assert item.done
        assert item.stop_reason == "solved"
        assert item.truncated is (False if self.knows_truncation else None)

    def test_the_step_limit_arrives(self):
        (item,) = self.play([Job("train-0", 5)], IDLE)
        assert item.reward == 0.0
        assert item.done
        assert item.stop_reason == "max_turns"
        assert item.truncated is (True if self.knows_truncation else None)
        assert len(LEDGER.actions) == 6

    @pytest.mark.parametrize("method", ["reset", "step"])
    def test_a_fault_is_one_failed_sample(self, method):
        jobs = [Job(f"train-{number}", 5) for number in range(3)]
        played = self.play(jobs, WINNING, faults={"train-1": method})
        assert [item.stop_reason for item in played] == ["solved", "infra_error", "solved"]
        assert [item.reward for item in played] == [1.0, 0.0, 1.0]
        assert all(item.done for item in played)


class DeadlineBattery(AdapterBattery):
    """The same for an adapter that takes ``deadline`` beside the arguments of the environment."""

    def test_a_hang_is_one_failed_sample(self):
        jobs = [Job(f"train-{number}", 5) for number in range(3)]
        played = self.play(jobs, WINNING, faults={"train-1": "hang"}, deadline=0.5)
        reasons = [item.stop_reason for item in played]
        assert reasons[1] in ("deadline", "infra_error")
        assert reasons[::2] == ["solved"] * 2
        assert [item.reward for item in played] == [1.0, 0.0, 1.0]
        assert all(item.done for item in played)


class TokenBattery(AdapterBattery):
    """The same for an adapter that hands over tokens and masks."""

    def test_masks_cover_exactly_what_the_model_wrote(self):
        (item,) = self.play([Job("train-0", 5)], IDLE)
        assert len(item.token_ids) == len(item.mask)
        assert item.model_text.count("say hello") == len(IDLE)
        assert item.text.count("You said hello.") >= len(IDLE) - 1
        assert "You said" not in item.model_text
