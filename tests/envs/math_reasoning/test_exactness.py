"""What the grader's proofs rest on: enclosures, separation bounds, normal forms."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.math_reasoning.grading.answers import read_answer
from envs.math_reasoning.grading.equality import equal_scalars, sign_of
from envs.math_reasoning.grading.evaluation import Box, Evaluator
from envs.math_reasoning.grading.intervals import Intervals, Undefined
from envs.math_reasoning.grading.nodes import Node
from envs.math_reasoning.grading.policies import Policies
from envs.math_reasoning.grading.separation import is_zero

FRACTIONS = st.fractions(min_value=-50, max_value=50, max_denominator=60)
PI_50 = Decimal("3.14159265358979323846264338327950288419716939937510")


def node(text: str) -> Node:
    return read_answer(text, Policies())[0].node


def minus(a: str, b: str) -> Node:
    return Node("add", (node(a), Node("neg", (node(b),))))


# Intervals --------------------------------------------------------------------------------------


@given(FRACTIONS, FRACTIONS)
def test_arithmetic_encloses(a, b):
    intervals = Intervals(12)
    x, y = intervals.real(a), intervals.real(b)
    for result, true in (
        (intervals.add(x, y), a + b),
        (intervals.sub(x, y), a - b),
        (intervals.mul(x, y), a * b),
        (intervals.abs(x), abs(a)),
    ):
        assert Fraction(result[0]) <= true <= Fraction(result[1])
    if b:
        low, high = intervals.div(x, y)
        assert Fraction(low) <= a / b <= Fraction(high)


@given(st.fractions(min_value=-20, max_value=20, max_denominator=50))
def test_functions_enclose(a):
    narrow, wide = Intervals(15), Intervals(60)
    for name in ("exp", "atan"):
        rough = getattr(narrow, name)(narrow.real(a))
        fine = getattr(wide, name)(wide.real(a))
        assert rough[0] <= fine[0] <= fine[1] <= rough[1]
    for place, function in enumerate((math.sin, math.cos)):
        rough, fine = narrow.sin_cos(narrow.real(a))[place], wide.sin_cos(wide.real(a))[place]
        assert rough[0] <= fine[0] <= fine[1] <= rough[1]
        assert float(fine[0]) == pytest.approx(function(float(a)), abs=1e-12)


def test_pi():
    low, high = Intervals(50).pi()
    assert low <= PI_50 <= high
    assert high - low < Decimal("1e-48")


def test_what_has_no_value_is_refused():
    intervals = Intervals(20)
    around = (Decimal(-1), Decimal(1))
    for call in (
        lambda: intervals.div(around, around),
        lambda: intervals.ln(around),
        lambda: intervals.sqrt(around),
    ):
        with pytest.raises(Undefined):
            call()


# Evaluation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\frac{1}{2}+\\frac{1}{3}", Fraction(5, 6)),
        ("2^{10}", 1024),
        ("2^{-2}", Fraction(1, 4)),
        ("\\sqrt{16}", 4),
        ("\\sqrt[3]{-8}", -2),
        ("5!", 120),
        ("\\binom{5}{2}", 10),
        ("\\lfloor -3.5\\rfloor", -4),
        ("\\sin \\pi", 0),
        ("\\gcd(12,18)", 6),
        ("1.5\\times 10^3", 1500),
    ],
)
def test_exact_values(text, value):
    assert Evaluator(30).value(node(text)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("\\sqrt{2}", math.sqrt(2)),
        ("e^{2}", math.exp(2)),
        ("\\ln 10", math.log(10)),
        ("\\cos 1", math.cos(1)),
        ("\\tan 1", math.tan(1)),
        ("\\arcsin 0.3", math.asin(0.3)),
        ("\\arccos 0.3", math.acos(0.3)),
        ("2^{\\sqrt{2}}", 2 ** math.sqrt(2)),
        ("\\sinh 1", math.sinh(1)),
        ("\\log_2 10", math.log2(10)),
    ],
)
def test_enclosed_values(text, value):
    box = Evaluator(30).value(node(text))
    assert isinstance(box, Box)
    assert float(box.re[0]) == pytest.approx(value, rel=1e-14)
    assert box.re[0] < box.re[1]
    assert box.im is None


def test_complex_values():
    box = Evaluator(30).value(node("e^{i}"))
    assert isinstance(box, Box)
    assert box.im is not None
    assert float(box.re[0]) == pytest.approx(math.cos(1))
    assert float(box.im[0]) == pytest.approx(math.sin(1))


@pytest.mark.parametrize("text", ["1/0", "0^{-1}", "\\ln 0", "(-1)!", "\\infty"])
def test_undefined_values(text):
    with pytest.raises(Undefined):
        Evaluator(30).value(node(text))


# Separation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "zero"),
    [
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt{6}}", True),
        ("\\sqrt{2}+\\sqrt{3}", "\\sqrt{5+2\\sqrt{6}}+10^{-60}", False),
        ("\\sqrt[3]{2+\\sqrt{5}}+\\sqrt[3]{2-\\sqrt{5}}", "1", True),
        ("\\cos 36^\\circ", "\\frac{1+\\sqrt{5}}{4}", True),
        ("\\cos 72^\\circ", "\\frac{1+\\sqrt{5}}{4}", False),
        ("e^{i\\pi/3}", "\\frac{1}{2}+\\frac{\\sqrt{3}}{2}i", True),
        ("|3+4i|", "5", True),
        ("\\sqrt{2}", "1.41421356237309504880168872420969807856967187537694", False),
    ],
)
def test_zero_is_proved(a, b, zero):
    assert is_zero(minus(a, b)) is zero


@pytest.mark.parametrize("text", ["\\pi-3.14", "\\ln 2", "x", "e"])
def test_what_is_not_algebraic_is_left_open(text):
    assert is_zero(node(text)) is None


@given(st.integers(1, 40), st.integers(1, 40))
def test_squares_of_sums_of_roots(a, b):
    left = f"\\sqrt{{{a}}}+\\sqrt{{{b}}}"
    assert equal_scalars(node(left), node(f"\\sqrt{{{a + b}+2\\sqrt{{{a * b}}}}}")) is True
    assert equal_scalars(node(left), node(f"\\sqrt{{{a + b + 1}+2\\sqrt{{{a * b}}}}}")) is False


def test_signs():
    assert sign_of(minus("\\sqrt{2}", "1.4")) == 1
    assert sign_of(minus("\\pi", "\\frac{22}{7}")) == -1
    assert sign_of(minus("\\sqrt{8}", "2\\sqrt{2}")) == 0
    assert sign_of(node("-\\infty")) == -1
    assert sign_of(node("x")) is None


# Normal forms -----------------------------------------------------------------------------------


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=5), st.integers(-9, 9))
def test_expanded_polynomials(coefficients, root):
    """``p(x) (x - r)`` equals its expansion, and differs from any other polynomial."""
    product = [0] * (len(coefficients) + 1)
    for power, c in enumerate(coefficients):
        product[power + 1] += c
        product[power] -= root * c

    def text(cs):
        return "+".join(f"({c})x^{{{power}}}" for power, c in enumerate(cs))

    factored = node(f"({text(coefficients)})(x-({root}))")
    assert equal_scalars(factored, node(text(product))) is True
    product[0] += 1
    assert equal_scalars(factored, node(text(product))) is False


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("\\sin 2x", "2\\sin x\\cos x", True),
        ("\\cos 2x", "1-2\\sin^2 x", True),
        ("\\sin(x+y)", "\\sin x\\cos y+\\cos x\\sin y", True),
        ("\\sin 2x", "2\\sin x", False),
        ("e^{x+y}", "e^x e^y", True),
        ("\\ln 6", "\\ln 2+\\ln 3", True),
        ("4^x", "2^{2x}", True),
        ("\\frac{1}{x}-\\frac{1}{x+1}", "\\frac{1}{x(x+1)}", True),
        ("\\sqrt{12x^2}", "2\\sqrt{3}|x|", True),
        ("\\sqrt{12x^2}", "2\\sqrt{3}x", False),
        ("\\sqrt{xy}", "\\sqrt{x}\\sqrt{y}", True),
        ("|x-5|", "5-x", False),
        ("\\pi+10^{-60}", "\\pi", False),
        ("\\pi+10^{-400}", "\\pi", None),
        ("x^{1/2}", "\\sqrt{x}", True),
        ("\\arctan 1", "\\frac{\\pi}{4}", True),
        ("\\arctan 2", "\\frac{\\pi}{3}", False),
    ],
)
def test_identities(a, b, equal):
    assert equal_scalars(node(a), node(b)) is equal
    assert equal_scalars(node(b), node(a)) is equal
