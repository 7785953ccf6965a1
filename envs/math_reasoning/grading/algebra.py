"""A normal form: quotients of polynomials in atoms, with exact coefficients.

Atoms are variables, pi, prime numbers (to fractional powers), the root of unity ``U = exp(i pi)``
(to fractional powers: ``i`` is ``U^(1/2)``), exponentials and logarithms of monomials, and
whatever stays closed: roots of sums, unknown functions. Sines and cosines become exponentials, so
that identities between them are identities of polynomials.

Two expressions with the same normal form are equal wherever variables are positive. Different
normal forms prove nothing by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

from envs.math_reasoning.grading.evaluation import Evaluator
from envs.math_reasoning.grading.intervals import Undefined
from envs.math_reasoning.grading.nodes import Node

__all__ = ["Algebra", "Poly", "TooLarge"]

#: A product of atoms: pairs of an atom's number and its exponent, in order of the numbers.
Monomial = tuple[tuple[int, Fraction], ...]
#: A sum: monomial to coefficient. Zero is empty.
Poly = dict[Monomial, Fraction]
Ratio = tuple[Poly, Poly]

_ONE: Monomial = ()
_HALF = Fraction(1, 2)
_MAX_TERMS = 600
_MAX_WORK = 150_000
_MAX_BITS = 20_000
_MAX_POWER = 40  # of a sum that is multiplied out
_MAX_SHIFT = 30  # of an argument of a factorial


class TooLarge(ArithmeticError):
    """The normal form would take too long, or the expression has none."""


class Algebra:
    """One table of atoms; expressions to be compared share it."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._atoms: list[tuple[Any, ...]] = []
        self._work = 0

    # Polynomials --------------------------------------------------------------------------------

    def atom(self, *facts: object) -> int:
        """The number of an atom."""
        number = self._numbers.setdefault(facts, len(self._atoms))
        if number == len(self._atoms):
            self._atoms.append(facts)
        return number

    def kind(self, number: int) -> object:
        """What kind of atom it is."""
        return self._atoms[number][0]

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > _MAX_WORK:
            raise TooLarge("too much work")

    def _single(self, number: int, exponent: Fraction = Fraction(1)) -> Poly:
        return self._reduced({((number, exponent),): Fraction(1)})

    def _constant(self, value: Fraction) -> Poly:
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MAX_BITS:
            raise TooLarge("a long number")
        return {_ONE: value} if value else {}

    def plus(self, a: Poly, b: Poly, factor: int = 1) -> Poly:
        """``a + factor * b``."""
        self._spend(len(b))
        out = dict(a)
        for monomial, value in b.items():
            total = out.get(monomial, Fraction(0)) + factor * value
            if total:
                out[monomial] = total
            else:
                out.pop(monomial, None)
        return out

    def times(self, a: Poly, b: Poly) -> Poly:
        """The product."""
        self._spend(len(a) * len(b))
        out: Poly = {}
        closed: list[tuple[Monomial, Fraction]] = []
        for left, x in a.items():
            for right, y in b.items():
                monomial, factor = self._joined(left, right)
                value = x * y * factor
                if any(e >= 1 and self._atoms[n][0] == "root" for n, e in monomial):
                    closed.append((monomial, value))
                    continue
                total = out.get(monomial, Fraction(0)) + value
                if total:
                    out[monomial] = total
                else:
                    out.pop(monomial, None)
        for monomial, value in closed:
            out = self.plus(out, self._opened(monomial, value))
        if len(out) > _MAX_TERMS:
            raise TooLarge("too many terms")
        return out

    def _opened(self, monomial: Monomial, value: Fraction) -> Poly:
        """Whole powers of a closed root are powers of what stands under it."""
        rest: list[tuple[int, Fraction]] = []
        out: Poly = {_ONE: value}
        for number, exponent in monomial:
            atom = self._atoms[number]
            if atom[0] == "root" and exponent >= 1:
                whole = math.floor(exponent)
                radicand: Poly = dict(atom[1])
                out = self.times(out, self._whole_power(radicand, whole))
                exponent -= whole
            if exponent:
                rest.append((number, exponent))
        return self.times(out, {tuple(rest): Fraction(1)})

    def _joined(self, left: Monomial, right: Monomial) -> tuple[Monomial, Fraction]:
        exponents = dict(left)
        for number, exponent in right:
            exponents[number] = exponents.get(number, Fraction(0)) + exponent
        return self._normal(exponents)

    def _normal(self, exponents: dict[int, Fraction]) -> tuple[Monomial, Fraction]:
        """Prime powers and powers of the root of unity reduced to exponents in [0, 1)."""
        factor = Fraction(1)
        kept = []
        for number, exponent in exponents.items():
            atom = self._atoms[number]
            if atom[0] in ("prime", "unity"):
                whole = math.floor(exponent)
                exponent -= whole
                if atom[0] == "unity":
                    factor = -factor if whole % 2 else factor
                elif abs(whole) > _MAX_BITS:
                    raise TooLarge("a long number")
                elif whole:
                    factor *= Fraction(atom[1]) ** whole
            elif atom[0] == "abs" and exponent >= 2:  # |x|^2 = x^2
                even = 2 * math.floor(exponent / 2)
                inner: int = atom[1]
                rest = exponents | {number: exponent - even}
                rest[inner] = rest.get(inner, Fraction(0)) + even
                return self._normal(rest)
            if exponent:
                kept.append((number, exponent))
        kept.sort()
        return tuple(kept), factor

    def _reduced(self, poly: Poly) -> Poly:
        out: Poly = {}
        for monomial, value in poly.items():
            normal, factor = self._normal(dict(monomial))
            out = self.plus(out, {normal: value * factor})
        return out

    def _whole_power(self, poly: Poly, n: int) -> Poly:
        if len(poly) > 1 and n > _MAX_POWER:  # stays closed
            return self._closed(f"power {n}", (self._whole(poly),))
        if len(poly) == 1:
            ((monomial, value),) = poly.items()
            bits = max(value.numerator.bit_length(), value.denominator.bit_length())
            if abs(value) != 1 and n * bits > _MAX_BITS:
                raise TooLarge("a long number")
            normal, factor = self._normal({k: e * n for k, e in monomial})
            out = {normal: value**n * factor}
            roots = [k for k, e in normal if e >= 1 and self._atoms[k][0] == "root"]
            return self._opened(normal, value**n * factor) if roots else out
        result: Poly = {_ONE: Fraction(1)}
        for _ in range(n):
            result = self.times(result, poly)
        return result

    # Quotients ----------------------------------------------------------------------------------

    def ratio(self, node: Node) -> Ratio:
        """The normal form of an expression.

        Raises:
            TooLarge: If there is none within the limits.
        """
        op, args = node.op, node.args
        if op == "num":
            return self._constant(node.value), {_ONE: Fraction(1)}
        if op == "sym":
            return self._whole(self._single(self.atom("var", node.value)))
        if op == "const":
            return self._whole(self._named(node.value))
        if op == "neg":
            above, below = self.ratio(args[0])
            return self.plus({}, above, -1), below
        if op == "add":
            total = self.ratio(args[0])
            for arg in args[1:]:
                total = self._sum(total, self.ratio(arg))
            return total
        if op == "mul":
            product = self.ratio(args[0])
            for arg in args[1:]:
                product = self._product(product, self.ratio(arg))
            return product
        if op == "div":
            return self._product(self.ratio(args[0]), self._inverse(self.ratio(args[1])))
        if op == "percent":
            return self._product(self.ratio(args[0]), self._whole({_ONE: Fraction(1, 100)}))
        if op == "degree":
            pi: Poly = {((self.atom("pi"), Fraction(1)),): Fraction(1, 180)}
            return self._product(self.ratio(args[0]), self._whole(pi))
        if op == "pow":
            return self._power(self.ratio(args[0]), self.ratio(args[1]))
        if op == "root":
            index = self._number(self.ratio(args[1]))
            if index is None or index < 2 or index.denominator != 1:
                raise TooLarge("a root of no index")
            return self._rational_power(self.ratio(args[0]), 1 / index)
        return self._applied(node)

    def _whole(self, poly: Poly) -> Ratio:
        return poly, {_ONE: Fraction(1)}

    def _named(self, name: str) -> Poly:
        if name == "i":
            return self._single(self.atom("unity"), _HALF)
        if name == "pi":
            return self._single(self.atom("pi"))
        if name == "e":
            return self._single(self.atom("exp", _ONE))
        raise TooLarge("infinity")

    def _sum(self, a: Ratio, b: Ratio) -> Ratio:
        if a[1] == b[1]:
            return self.plus(a[0], b[0]), a[1]
        above = self.plus(self.times(a[0], b[1]), self.times(b[0], a[1]))
        return above, self.times(a[1], b[1])

    def _product(self, a: Ratio, b: Ratio) -> Ratio:
        return self._tidy(self.times(a[0], b[0]), self.times(a[1], b[1]))

    def _tidy(self, above: Poly, below: Poly) -> Ratio:
        """A denominator of one term moves up."""
        if len(below) == 1:
            ((monomial, value),) = below.items()
            if (monomial, value) == (_ONE, 1):
                return above, below
            if not any(self._atoms[n][0] == "root" for n, _ in monomial):
                inverse, factor = self._normal({n: -e for n, e in monomial})
                return self.times(above, {inverse: factor / value}), {_ONE: Fraction(1)}
        return above, below

    def _inverse(self, a: Ratio) -> Ratio:
        if not a[0]:
            raise TooLarge("division by zero")
        return self._tidy(a[1], a[0])

    def _number(self, a: Ratio) -> Fraction | None:
        """The fraction that the quotient is, or None."""
        if not a[0]:
            return Fraction(0)
        if a[0].keys() == a[1].keys() == {_ONE}:
            return a[0][_ONE] / a[1][_ONE]
        return None

    # Powers and exponentials --------------------------------------------------------------------

    def _power(self, base: Ratio, exponent: Ratio) -> Ratio:
        number = self._number(exponent)
        if number is not None:
            if number.denominator == 1:
                n = int(number)
                if n < 0:
                    base, n = self._inverse(base), -n
                return self._tidy(self._whole_power(base[0], n), self._whole_power(base[1], n))
            return self._rational_power(base, number)
        if self._number(base) == 1:
            return base
        return self._exp(self._product(exponent, self._ln(base)))

    def _rational_power(self, base: Ratio, exponent: Fraction) -> Ratio:
        if exponent < 0:
            return self._inverse(self._rational_power(base, -exponent))
        above, below = base
        index, n = exponent.denominator, exponent.numerator
        if len(below) > 1:  # (a/b)^(1/k) = (a b^(k-1))^(1/k) / b
            above = self.times(above, self._whole_power(below, index - 1))
            denominator = below
        else:
            denominator = self._root(below, index)
        above = self._root(above, index)
        return self._tidy(self._whole_power(above, n), self._whole_power(denominator, n))

    def _root(self, poly: Poly, index: int) -> Poly:
        if not poly:
            return {}
        if len(poly) == 1:
            ((monomial, value),) = poly.items()
            out = self._root_of_number(value, index)
            for number, exponent in monomial:
                out = self.times(out, self._root_of_atom(number, exponent, index))
            return out
        content = _content(poly)
        inner = tuple(sorted((m, v / content) for m, v in poly.items()))
        closed = self._single(self.atom("root", inner), Fraction(1, index))
        return self.times(self._root_of_number(content, index), closed)

    def _root_of_number(self, value: Fraction, index: int) -> Poly:
        exponents: dict[int, Fraction] = {}
        if value < 0:
            if index % 2:
                return self.plus({}, self._root_of_number(-value, index), -1)
            exponents[self.atom("unity")] = Fraction(1, index)
        for n, sign in ((abs(value.numerator), 1), (value.denominator, -1)):
            for prime, power in self._factors(n).items():
                number = self.atom("prime", prime)
                exponents[number] = exponents.get(number, Fraction(0)) + Fraction(
                    sign * power, index
                )
        monomial, factor = self._normal(exponents)
        return {monomial: factor}

    def _root_of_atom(self, number: int, exponent: Fraction, index: int) -> Poly:
        power = exponent / index
        atom = self._atoms[number]
        even = exponent.denominator == 1 and exponent % 2 == 0
        if atom[0] in ("var", "closed") and even and power % 2:
            return self._single(self.atom("abs", number), power)  # sqrt(x^2) = |x|
        return self._single(number, power)

    def _factors(self, n: int) -> dict[int, int]:
        """Prime factors below a bound; what is left over counts as one."""
        out: dict[int, int] = {}
        if n.bit_length() > 256:
            raise TooLarge("a long number to factor")
        p = 2
        while p * p <= n and p < 2000:
            while n % p == 0:
                out[p] = out.get(p, 0) + 1
                n //= p
            p += 1 if p == 2 else 2
        self._spend(p // 4)
        root = math.isqrt(n)
        if n > 1 and root * root == n:
            out[root] = out.get(root, 0) + 2
        elif n > 1:
            out[n] = out.get(n, 0) + 1
        return out

    def _exp(self, exponent: Ratio) -> Ratio:
        if exponent[1] != {_ONE: Fraction(1)}:
            raise TooLarge("an exponent with a denominator")
        unity, pi = self.atom("unity"), self.atom("pi")
        turn = tuple(sorted(((unity, _HALF), (pi, Fraction(1)))))
        out: Poly = {_ONE: Fraction(1)}
        for monomial, value in exponent[0].items():
            if monomial == turn:
                factor = self._single(unity, value)
            elif len(monomial) == 1 and monomial[0][1] == 1 and self.kind(monomial[0][0]) == "ln":
                inner = self._atoms[monomial[0][0]][1]
                assert isinstance(inner, int)
                factor = self._single(inner, value)
            else:
                factor = self._single(self.atom("exp", monomial), value)
            out = self.times(out, factor)
        return self._whole(out)

    def _ln(self, a: Ratio) -> Ratio:
        above, below = a
        if not above:
            raise TooLarge("the logarithm of zero")
        if len(above) == 1 and below == {_ONE: Fraction(1)}:
            ((monomial, value),) = above.items()
            out = self._ln_of_number(value)
            for number, exponent in monomial:
                out = self.plus(out, self._ln_of_atom(number, exponent))
            return self._whole(out)
        return self._whole(self._closed("ln", (a,)))

    def _ln_of_number(self, value: Fraction) -> Poly:
        out: Poly = {}
        if value < 0:
            unity, pi = self.atom("unity"), self.atom("pi")
            out = {tuple(sorted(((unity, _HALF), (pi, Fraction(1))))): Fraction(1)}
        for n, sign in ((abs(value.numerator), 1), (value.denominator, -1)):
            for prime, power in self._factors(n).items():
                number = self.atom("ln", self.atom("prime", prime))
                out = self.plus(out, {((number, Fraction(1)),): Fraction(sign * power)})
        return out

    def _ln_of_atom(self, number: int, exponent: Fraction) -> Poly:
        atom = self._atoms[number]
        if atom[0] == "exp":
            return {atom[1]: exponent}
        if atom[0] == "unity":
            turn = ((number, _HALF), (self.atom("pi"), Fraction(1)))
            return {tuple(sorted(turn)): exponent}
        return {((self.atom("ln", number), Fraction(1)),): exponent}

    # Functions ----------------------------------------------------------------------------------

    def _applied(self, node: Node) -> Ratio:
        name = node.value if node.op == "fn" else node.op
        known = _of_constants(node)
        if known is not None:
            return self._constant(known), {_ONE: Fraction(1)}
        args = [self.ratio(arg) for arg in node.args]
        if name in ("ln", "log"):
            top = self._ln(args[0])
            return top if len(args) == 1 else self._product(top, self._inverse(self._ln(args[1])))
        if name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh"):
            return self._trigonometric(str(name), args[0])
        if name == "abs" and args[0][1] == {_ONE: Fraction(1)}:
            poly = args[0][0]
            # |p| of a sum is the root of its square, as in sqrt((x+1)^2).
            one = self._absolute(poly) if len(poly) == 1 else self._root(self.times(poly, poly), 2)
            return self._whole(one)
        if name == "fact":
            return self._factorial(args[0])
        if name == "binom":
            return self._binomial(*args)
        return self._whole(self._closed(str(name), tuple(args)))

    def _factorial(self, a: Ratio) -> Ratio:
        """``(p + c)! = p! (p + 1) ... (p + c)`` for a whole number ``c``, and back."""
        above, below = a
        shift = above.get(_ONE, Fraction(0))
        if below != {_ONE: Fraction(1)} or shift.denominator != 1 or abs(shift) > _MAX_SHIFT:
            return self._whole(self._closed("fact", (a,)))
        rest = {monomial: value for monomial, value in above.items() if monomial != _ONE}
        out = self._whole(self._closed("fact", (self._whole(rest),)))
        count = int(shift)
        for step in range(1, count + 1):
            out = self._product(out, self._whole(self.plus(rest, {_ONE: Fraction(step)})))
        for step in range(count + 1, 1):
            factor = self.plus(rest, {_ONE: Fraction(step)} if step else {})
            out = self._product(out, self._inverse(self._whole(factor)))
        return out

    def _binomial(self, a: Ratio, b: Ratio) -> Ratio:
        """A polynomial for a small number below, else the quotient of factorials."""
        number = self._number(b)
        if number is not None and number.denominator == 1 and 0 <= number <= _MAX_SHIFT:
            out = self._whole({_ONE: Fraction(1)})
            for step in range(int(number)):
                factor = self._sum(a, self._whole({_ONE: Fraction(-step)} if step else {}))
                out = self._product(out, factor)
                out = self._product(out, self._whole({_ONE: Fraction(1, step + 1)}))
            return out
        minus = (self.plus({}, b[0], -1), b[1])
        below = self._product(self._factorial(b), self._factorial(self._sum(a, minus)))
        return self._product(self._factorial(a), self._inverse(below))

    def _trigonometric(self, name: str, argument: Ratio) -> Ratio:
        circular = name not in ("sinh", "cosh", "tanh")
        unit = self._named("i") if circular else {_ONE: Fraction(1)}
        turned = self._product(argument, self._whole(unit))
        plus = self._exp(turned)
        minus = self._exp((self.plus({}, turned[0], -1), turned[1]))
        cosine = self._product(self._sum(plus, minus), self._whole({_ONE: _HALF}))
        sine = self._product(
            self._sum(plus, (self.plus({}, minus[0], -1), minus[1])), self._whole({_ONE: _HALF})
        )
        if circular:
            sine = self._product(sine, self._inverse(self._whole(unit)))
        kind = name.rstrip("h") if not circular else name
        if kind in ("sin", "cos"):
            return sine if kind == "sin" else cosine
        if kind in ("sec", "csc"):
            return self._inverse(cosine if kind == "sec" else sine)
        above, below = (sine, cosine) if kind == "tan" else (cosine, sine)
        return self._product(above, self._inverse(below))

    def _absolute(self, poly: Poly) -> Poly:
        ((monomial, value),) = poly.items()
        out: Poly = {_ONE: abs(value)}
        for number, exponent in monomial:
            kind = self.kind(number)
            is_e = kind == "exp" and self._atoms[number][1] == _ONE
            if is_e or kind in ("prime", "pi", "root", "abs"):
                out = self.times(out, self._single(number, exponent))
            elif kind == "unity":
                continue
            elif exponent.denominator == 1 and exponent % 2 == 0 and kind == "var":
                out = self.times(out, self._single(number, exponent))
            else:
                out = self.times(out, self._single(self.atom("abs", number), exponent))
        return out

    def _closed(self, name: str, args: tuple[Ratio, ...]) -> Poly:
        """A function that stays as it is; of its arguments only the form counts."""
        frozen = tuple(
            (tuple(sorted(above.items())), tuple(sorted(below.items()))) for above, below in args
        )
        return self._single(self.atom("closed", name, frozen))


def _content(poly: Poly) -> Fraction:
    """The positive common factor of the coefficients."""
    above = math.gcd(*(value.numerator for value in poly.values()))
    below = math.lcm(*(value.denominator for value in poly.values()))
    return Fraction(above, below)


def _of_constants(node: Node) -> Fraction | None:
    """The exact value of a function of numbers, such as ``5!`` or ``floor(3.7)``."""
    try:
        value = Evaluator(40).value(node)
    except Undefined:
        return None
    return value if isinstance(value, Fraction) else None
