"""The ALFWorld environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agentgym.env import Outcome, TextEnv
from agentgym.info import Info, StopReason
from agentgym.tasks import TaskSet
from envs.alfworld.dataset import open_dataset
from envs.alfworld.generator import DEFAULT_CATALOGUE, builtin_size, generated_games
from envs.alfworld.oracle import plan
from envs.alfworld.reasons import explain
from envs.alfworld.rules import CommandStyle, task_line
from envs.alfworld.simulator import Sim
from envs.alfworld.textworld_backend import TextWorldSim
from envs.alfworld.world import TASK_PREFIX, SimState, World

__all__ = ["INVALID_PENALTY", "STEP_LIMITS", "AlfWorldEnv", "EpisodeState", "GameSource"]

#: Step limit of each difficulty.
STEP_LIMITS = {"small": 20, "full": 50}
#: What verl-agent's trainer takes off for an inadmissible action.
INVALID_PENALTY = 0.1

_ENGINES = ("native", "textworld")
_STYLES = ("move", "put")
_REWARDS = ("success", "verl")
_VERL_SUCCESS = 10.0


class GameSource(Protocol):
    """Where games come from.

    Attributes:
        tasks: Their ids, by split.
    """

    tasks: TaskSet

    def check(self, split: str | None) -> None:
        """Raise a ValueError if there is nothing to play in ``split`` (None: in any)."""
        ...

    def world(self, task_id: str) -> World:
        """The parsed game of a task."""
        ...

    def game(self, task_id: str) -> Mapping[str, Any]:
        """The content of a task's game file."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """An episode at one moment: plain data that compares and pickles.

    Attributes:
        task_id: Its task.
        turn: Actions taken so far.
        stop_reason: Why it ended, or None.
        last: What was answered last.
        sim: The game.
    """

    task_id: str
    turn: int
    stop_reason: StopReason | None
    last: Outcome
    sim: SimState


class AlfWorldEnv(TextEnv):
    """Carry out household tasks in a text room: find an object, treat it, put it somewhere.

    The games are those of ALFWorld (Shridhar et al., "ALFWorld: Aligning Text and Embodied
    Environments for Interactive Learning", 2021), and the native engine answers as its TextWorld
    engine does, letter for letter.

    **Action.** One of ``info["admissible_actions"]``: ``go to R``, ``open R``, ``close R``, ``take
    O from R``, ``move O to R``, ``clean O with R``, ``heat O with R``, ``cool O with R``, ``use
    O``, ``slice O with K``, ``examine X``, ``look``, ``inventory``, ``help``. Blanks around a
    command do not count; case does. Any other text is answered ``Nothing happens.`` and takes a
    step.

    **Observation.** What the game says. The first one holds the banner, the receptacles of the
    room and the task.

    **Reward.** 1 for the step that wins, else 0. With ``reward="verl"`` it is 10, and each step
    tells in ``details["invalid_penalty"]`` what verl-agent's trainer takes off for an inadmissible
    action (0.1 or 0), without taking it off.

    **End.** Winning terminates. The step limit truncates: 50, or 20 with ``difficulty="small"``.

    **Tasks.** An id is ``<split>/<task folder>/<trial folder>``; splits are ``train``,
    ``valid_seen``, ``valid_unseen`` and ``valid_train``, as far as the data has them. Without
    ``data`` the games are embedded ones, made on the spot: 3,200 of ``train`` and 200 of each other
    split, in small or full-size rooms; those of ``valid_unseen`` occur in no other split. Task
    types are ``pick_and_place_simple``, ``look_at_obj_in_light``,
    ``pick_clean_then_place_in_recep``, ``pick_heat_then_place_in_recep``,
    ``pick_cool_then_place_in_recep`` and ``pick_two_obj_and_place``; a goal
    of another form is ``other``.

    **Oddities of the original**, which stay unless ``strict=False``: from one receptacle one
    cannot ``go to`` another of the same location (but can use it right away). And always: an
    object can be in two receptacles at once, and taking it from one leaves it in the other, where
    it still counts; objects can be examined in the hand only; washing, heating and cooling work
    with a closed receptacle; a lamp that was turned on stays on; lists say ``a apple`` and ``a X,
    and a Y``.

    **Details in info.** ``reason`` (why the action was inadmissible, or None: ``unknown_command``,
    ``unknown_object``, ``unknown_receptacle``, ``already_here``, ``not_here``, ``not_openable``,
    ``already_open``, ``already_closed``, ``closed``, ``hands_full``, ``not_holding``,
    ``not_in_receptacle``, ``not_pickupable``, ``does_not_fit``, ``wrong_object``,
    ``wrong_receptacle``, ``not_a_knife``; the original engine knows ``not_admissible`` only),
    ``moves`` (admissible actions so far, as the original counts), ``engine``, ``difficulty``,
    ``max_steps``, and with ``reward="verl"`` also ``invalid_penalty``.

    Args:
        data: The official games: the folder above ``json_2.1.1`` or that folder itself; ``~`` and
            environment variables (``"$ALFWORLD_DATA"``) are expanded. Only the ``game.tw-pddl``
            files are read. None plays embedded games.
        catalogue: Which embedded games: ``"builtin:N"`` or ``"builtin:N:SEED"`` for N games of
            ``train``; by default ``"builtin:3200"``. Another seed gives other rooms and games.
        split: Split that ``reset`` draws from; by default ``train``.
        engine: ``"native"``, or ``"textworld"`` for the original in a process of its own (extra
            ``alfworld``; Python 3.11 or 3.12).
        difficulty: ``"full"`` or ``"small"``: the step limit, 50 or 20, and the size of embedded
            rooms (about 20 receptacles, or 9).
        max_steps: Step limit instead of the difficulty's.
        strict: False for the lenient reading: case and blanks do not count, ``move X to Y`` and
            ``put X in/on Y`` (or ``in``, ``on``, ``into``, ``onto``) are the same, and one can go
            to a neighbour at the same location.
        command_style: ``"move"`` for the texts of ALFWorld 0.4; ``"put"`` for those of 0.3 (``put
            X in/on Y``, ``You arrive at loc 3.``, no ``help``).
        reward: ``"success"`` or ``"verl"``.
        expert: Put the oracle's remaining actions into ``info["reference"]``.
        render_mode: ``"ansi"`` or None.

    Raises:
        DatasetError: If the data folder cannot be used; the message says what would be right.
        ImportError: If the textworld engine is not installed.
        ValueError: If an argument is none of those listed.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        catalogue: str | None = None,
        split: str | None = None,
        engine: Literal["native", "textworld"] = "native",
        difficulty: Literal["small", "full"] = "full",
        max_steps: int | None = None,
        strict: bool = True,
        command_style: CommandStyle = "move",
        reward: Literal["success", "verl"] = "success",
        expert: bool = False,
        render_mode: str | None = None,
    ) -> None:
        for name, value, known in (
            ("engine", engine, _ENGINES),
            ("difficulty", difficulty, tuple(STEP_LIMITS)),
            ("command_style", command_style, _STYLES),
            ("reward", reward, _REWARDS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {known}, got {value!r}")
        if not isinstance(strict, bool):
            raise ValueError(f"strict must be True or False, got {strict!r}")
        if engine == "textworld" and not strict:
            raise ValueError("strict=False is a reading of the native engine; textworld has none")
        if engine == "textworld" and expert:
            raise ValueError("expert=True plans on the native engine's state; textworld has none")
        if max_steps is None:
            max_steps = STEP_LIMITS[difficulty]
        super().__init__(split=split, max_steps=max_steps, expert=expert, render_mode=render_mode)
        self.engine, self.difficulty, self.strict = engine, difficulty, bool(strict)
        self.command_style: CommandStyle = command_style
        self._source: GameSource = _open_source(data, catalogue, difficulty)
        self.tasks = self._source.tasks
        self._source.check(split)
        self._won_reward = _VERL_SUCCESS if reward == "verl" else 1.0
        self._tells_penalty = reward == "verl"
        self._original = TextWorldSim(command_style) if engine == "textworld" else None
        self._sim: Sim | None = None
        self._closed = False
        self._kind = self._goal = ""

    # The game ---------------------------------------------------------------------------------

    @property
    def source(self) -> GameSource:
        """The games, shared with other environments of the same data."""
        return self._source

    @property
    def sim(self) -> Sim:
        """The native engine's state of the current episode.

        Raises:
            RuntimeError: Before the first reset, or with the textworld engine.
        """
        if self._sim is None:
            raise RuntimeError(
                "the textworld engine has no native state"
                if self._original is not None
                else "no episode yet; call reset() first"
            )
        return self._sim

    def clone_state(self) -> EpisodeState:
        """The episode as it is now, running or over, for branching rollouts.

        Raises:
            RuntimeError: Before the first reset, or with the textworld engine.
        """
        sim = self.sim
        assert self._last is not None
        return EpisodeState(
            self.task_id, self._turn, self._stop_reason, self._last, sim.clone_state()
        )

    def restore_state(self, state: EpisodeState) -> tuple[str, Info]:
        """Go on from a state that :meth:`clone_state` returned, here or in another environment.

        Its task becomes this environment's; nothing is drawn, so that later resets come out as
        without it.

        Args:
            state: A state of a game that this environment has.

        Returns:
            Observation and info, as they were.

        Raises:
            KeyError: If this environment has no such task.
            RuntimeError: If the environment is closed, or with the textworld engine.
            TypeError: If it is no such state.
            ValueError: If its task is another game here.
        """
        if self._closed:
            raise RuntimeError("the environment is closed; make a new one")
        if self._original is not None:
            raise RuntimeError("the textworld engine has no native state")
        if not isinstance(state, EpisodeState):
            raise TypeError(f"restore_state takes what clone_state returned, got {state!r}")
        split = self.tasks.split_of(state.task_id)
        world = self._source.world(state.task_id)
        sim = self._sim
        if sim is None or sim.world is not world:
            sim = Sim(world, self.command_style, self.strict)
        sim.restore_state(state.sim)
        self._sim, self._task_id, self._task_split = sim, state.task_id, split
        self._kind, self._goal = world.goal.task_type, world.goal_text
        self._turn, self._last, self._stop_reason = state.turn, state.last, state.stop_reason
        self._over = state.stop_reason is not None
        return self._last.observation, self._info(self._last, state.stop_reason)

    # TextEnv ----------------------------------------------------------------------------------

    def _begin(self, task_id: str) -> Outcome:
        if self._closed:
            raise RuntimeError("the environment is closed; make a new one")
        if self._original is not None:
            game = self._source.game(task_id)
            observation = self._original.reset(game)
            self._kind = _kind_of(task_id)
            self._goal = task_line(game["grammar"]).removeprefix(TASK_PREFIX)
        else:
            world = self._source.world(task_id)
            self._sim = Sim(world, self.command_style, self.strict)
            observation = self._sim.intro
            self._kind, self._goal = world.goal.task_type, world.goal_text
        return Outcome(observation, details=self._details(None))

    def _act(self, action: str) -> Outcome:
        engine = self._original or self._sim
        assert engine is not None
        observation = engine.step(action)
        accepted = engine.accepted
        details = self._details(None if accepted else self._refusal())
        if engine.won:
            return Outcome(observation, self._won_reward, accepted, True, 1.0, True, details)
        return Outcome(observation, action_valid=accepted, details=details)

    def _refusal(self) -> str:
        return "not_admissible" if self._sim is None else explain(self._sim, self._sim.command)

    def _details(self, reason: str | None) -> dict[str, Any]:
        engine = self._original or self._sim
        details: dict[str, Any] = {
            "reason": reason,
            "moves": 0 if engine is None else engine.moves,
            "engine": self.engine,
            "difficulty": self.difficulty,
            "max_steps": self.max_steps,
        }
        if self._tells_penalty:
            details["invalid_penalty"] = 0.0 if reason is None else INVALID_PENALTY
        return details

    def admissible_actions(self) -> tuple[str, ...] | None:
        """Every action accepted now, in the original's order."""
        engine = self._original or self._sim
        return None if engine is None else engine.admissible()

    def is_admissible(self, action: str) -> bool:
        """Whether the environment would accept ``action`` now."""
        engine = self._original or self._sim
        return engine is not None and not self._over and engine.is_admissible(action)

    def goal(self) -> str:
        """The task, without the words that introduce it."""
        return self._goal

    def task_type(self) -> str:
        """ALFWorld's name for the kind of task."""
        return self._kind

    def reference(self) -> tuple[str, ...]:
        """The oracle's remaining actions; none if the game cannot be won from here.

        Raises:
            RuntimeError: With the textworld engine, which has no native state.
        """
        return plan(self.sim)

    def close(self) -> None:
        """Let go of the episode, and end the original engine's process."""
        if self._original is not None:
            self._original.close()
        self._sim = None
        self._closed = self._over = True


def _kind_of(task_id: str) -> str:
    """Task type by the name of the task folder."""
    return task_id.split("/")[1].split("-")[0]


def _open_source(
    data: str | os.PathLike[str] | None,
    catalogue: str | None,
    difficulty: Literal["small", "full"],
) -> GameSource:
    if data is None:
        games, seed = builtin_size(DEFAULT_CATALOGUE if catalogue is None else catalogue)
        return generated_games(difficulty, games, seed)
    if catalogue is not None:
        raise ValueError(f"give data= or catalogue=, not both; got {data!r} and {catalogue!r}")
    return open_dataset(data)
