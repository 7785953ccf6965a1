"""Interval arithmetic on decimals: every result encloses the true value.

A real is a pair of decimals ``(low, high)``, rounded outwards. Functions that the decimal module
rounds to nearest are widened by one unit in the last place.
"""

from __future__ import annotations

from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
)
from fractions import Fraction
from functools import lru_cache

__all__ = ["Intervals", "Real", "Undefined"]

Real = tuple[Decimal, Decimal]

_ZERO, _ONE, _TWO = Decimal(0), Decimal(1), Decimal(2)
_EMAX = 10**9


class Undefined(ArithmeticError):
    """No value, or none that this arithmetic can enclose."""


@lru_cache(maxsize=64)
def _pi(digits: int) -> Decimal:
    """Pi to at least so many digits, cut off (Machin: pi = 16 atan(1/5) - 4 atan(1/239))."""
    scale = 10 ** (digits + 10)

    def inverse_tangent(n: int) -> int:
        term = total = scale // n
        k, sign = 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    value = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return Decimal(value).scaleb(-(digits + 10), Context(prec=digits + 30))


class Intervals:
    """Operations at one precision.

    Args:
        digits: Significant digits of the end points.
    """

    def __init__(self, digits: int) -> None:
        self.digits = digits
        traps = [InvalidOperation, DivisionByZero]
        self.down = Context(digits, ROUND_FLOOR, -_EMAX, _EMAX, traps=traps)
        self.up = Context(digits, ROUND_CEILING, -_EMAX, _EMAX, traps=traps)
        self.near = Context(digits, ROUND_HALF_EVEN, -_EMAX, _EMAX, traps=traps)

    def real(self, value: Fraction | int) -> Real:
        """A rational number."""
        if isinstance(value, int) or value.denominator == 1:
            exact = Decimal(int(value))
            return self.down.plus(exact), self.up.plus(exact)
        above, below = Decimal(value.numerator), Decimal(value.denominator)
        return self.down.divide(above, below), self.up.divide(above, below)

    def add(self, a: Real, b: Real) -> Real:
        """The sum."""
        return self.down.add(a[0], b[0]), self.up.add(a[1], b[1])

    def neg(self, a: Real) -> Real:
        """The negative."""
        return a[1].copy_negate(), a[0].copy_negate()

    def sub(self, a: Real, b: Real) -> Real:
        """The difference."""
        return self.down.subtract(a[0], b[1]), self.up.subtract(a[1], b[0])

    def mul(self, a: Real, b: Real) -> Real:
        """The product."""
        down, up = self.down.multiply, self.up.multiply
        if a[0] >= 0 and b[0] >= 0:
            return down(a[0], b[0]), up(a[1], b[1])
        pairs = [(x, y) for x in a for y in b]
        return min(down(x, y) for x, y in pairs), max(up(x, y) for x, y in pairs)

    def div(self, a: Real, b: Real) -> Real:
        """The quotient; undefined where ``b`` may be zero."""
        if b[0] <= 0 <= b[1]:
            raise Undefined("division by an interval around zero")
        down, up = self.down.divide, self.up.divide
        pairs = [(x, y) for x in a for y in b]
        return min(down(x, y) for x, y in pairs), max(up(x, y) for x, y in pairs)

    def abs(self, a: Real) -> Real:
        """The absolute value."""
        if a[0] >= 0:
            return a
        if a[1] <= 0:
            return self.neg(a)
        return _ZERO, max(a[0].copy_negate(), a[1])

    def sqrt(self, a: Real) -> Real:
        """The square root; undefined below zero."""
        if a[0] < 0:
            raise Undefined("the square root of an interval below zero")
        low, high = self.near.sqrt(a[0]), self.near.sqrt(a[1])
        return max(_ZERO, self.near.next_minus(low)), self.near.next_plus(high)

    def exp(self, a: Real) -> Real:
        """The exponential."""
        low, high = self.near.exp(a[0]), self.near.exp(a[1])
        return max(_ZERO, self.near.next_minus(low)), self.near.next_plus(high)

    def ln(self, a: Real) -> Real:
        """The natural logarithm; undefined where ``a`` may not be positive."""
        if a[0] <= 0:
            raise Undefined("the logarithm of an interval around zero")
        low, high = self.near.ln(a[0]), self.near.ln(a[1])
        return self.near.next_minus(low), self.near.next_plus(high)

    def pi(self) -> Real:
        """Pi."""
        value = _pi(self.digits)
        return self.down.plus(value), self.near.next_plus(self.up.plus(value))

    def sin_cos(self, a: Real) -> tuple[Real, Real]:
        """Sine and cosine.

        Raises:
            Undefined: If the argument is too large to be reduced at this precision.
        """
        width = self.up.subtract(a[1], a[0])
        if not width.is_finite() or width > 1:
            return (-_ONE, _ONE), (-_ONE, _ONE)
        point = a[0]  # an end point, since the middle would have to be rounded
        size = max(point.adjusted(), 0) if point else 0
        if size > self.digits // 2:
            raise Undefined("the argument of a trigonometric function is too large")
        work = Context(self.digits + size + 15, ROUND_HALF_EVEN, -_EMAX, _EMAX)
        half_pi = work.divide(_pi(self.digits + size + 15), _TWO)
        quadrant = int(work.to_integral_value(work.divide(point, half_pi)))
        x = work.subtract(point, work.multiply(Decimal(quadrant), half_pi))
        sine, cosine = _series(x, work, self.digits + 8)
        for _ in range(quadrant % 4):
            sine, cosine = cosine, sine.copy_negate()
        # Both have slopes of at most 1.
        slack = self.up.add(width, _ONE.scaleb(-self.digits))
        return self._around(sine, slack), self._around(cosine, slack)

    def _around(self, value: Decimal, slack: Decimal) -> Real:
        low = max(-_ONE, self.down.subtract(value, slack))
        return low, min(_ONE, self.up.add(value, slack))

    def atan(self, a: Real) -> Real:
        """The inverse tangent."""
        slack = _TWO.scaleb(-self.digits)
        low, high = self._atan(a[0]), self._atan(a[1])
        return self.down.subtract(low, slack), self.up.add(high, slack)

    def _atan(self, x: Decimal) -> Decimal:
        work = Context(self.digits + 15, ROUND_HALF_EVEN, -_EMAX, _EMAX)
        half_pi = work.divide(_pi(self.digits + 15), _TWO)
        if x.is_infinite():
            return half_pi.copy_sign(x)
        if x.copy_abs() > 1:
            other = self._atan(work.divide(_ONE, x))
            return work.subtract(half_pi.copy_sign(x), other)
        for _ in range(4):  # atan x = 2 atan(x / (1 + sqrt(1 + x^2)))
            root = work.sqrt(work.add(_ONE, work.multiply(x, x)))
            x = work.divide(x, work.add(_ONE, root))
        square = work.multiply(x, x).copy_negate()
        total = term = x
        k, limit = 1, _ONE.scaleb(-(self.digits + 8))
        while term.copy_abs() > limit:
            term = work.multiply(term, square)
            k += 2
            total = work.add(total, work.divide(term, Decimal(k)))
        return work.multiply(total, Decimal(16))


def _series(x: Decimal, work: Context, digits: int) -> tuple[Decimal, Decimal]:
    """Taylor series of sine and cosine for small ``x``."""
    limit = _ONE.scaleb(-digits)
    sine, cosine, term, k = _ZERO, _ONE, _ONE, 0
    while True:
        k += 1
        term = work.divide(work.multiply(term, x), Decimal(k))
        if term.copy_abs() < limit:
            return sine, cosine
        signed = term.copy_negate() if k % 4 in (2, 3) else term
        if k % 2:
            sine = work.add(sine, signed)
        else:
            cosine = work.add(cosine, signed)
