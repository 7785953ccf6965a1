"""Credit assignment in NumPy float64: group and step-level advantages, GAE, targets, the gate.

Importing this package must not import torch: credit is assigned where rollouts are collected.
Everything works on one trajectory's action tokens laid end to end (see
`trainers.advantages.turns`), before anything is packed into rows, so that packing cannot change a
number.
"""

from trainers.advantages.blpo import (
    ProgressOptions,
    collect_effects,
    fuse,
    progress_advantages,
    relative_returns,
)
from trainers.advantages.gae import (
    EndRule,
    EndRules,
    EpisodeEnd,
    TurnAdvantages,
    end_of_episode,
    length_adaptive_lambda,
    reward_to_go,
    skip_observation_gae,
    turn_level_gae,
)
from trainers.advantages.gate import (
    GateConfig,
    GateMode,
    Phase,
    PhaseGate,
    SkillSums,
    explained_variance,
    skill_sums,
)
from trainers.advantages.gigpo import (
    episode_advantages,
    history_advantages,
    history_weights,
    local_advantages,
)
from trainers.advantages.group import (
    AdvantageNorm,
    Center,
    DynamicSample,
    GroupAdvantages,
    Std,
    check_group_size,
    dynamic_sample,
    group_advantages,
    normalise,
    soft_overlong_penalty,
)
from trainers.advantages.kl import KLKind, kl_penalized_rewards
from trainers.advantages.memory import CellView, Effect, MemoryMismatch, ProgressMemory
from trainers.advantages.steps import (
    StepRows,
    anchor_groups,
    canonical_action,
    discounted_returns,
    step_rows,
)
from trainers.advantages.targets import (
    BiasCorrectedEMA,
    CriticTarget,
    ReturnLevel,
    critic_targets,
    recenter_rewards,
)
from trainers.advantages.turns import (
    concatenate,
    earned_before,
    place_token_rewards,
    place_turn_rewards,
    split_by_turn,
    turn_index,
    turn_starts,
)

__all__ = [
    "AdvantageNorm",
    "BiasCorrectedEMA",
    "CellView",
    "Center",
    "CriticTarget",
    "DynamicSample",
    "Effect",
    "EndRule",
    "EndRules",
    "EpisodeEnd",
    "GateConfig",
    "GateMode",
    "GroupAdvantages",
    "KLKind",
    "MemoryMismatch",
    "Phase",
    "PhaseGate",
    "ProgressMemory",
    "ProgressOptions",
    "ReturnLevel",
    "SkillSums",
    "Std",
    "StepRows",
    "TurnAdvantages",
    "anchor_groups",
    "canonical_action",
    "check_group_size",
    "collect_effects",
    "concatenate",
    "critic_targets",
    "discounted_returns",
    "dynamic_sample",
    "earned_before",
    "end_of_episode",
    "episode_advantages",
    "explained_variance",
    "fuse",
    "group_advantages",
    "history_advantages",
    "history_weights",
    "kl_penalized_rewards",
    "length_adaptive_lambda",
    "local_advantages",
    "normalise",
    "place_token_rewards",
    "place_turn_rewards",
    "progress_advantages",
    "recenter_rewards",
    "relative_returns",
    "reward_to_go",
    "skill_sums",
    "skip_observation_gae",
    "soft_overlong_penalty",
    "split_by_turn",
    "step_rows",
    "turn_index",
    "turn_level_gae",
    "turn_starts",
]
