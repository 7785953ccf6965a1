"""Checks for the scenarios of a clone: by rule where rules suffice, else by a judge."""

from envs.agencybench.upstream.checks.table import checks_for

__all__ = ["checks_for"]
