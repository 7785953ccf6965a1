"""The only way text gets into a report."""

from __future__ import annotations

from html import escape

from trainers.console import printable

__all__ = ["safe"]


def safe(text: object) -> str:
    """Text for HTML and XML content and attributes.

    Markup characters are escaped; characters that XML forbids, terminal controls and
    bidirectional overrides become visible escape sequences.
    """
    shown = printable(str(text)).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return escape(shown)
