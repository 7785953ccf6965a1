"""Where in a response its code stands. Linear in the response, whatever it holds.

The last fenced block after the thinking part, of those marked as Python or not marked at all. A
block that is not closed reaches to the end. Without any fence the whole text is the code, if a line
of it begins like code.
"""

from __future__ import annotations

import re

from agentgym.parsing import after_thinking

__all__ = ["extract_code", "fenced"]

_FENCE = re.compile(r"^[ \t]{0,8}(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_PYTHON = frozenset({"", "python", "python3", "py", "py3", "python-3"})
_BEGINS = re.compile(r"^(?:async[ ]def|def|class|from|import|@\w+)\b", re.MULTILINE)


def fenced(text: str) -> list[tuple[str, str]]:
    """Language and content of each fenced block, in order."""
    out: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            out.append((_language(opened), text[opened.end() + 1 : fence.start()]))
            opened = None
    if opened is not None:
        out.append((_language(opened), text[opened.end() + 1 :]))
    return out


def _language(fence: re.Match[str]) -> str:
    return fence[2].strip().split(" ", 1)[0].strip("{}.").lower()


def extract_code(response: str) -> str | None:
    """The code of a response, or None where it gives none."""
    text = after_thinking(response)
    if text is None or not text.strip():
        return None
    if "```" in text or "~~~" in text:
        blocks = [content for language, content in fenced(text) if language in _PYTHON]
        code = blocks[-1] if blocks else ""
    else:
        code = text.strip() if _BEGINS.search(text.strip()) else ""
    return code if code.strip() else None
