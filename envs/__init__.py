"""Environments, one package each; see :mod:`agentgym.registry` for their ids."""
