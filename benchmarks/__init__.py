"""Measurements and side-by-side comparisons, run from the checkout with ``python -m``."""
