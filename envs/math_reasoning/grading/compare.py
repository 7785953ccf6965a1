"""Whether two answers are the same: True, False, or None where it is not decided."""

from __future__ import annotations

from collections.abc import Sequence

from envs.math_reasoning.grading.equations import (
    conclude,
    is_name,
    same_equation,
    same_inequality,
)
from envs.math_reasoning.grading.matrices import as_vector, from_rows
from envs.math_reasoning.grading.nodes import Node, contains, num, replace
from envs.math_reasoning.grading.numbers import Judge, equal_quantities, proportional
from envs.math_reasoning.grading.policies import Policies
from envs.math_reasoning.grading.regions import NoRegion, equal_regions, region_of

__all__ = ["Comparison"]

_REGIONS = ("tuple", "set", "union", "setminus", "intersection", "reals", "member", "rel",
            "conditions")  # fmt: skip
_MAX_ITEMS = 60


class Comparison:
    """Compares a gold answer with a candidate.

    Args:
        policies: Conventions.
        judge: Asked about numbers that the rules leave open.
    """

    def __init__(self, policies: Policies, judge: Judge | None = None) -> None:
        self.policies = policies
        self.judge = judge

    def same(self, gold: Node, answer: Node) -> bool | None:
        """Whether the answer says what the gold answer says."""
        gold, answer = _prepared(gold), _prepared(answer)
        return self._same(gold, answer)

    def _same(self, gold: Node, answer: Node) -> bool | None:
        if "rel" in (gold.op, answer.op) or "member" in (gold.op, answer.op):
            return self._relations(gold, answer)
        if "conditions" in (gold.op, answer.op):
            return self._regions(gold, answer)
        if _measurable(gold) and _measurable(answer):
            return self._scalars(gold, answer)
        handler = getattr(self, f"_{gold.op}", None)
        if handler is not None:
            verdict: bool | None = handler(gold, answer)
            return verdict
        return self._mirrored(gold, answer)

    def _mirrored(self, gold: Node, answer: Node) -> bool | None:
        """Kinds that differ where the answer's kind has the rule."""
        if answer.op == "set" and len(answer.args) == 1:
            return self._same(gold, answer.args[0])
        if answer.op == "ratio" and self.policies.ratio_vs_fraction and len(answer.args) == 2:
            return self._same(gold, Node("div", answer.args))
        if answer.op == "based":
            return self._based(answer, gold)
        if answer.op == "list" and answer.value == "or":  # one value in several forms
            return _all([self._same(gold, arg) for arg in answer.args])
        return False

    def _scalars(self, gold: Node, answer: Node) -> bool | None:
        return equal_quantities(gold, answer, self.policies, self.judge)

    # Words --------------------------------------------------------------------------------------

    def _text(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "set" and len(answer.args) == 1:
            answer = answer.args[0]
        return self._words(gold, answer)

    def _words(self, gold: Node, answer: Node) -> bool:
        one, other = _word(gold), _word(answer)
        if one is None or other is None:
            return self.policies.symbol_product_vs_word and _letters(gold) == _letters(answer)
        both_marked = gold.op == answer.op == "text"
        if self.policies.text_case and (len(one) > 1 or both_marked):
            return _without_article(one.lower()) == _without_article(other.lower())
        return one == other

    def _sym(self, gold: Node, answer: Node) -> bool | None:
        return self._words(gold, answer) if answer.op == "text" else self._mirrored(gold, answer)

    def _mul(self, gold: Node, answer: Node) -> bool | None:
        return self._words(gold, answer) if answer.op == "text" else self._mirrored(gold, answer)

    def _const(self, gold: Node, answer: Node) -> bool | None:
        return self._sym(gold, answer)

    def _time(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "ratio" and not any(gold.value[2:]):
            return self._ratio(_as_ratio(gold), answer)
        if answer.op != "time":
            return False
        (hour, *rest, half), (other, *others, other_half) = gold.value, answer.value
        if rest != others:
            return False
        if half and other_half:
            return (hour % 12, half) == (other % 12, other_half)
        if half or other_half:
            marked, bare = (gold, answer) if half else (answer, gold)
            clock = marked.value[0] % 12 + (12 if marked.value[3] == "p" else 0)
            return bare.value[0] in (clock, marked.value[0])
        return bool(hour == other)

    # Lists and sets -----------------------------------------------------------------------------

    def _list(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "list":
            ordered = not self.policies.unordered_list or contains(gold, "dots")
            return self._each(gold, answer) if ordered else self._matched(gold.args, answer.args)
        if answer.op == "set":
            return self._matched(gold.args, answer.args)
        if answer.op == "tuple":
            return self._list_as_tuple(gold, answer)
        return False

    def _list_as_tuple(self, gold: Node, answer: Node) -> bool | None:
        names = [arg.args[0] for arg in gold.args if arg.op == "rel" and set(arg.value) == {"="}]
        if len(names) == len(gold.args) and all(name.op == "sym" for name in names):
            order = [name.value for name in names]
            if order == sorted(order) and self.policies.drop_lhs:
                values = Node("tuple", tuple(arg.args[1] for arg in gold.args), "()")
                return self._tuple(values, answer)
        allowed = (
            self.policies.interval_vs_list if answer.value == "[]" else self.policies.tuple_vs_list
        )
        return self._each(gold, answer) if allowed else False

    def _set(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "set":
            return self._both_ways(gold.args, answer.args)
        if answer.op == "list":
            return self._matched(gold.args, answer.args)
        if answer.op in ("union", "setminus", "intersection"):
            return self._regions(gold, answer)
        return self._same(gold.args[0], answer) if len(gold.args) == 1 else False

    def _both_ways(self, gold: Sequence[Node], answer: Sequence[Node]) -> bool | None:
        """Sets: every member of one is a member of the other."""
        if max(len(gold), len(answer)) > _MAX_ITEMS:
            return None
        table = [[self._same(g, a) for a in answer] for g in gold]
        rows = [_any(row) for row in table]
        columns = [_any([row[place] for row in table]) for place in range(len(answer))]
        return _all([*rows, *columns])

    def _matched(self, gold: Sequence[Node], answer: Sequence[Node]) -> bool | None:
        """Lists in any order: each item has a partner of its own."""
        if len(gold) != len(answer):
            return False
        if len(gold) > _MAX_ITEMS:
            return None
        left = list(answer)
        undecided = False
        for item in gold:
            verdicts = [self._same(item, other) for other in left]
            if True in verdicts:
                left.pop(verdicts.index(True))
            elif None in verdicts:
                left.pop(verdicts.index(None))
                undecided = True
            else:
                return False
        return None if undecided else True

    def _each(self, gold: Node, answer: Node) -> bool | None:
        """Item by item, in order."""
        if len(gold.args) != len(answer.args):
            return False
        return _all([self._same(*pair) for pair in zip(gold.args, answer.args, strict=True)])

    def _dots(self, gold: Node, answer: Node) -> bool | None:
        return answer.op == "dots"

    # Tuples, matrices, regions ------------------------------------------------------------------

    def _tuple(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "tuple":
            same = gold.value == answer.value or {gold.value, answer.value} == {"()", "⟨⟩"}
            if not same:
                return False
            return self._each(gold, answer)
        if answer.op == "matrix":
            if from_rows(gold) is not None:
                return self._matrix(_or(from_rows(gold), gold), answer)
            vector = as_vector(answer) if self.policies.column_vs_tuple else None
            return self._tuple(gold, vector) if vector is not None else False
        if answer.op == "list":
            names = [arg.args[0] for arg in answer.args if arg.op == "rel"]
            if len(names) == len(answer.args):
                return self._list_as_tuple(answer, gold)
            allowed = (
                self.policies.interval_vs_list
                if gold.value == "[]"
                else self.policies.tuple_vs_list
            )
            return self._each(gold, answer) if allowed else False
        return self._regions(gold, answer)

    def _matrix(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "matrix":
            return self._each(gold, answer) if gold.value == answer.value else False
        rows = from_rows(answer)
        if rows is not None:
            return self._matrix(gold, rows)
        vector = as_vector(gold)
        if vector is None or answer.op != "tuple" or not self.policies.column_vs_tuple:
            return False
        return self._tuple(vector, answer)

    def _regions(self, gold: Node, answer: Node) -> bool | None:
        if gold.op not in _REGIONS or answer.op not in _REGIONS:
            return False
        conditions = ("rel", "conditions")
        mixed = (gold.op in conditions) != (answer.op in conditions)
        if mixed and not self.policies.interval_vs_inequality:
            return False
        try:
            (left, name), (right, other) = region_of(gold), region_of(answer)
        except NoRegion:
            return None if gold.op == answer.op else False
        if name and other and name != other and not self.policies.assignment_variable:
            return False
        return equal_regions(left, right)

    def _union(self, gold: Node, answer: Node) -> bool | None:
        return self._regions(gold, answer)

    _setminus = _intersection = _reals = _union

    def _ratio(self, gold: Node, answer: Node) -> bool | None:
        if answer.op == "time" and len(gold.args) == 2 and not any(answer.value[2:]):
            answer = _as_ratio(answer)
        if answer.op == "ratio":
            if contains(gold, "dots") or contains(answer, "dots"):
                return self._each(gold, answer)
            if not all(arg.scalar for arg in (*gold.args, *answer.args)):
                return self._each(gold, answer)
            return proportional(gold.args, answer.args)
        if self.policies.ratio_vs_fraction and len(gold.args) == 2:
            return self._same(Node("div", gold.args), answer)
        return False

    def _based(self, gold: Node, answer: Node) -> bool | None:
        digits, base = gold.value
        if answer.op == "based":
            if (digits, base) == answer.value:
                return True
            other, other_base = answer.value
            return self.policies.base_conversion and int(digits, base) == int(other, other_base)
        if not answer.scalar:
            return False
        if self.policies.base_optional and answer == num(int(digits) if digits.isdigit() else -1):
            return True
        return self.policies.base_conversion and self._same(num(int(digits, base)), answer)

    # Relations ----------------------------------------------------------------------------------

    def _relations(self, gold: Node, answer: Node) -> bool | None:
        if gold.op == answer.op == "rel":
            return self._two_relations(gold, answer)
        if "member" in (gold.op, answer.op):
            return self._memberships(gold, answer)
        relation, other = (gold, answer) if gold.op == "rel" else (answer, gold)
        if not set(relation.value) <= {"=", "≈"}:
            return self._regions(gold, answer) if other.op in _REGIONS else False
        if other.op == "conditions":
            return self._regions(gold, answer)
        concluded = conclude(relation)
        if concluded is None or (relation is gold and not self.policies.drop_lhs):
            return False
        if relation is gold and concluded.name is not None and not is_name(concluded.name):
            return False  # an equation is no expression
        verdicts = [
            self._same(value, other) if relation is gold else self._same(other, value)
            for value in map(_prepared, concluded.values)
        ]
        return _any(verdicts)

    def _two_relations(self, gold: Node, answer: Node) -> bool | None:
        equal = [set(node.value) <= {"=", "≈"} for node in (gold, answer)]
        if equal != [True, True]:
            if any(equal):
                return False
            verdict = self._regions(gold, answer)
            return same_inequality(gold, answer) if verdict is None else verdict
        one, other = conclude(gold), conclude(answer)
        if one is not None and other is not None and one.name is not None:
            if other.name is None and self.policies.drop_lhs:
                return _any([self._same(v, w) for v in one.values for w in other.values])
            if other.name is not None and is_name(one.name) and is_name(other.name):
                named = self._same(one.name, other.name)
                if named or self.policies.assignment_variable:
                    verdict = _any([
                        self._same(v, w)
                        for v in map(_prepared, one.values)
                        for w in map(_prepared, other.values)
                    ])  # fmt: skip
                    if verdict or not (gold.args[0].scalar and answer.args[0].scalar):
                        return verdict
        verdict = same_equation(gold, answer)
        return verdict if verdict is not None else False

    def _memberships(self, gold: Node, answer: Node) -> bool | None:
        if gold.op == answer.op == "member":
            if not (self._same(gold.args[0], answer.args[0]) or self.policies.assignment_variable):
                return False
            return self._same(gold.args[1], answer.args[1])
        member, other = (gold, answer) if gold.op == "member" else (answer, gold)
        inner = member.args[1]
        if other.op == "rel":
            return self._regions(gold, answer)
        if not self.policies.drop_lhs:
            return False
        return self._same(inner, other) if member is gold else self._same(other, inner)


def _prepared(node: Node) -> Node:
    """Both signs written out; several assignments to one variable as one."""
    if node.op in ("list", "set"):
        items: list[Node] = []
        for arg in node.args:
            inner = _prepared(arg)
            items.extend(inner.args if inner.op == "list" else (inner,))
        return _gathered(Node(node.op, tuple(items), node.value))
    if node.op == "rel":
        sides = tuple(_prepared(arg) for arg in node.args)
        if (
            node.value == ("=",)
            and sides[0].op == sides[1].op == "tuple"
            and len(sides[0].args) == len(sides[1].args)
            and all(arg.op == "sym" for arg in sides[0].args)
        ):
            pairs = zip(sides[0].args, sides[1].args, strict=True)
            return Node("list", tuple(Node("rel", pair, ("=",)) for pair in pairs))
        return Node("rel", sides, node.value)
    if node.op == "member":
        name, region = node.args
        region = _prepared(region)
        if region.op == "set" and region.args:
            return Node("rel", (name, Node("list", region.args)), ("=",))
        return Node("member", (name, region))
    if node.op in ("tuple", "union", "matrix"):
        return Node(node.op, tuple(_prepared(arg) for arg in node.args), node.value)
    if node.scalar and contains(node, "pm", "mp"):
        return Node("list", (replace(node, 1), replace(node, -1)))
    return node


def _gathered(node: Node) -> Node:
    """``x=1, x=2`` as ``x = 1, 2``."""
    names = {arg.args[0] for arg in node.args if arg.op == "rel" and arg.value == ("=",)}
    assigned = all(arg.op == "rel" and arg.value == ("=",) for arg in node.args)
    if node.op == "list" and assigned and len(names) == 1 and len(node.args) > 1:
        (name,) = names
        if name.op == "sym":
            values: list[Node] = []
            for arg in node.args:
                values.extend(arg.args[1].args if arg.args[1].op == "list" else (arg.args[1],))
            return Node("rel", (name, Node("list", tuple(values))), ("=",))
    return node


def _as_ratio(node: Node) -> Node:
    """``6:10`` of the clock as the ratio that is written alike."""
    return Node("ratio", tuple(num(part) for part in node.value[:2]))


def _measurable(node: Node) -> bool:
    return node.scalar or node.op == "quantity"


def _word(node: Node) -> str | None:
    if node.op == "text":
        return str(node.value).strip()
    if node.op == "sym" or (node.op == "const" and node.value != "inf"):
        return str(node.value).removeprefix("text ")
    return None


def _letters(node: Node) -> str | None:
    """The letters of a product or a word, without blanks."""
    if node.op == "mul":
        parts = [_word(arg) for arg in node.args]
        return "".join(part for part in parts if part) if None not in parts else None
    word = _word(node)
    return None if word is None else word.replace(" ", "")


def _without_article(text: str) -> str:
    first, _, rest = text.strip(" .'-").partition(" ")
    return rest if first in ("a", "an", "the") and rest else text.strip(" .'-")


def _or(node: Node | None, otherwise: Node) -> Node:
    return otherwise if node is None else node


def _all(verdicts: Sequence[bool | None]) -> bool | None:
    return False if False in verdicts else None if None in verdicts else True


def _any(verdicts: Sequence[bool | None]) -> bool | None:
    return True if True in verdicts else None if None in verdicts else False
