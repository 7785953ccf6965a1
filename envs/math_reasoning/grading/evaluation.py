"""The value of an expression: an exact fraction where there is one, else a box that encloses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from fractions import Fraction

from envs.math_reasoning.grading.exact import binomial, exact_root, of_numbers, pi_multiple
from envs.math_reasoning.grading.intervals import Intervals, Real, Undefined
from envs.math_reasoning.grading.nodes import Node

__all__ = ["Box", "Evaluator", "Value"]

#: Longest exact numerator or denominator, in bits.
MAX_BITS = 120_000
_MAX_FACTORIAL = 8_000
_ZERO = Decimal(0)
_MOST = Decimal(10) ** 40


@dataclass(frozen=True, slots=True)
class Box:
    """A complex number between bounds; ``im`` is None where it is real for certain."""

    re: Real
    im: Real | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether it is not zero for certain."""
        return not _around_zero(self.re) or (self.im is not None and not _around_zero(self.im))

    @property
    def excludes_reals(self) -> bool:
        """Whether its imaginary part is not zero for certain."""
        return self.im is not None and not _around_zero(self.im)

    @property
    def size(self) -> Decimal:
        """A bound on the larger part."""
        parts = [*self.re, *(self.im or ())]
        return max(part.copy_abs() for part in parts)


Value = Fraction | Box


def _around_zero(a: Real) -> bool:
    return a[0] <= 0 <= a[1]


class Evaluator:
    """Evaluates expressions at one point.

    Args:
        digits: Digits of the boxes.
        at: Values of the variables.
        max_bits: Longest exact fraction, in bits.
        real: Refuse what is real nowhere on the way, such as the square root of a negative number.
    """

    def __init__(
        self,
        digits: int,
        at: Mapping[str, Fraction] | None = None,
        max_bits: int = MAX_BITS,
        *,
        real: bool = False,
    ) -> None:
        self.intervals = Intervals(digits)
        self.at = at or {}
        self.max_bits = max_bits
        self.real = real

    def value(self, node: Node) -> Value:
        """The value.

        Raises:
            Undefined: If there is none, or it cannot be enclosed.
        """
        try:
            return self._value(node)
        except ZeroDivisionError:
            raise Undefined("division by zero") from None
        except (DecimalException, OverflowError) as error:
            raise Undefined(str(error)) from None

    def difference(self, a: Value, b: Value) -> Box:
        """``a - b`` as a box."""
        try:
            if isinstance(a, Fraction) and isinstance(b, Fraction):
                return self.box(a - b)
            return self._add(self.box(a), self._neg(self.box(b)))
        except DecimalException as error:
            raise Undefined(str(error)) from None

    def box(self, value: Value) -> Box:
        """A value as a box."""
        return value if isinstance(value, Box) else Box(self.intervals.real(value))

    # Operations ---------------------------------------------------------------------------------

    def _value(self, node: Node) -> Value:
        op = node.op
        if op == "num":
            return self._fit(node.value)
        if op == "sym":
            known = self.at.get(node.value)
            if known is None:
                raise Undefined(f"no value for {node.value}")
            return known
        if op == "const":
            return self._constant(node.value)
        if op == "neg":
            return self._minus(self._value(node.args[0]))
        if op == "add":
            return self._total([self._value(arg) for arg in node.args])
        if op == "mul":
            product: Value = Fraction(1)
            for arg in node.args:
                product = self._times(product, self._value(arg))
            return product
        if op == "div":
            return self._times(self._value(node.args[0]), self._inverse(self._value(node.args[1])))
        if op == "pow":
            return self._power(self._value(node.args[0]), self._value(node.args[1]))
        if op == "root":
            index = self._value(node.args[1])
            if not (isinstance(index, Fraction) and index.denominator == 1 and index >= 2):
                raise Undefined("the index of a root is no whole number above 1")
            return self._power(self._value(node.args[0]), 1 / index)
        if op == "fact":
            return self._factorial(self._value(node.args[0]))
        if op == "percent":
            return self._times(self._value(node.args[0]), Fraction(1, 100))
        if op == "degree":
            turn = self._times(self._value(node.args[0]), Fraction(1, 180))
            return self._times(turn, Box(self.intervals.pi())) if turn else turn
        if op == "fn":
            return self._function(node)
        raise Undefined(f"{op} has no single value")

    def _constant(self, name: str) -> Value:
        if name == "pi":
            return Box(self.intervals.pi())
        if name == "e":
            return Box(self.intervals.exp((Decimal(1), Decimal(1))))
        if name == "i":
            return Box((_ZERO, _ZERO), (Decimal(1), Decimal(1)))
        raise Undefined("infinity")

    def _fit(self, value: Fraction) -> Value:
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        return value if bits <= self.max_bits else Box(self.intervals.real(value))

    def _minus(self, a: Value) -> Value:
        return -a if isinstance(a, Fraction) else self._neg(a)

    def _neg(self, a: Box) -> Box:
        neg = self.intervals.neg
        return Box(neg(a.re), None if a.im is None else neg(a.im))

    def _total(self, values: list[Value]) -> Value:
        exact = sum((v for v in values if isinstance(v, Fraction)), Fraction(0))
        boxes = [v for v in values if isinstance(v, Box)]
        if not boxes:
            return self._fit(exact)
        total = boxes[0]
        for other in boxes[1:]:
            total = self._add(total, other)
        return self._add(total, self.box(exact)) if exact else total

    def _add(self, a: Box, b: Box) -> Box:
        add = self.intervals.add
        im = a.im if b.im is None else b.im if a.im is None else add(a.im, b.im)
        return Box(add(a.re, b.re), im)

    def _times(self, a: Value, b: Value) -> Value:
        if isinstance(a, Fraction) and isinstance(b, Fraction):
            return self._fit(a * b)
        if a == 0 or b == 0:
            return Fraction(0)
        left, right = self.box(a), self.box(b)
        mul = self.intervals.mul
        if left.im is None and right.im is None:
            return Box(mul(left.re, right.re))
        if left.im is None or right.im is None:
            if left.im is None:
                left, right = right, left
            assert left.im is not None
            return Box(mul(left.re, right.re), mul(left.im, right.re))
        re = self.intervals.sub(mul(left.re, right.re), mul(left.im, right.im))
        return Box(re, self.intervals.add(mul(left.re, right.im), mul(left.im, right.re)))

    def _inverse(self, a: Value) -> Value:
        if isinstance(a, Fraction):
            return 1 / a
        one = (Decimal(1), Decimal(1))
        if a.im is None:
            return Box(self.intervals.div(one, a.re))
        div, mul = self.intervals.div, self.intervals.mul
        square = self.intervals.add(mul(a.re, a.re), mul(a.im, a.im))
        return Box(div(a.re, square), div(self.intervals.neg(a.im), square))

    # Powers -------------------------------------------------------------------------------------

    def _power(self, base: Value, exponent: Value) -> Value:
        if isinstance(exponent, Fraction):
            if exponent.denominator == 1:
                return self._whole_power(base, int(exponent))
            return self._rational_power(base, exponent)
        if base == 0:
            raise Undefined("zero to a power that is no fraction")
        if base == 1:
            return Fraction(1)
        return self._exp(self._product(exponent, self._log(self.box(base))))

    def _product(self, a: Value, b: Value) -> Box:
        return self.box(self._times(a, b))

    def _whole_power(self, base: Value, n: int) -> Value:
        if n == 0:
            return Fraction(1)
        if isinstance(base, Fraction):
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if base in (0, 1, -1) or abs(n) * bits <= self.max_bits:
                return base**n if n > 0 else 1 / base**-n
            sign = -1 if base < 0 and n % 2 else 1
            power = self._exp(self._product(Fraction(n), self._log(self.box(abs(base)))))
            return self._neg(power) if sign < 0 else power
        if abs(n) > 4096:
            if base.im is not None:
                raise Undefined("a large power of a complex number")
            size = self.intervals.abs(base.re)
            power = self._exp(self._product(Fraction(n), self._log(Box(size))))
            if n % 2 == 0 or base.re[0] > 0:
                return power
            if base.re[1] < 0:
                return self._neg(power)
            raise Undefined("a power of an interval around zero")
        result: Value = Fraction(1)
        square: Value = base
        k = abs(n)
        while k:
            if k & 1:
                result = self._times(result, square)
            k >>= 1
            if k:
                square = self._times(square, square)
        return result if n > 0 else self._inverse(result)

    def _rational_power(self, base: Value, exponent: Fraction) -> Value:
        """Real roots of negative numbers where the index is odd, principal values elsewhere."""
        if isinstance(base, Fraction):
            if base == 0:
                if exponent < 0:
                    raise Undefined("zero to a negative power")
                return Fraction(0)
            exact = exact_root(abs(base), exponent.denominator)
            if exact is not None and (base > 0 or exponent.denominator % 2):
                root = exact if base > 0 else -exact
                return self._whole_power(root, exponent.numerator)
            if self.real and base < 0 and exponent.denominator % 2 == 0:
                raise Undefined("an even root of a negative number")
            if exact is not None and exponent.denominator == 2:
                size = self.box(self._whole_power(exact, exponent.numerator)).re
                turned = exponent.numerator % 4 == 3
                return Box((_ZERO, _ZERO), self.intervals.neg(size) if turned else size)
        box = self.box(base)
        if box.im is not None:
            return self._exp(self._product(exponent, self._log(box)))
        low, high = box.re
        if low >= 0:
            return Box(self._real_power(box.re, exponent))
        if high > 0:
            raise Undefined("a root of an interval around zero")
        if self.real and exponent.denominator % 2 == 0:
            raise Undefined("an even root of a negative number")
        size = self._real_power(self.intervals.neg(box.re), exponent)
        if exponent.denominator % 2:
            return Box(self.intervals.neg(size) if exponent.numerator % 2 else size)
        angle = self.intervals.mul(self.intervals.pi(), self.intervals.real(exponent))
        sine, cosine = self.intervals.sin_cos(angle)
        if exponent.denominator == 2:
            cosine = (_ZERO, _ZERO)
        return Box(self.intervals.mul(size, cosine), self.intervals.mul(size, sine))

    def _real_power(self, base: Real, exponent: Fraction) -> Real:
        if exponent == Fraction(1, 2):
            return self.intervals.sqrt(base)
        if base[0] <= 0:
            raise Undefined("a root of an interval that touches zero")
        log = self.intervals.ln(base)
        return self.intervals.exp(self.intervals.mul(log, self.intervals.real(exponent)))

    def _exp(self, a: Box) -> Box:
        size = self.intervals.exp(a.re)
        if a.im is None:
            return Box(size)
        sine, cosine = self.intervals.sin_cos(a.im)
        return Box(self.intervals.mul(size, cosine), self.intervals.mul(size, sine))

    def _log(self, a: Box) -> Box:
        """The principal logarithm."""
        if a.im is None:
            if a.re[1] < 0:
                if self.real:
                    raise Undefined("the logarithm of a negative number")
                return Box(self.intervals.ln(self.intervals.neg(a.re)), self.intervals.pi())
            return Box(self.intervals.ln(a.re))
        mul = self.intervals.mul
        square = self.intervals.add(mul(a.re, a.re), mul(a.im, a.im))
        half = (Decimal("0.5"), Decimal("0.5"))
        return Box(mul(self.intervals.ln(square), half), self._angle(a.re, a.im))

    def _angle(self, x: Real, y: Real) -> Real:
        intervals = self.intervals
        half = intervals.mul(intervals.pi(), (Decimal("0.5"), Decimal("0.5")))
        if x[0] > 0:
            return intervals.atan(intervals.div(y, x))
        if y[0] > 0:
            return intervals.sub(half, intervals.atan(intervals.div(x, y)))
        if y[1] < 0:
            return intervals.sub(intervals.neg(half), intervals.atan(intervals.div(x, y)))
        raise Undefined("the angle of a box on the cut")

    # Functions ----------------------------------------------------------------------------------

    def _factorial(self, a: Value) -> Value:
        if not isinstance(a, Fraction) or a.denominator != 1 or a < 0:
            raise Undefined("the factorial of no natural number")
        if a <= _MAX_FACTORIAL:
            return self._fit(Fraction(math.factorial(int(a))))
        # Robbins: sqrt(2 pi n) (n/e)^n exp(1/(12n+1)) < n! < the same with exp(1/(12n)).
        n = self.intervals.real(a)
        mul, ln = self.intervals.mul, self.intervals.ln
        log = mul(n, self.intervals.sub(ln(n), (Decimal(1), Decimal(1))))
        root = ln(mul(mul(self.intervals.pi(), (Decimal(2), Decimal(2))), n))
        log = self.intervals.add(log, mul(root, (Decimal("0.5"), Decimal("0.5"))))
        rest = (self.intervals.real(1 / (12 * a + 1))[0], self.intervals.real(1 / (12 * a))[1])
        return Box(self.intervals.exp(self.intervals.add(log, rest)))

    def _function(self, node: Node) -> Value:
        name = node.value
        if name in ("sin", "cos", "tan", "cot", "sec", "csc"):
            return self._trigonometric(name, node.args[0])
        args = [self._value(arg) for arg in node.args]
        first = args[0]
        if name in ("ln", "log"):
            if len(args) == 2:
                return self._times(self._ln(first), self._inverse(self._ln(args[1])))
            return self._ln(first)
        if name == "abs":
            return self._abs(first)
        if name in ("floor", "ceil"):
            return self._rounded(first, up=name == "ceil")
        if name == "binom":
            return binomial(first, args[1], self.max_bits)
        if name in ("gcd", "lcm", "min", "max"):
            return of_numbers(name, args)
        if name in ("sinh", "cosh", "tanh"):
            plus = self._exp(self.box(first))
            minus = self._exp(self._neg(self.box(first)))
            half = Fraction(1, 2)
            sinh = self._times(self._add(plus, self._neg(minus)), half)
            cosh = self._times(self._add(plus, minus), half)
            if name == "tanh":
                return self._times(sinh, self._inverse(cosh))
            return sinh if name == "sinh" else cosh
        if name in ("asin", "acos", "atan"):
            return self._inverse_trigonometric(name, first)
        raise Undefined(f"the function {name}")

    def _ln(self, a: Value) -> Value:
        if a == 1:
            return Fraction(0)
        return self._log(self.box(a))

    def _abs(self, a: Value) -> Value:
        if isinstance(a, Fraction):
            return abs(a)
        if a.im is None:
            return Box(self.intervals.abs(a.re))
        mul = self.intervals.mul
        square = self.intervals.add(mul(a.re, a.re), mul(a.im, a.im))
        return Box(self.intervals.sqrt((max(_ZERO, square[0]), square[1])))

    def _rounded(self, a: Value, *, up: bool) -> Value:
        rounded = math.ceil if up else math.floor
        if isinstance(a, Fraction):
            return Fraction(rounded(a))
        low, high = a.re
        if a.im is not None or not high.is_finite() or high.copy_abs() > _MOST:
            raise Undefined("a box to round")
        if rounded(low) != rounded(high):
            raise Undefined("a box around a whole number")
        return Fraction(rounded(low))

    def _trigonometric(self, name: str, argument: Node) -> Value:
        turn = pi_multiple(argument)
        if turn is not None and turn.denominator in (1, 2):  # exactly 0, 1 or -1
            quarter = int(turn * 2) % 4
            exact = {0: (0, 1), 1: (1, 0), 2: (0, -1), 3: (-1, 0)}[quarter]
            sine: Value = Fraction(exact[0])
            cosine: Value = Fraction(exact[1])
        else:
            box = self.box(self._value(argument))
            if box.im is not None:
                raise Undefined("a trigonometric function of a complex number")
            one, two = self.intervals.sin_cos(box.re)
            sine, cosine = Box(one), Box(two)
        if name in ("sin", "csc"):
            return sine if name == "sin" else self._inverse(sine)
        if name in ("cos", "sec"):
            return cosine if name == "cos" else self._inverse(cosine)
        if name == "tan":
            return self._times(sine, self._inverse(cosine))
        return self._times(cosine, self._inverse(sine))

    def _inverse_trigonometric(self, name: str, a: Value) -> Value:
        box, intervals = self.box(a), self.intervals
        if a == 0 and name != "acos":
            return Fraction(0)
        if box.im is not None:
            raise Undefined("an inverse trigonometric function of a complex number")
        if name == "atan":
            return Box(intervals.atan(box.re))
        half = intervals.mul(intervals.pi(), (Decimal("0.5"), Decimal("0.5")))
        one = (Decimal(1), Decimal(1))
        if a in (1, -1):
            angle = half if a == 1 else intervals.neg(half)
        else:
            square = intervals.sub(one, intervals.mul(box.re, box.re))
            angle = intervals.atan(intervals.div(box.re, intervals.sqrt(square)))
        return Box(angle if name == "asin" else intervals.sub(half, angle))
