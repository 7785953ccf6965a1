"""``grade``: whether a response or an answer is right."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from envs.math_reasoning.grading.answers import MAX_CHARS, Reading, read_answer
from envs.math_reasoning.grading.compare import Comparison
from envs.math_reasoning.grading.extraction import extract
from envs.math_reasoning.grading.lexer import plain_characters, tokenize
from envs.math_reasoning.grading.nodes import Unparsed
from envs.math_reasoning.grading.numbers import Judge
from envs.math_reasoning.grading.policies import Policies, policies_from
from envs.math_reasoning.grading.pool import Pool, PoolError, default_pool, give_up
from envs.math_reasoning.grading.verdict import Status, Verdict
from envs.math_reasoning.grading.wrapping import unwrap

__all__ = ["check_gold", "grade"]

_WHOLE = re.compile(r"[-+]?(?:\d{1,18}|\d{1,3}(?:,\d{3}){1,5})(?:\.0{0,6})?")
# Readings and comparisons recurse; an answer that goes deeper than they allow is no answer.
_TOO_DEEP = (RecursionError, MemoryError)
# More open pairs than this, as in a long list, are not worth the time.
_MAX_QUESTIONS = 4


def grade(
    response_or_answer: str,
    gold: str,
    *,
    kind: Literal["answer", "response"] = "answer",
    verifier: Pool | Literal["auto", "none"] = "auto",
    **policies: Any,
) -> Verdict:
    """Grade one answer. Thread-safe; sets no signals; never runs or evaluates answer text as code.

    What the standard library decides is decided here. A pair that it leaves open goes to
    ``math-verify`` (the ``math`` extra) in a process of its own that is killed after a second.

    Args:
        response_or_answer: A whole response, or the answer alone.
        gold: The right answer.
        kind: ``response`` looks for the answer in the text first (its last box, after the thinking
            part); ``answer`` takes the text as the answer.
        verifier: ``auto`` uses ``math-verify`` where it is installed, ``none`` never, or a pool.
        **policies: Conventions; see
            :class:`~envs.math_reasoning.grading.policies.Policies`.

    Returns:
        The verdict. Whatever could not be decided is wrong, and ``status`` says why.

    Raises:
        TypeError: If a text is no string, or a policy is unknown.
        ValueError: If ``kind`` or a policy has a wrong value.
    """
    if not isinstance(response_or_answer, str) or not isinstance(gold, str):
        raise TypeError(
            "response_or_answer and gold must be str, got "
            f"{type(response_or_answer).__name__} and {type(gold).__name__}"
        )
    conventions = policies_from(policies)
    if kind == "answer":
        answer: str | None = response_or_answer
    elif kind == "response":
        answer = extract(response_or_answer, conventions)
    else:
        raise ValueError(f"kind must be 'answer' or 'response', got {kind!r}")
    if answer is None or not answer.strip():
        return Verdict(False, Status.NO_ANSWER, "none")
    answer = answer.strip()
    return _grade(answer, gold.strip(), conventions, verifier)


def _grade(
    answer: str, gold: str, policies: Policies, verifier: Pool | Literal["auto", "none"]
) -> Verdict:
    plain = policies.leading_zeros or not _leads_with_zero(answer)
    if plain and _WHOLE.fullmatch(answer) and _WHOLE.fullmatch(gold):
        return Verdict(_whole(answer) == _whole(gold), Status.OK, "rules", answer)
    if answer == gold:
        return Verdict(True, Status.OK, "identical", answer)
    if len(answer) > MAX_CHARS:
        return Verdict(False, Status.TOO_LONG, "none", answer[:80])
    try:
        pool = default_pool() if verifier == "auto" else None if verifier == "none" else verifier
        return _decide(answer, gold, policies, pool)
    except _TOO_DEEP:
        return Verdict(False, Status.UNPARSED, "none", answer)
    except Exception:  # thousands of answers must not be lost to one; tests look for this status
        return Verdict(False, Status.ERROR, "none", answer)


def _decide(answer: str, gold: str, policies: Policies, pool: Pool | None) -> Verdict:
    if _symbols(answer, policies) == _symbols(gold, policies):
        return Verdict(True, Status.OK, "identical", answer)
    try:
        gold_readings = read_answer(gold, policies)
    except Unparsed:
        return Verdict(False, Status.GOLD_UNPARSED, "none", answer)
    try:
        readings = read_answer(answer, policies)
    except Unparsed:
        return Verdict(False, Status.UNPARSED, "none", answer)
    if not policies.leading_zeros and any(_leads_with_zero(text) for text in answer.split(",")):
        return Verdict(False, Status.OK, "rules", answer)
    pairs = [
        (right.node, given.node)
        for right in gold_readings
        for given in readings
        if _allowed(right, given, policies)
    ]
    judge = Judge()
    comparison = Comparison(policies, judge)
    verdict = _best([comparison.same(*pair) for pair in pairs])
    via = "rules"
    if verdict is None and pool is not None and 1 <= len(judge.open) <= _MAX_QUESTIONS:
        status = _settle(judge, pool)
        if status is not Status.OK:
            return Verdict(False, status, "math-verify", answer)
        verdict, via = _best([comparison.same(*pair) for pair in pairs]), "math-verify"
    if verdict is None:
        return Verdict(False, Status.UNDECIDED, "none", answer)
    return Verdict(verdict, Status.OK, via, answer)


def _best(verdicts: list[bool | None]) -> bool | None:
    return True if True in verdicts else None if None in verdicts else False


def _settle(judge: Judge, pool: Pool) -> Status:
    """Ask the verifier about what the rules left open; the first that fails ends it."""
    for gold, answer in judge.open:
        try:
            reply = pool.verify(gold, answer)
        except PoolError as error:
            give_up(error)
            return Status.UNDECIDED
        if reply.status is not Status.OK:
            return reply.status
        judge.settled[gold, answer] = reply.equal
    return Status.OK


def _allowed(gold: Reading, answer: Reading, policies: Policies) -> bool:
    """Whether the policies let this pair of readings count."""
    for reading in (gold, answer):
        if reading.needs is not None and not getattr(policies, reading.needs):
            return False
    if gold.needs == "eu_decimal":
        return False
    return answer.needs != "eu_decimal" or (gold.node.op == "num" and bool(gold.node.places))


def _whole(text: str) -> int:
    return int(text.partition(".")[0].replace(",", ""))


def _leads_with_zero(text: str) -> bool:
    digits = text.strip().lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()


@lru_cache(maxsize=4096)
def _symbols(text: str, policies: Policies) -> tuple[str, ...]:
    """The text in symbols, without its typesetting; texts with the same symbols say the same."""
    plain = unwrap(plain_characters(text))
    try:
        tokens = tokenize(
            plain,
            space_grouping=policies.space_grouping,
            thin_space_grouping=policies.thin_space_grouping,
        )
    except Unparsed:
        return (" ".join(plain.split()),)
    return tuple(token.text for token in tokens) if tokens else (plain,)


def check_gold(gold: str, **policies: Any) -> None:
    """Whether a gold answer can be graded against: it can be read, and equals itself.

    Raises:
        ValueError: If it cannot; the message says why.
    """
    conventions = policies_from(policies)
    text = gold.strip()
    try:
        readings = read_answer(text, conventions)
    except Unparsed as error:
        raise ValueError(f"the gold answer {gold[:200]!r} cannot be read: {error}") from None
    except _TOO_DEEP:
        raise ValueError(f"the gold answer {gold[:200]!r} is nested too deeply") from None
    if Comparison(conventions).same(readings[0].node, readings[0].node) is False:
        raise ValueError(f"the gold answer {gold[:200]!r} does not equal itself")
