"""The training loop: sample, credit, pack, update, publish; the same for every algorithm."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch

from agentgym.trajectory import Trajectory, TrajectoryGroup
from trainers.algorithm import Algorithm, CreditBatch
from trainers.config import TrainConfig
from trainers.console import Console
from trainers.evaluation import evaluation_metrics, evaluation_specs, rollout_metrics
from trainers.report import write_report
from trainers.rollouts import AsyncSource, Interrupted, Source, SyncSource
from trainers.run_dir import RunDir, pick_readable
from trainers.setup import Setup

__all__ = ["Trainer", "run"]

_TOTALS = ("trajectories", "action_tokens", "prompt_tokens", "elapsed_s", "cpu_s")


def run(kind: type[Algorithm], config: TrainConfig) -> int:
    """Train from the command line.

    Args:
        kind: Algorithm.
        config: Its settings, checked.

    Returns:
        Exit status: 0 when the run is complete, 130 when the user ended it (with a checkpoint).
    """
    try:
        with _threads(config.threads):
            return Trainer(kind, config).run()
    except (ValueError, KeyError, ImportError) as error:
        # What was refused before any work began; a traceback would hide the message.
        print(f"error: {error.args[0] if error.args else error}", file=sys.stderr)
        return 2


class Trainer:
    """One run of one algorithm.

    Args:
        kind: Algorithm.
        config: Its settings.
        setup: Environment, model and prompts; made from the config when omitted.
    """

    def __init__(
        self, kind: type[Algorithm], config: TrainConfig, setup: Setup | None = None
    ) -> None:
        config.validate()
        self.config = config
        self.algorithm = kind(config)
        self._stop = threading.Event()
        self.run_dir = self._open_run_dir()
        self.console = Console(config.steps, columns=self._columns())
        try:
            self.setup = setup or Setup.make(config, self.console.note)
            self.learner = self.setup.learner(self.algorithm)
            self.policy = self.setup.policy(self.learner)
            self.collector = self.setup.collector(self.policy, config.temperature)
            self.cursor = self.setup.cursor()
            self.step = 0
            self.totals: dict[str, float] = dict.fromkeys(_TOTALS, 0.0)
            self._resume()
            self.source: Source = self._make_source()
        except BaseException:
            self.run_dir.close("failed", "while setting up")
            raise

    # The whole run ------------------------------------------------------------------------------

    def run(self) -> int:
        """Train to the last step, evaluate, and write the report.

        Returns:
            0, or 130 if the user ended the run.
        """
        outcome, detail = "failed", ""
        try:
            with self._interrupt_sets_flag(), self.console:
                self.console.note(f"run directory: {self.run_dir.path}")
                if self.step == 0:
                    self._before()
                while self.step < self.config.steps:
                    self._one_step()
                outcome = "finished"
        except Interrupted:
            outcome, detail = "stopped", "ended by the user"
            self._checkpoint()
            self.console.note(
                f"stopped after step {self.step}; continue with --resume {self.run_dir.path}"
            )
        except BaseException as error:
            detail = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.source.close()
            self.run_dir.close(outcome, detail)  # type: ignore[arg-type]
            report = write_report(self.run_dir.path)
        self._summary()
        self.console.note(f"report: {report}")
        return 0 if outcome == "finished" else 130

    def _before(self) -> None:
        """Evaluate the starting point, with the fixed rules beside it."""
        metrics = self._evaluate() | self.setup.baselines(self._evaluation_specs())
        self.run_dir.log_metrics(0, metrics)
        self.console.step(0, metrics)

    def _one_step(self) -> None:
        began, cpu_began = time.perf_counter(), time.process_time()
        env_began = self.collector.env_seconds
        version = self.step
        groups, credited, sampled_s = self._sample()
        sampled = [member for group in groups for member in group]
        metrics = rollout_metrics(sampled, version) | credited.metrics
        learn_began = time.perf_counter()
        if credited.trajectories:
            metrics |= self.learner.update(credited, self.step)
        learned = time.perf_counter()
        self.step += 1
        self.source.publish(self.learner.weights(), self.step)
        synced = time.perf_counter()
        metrics |= {
            "weight_version": self.step,
            "dropped_stale": self.source.dropped_stale,
            "generate_s": sampled_s,
            "env_s": self.collector.env_seconds - env_began,
            "learn_s": learned - learn_began,
            "sync_s": synced - learned,
            "tokens_per_s": metrics.get("batch_action_tokens", 0) / max(sampled_s, 1e-9),
        }
        self.totals["trajectories"] += len(sampled)
        self.totals["action_tokens"] += sum(item.n_actions for item in sampled)
        self.totals["prompt_tokens"] += sum(
            len(turn.context_ids) for item in sampled for turn in item.turns
        )
        self.totals["elapsed_s"] += time.perf_counter() - began
        self.totals["cpu_s"] += time.process_time() - cpu_began
        metrics |= self.totals
        metrics["step_s"] = time.perf_counter() - began
        metrics["max_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        last = self.step == self.config.steps
        due = self.config.eval_every and self.step % self.config.eval_every == 0
        try:
            if last or due:
                metrics |= self._evaluate()
        finally:  # an evaluation that the user cut short does not undo the step
            self.run_dir.log_metrics(self.step, metrics)
            self.run_dir.log_trajectories(
                self.step, pick_readable(sampled, self.config.logged_trajectories)
            )
        self.console.step(self.step, metrics)
        if last or self.step % self.config.checkpoint_every == 0:
            self._checkpoint()

    def _sample(self) -> tuple[list[TrajectoryGroup], CreditBatch, float]:
        """Sample and credit one batch; more where the algorithm found too little in it."""
        plan = self.algorithm.plan(self.step)
        wanted, groups = plan.trajectories, list[TrajectoryGroup]()
        seconds, released = 0.0, 0
        while True:
            if self._stop.is_set():
                raise Interrupted
            began = time.perf_counter()
            fresh = self.source.next_groups(plan, wanted, self.algorithm.in_groups)
            seconds += time.perf_counter() - began
            members = [member for group in fresh for member in group]
            kl = self.learner.penalise_kl(members) if self.config.kl_in == "reward" else None
            groups += fresh
            batch = self._credit(groups)
            if kl is not None:
                batch.metrics[f"kl_{self.config.kl_kind}"] = kl
            self.source.release(batch.dropped - released)
            released, wanted = batch.dropped, batch.missing
            if not wanted:
                return groups, batch, seconds

    def _credit(self, groups: list[TrajectoryGroup]) -> CreditBatch:
        values = None
        if self.algorithm.uses_critic:
            values = self.learner.values([member for group in groups for member in group])
        return self.algorithm.credit(groups, values)

    # Evaluation ---------------------------------------------------------------------------------

    def _evaluation_specs(self) -> list[Any]:
        ids, split = self.setup.evaluation_tasks()
        return evaluation_specs(ids, split, self.config.eval_episodes)

    def _evaluate(self) -> dict[str, float]:
        began = time.perf_counter()
        out: dict[str, float] = {}
        _, split = self.setup.evaluation_tasks()
        for mode, temperature in (("sampled", self.config.temperature), ("greedy", 0.0)):
            collector = self.setup.collector(self.policy, temperature, evaluation=True)
            try:
                played: list[Trajectory] = self.source.play(collector, self._evaluation_specs())
            finally:
                collector.close()
            name = split or "default"
            out |= evaluation_metrics(played, name, mode, self.setup.spec.diagnostics)
            self.run_dir.log_trajectories(
                self.step, pick_readable(played, 2), source=f"eval/{name}/{mode}"
            )
        out["eval_s"] = time.perf_counter() - began
        return out

    def _summary(self) -> None:
        """What a person wants to know at the end: before and after, and the rules beside it."""
        from trainers.report import summary_rows

        self.console.table("evaluation", summary_rows(self.run_dir.path))

    # Checkpoints --------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        if any(info.step == self.step for info in self.run_dir.checkpoints()):
            return
        if self.step == 0:
            return  # nothing is lost: the start is made from the seed
        self.run_dir.save_checkpoint(
            self.step,
            {
                "learner": self.learner.state_dict(),
                "algorithm": self.algorithm.state_dict(),
                "cursor": self.source.cursor_state(),
                "totals": dict(self.totals),
            },
        )

    def _resume(self) -> None:
        if self.config.resume is None:
            return
        checkpoint = self.run_dir.resume(say=self.console.note)
        if checkpoint is None:
            return
        state = checkpoint.state
        self.step = checkpoint.step
        self.learner.load_state_dict(state["learner"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.cursor.load_state_dict(state["cursor"])
        self.totals = {name: float(state["totals"][name]) for name in _TOTALS}

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

    def _make_source(self) -> Source:
        config = self.config
        if config.staleness == 0:
            source: Source = SyncSource(self.collector, self.cursor, self._stop.is_set)
        else:
            source = AsyncSource(
                self.collector,
                self.cursor,
                lambda: self.algorithm.plan(self.step),
                staleness=config.staleness,
                batch=config.trajectories,
                version=self.step,
                interrupted=self._stop.is_set,
            )
        source.publish(self.learner.weights(), self.step)
        return source

    def _columns(self) -> list[str]:
        columns = ["reward_mean", "success_rate", "invalid_action_rate", "entropy", "adv_rms"]
        if self.algorithm.uses_critic:
            columns += ["explained_variance", "skill_ema", "phase"]
        return [*columns, "step_s"]

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


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
