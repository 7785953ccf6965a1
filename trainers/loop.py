"""The training loop: sample, credit, pack, update, publish; the same for every algorithm."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from agentgym.info import StopReason
from agentgym.run_lock import RunLocked
from agentgym.trajectory import EpisodeSpec, Trajectory, TrajectoryGroup
from trainers.algorithm import Algorithm, CreditBatch
from trainers.checkpoint import CheckpointError
from trainers.config import TrainConfig
from trainers.console import Console
from trainers.evaluation import (
    evaluation_metrics,
    evaluation_name,
    evaluation_specs,
    evaluation_table,
    know_quantities,
    rollout_metrics,
    type_table,
)
from trainers.learner import Learner
from trainers.metrics import check_metrics
from trainers.parity import ParityAlarm, ParityProbe, default_bound
from trainers.report import write_report
from trainers.rollouts import AsyncSource, Interrupted, Source, SyncSource
from trainers.run_dir import Outcome, RunDir, RunDirError, pick_readable, read_metrics
from trainers.setup import Setup, World, announce, check_policy

__all__ = ["REFUSALS", "Trainer", "run", "torch_threads"]

#: What refuses to begin raises one of these; their messages are for the person who asked.
REFUSALS = (ValueError, KeyError, ImportError, RunDirError, RunLocked, CheckpointError)
_TOTALS = ("trajectories", "action_tokens", "prompt_tokens", "elapsed_s", "cpu_s")


def run(kind: type[Algorithm], config: TrainConfig) -> int:
    """Train from the command line.

    Args:
        kind: Algorithm.
        config: Its settings, checked.

    Returns:
        Exit status: 0 when the run is complete, 130 when the user ended it (with a checkpoint),
        2 when something was refused before training began.
    """
    try:
        with torch_threads(config.threads):
            try:
                trainer = Trainer(kind, config)
            except REFUSALS as error:
                # A traceback would hide the message.
                print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
                return 2
            return trainer.run()
    except KeyboardInterrupt:
        print("ended at once; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130


class Trainer:
    """One run of one algorithm.

    Args:
        kind: Algorithm.
        config: Its settings.
        setup: Environment and model; made from the config when omitted.
        say: Is told what takes time while things are set up.

    Raises:
        ValueError: If something asked for does not exist or does not fit together.
    """

    def __init__(
        self,
        kind: type[Algorithm],
        config: TrainConfig,
        setup: Setup | None = None,
        say: Callable[[str], None] = announce,
    ) -> None:
        # What can be refused is refused first: before a folder is made or a model is built.
        config.validate()
        check_policy(config)
        self.config = config
        self.algorithm = kind(config)
        if config.critic is not None and not kind.uses_critic:
            raise ValueError(f"--critic is {config.critic}, but {kind.name} has no critic")
        self.world = World.open(config) if setup is None else setup.world
        self.cursor = self.world.cursor(config.seed)
        self.eval_split, self.eval_specs = self._evaluation(config.eval_split)
        self.eval_also = [self._evaluation(split) for split in config.eval_also]
        know_quantities(self.world.spec.diagnostics)

        self.run_dir = self._open_run_dir()
        try:
            self.step = 0
            self.totals: dict[str, float] = dict.fromkeys(_TOTALS, 0.0)
            self._unfinished: dict[str, Any] | None = None  # the row of a step not yet evaluated
            self._checkpoint_s: float | None = None
            self._stop = threading.Event()
            self.setup = setup or Setup.make(config, self.world, say)
            torch.manual_seed(config.seed)  # nothing draws from it today; models with noise would
            self.learner = Learner(self.setup.lm, self.algorithm, config)
            self._resume(say)
            self.policy = self.setup.policy()
            self.collector = self.setup.collector(self.policy, config.temperature)
            self.source: Source = self._make_source()
            self.parity = self._make_parity()
        except BaseException as error:
            self.run_dir.close("failed", f"while setting up: {type(error).__name__}: {error}")
            raise
        self.console = Console(
            config.steps,
            first_step=self.step,
            title=f"{kind.name} on {self.world.spec.id}, preset {config.preset}",
        )

    # The whole run ------------------------------------------------------------------------------

    def run(self) -> int:
        """Train to the last step, evaluate, and write the report.

        Returns:
            0, or 130 if the user ended the run.
        """
        outcome: Outcome = "failed"
        detail = ""
        with self.console:
            self.console.note(f"run directory: {self.run_dir.path}")
            try:
                with self._interrupt_sets_flag():
                    self.source.publish(self.learner.weights(), self.step)
                    if self.parity is not None:
                        self.parity.judge(self.parity.measure(self.source, self.step))
                    self._train()
                outcome = "finished"
            except Interrupted:
                self._checkpoint()
                outcome, detail = "stopped", f"by the user after step {self.step}"
                self.console.note(
                    f"stopped after step {self.step}; go on with --resume {self.run_dir.path}"
                )
            except KeyboardInterrupt:
                outcome, detail = "stopped", "by the user, at once"
                raise
            except BaseException as error:
                detail = f"{type(error).__name__}: {error}"
                if self._unfinished is not None and isinstance(error, Exception):
                    self._checkpoint()  # the step itself was done
                raise
            finally:
                self.source.close()
                self.run_dir.close(outcome, detail)
                self._report()
        return 0 if outcome == "finished" else 130

    def _train(self) -> None:
        if self._unfinished is not None:
            self._finish_step(self._unfinished)
        elif self.step == 0:
            metrics = self._evaluate() | self._baselines()
            self._log(0, metrics)
        while self.step < self.config.steps:
            self._one_step()

    def _one_step(self) -> None:
        began, cpu_began = time.perf_counter(), time.process_time()
        env_began = self.collector.env_seconds
        groups, credited, metrics = self._sample()
        sampled = [member for group in groups for member in group]
        metrics |= rollout_metrics(sampled, self.step) | credited.metrics
        learn_began = time.perf_counter()
        if credited.trajectories:
            metrics |= self.learner.update(credited, self.step)
        learned = time.perf_counter()
        failure = self._publish()
        synced = time.perf_counter()
        parity: dict[str, float] = {}
        try:
            parity = {} if failure else self._measure_parity()
        except Exception as error:
            failure = error
        metrics |= parity
        self.totals["trajectories"] += len(sampled)
        self.totals["action_tokens"] += sum(item.n_actions for item in sampled)
        self.totals["prompt_tokens"] += sum(
            len(turn.context_ids) for item in sampled for turn in item.turns
        )
        self.totals["elapsed_s"] += synced - began
        self.totals["cpu_s"] += time.process_time() - cpu_began
        metrics |= {
            **self.totals,
            **self.source.metrics(),
            "weight_version": self.step,
            "env_s": self.collector.env_seconds - env_began,
            "learn_s": learned - learn_began,
            "sync_s": synced - learned,
            "step_s": synced - began,
            "checkpoint_s": self._checkpoint_s,
            "max_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if metrics.get("generate_s"):
            metrics["tokens_per_s"] = metrics["batch_action_tokens"] / metrics["generate_s"]
        self.run_dir.log_trajectories(
            self.step, pick_readable(sampled, self.config.logged_trajectories)
        )
        row = check_metrics(metrics)
        if failure is not None:
            self._unfinished = row
            raise failure
        self._finish_step(row)
        if parity and self.parity is not None:
            try:
                self.parity.judge(parity)
            except ParityAlarm:
                self._checkpoint()  # the learner has done nothing wrong
                raise

    def _publish(self) -> Exception | None:
        """End the step: put the new weights to use, and count what they were learned from.

        Returns:
            What the engine failed with, if it did; the learner has made its step all the same.
        """
        failure: Exception | None = None
        try:
            self.source.publish(self.learner.weights(), self.step + 1)
        except Exception as error:
            failure = error
        self.source.commit()
        self.step += 1
        return failure

    def _measure_parity(self) -> dict[str, float]:
        """Whether the engine computes with the new weights what the learner does, when due."""
        every = self.config.parity_every
        if self.parity is None or self.step % (1 if every is None else every):
            return {}
        return self.parity.measure(self.source, self.step)

    def _finish_step(self, row: dict[str, Any]) -> None:
        """Evaluate if that is due, log the step, and save it if that is due."""
        self._unfinished = row  # until it is logged: an interrupt must not lose an evaluation
        last = self.step == self.config.steps
        every = self.config.eval_every
        if last or (every and self.step % every == 0):
            row = row | self._evaluate()
        self._log(self.step, row)
        self._unfinished = None
        if last or self.step % self.config.checkpoint_every == 0:
            self._checkpoint(row.get(evaluation_name(self.eval_split, "sampled", "success")))

    def _sample(self) -> tuple[list[TrajectoryGroup], CreditBatch, dict[str, Any]]:
        """Sample and credit one batch; more where the algorithm found too little in it.

        Returns:
            What was played, the batch to train on, and metrics.
        """
        plan = self.algorithm.plan(self.step)
        wanted, metrics = plan.trajectories, dict[str, Any]()
        played, shaped = list[TrajectoryGroup](), list[TrajectoryGroup]()
        while True:
            if self._stop.is_set():
                raise Interrupted
            try:
                fresh = self.source.next_groups(plan, wanted)
                _refuse_broken(played + fresh)
            except Exception:
                self._checkpoint()  # the learner is as it was after its last step
                raise
            played += fresh
            changed, numbers = self.learner.shaped(fresh)
            shaped += changed
            metrics |= numbers
            values = self.learner.values([member for group in shaped for member in group])
            batch = self.algorithm.credit(shaped, values)
            wanted = batch.missing
            if not wanted:
                return played, batch, metrics
            self.source.release(wanted)

    # Evaluation ---------------------------------------------------------------------------------

    def _evaluation(self, split: str | None) -> tuple[str, list[EpisodeSpec]]:
        """Name and episodes of the evaluation on a split."""
        ids, name = self.world.evaluation_tasks(split)
        return name or "default", evaluation_specs(ids, name, self.config.eval_episodes)

    def _evaluate(self) -> dict[str, Any]:
        began = time.perf_counter()
        out: dict[str, Any] = {}
        readable: list[tuple[str, list[Trajectory]]] = []
        todo = [(self.eval_split, self.eval_specs)]
        if self.step in (0, self.config.steps):
            todo += self.eval_also
        modes = (("sampled", self.config.temperature), ("greedy", 0.0))
        for (split, specs), (mode, temperature) in product(todo, modes):
            collector = self.setup.collector(self.policy, temperature, evaluation=True)
            try:
                played = self.source.play(collector, specs)
            finally:
                collector.close()
            out |= evaluation_metrics(played, split, mode, self.world.spec.diagnostics)
            readable.append((evaluation_name(split, mode, "")[:-1], pick_readable(played, 2)))
        for source, trajectories in readable:
            self.run_dir.log_trajectories(self.step, trajectories, source=source)
        out["eval_s"] = time.perf_counter() - began
        return out

    def _baselines(self) -> dict[str, Any]:
        """The environment's fixed rules, on the episodes of the evaluation."""
        out: dict[str, Any] = {}
        for split, specs in [(self.eval_split, self.eval_specs), *self.eval_also]:
            for rule, quantities in self.world.baselines(specs).items():
                know_quantities(quantities)
                out |= {evaluation_name(split, rule, key): quantities[key] for key in quantities}
        return out

    # Logging ------------------------------------------------------------------------------------

    def _log(self, step: int, metrics: dict[str, Any]) -> None:
        self.console.step(step, self.run_dir.log_metrics(step, metrics))

    def _report(self) -> None:
        """The report, and before and after in a table; neither may spoil what was trained."""
        try:
            rows = read_metrics(self.run_dir.path)
            self.console.table("evaluation", evaluation_table(rows))
            by_type = type_table(rows)
            if by_type:
                self.console.table("success by type of task", by_type)
            self.console.note(f"report: {write_report(self.run_dir.path)}")
        except Exception as error:
            self.console.note(
                f"the report could not be written ({type(error).__name__}: {error}); try again "
                f"with python -m trainers.report {self.run_dir.path}"
            )

    # Checkpoints --------------------------------------------------------------------------------

    def _checkpoint(self, score: float | None = None) -> None:
        """Save the state after the last step, unless that has been done; the best score stays."""
        if self.step == 0:
            return  # nothing is lost: the start is made from the seed
        if any(info.step == self.step for info in self.run_dir.checkpoints()):
            return
        began = time.perf_counter()
        self.run_dir.save_checkpoint(
            self.step,
            {
                "learner": self.learner.state_dict(),
                "algorithm": self.algorithm.state_dict(),
                "cursor": self.source.cursor_state(),
                "totals": dict(self.totals),
                "unfinished": self._unfinished,
            },
            score=score,
        )
        self.run_dir.save_findings(self.step, self.algorithm.findings())
        self._checkpoint_s = time.perf_counter() - began

    def _resume(self, say: Callable[[str], None]) -> None:
        """Go on from the last checkpoint of the run that is resumed, or from the start."""
        checkpoint = None if self.config.resume is None else self.run_dir.resume(say=say)
        if checkpoint is None:
            if self.config.critic is not None:
                facts = self.learner.load_critic(self.config.critic)
                say(
                    f"critic pretrained on {facts.get('env')}, explained variance "
                    f"{facts.get('explained_variance')}"
                )
                if facts.get("env") != self.world.spec.id:
                    say(f"note: this run plays {self.world.spec.id}, another environment")
            return
        state = checkpoint.state
        self.step = checkpoint.step
        self.learner.load_state_dict(state["learner"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.cursor.load_state_dict(state["cursor"])
        self.totals = {name: float(state["totals"][name]) for name in _TOTALS}
        if self.run_dir.last_step < self.step:
            self._unfinished = state["unfinished"]

    def _open_run_dir(self) -> RunDir:
        config = self.config
        if config.resume is not None:
            return RunDir.open(
                config.resume, total_steps=config.steps, keep_last=config.keep_checkpoints
            )
        return RunDir.create(
            config.run_dir,
            self.algorithm.name,
            config,
            total_steps=config.steps,
            keep_last=config.keep_checkpoints,
        )

    # Wiring -------------------------------------------------------------------------------------

    def _make_parity(self) -> ParityProbe | None:
        config = self.config
        if config.parity_every == 0 or (config.parity_every is None and config.policy == "torch"):
            return None
        lm = self.setup.lm
        # vLLM takes the type of the model's file, which on a GPU may be another than the learner's.
        exact = lm.device.type == "cpu" or config.policy == "torch"
        bound = config.parity_bound or default_bound(torch.float32 if exact else torch.bfloat16)
        return ParityProbe(
            lm,
            max_context=self.policy.max_context,
            bound=bound,
            temperature=config.temperature,
        )

    def _make_source(self) -> Source:
        config = self.config
        if config.staleness == 0:
            return SyncSource(self.collector, self.cursor, self._stop.is_set)
        return AsyncSource(
            self.collector,
            self.cursor,
            self.algorithm.plan(self.step),
            staleness=config.staleness,
            version=self.step,
            interrupted=self._stop.is_set,
        )

    @contextlib.contextmanager
    def _interrupt_sets_flag(self) -> Iterator[None]:
        """Ctrl-C ends the run at the next safe point; a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def handle(number: int, frame: Any) -> None:
            if self._stop.is_set():
                raise KeyboardInterrupt
            self._stop.set()

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _refuse_broken(groups: list[TrajectoryGroup]) -> None:
    """End a run in which not a single episode could be played.

    Raises:
        RuntimeError: With what went wrong in the first.
    """
    played = [member for group in groups for member in group]
    if played and all(item.stop_reason is StopReason.INFRA_ERROR for item in played):
        raise RuntimeError(f"every one of {len(played)} episodes was lost: {played[0].error}")


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let one operation use so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
