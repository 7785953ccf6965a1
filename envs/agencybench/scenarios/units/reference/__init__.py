"""Exact arithmetic with units."""

from .conversion import NoRoute, find_factor
from .expressions import DimensionError, ExpressionError, calculate, convert

__all__ = [
    "DimensionError",
    "ExpressionError",
    "NoRoute",
    "calculate",
    "convert",
    "find_factor",
]

__version__ = "0.2.0"
