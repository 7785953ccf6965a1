"""Reading planning problems: sections, typed objects, facts, and nested expressions.

Only what game files use of PDDL is read. Identifiers are case-insensitive and come out in lower
case, as planners see them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

__all__ = ["Facts", "GameError", "Tree", "read_facts", "read_objects", "read_tree", "sections"]

#: Predicate to the facts that state it, each a list of the predicate's own token and the
#: arguments. The same fact may be there twice.
Facts = Mapping[str, list[list[str]]]
#: A symbol, or a list of trees.
Tree = str | list["Tree"]

# The first pattern, which fits all official files, is found much faster.
_SECTIONS = re.compile(r"\(:([a-z-]+)"), re.compile(r"\(\s*:([a-z-]+)")
_TOKEN = re.compile(r"[()]|[^\s()]+")


class GameError(ValueError):
    """A game that cannot be played; the message says what is wrong and what would be right."""


def sections(text: str) -> dict[str, str]:
    """The bodies of ``(:name ...)`` at the top of a problem, in lower case, without comments.

    A body runs to the next section, so the last ones carry closing parentheses too many.

    Raises:
        GameError: If a section stands twice.
    """
    text = text.lower()
    if ";" in text:
        text = "\n".join(line.partition(";")[0] for line in text.split("\n"))
    found: dict[str, str] = {}
    for pattern in _SECTIONS:
        marks = list(pattern.finditer(text))
        if {"objects", "init", "goal"} <= {mark[1] for mark in marks}:
            break
    for mark, end in zip(marks, [*(m.start() for m in marks[1:]), len(text)], strict=True):
        if mark[1] in found:
            raise GameError(f"the problem has two sections (:{mark[1]} ...)")
        found[mark[1]] = text[mark.end() : end]
    return found


def read_objects(body: str) -> dict[str, str]:
    """Name to type, from the typed list of the ``:objects`` section.

    Raises:
        GameError: If a name stands twice or has no type.
    """
    listed = body.replace(")", " ").split()
    if listed[1::3] == ["-"] * (len(listed) // 3) and len(listed) % 3 == 0:
        kinds = dict(zip(listed[::3], listed[2::3], strict=True))  # one name a type, as always
        if len(kinds) == len(listed) // 3:
            return kinds
    kinds = {}
    pending: list[str] = []
    words = iter(listed)
    for word in words:
        if word != "-":
            pending.append(word)
            continue
        kind = next(words, None)
        if kind is None or not pending:
            raise GameError("the :objects section is not a list of 'names - type'")
        for name in pending:
            if name in kinds:
                raise GameError(f"object {name!r} is declared twice")
            kinds[name] = kind
        pending = []
    if pending:
        raise GameError(f"object {pending[0]!r} is declared without a type")
    return kinds


def read_facts(body: str) -> Facts:
    """The facts of the ``:init`` section; numeric ones (``=``) are left out.

    Raises:
        GameError: If the section is malformed.
    """
    *chunks, rest = body.split(")")
    if rest.strip():
        raise GameError(f"the :init section ends within a fact: {rest.strip()[:60]!r}")
    # Official files state a third of their facts twice; equal texts are read once.
    facts: defaultdict[str, list[list[str]]] = defaultdict(list)
    blanks = 0
    for chunk in set(chunks):
        words = chunk.split()
        if words:
            facts[words[0]].append(words)
        else:
            blanks += chunks.count(chunk)
    # Every text must be "(predicate arguments": one parenthesis each, at the start.
    if body.count("(") != len(chunks) - blanks or not all(
        head[0] == "(" and head != "(" for head in facts
    ):
        return _read_nested_facts(body)
    return {head[1:]: rows for head, rows in facts.items()}


def _read_nested_facts(body: str) -> Facts:
    """As :func:`read_facts`, for sections with numeric or negated facts."""
    facts: defaultdict[str, list[list[str]]] = defaultdict(list)
    depth = 0
    for at, character in enumerate(body):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            body = body[:at]
            break
    for fact in read_tree(f"({body})"):
        if isinstance(fact, str) or not fact:
            raise GameError(f"the :init section holds {fact!r}, which is no fact")
        if fact[0] in ("=", "not"):  # a fact that is not stated is false anyway
            continue
        words = [word for word in fact if isinstance(word, str)]
        if len(words) != len(fact):
            raise GameError(f"the :init section holds {fact!r}, which is no plain fact")
        facts[words[0]].append(words)
    return facts


def read_tree(text: str) -> list[Tree]:
    """The first parenthesised expression of ``text``, as nested lists of symbols.

    Raises:
        GameError: If there is none, or it does not end.
    """
    stack: list[list[Tree]] = []
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token != ")":
            if not stack:
                raise GameError(f"expected '(', got {token!r}")
            stack[-1].append(token)
        elif not stack:
            raise GameError("there is a ')' too many")
        else:
            done = stack.pop()
            if not stack:
                return done
            stack[-1].append(done)
    raise GameError("an expression is cut short: a ')' is missing")
