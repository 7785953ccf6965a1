"""A small environment that pays a random policy now and then, and a random model to play it."""

from __future__ import annotations

from pathlib import Path

import agentgym
from agentgym.env import Outcome, TextEnv
from agentgym.progress import GenericProgress
from agentgym.prompts import EnvPrompt
from agentgym.tasks import TaskSet

SPEC = agentgym.EnvSpec(
    id="ToyRounds-v0",
    env="toy_rounds:ToyRounds",
    prompt="toy_rounds:ToyPrompt",
    baselines="toy_rounds:baselines",
    diagnostics={"hits": "hits"},
    abstractions={"compact": "toy_rounds:ToyProgress"},
)
LETTERS = "abcdefgh"


class ToyRounds(TextEnv):
    """Say something of even (or odd) length; two hits win, two misses in a row lose.

    Args:
        max_steps: Step limit.
        fault: Raise at this turn of every third episode; None never does.
        sparse: Pay at the end, and only for two hits.
        told: The first letter says how it ends: every action hits with a to d, none with others.
        kwargs: See :class:`agentgym.TextEnv`.
    """

    def __init__(
        self,
        *,
        max_steps: int | None = 3,
        fault: int | None = None,
        sparse: bool = False,
        told: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(max_steps=max_steps, **kwargs)
        self.fault, self.sparse, self.told = fault, sparse, told
        self.tasks = TaskSet(
            {
                "train": [f"train-{number}" for number in range(12)],
                "validation": [f"validation-{number}" for number in range(3)],
                "test": [f"test-{number}" for number in range(6)],
            },
            train_split="train",
            eval_splits=("validation", "test"),
        )
        self.parity, self.letter, self.hits, self.misses, self.rounds = 0, "a", 0, 0, 0

    def _begin(self, task_id: str) -> Outcome:
        self.rounds += 1
        self.parity = int(task_id.rpartition("-")[2]) % 2
        self.letter = LETTERS[int(self.np_random.integers(len(LETTERS)))]
        self.hits = self.misses = 0
        return Outcome(f"round {self.letter} of {task_id}", details=self._details())

    def _act(self, action: str) -> Outcome:
        if self.fault is not None and self._turn == self.fault and self.rounds % 3 == 0:
            raise RuntimeError("the toy broke")
        hit = self.letter < "e" if self.told else len(action) % 2 == self.parity
        self.hits, self.misses = self.hits + hit, 0 if hit else self.misses + 1
        solved = self.hits == 2
        return Outcome(
            f"{'hit' if hit else 'miss'} {self.letter}",
            reward=float(solved) if self.sparse else 0.5 * hit,
            action_valid=bool(action),
            terminated=solved or self.misses == 2,
            score=self.hits / 2,
            success=solved,
            details=self._details(),
        )

    def _details(self) -> dict:
        return {"hits": self.hits}

    def goal(self) -> str:
        return "Make two hits."

    def task_type(self) -> str:
        return f"parity {self.parity}"


class ToyPrompt(EnvPrompt):
    """Words around the rounds."""


class ToyProgress(GenericProgress):
    """The generic states; what counts of an action is its length. All of it can be shared."""

    def abstract(self, action: str, format_ok: bool, admissible: bool) -> str:
        return "odd" if len(action) % 2 else "even"

    def shareable(self, state: str, abstract_action: str) -> bool:
        return True


def baselines(env, specs) -> dict[str, dict[str, float]]:
    """A rule that says ``ab`` and never wins more than the even tasks."""
    wins = 0
    for spec in specs:
        env.reset(seed=spec.seed, options={"task_id": spec.task_id, "split": spec.split})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step("ab")
            over = terminated or truncated
        wins += info["success"]
    return {"rule": {"success": wins / len(specs), "n": len(specs)}}


def build_model(seed: int = 0, layers: int = 1):
    """A random transformer of some 20,000 parameters with a tokenizer of the rounds' words."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from adapters.policies.causal_lm import CausalLM
    from adapters.policies.tokenization import END, PAD, build_tokenizer

    words = ["round", "hit", "miss", "of", "train", "validation", "test", "parity", *LETTERS]
    texts = [
        "Your task: Make two hits.",
        "You have taken 1 actions; the last 1:",
        "[Observation 1: miss a] [Action 1: x]",
        "You are at turn 2. Now you see: hit a",
    ]
    tokenizer = build_tokenizer(words, texts)
    shape = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=256,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        pad_token_id=tokenizer.convert_tokens_to_ids(PAD),
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CausalLM(Qwen2ForCausalLM(shape), tokenizer)


def save_model(folder: str | Path, seed: int = 0) -> Path:
    """The model as a folder that ``--model`` takes."""
    return build_model(seed).save(folder)


agentgym.register(SPEC)
