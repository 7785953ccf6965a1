"""The calculator, and how calls are found in a response."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from math_hostile import hostile_answers

from envs.math_reasoning.calculator import CalculatorError, calculate
from envs.math_reasoning.tools import (
    MAX_REPLY,
    Tool,
    ToolReply,
    calculator,
    find_call,
    make_tools,
    use,
)

TOOLS = make_tools(["calculator"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12*5", "60"), ("7/3", "7/3 = 2.33333333333"), ("0.1+0.2", "0.3"), ("2^10", "1024"),
        ("2**10", "1024"), ("-3^2", "-9"), ("sqrt(2)", "1.41421356237"), ("1/8", "0.125"),
        ("5!", "120"),
        ("\\frac{1}{3}+\\frac{1}{6}", "0.5"), ("12 × 3 =", "36"), ("1,234*2", "2468"),
        ("50%", "0.5"),
        ("pi", "3.14159265359"), ("abs(-3)", "3"), ("10^39", "1" + "0" * 39), ("(1+2)*(3+4)", "21"),
        ("100 - 36.5", "63.5"), ("1e3/4", "250"), ("floor(7/2)", "3"),
        ("1/3+1/7", "10/21 = 0.47619047619"),
    ],
)  # fmt: skip
def test_values(text, value):
    assert calculate(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("1/0", "division by zero"),
        ("x+1", "'x' has no value"),
        ("(1+2", "expected"),
        ("7 8", "side by side"),
        ("sqrt(-1)", "negative"),
        ("1+" * 300 + "1", "longer than"),
        ("__import__('os')", "'_'"),
    ],
)
def test_errors_are_words(text, message):
    with pytest.raises(CalculatorError, match=message):
        calculate(text)


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 999)), max_size=6))
def test_it_agrees_with_fractions(parts):
    text, value = "17", Fraction(17)
    for sign, number in parts:  # brackets keep the order of writing
        text = f"({text}){sign}{number}"
        value = {
            "+": value + number, "-": value - number, "*": value * number, "/": value / number,
        }[sign]  # fmt: skip
    shown = calculate(text).partition(" = ")[0]
    assert float(Fraction(shown)) == pytest.approx(float(value), rel=1e-10)


def test_hostile_input(tmp_path):
    marker, said = tmp_path / "PWNED", []
    for _, text in hostile_answers(str(marker)):
        try:
            assert len(calculate(text)) < 100
        except CalculatorError as error:
            said.append(str(error))
    assert all(said)
    assert not marker.exists()


# Calls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source", "dropped"),
    [
        ("<calculator>1+1</calculator>", "1+1", 0),
        ("First <calculator> 1+1 </calculator> then", "1+1", 5),
        ("<calculator>1+1", "1+1", 0),
        ("<think>hm</think><calculator>2</calculator>", "2", 0),
        ("<think><calculator>1</calculator></think><calculator>2</calculator>", "2", 0),
        ("<calculator>1</calculator><calculator>2</calculator>", "1", 26),
        ("<calculator>1</calculator> <result>9</result> \\boxed{9}", "1", 29),
        ("<result>9</result><calculator>1</calculator>", "1", 0),
        ("\\boxed{ <calculator>1</calculator>", "1", 0),
    ],
)
def test_calls(text, source, dropped):
    call = find_call(text, TOOLS)
    assert call is not None
    assert (call.tool, call.source, call.dropped) == ("calculator", source, dropped)


@pytest.mark.parametrize(
    "text",
    [
        "no call",
        "<python>1</python>",
        "<Calculator>1</Calculator>",
        "<think><calculator>1</calculator>",
        "<think><calculator>1</calculator></think> \\boxed{1}",
        "\\boxed{7} <calculator>1</calculator>",
        "<result>60</result>",
        "< calculator>1</calculator>",
    ],
)
def test_no_calls(text):
    assert find_call(text, TOOLS) is None


def test_without_tools_there_are_no_calls():
    assert find_call("<calculator>1</calculator>", {}) is None


def test_finding_is_linear():
    for unit in ("<calculator>", "</calculator>", "<think>", "\\boxed{", "<"):
        find_call(unit * 20_000, TOOLS)


def test_tools_are_made_from_names_and_objects():
    own = Tool("python", lambda source: ToolReply(source))
    assert list(make_tools(["calculator", own])) == ["calculator", "python"]
    with pytest.raises(ValueError, match="unknown tool 'abacus'; known: calculator"):
        make_tools(["abacus"])
    with pytest.raises(ValueError, match="given twice"):
        make_tools([calculator, "calculator"])
    with pytest.raises(TypeError, match="got the str 'calculator'"):
        make_tools("calculator")
    with pytest.raises(TypeError, match="a name or a Tool"):
        make_tools([len])
    for name in ("think", "Result", "a b", ""):
        with pytest.raises(ValueError, match="name"):
            Tool(name, own.run)


def test_replies_are_cut_and_errors_are_replies():
    long = use(Tool("echo", lambda source: ToolReply("x" * 5000)), "")
    assert long.output.startswith("x" * MAX_REPLY)
    assert "3000 characters cut off" in long.output
    assert long.details == {"cut_off": True}

    def fail(source):
        raise ValueError("no such thing")

    assert use(Tool("fail", fail), "") == ToolReply("error: no such thing", ok=False)
    with pytest.raises(TypeError, match="must return a ToolReply"):
        use(Tool("odd", lambda source: source), "text")
