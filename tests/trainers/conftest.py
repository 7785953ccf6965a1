"""Property tests here draw the same examples in every run and never fail for being slow."""

from hypothesis import settings

settings.register_profile("deterministic", derandomize=True, deadline=None, database=None)
settings.load_profile("deterministic")
