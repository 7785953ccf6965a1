"""Search and pages: the only net there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.agencybench.scenario import Service
from envs.agencybench.scenarios.harbour.corpus import Registry
from envs.webshop.search import BM25Index

__all__ = ["Pages"]

_HITS = 8


class Pages(Service):
    """``web_search`` and ``web_fetch`` over the registry's documents; nothing changes here."""

    tools = frozenset({"web_search", "web_fetch"})

    def __init__(self, registry: Registry) -> None:
        self._documents = {document.id: document for document in registry.documents}
        texts = [f"{d.title} {d.kind} {d.text}" for d in registry.documents]
        self._index = BM25Index(texts, list(self._documents))
        self._ids = list(self._documents)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Search, or fetch a document."""
        if tool == "web_search":
            places, _ = self._index.top(arguments["query"][:500], _HITS)
            hits = [self._documents[self._ids[int(place)]] for place in places]
            if not hits:
                return "(nothing found)"
            return "\n".join(f"{d.id} | {d.kind} | {d.date} | {d.title}" for d in hits)
        name = arguments["url"].strip().removeprefix("harbour://").strip("/")
        document = self._documents.get(name)
        if document is None:
            raise ValueError(f"there is no document {name!r}; ids look like doc-07")
        return (
            f"id: {document.id}\nkind: {document.kind}\ndate: {document.date}\n"
            f"title: {document.title}\n\n{document.text}"
        )
