"""An episode as one sequence of tokens, the form that most trainers take."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentgym.info import StopReason
from agentgym.trajectory import Trajectory

__all__ = ["EpisodeTokens", "episode_tokens"]


@dataclass(slots=True)
class EpisodeTokens:
    """Prompt and response of an episode; the lists of the response have one length.

    Attributes:
        prompt_ids: What was read before the first answer.
        response_ids: All tokens after that: answers and what was read between them.
        response_mask: 1 where the model wrote the token, else 0.
        logprobs: Log-prob of each sampled token, 0.0 elsewhere.
        versions: Weight version of each sampled token, -1 elsewhere.
        lost: The environment failed: the episode says nothing about the model.
    """

    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    response_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    lost: bool = False


def episode_tokens(episode: Trajectory, filler: int) -> EpisodeTokens:
    """Put the turns of an episode after one another.

    Args:
        episode: An episode in conversation mode.
        filler: Token that stands, masked, for a prompt or response that is empty: trainers do not
            take empty ones.

    Raises:
        ValueError: If the episode is not one growing sequence (windowed mode).
    """
    out = EpisodeTokens(lost=episode.stop_reason is StopReason.INFRA_ERROR)
    for number, turn in enumerate(episode.turns):
        context = turn.context_ids.tolist()
        if number == 0:
            out.prompt_ids, context = context, []
        elif not turn.extends:
            raise ValueError(
                f"turn {number} of task {episode.task_id!r} starts a new sequence; this needs "
                "prompt mode 'conversation'"
            )
        given = len(context)
        out.response_ids += context + turn.action_ids.tolist()
        out.response_mask += [0] * given + [1] * turn.n_actions
        out.logprobs += [0.0] * given + turn.logprobs.tolist()
        out.versions += [-1] * given + turn.versions.tolist()
    out.prompt_ids = out.prompt_ids or [filler]
    if not out.response_ids:
        out.response_ids, out.response_mask, out.logprobs, out.versions = [filler], [0], [0.0], [-1]
    return out
