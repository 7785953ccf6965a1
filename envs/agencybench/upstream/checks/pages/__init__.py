"""Game and Frontend scenarios: pages that a browser plays by rule."""

from envs.agencybench.upstream.checks.pages.catalogue import checks, played

__all__ = ["checks", "played"]
