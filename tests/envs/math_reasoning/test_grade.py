"""The grader's verdicts, pair by pair, and its public contract."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.math_reasoning import Policies, Status, Verdict, check_gold, grade

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parent / "answer_pairs.jsonl").read_text("utf-8").splitlines()
]
CATEGORIES = sorted({pair["category"] for pair in PAIRS})


def rules(candidate: str, gold: str, kind: str = "answer", **policies: object) -> Verdict:
    """The verdict without the external verifier."""
    return grade(candidate, gold, kind=kind, verifier="none", **policies)


def test_the_pairs_are_many_and_of_both_kinds():
    assert len(PAIRS) > 800
    for category in CATEGORIES:
        verdicts = {pair["expected"] for pair in PAIRS if pair["category"] == category}
        assert verdicts == {True, False}, category


@pytest.mark.parametrize("category", CATEGORIES)
def test_pairs(category):
    wrong = []
    for pair in PAIRS:
        if pair["category"] != category:
            continue
        verdict = rules(pair["candidate"], pair["gold"], pair["kind"])
        if verdict.correct != pair["expected"] or verdict.status is Status.ERROR:
            wrong.append((pair["gold"], pair["candidate"], verdict))
    assert not wrong


def test_equality_is_symmetric_for_plain_values():
    """Conventions may favour one side; equality of exact values may not."""
    plain = ("numeric", "fraction", "mixed", "symbolic", "complex", "matrix")
    for pair in PAIRS:
        rounded = "." in pair["candidate"]
        if pair["category"] in plain and pair["expected"] and not rounded:
            back = rules(pair["gold"], pair["candidate"], require_evaluated=False)
            assert back.correct, (pair["candidate"], pair["gold"], back)


# Policies --------------------------------------------------------------------------------------

#: Policy, value that is not the default, gold, candidate, verdict by default.
FLIPS = [
    ("leading_zeros", False, "42", "042", True),
    ("number_words", False, "12", "twelve", True),
    ("magnitude_words", False, "3000000", "3 million", True),
    ("inf_words", False, "\\infty", "inf", True),
    ("space_grouping", False, "1000000", "1 000 000", True),
    ("thin_space_grouping", False, "1234", "1\\,234", True),
    ("eu_decimal", False, "1.5", "1,5", True),
    ("require_evaluated", False, "56088", "123*456", False),
    ("unevaluated_ok", False, "1024", "2^{10}", True),
    ("decimal_digits", None, "\\sqrt{17}", "4.123105", True),
    ("decimal_digits", 2, "\\frac{1}{3}", "0.33", False),
    ("gold_precision", False, "0.29", "0.290243531202435", True),
    ("pi_approx", True, "2\\pi", "6.28", False),
    ("percent_bare_number", False, "28\\%", "28", True),
    ("percent_as_fraction", False, "33.5\\%", "0.335", True),
    ("degree_radian", True, "\\frac{\\pi}{3}", "60^\\circ", False),
    ("units_optional", False, "15", "15 cm", True),
    ("unit_conversion", False, "2 \\text{ hours}", "120 minutes", True),
    ("ratio_vs_fraction", True, "\\frac{3}{5}", "3:5", False),
    ("unordered_list", False, "1,2,3", "3,2,1", True),
    ("interval_vs_list", True, "[1,2]", "1,2", False),
    ("tuple_vs_list", True, "(1,2)", "1,2", False),
    ("interval_vs_inequality", False, "[-2,7]", "-2 \\le x \\le 7", True),
    ("column_vs_tuple", False, "\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)", True),
    ("drop_lhs", False, "y=2x+1", "2x+1", True),
    ("assignment_variable", True, "x=5", "y=5", False),
    ("base_conversion", True, "1011_2", "11", False),
    ("base_optional", True, "2516_8", "2516", False),
    ("mcq_label_with_text", False, "C", "C. 42", True),
    ("text_case", False, "\\text{Evelyn}", "evelyn", True),
    ("symbol_product_vs_word", True, "a n s w e r", "\\text{answer}", False),
    ("real_symbols", False, "|x|", "\\sqrt{x^2}", True),
    ("prose_in_box", False, "6", "The answer is 6", True),
]
RESPONSE_FLIPS = [
    ("fbox", False, "6", "\\fbox{6}", True),
    ("answer_tag", False, "10", "<answer>10</answer>", True),
    ("unboxed_ok", False, "29", "so the total cost is $29.00.", True),
    ("multi_box_list", False, "1, 2", "\\boxed{1} and \\boxed{2}", True),
    ("multi_box_hack", True, "9", "\\boxed{7} or \\boxed{9}", False),
    ("box_priority", False, "7", "\\boxed{8}. The final answer is $7$.", False),
    ("first_marker_on_runon", False, "42", "#### 42\n\nQuestion: 1?\n#### 7", True),
]


@pytest.mark.parametrize(("policy", "value", "gold", "candidate", "default"), FLIPS)
def test_a_policy_decides(policy, value, gold, candidate, default):
    assert rules(candidate, gold).correct is default
    assert rules(candidate, gold, **{policy: value}).correct is not default


@pytest.mark.parametrize(("policy", "value", "gold", "response", "default"), RESPONSE_FLIPS)
def test_a_policy_of_extraction_decides(policy, value, gold, response, default):
    assert rules(response, gold, "response").correct is default
    assert rules(response, gold, "response", **{policy: value}).correct is not default


def test_every_policy_is_tested_and_documented():
    tested = {flip[0] for flip in (*FLIPS, *RESPONSE_FLIPS)}
    names = set(Policies.__slots__)
    assert tested == names
    for name in names:
        assert f"{name}:" in (Policies.__doc__ or "")


# Contract --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "gold", "kind", "status"),
    [
        ("7", "7", "answer", Status.OK),
        ("8", "7", "answer", Status.OK),
        ("", "7", "answer", Status.NO_ANSWER),
        ("  \n", "7", "answer", Status.NO_ANSWER),
        ("no answer here", "7", "response", Status.NO_ANSWER),
        ("\\boxed{}", "7", "response", Status.NO_ANSWER),
        ("\\frac{1}{", "7", "answer", Status.UNPARSED),
        ("1" * 3000, "7", "answer", Status.TOO_LONG),
        ("7", "\\frac{1}{", "answer", Status.GOLD_UNPARSED),
        ("tan(arctan(x))", "x", "answer", Status.UNDECIDED),
    ],
)
def test_every_outcome_has_a_status(candidate, gold, kind, status):
    assert rules(candidate, gold, kind).status is status


def test_only_a_decision_is_correct():
    for pair in PAIRS:
        verdict = rules(pair["candidate"], pair["gold"], pair["kind"])
        assert verdict.status is Status.OK or not verdict.correct


def test_an_unreadable_gold_pays_nobody():
    for gold in ("\\frac{1}{", "{", "\\begin{pmatrix}1"):
        assert not rules("7", gold).correct
        with pytest.raises(ValueError, match="cannot be read"):
            check_gold(gold)
    with pytest.raises(ValueError, match="empty"):
        check_gold("  ")
    check_gold("\\frac{1}{2}")


def test_the_answer_is_told():
    verdict = rules("So \\boxed{x = 7}", "7", "response")
    assert verdict == Verdict(True, Status.OK, "rules", "x = 7")
    assert rules("nothing", "7", "response").answer is None


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="got int and str"):
        grade(7, "7")
    with pytest.raises(ValueError, match="'boxed'"):
        grade("7", "7", kind="boxed")
    with pytest.raises(TypeError, match=r"unknown policies \['lenient'\]; known: .*leading_zeros"):
        grade("7", "7", lenient=True)
    with pytest.raises(ValueError, match="drop_lhs must be True or False, got 'yes'"):
        grade("7", "7", drop_lhs="yes")
    with pytest.raises(ValueError, match="decimal_digits"):
        grade("7", "7", decimal_digits=0)


def test_policies_do_not_leak_between_calls():
    assert rules("123*456", "56088", require_evaluated=False).correct
    assert not rules("123*456", "56088").correct
    assert rules("1,5", "1.5").correct
    assert not rules("1,5", "1.5", eu_decimal=False).correct
