"""Numbers as answers: rounding, percent, units, arithmetic left undone."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from envs.math_reasoning.grading.equality import constant_value, equal_scalars
from envs.math_reasoning.grading.evaluation import Evaluator
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node, contains, num, symbols, walk
from envs.math_reasoning.grading.policies import Policies

__all__ = ["Judge", "equal_numbers", "equal_quantities", "plain_value", "proportional", "rounds_to"]

_UNFINISHED = ("pow", "fact", "root", "fn")
_LONG = 12
_FLOAT = 15
_MOST = Decimal(10) ** 60


class Judge:
    """What to do with a pair of numbers that the rules leave open: by default, remember it.

    Attributes:
        open: Pairs that were left open.
        settled: Verdicts of an external verifier on such pairs.
    """

    def __init__(self) -> None:
        self.open: list[tuple[Node, Node]] = []
        self.settled: dict[tuple[Node, Node], bool] = {}

    def __call__(self, gold: Node, answer: Node) -> bool | None:
        """The verdict on a pair, or None."""
        pair = (gold, answer)
        if pair not in self.settled and pair not in self.open:
            self.open.append(pair)
        return self.settled.get(pair)


def equal_quantities(
    gold: Node, answer: Node, policies: Policies, judge: Judge | None = None
) -> bool | None:
    """Compare scalars that may carry a unit or a percent sign."""
    gold, answer = _canonical(gold), _canonical(answer)
    if "percent" in (gold.op, answer.op):
        return _equal_percent(gold, answer, policies, judge)
    if gold.op == answer.op == "quantity":
        return _equal_measures(gold, answer, policies, judge)
    if "quantity" in (gold.op, answer.op):
        measured, bare = (gold, answer) if gold.op == "quantity" else (answer, gold)
        if policies.degree_radian and measured.value[0] == "degree":
            radians = Node("degree", measured.args)
            pair = (radians, bare) if measured is gold else (bare, radians)
            if equal_numbers(*pair, policies, judge):
                return True
        if not policies.units_optional:
            return False
        inner = measured.args[0]
        pair = (inner, bare) if measured is gold else (bare, inner)
        return equal_numbers(*pair, policies, judge)
    return equal_numbers(gold, answer, policies, judge)


def _canonical(node: Node) -> Node:
    """Signs move inside; a degree sign at the top is a unit."""
    if node.op == "neg" and node.args[0].op in ("quantity", "percent", "degree"):
        inner = _canonical(node.args[0])
        return Node(inner.op, (Node("neg", inner.args),), inner.value)
    if node.op == "degree":
        return Node("quantity", node.args, ("degree", Fraction(1)))
    if node.op == "quantity" and node.value[0] == "percent":
        return Node("percent", node.args)
    return node


def _equal_percent(
    gold: Node, answer: Node, policies: Policies, judge: Judge | None
) -> bool | None:
    if gold.op == answer.op:
        return equal_numbers(gold.args[0], answer.args[0], policies, judge)
    if "quantity" in (gold.op, answer.op):
        return False
    verdicts = []
    if gold.op == "percent":
        share = Node("div", (gold.args[0], num(100)))
        if policies.percent_bare_number:
            verdicts.append(equal_numbers(gold.args[0], answer, policies, judge))
        if policies.percent_as_fraction:
            verdicts.append(equal_numbers(_worked_out(share), answer, policies, judge))
    else:
        if policies.percent_as_fraction:
            share = Node("div", (answer.args[0], num(100)))
            verdicts.append(equal_numbers(gold, _worked_out(share), policies, judge))
        # A bare 0.2 is the share itself, so that 0.2 % is another number.
        value = constant_value(gold)
        above_one = isinstance(value, Fraction) and abs(value) > 1
        if policies.percent_bare_number and above_one:
            verdicts.append(equal_numbers(gold, answer.args[0], policies, judge))
    return True if True in verdicts else None if None in verdicts else False


def _worked_out(node: Node) -> Node:
    value = constant_value(node)
    return num(value) if isinstance(value, Fraction) else node


def _equal_measures(
    gold: Node, answer: Node, policies: Policies, judge: Judge | None
) -> bool | None:
    (dimension, size), (other, other_size) = gold.value, answer.value
    generic = "unit" in (dimension.partition("^")[0], other.partition("^")[0])
    powers = dimension.partition("^")[2] == other.partition("^")[2]
    if (dimension == other and size == other_size) or (dimension != other and generic and powers):
        return equal_numbers(gold.args[0], answer.args[0], policies, judge)
    angles = {dimension, other} == {"degree", "radian"}
    if angles and policies.degree_radian:
        both = [Node("degree", n.args) if n.value[0] == "degree" else n.args[0]
                for n in (gold, answer)]  # fmt: skip
        return equal_numbers(both[0], both[1], policies, judge)
    if dimension != other or not policies.unit_conversion:
        return False
    return equal_numbers(
        _worked_out(Node("mul", (gold.args[0], num(size / other_size)))), answer.args[0], policies
    )


# Numbers ---------------------------------------------------------------------------------------


def equal_numbers(
    gold: Node, answer: Node, policies: Policies, judge: Judge | None = None
) -> bool | None:
    """Compare scalars without units."""
    if is_literal(gold) and _is_unfinished(answer, policies):
        return False
    same = equal_scalars(gold, answer, real=policies.real_symbols)
    if same:
        return True
    if _is_close(gold, answer, policies):
        return True
    return judge(gold, answer) if same is None and judge is not None else same


def is_literal(node: Node) -> bool:
    """Whether it is one number, written out."""
    if node.op == "neg":
        return is_literal(node.args[0])
    if node.op == "div":
        return all(arg.op == "num" for arg in node.args)
    return node.op == "num"


def _is_unfinished(node: Node, policies: Policies) -> bool:
    """Whether arithmetic on plain numbers is left to do, or variables to cancel."""
    if symbols(node):
        return True
    if not policies.require_evaluated:
        return False
    for at in walk(node):
        if at.op in ("add", "mul") and sum(_is_rational(arg) for arg in at.args) > 1:
            if at.op == "mul" and len(at.args) == 2 and _is_power_of_ten(at.args[1]):
                continue
            return True
        if at.op in _UNFINISHED and not policies.unevaluated_ok:
            return True
    return False


def _is_rational(node: Node) -> bool:
    return not contains(node, "sym", "const") and isinstance(constant_value(node, 20), Fraction)


def _is_power_of_ten(node: Node) -> bool:
    return node.op == "pow" and node.args[0] == num(10)


def _is_close(gold: Node, answer: Node, policies: Policies) -> bool:
    if policies.decimal_digits is not None:
        for exact, decimal in ((gold, answer), (answer, gold)):
            value = plain_value(decimal)
            if value is None or value[1] is None or _digits(*value) < policies.decimal_digits:
                continue
            other = plain_value(exact)
            written = other is not None and (other[1] is not None or other[0].denominator == 1)
            if decimal is gold and written:
                continue  # a decimal in place of a decimal: see gold_precision
            short = _digits(*value) < policies.decimal_digits + 2
            if decimal is gold and short and not isinstance(constant_value(exact), Fraction):
                continue  # six digits of a gold decimal may be all there is: 3.14159 is not pi
            if other is None and _digits(*value) >= _FLOAT and _is_float_of(exact, value[0]):
                return True
            if rounds_to(exact, value[0], value[1], cut_off=True):
                return True
    if policies.gold_precision and _is_longer(gold, answer):
        return True
    if policies.pi_approx and contains(gold, "const"):
        shown = plain_value(answer)
        return shown is not None and constant_value(_with_pi(gold)) == shown[0]
    return False


def plain_value(node: Node) -> tuple[Fraction, int | None] | None:
    """Value and decimals of a number written out, or None."""
    if node.op == "neg":
        inner = plain_value(node.args[0])
        return None if inner is None else (-inner[0], inner[1])
    return (node.value, node.places) if node.op == "num" else None


def _digits(value: Fraction, places: int | None) -> int:
    """Significant digits of a decimal."""
    return len(str(abs(int(value * 10 ** (places or 0))))) if value else 0


def rounds_to(exact: Node, value: Fraction, places: int, *, cut_off: bool = False) -> bool:
    """Whether a constant, rounded (or cut off) to so many decimals, is ``value``."""
    unit = Fraction(1, 10**places)
    digits = max(50, places + 20)
    if digits > 1000:
        return False
    known = constant_value(exact, digits)
    if known is None or (not isinstance(known, Fraction) and known.im is not None):
        return False
    if isinstance(known, Fraction):
        low = high = known
    else:
        if not all(end.is_finite() and end.copy_abs() < _MOST for end in known.re):
            return False
        low, high = (Fraction(end) for end in known.re)
    if -unit / 2 <= low - value and high - value <= unit / 2:
        return True
    if not cut_off:
        return False
    if value >= 0:
        return low >= value and high - value < unit
    return high <= value and value - low < unit


def _is_float_of(exact: Node, value: Fraction) -> bool:
    """Whether a number of 15 digits and more is the constant but for the error of a float."""
    known = constant_value(exact)
    if known is None:
        return False
    try:
        evaluator = Evaluator(40)
        gap = evaluator.difference(known, value)
    except Undefined:
        return False
    return gap.im is None and gap.size <= Decimal(abs(value).numerator) / Decimal(
        value.denominator
    ) * Decimal("1e-15")


def _is_longer(gold: Node, answer: Node) -> bool:
    """Whether the answer has the digits of a computed number and rounds to a decimal gold."""
    shown, given = plain_value(answer), plain_value(gold)
    if shown is None or given is None or not shown[1] or not given[1]:
        return False
    digits = _digits(*shown)
    if digits < _LONG or shown[1] <= given[1]:
        return False
    if _digits(*given) >= 2:
        return abs(shown[0] - given[0]) <= Fraction(1, 2 * 10 ** given[1])
    # 0.30000000000000004 is 0.3.
    return digits >= 15 and abs(shown[0] - given[0]) <= abs(given[0]) / 10**14


def _with_pi(node: Node) -> Node:
    if node.op == "const" and node.value == "pi":
        return num(Fraction(314, 100))
    return Node(node.op, tuple(_with_pi(arg) for arg in node.args), node.value, node.places)


def proportional(gold: tuple[Node, ...], answer: tuple[Node, ...]) -> bool | None:
    """Whether two ratios are the same."""
    if len(gold) != len(answer):
        return False
    verdicts = [
        equal_scalars(Node("mul", (one, answer[0])), Node("mul", (other, gold[0])))
        for one, other in zip(gold[1:], answer[1:], strict=True)
    ]
    return False if False in verdicts else None if None in verdicts else True
