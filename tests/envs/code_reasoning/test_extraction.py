"""Where a response's code stands."""

from __future__ import annotations

import pytest

from envs.code_reasoning.extraction import extract_code, fenced

F, G = "def f(x): return x", "def g(x): return x"


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (block(F), F),
        (f"Here it is.\n{block(F)}\nIt returns x.", F),
        (block(F, ""), F),
        (block(F, "py"), F),
        (block(F, "Python3"), F),
        (block(F, "{.python}"), F),
        (f"First {G}:\n{block(G)}\nBetter:\n{block(F)}", F),
        (f"{block(F)}\nIt prints\n{block('1', 'text')}", F),
        (f"<think>{block(G)}</think>\n{block(F)}", F),
        (f"Some template opened the thought. {block(G)}</think>{block(F)}"
         .replace("</think>", "</think>\n"), F),
        (f"~~~python\n{F}\n~~~", F),
        (f"````python\n{F}\ns = '''\n```\n'''\n````", f"{F}\ns = '''\n```\n'''"),
        (f"   ```python\n{F}\n   ```", F),
        (f"```python\n{F}", F),
        (F, F),
        (f"  {F}\n", F),
        ("import os\nf = os.getcwd", "import os\nf = os.getcwd"),
        ("@staticmethod\ndef f(): pass", "@staticmethod\ndef f(): pass"),
    ],
)  # fmt: skip
def test_code_is_found(response, code):
    found = extract_code(response)
    assert found is not None
    assert found.strip("\n") == code


@pytest.mark.parametrize(
    "response",
    ["", "  \n", "I do not know.", "f(x) = x", f"<think>{block(F)}", "<think>only</think>",
     "```python\n```", block("  "), block("ls", "bash"), "The definition of f: return x"],
)  # fmt: skip
def test_no_code_is_none(response):
    assert extract_code(response) is None


def test_all_blocks_in_order():
    text = f"{block(F)}\n{block('x', 'text')}\n```\ny"
    assert fenced(text) == [("python", F + "\n"), ("text", "x\n"), ("", "y")]


@pytest.mark.parametrize("text", ["```\n" * 20_000, "`" * 60_000, "~~~\n```\n" * 10_000,
                                  "```python\n" + "`` `" * 15_000, "<think>" * 8_000])  # fmt: skip
def test_hostile_text_ends(text):
    extract_code(text)
