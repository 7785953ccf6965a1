"""Nouns of product names, which the type score compares.

The published rewards rest on one tagger (spaCy's ``en_core_web_sm``), and another version of it
finds other nouns in about half of the names. So noun lists are data: they are given, or come
with a generated catalogue, or are computed once at load where spaCy is installed. They are never
approximated.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.webshop.catalogue import CatalogueError

__all__ = ["nouns_by_spacy"]

_MODEL = "en_core_web_sm"
_NOUN_TAGS = frozenset(("NOUN", "PROPN"))


def nouns_by_spacy(names: Sequence[str]) -> list[list[str]]:
    """The lower-cased nouns of each name, repeats kept, as tagged by the installed spaCy.

    Raises:
        CatalogueError: If spaCy or its model is missing; the message says what can be done.
    """
    remedy = (
        "give nouns= (a mapping from product id to nouns, or the path of one in JSON), or install "
        f"the extra: pip install 'agentgym-suite[spacy]' && python -m spacy download {_MODEL}"
    )
    try:
        import spacy
    except ImportError:
        raise CatalogueError(f"product names need noun lists: {remedy}") from None
    try:
        tagger = spacy.load(_MODEL)
    except OSError:
        raise CatalogueError(f"spaCy has no model {_MODEL!r}: {remedy}") from None
    return [
        [token.text.lower() for token in document if token.pos_ in _NOUN_TAGS]
        for document in tagger.pipe(names)
    ]
