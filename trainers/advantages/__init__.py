"""Credit assignment in NumPy float64: group advantages, GAE, critic targets, the phase gate.

Importing this package must not import torch: credit is assigned where rollouts are collected.
Everything works on one trajectory's action tokens laid end to end (see
`trainers.advantages.turns`), before anything is packed into rows, so that packing cannot change a
number.
"""

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
    "Center",
    "CriticTarget",
    "DynamicSample",
    "EndRule",
    "EndRules",
    "EpisodeEnd",
    "GateConfig",
    "GateMode",
    "GroupAdvantages",
    "KLKind",
    "Phase",
    "PhaseGate",
    "ReturnLevel",
    "SkillSums",
    "Std",
    "TurnAdvantages",
    "check_group_size",
    "concatenate",
    "critic_targets",
    "dynamic_sample",
    "earned_before",
    "end_of_episode",
    "explained_variance",
    "group_advantages",
    "kl_penalized_rewards",
    "length_adaptive_lambda",
    "normalise",
    "place_token_rewards",
    "place_turn_rewards",
    "recenter_rewards",
    "reward_to_go",
    "skill_sums",
    "skip_observation_gae",
    "soft_overlong_penalty",
    "split_by_turn",
    "turn_index",
    "turn_level_gae",
    "turn_starts",
]
