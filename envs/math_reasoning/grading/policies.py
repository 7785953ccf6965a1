"""Conventions on which honest graders differ; each is an argument of ``grade``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

__all__ = ["Policies", "policies_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    r"""What counts as the same answer where mathematics leaves it open.

    A flag that is True accepts, unless its name says otherwise.

    Attributes:
        leading_zeros: ``042`` is 42.
        number_words: ``twelve`` is 12.
        magnitude_words: ``3 million`` is 3000000.
        inf_words: ``inf`` is infinity.
        space_grouping: ``1 000 000`` is one number.
        thin_space_grouping: ``1\,234`` is one number.
        eu_decimal: ``1,5`` is 1.5 where the gold answer is a decimal.
        require_evaluated: Refuse ``123*456`` where the gold answer is a plain number. Sums and
            products of numbers are arithmetic left undone.
        unevaluated_ok: With ``require_evaluated``, still accept a power, factorial, binomial,
            root, logarithm or rounding of numbers (``2^{10}``, ``5!``).
        decimal_digits: Accept a rounded (or cut off) decimal of an exact gold answer from so many
            significant digits on. None accepts exact answers only.
        gold_precision: Where the gold answer is a decimal, accept a candidate of at least twelve
            digits that rounds to it.
        pi_approx: ``6.28`` is 2 pi, because pi was taken as 3.14.
        percent_bare_number: ``28`` is 28 % (one of the two without the sign).
        percent_as_fraction: ``0.335`` is 33.5 %.
        degree_radian: 60 degrees are pi/3.
        units_optional: ``15 cm`` is 15 (one of the two without a unit).
        unit_conversion: ``2 hours`` are ``120 minutes``.
        ratio_vs_fraction: ``3:5`` is 3/5.
        unordered_list: ``3,2,1`` is ``1,2,3``. Tuples and intervals stay ordered.
        interval_vs_list: ``[1,2]`` is ``1,2``.
        tuple_vs_list: ``(1,2)`` is ``1,2``, in order.
        interval_vs_inequality: ``-2 <= x <= 7`` is ``[-2,7]``.
        column_vs_tuple: A vector set as a matrix is the tuple of its entries.
        drop_lhs: ``2x+1`` is ``y = 2x+1``; ``5`` is ``x = 5``.
        assignment_variable: ``y=5`` is ``x=5``.
        base_conversion: ``11`` is ``1011_2``.
        base_optional: ``2516`` is ``2516_8``.
        mcq_label_with_text: ``C. 42`` is ``C``.
        text_case: ``evelyn`` is ``Evelyn``.
        symbol_product_vs_word: ``a n s w e r`` is ``answer``.
        real_symbols: Variables are real, so that ``|x|`` is ``sqrt(x^2)``.
        prose_in_box: ``\boxed{The answer is 6}`` is 6.
        fbox: ``\fbox`` is a box.
        answer_tag: ``<answer>10</answer>`` is an answer.
        unboxed_ok: A response without box or marker may end with "... is 29."
        multi_box_list: ``\boxed{1} and \boxed{2}`` is the list ``1, 2``.
        multi_box_hack: Several boxes joined by "or" count if the last one is right.
        box_priority: A box outranks a later "final answer is ...".
        first_marker_on_runon: Of ``#### 42`` followed by another question only the first counts.
    """

    leading_zeros: bool = True
    number_words: bool = True
    magnitude_words: bool = True
    inf_words: bool = True
    space_grouping: bool = True
    thin_space_grouping: bool = True
    eu_decimal: bool = True
    require_evaluated: bool = True
    unevaluated_ok: bool = True
    decimal_digits: int | None = 6
    gold_precision: bool = True
    pi_approx: bool = False
    percent_bare_number: bool = True
    percent_as_fraction: bool = True
    degree_radian: bool = False
    units_optional: bool = True
    unit_conversion: bool = True
    ratio_vs_fraction: bool = False
    unordered_list: bool = True
    interval_vs_list: bool = False
    tuple_vs_list: bool = False
    interval_vs_inequality: bool = True
    column_vs_tuple: bool = True
    drop_lhs: bool = True
    assignment_variable: bool = False
    base_conversion: bool = False
    base_optional: bool = False
    mcq_label_with_text: bool = True
    text_case: bool = True
    symbol_product_vs_word: bool = False
    real_symbols: bool = True
    prose_in_box: bool = True
    fbox: bool = True
    answer_tag: bool = True
    unboxed_ok: bool = True
    multi_box_list: bool = True
    multi_box_hack: bool = False
    box_priority: bool = True
    first_marker_on_runon: bool = True

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "decimal_digits":
                if value is not None and (type(value) is not int or value < 1):
                    raise ValueError(
                        f"decimal_digits must be a positive int or None, got {value!r}"
                    )
            elif not isinstance(value, bool):
                raise ValueError(f"{item.name} must be True or False, got {value!r}")


_NAMES = frozenset(item.name for item in fields(Policies))
_DEFAULT = Policies()


def policies_from(given: Mapping[str, Any]) -> Policies:
    """The policies with some arguments changed.

    Raises:
        TypeError: If an argument is unknown; the message lists those that exist.
        ValueError: If a value has the wrong type.
    """
    if not given:
        return _DEFAULT
    unknown = sorted(set(given) - _NAMES)
    if unknown:
        raise TypeError(f"unknown policies {unknown}; known: {', '.join(sorted(_NAMES))}")
    return _made(tuple(sorted(given.items())))


@lru_cache(maxsize=256)
def _made(items: tuple[tuple[str, Any], ...]) -> Policies:
    return Policies(**dict(items))
