"""MathReasoning: word problems and mathematics, graded by a verifier that pays no wrong answer."""

from envs.math_reasoning.grading.grader import check_gold, grade
from envs.math_reasoning.grading.policies import Policies
from envs.math_reasoning.grading.pool import Pool, PoolError, warm_up
from envs.math_reasoning.grading.verdict import Status, Verdict

__all__ = [
    "Policies",
    "Pool",
    "PoolError",
    "Status",
    "Verdict",
    "check_gold",
    "grade",
    "warm_up",
]
