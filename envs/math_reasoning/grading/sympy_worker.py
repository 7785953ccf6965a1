"""What a worker does: build SymPy expressions from trees, and ask ``math-verify``.

Text never reaches SymPy. A tree names operations from a fixed table, so there is nothing to parse,
misread or run.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

__all__ = ["answer", "build", "warm_up"]

_WARM_UP = (
    (["fn", "sin", [["sym", "x", []]]], ["fn", "cos", [["sym", "x", []]]]),
    (["fn", "atan", [["num", "1", []]]], ["div", None, [["const", "pi", []], ["num", "4", []]]]),
    (["fact", None, [["sym", "n", []]]], ["sym", "n", []]),
)


def warm_up() -> None:
    """Import what is needed and use it once, so that workers start warm."""
    for gold, other in _WARM_UP:
        answer({"gold": gold, "answer": other})


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Whether two expressions are equal.

    Args:
        request: ``gold`` and ``answer`` as nested lists.
    """
    from math_verify import verify

    try:
        gold, other = build(request["gold"]), build(request["answer"])
        return {"equal": bool(verify(gold, other, timeout_seconds=None))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def build(tree: list[Any]) -> Any:
    """The SymPy expression of a tree.

    Raises:
        ValueError: If it names an operation that is not in the table.
    """
    import sympy

    op, value, inner = tree
    if op == "num":
        number = Fraction(value)
        return sympy.Rational(number.numerator, number.denominator)
    if op == "sym":
        return sympy.Symbol(value, real=True)
    if op == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}[value]
    args = [build(arg) for arg in inner]
    if op == "fn":
        return _apply(sympy, value, args)
    if op == "add":
        return sympy.Add(*args)
    if op == "mul":
        return sympy.Mul(*args)
    if op == "div":
        return args[0] / args[1]
    if op == "neg":
        return -args[0]
    if op == "pow":
        return args[0] ** args[1]
    if op == "root":
        # As in the rest of this package: real roots of negative numbers where the index is odd.
        return sympy.real_root(args[0], args[1]) if args[1].is_odd else args[0] ** (1 / args[1])
    if op == "fact":
        return sympy.factorial(args[0])
    if op == "degree":
        return args[0] * sympy.pi / 180
    if op == "percent":
        return args[0] / 100
    raise ValueError(f"the operation {op!r}")


def _apply(sympy: Any, name: str, args: list[Any]) -> Any:
    table = {
        "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec,
        "csc": sympy.csc, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh,
        "asin": sympy.asin, "acos": sympy.acos, "atan": sympy.atan, "ln": sympy.log,
        "log": sympy.log, "abs": sympy.Abs, "floor": sympy.floor, "ceil": sympy.ceiling,
        "binom": sympy.binomial, "gcd": sympy.gcd, "lcm": sympy.lcm, "min": sympy.Min,
        "max": sympy.Max,
    }  # fmt: skip
    if name.startswith("call "):
        return sympy.Function(name)(*args)
    if name not in table:
        raise ValueError(f"the function {name!r}")
    return table[name](*args)
