"""Policies that act in the environments; each module names the engine it drives."""
