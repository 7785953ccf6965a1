"""Intervals for shares and means; they live in :mod:`agentgym.statistics`."""

from agentgym.statistics import mean_interval, newcombe_interval, t_quantile, wilson_interval

__all__ = ["mean_interval", "newcombe_interval", "t_quantile", "wilson_interval"]
