"""Where in a response its answer stands. Linear in the response, whatever it holds.

In order: what follows the thinking part; the last box (several joined by "and" or commas are a
list); an answer tag; ``####``; the last "answer is"; a closing sentence that ends in a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentgym.parsing import after_thinking
from envs.math_reasoning.grading.policies import Policies

__all__ = ["boxes", "extract"]

#: Longest answer that is cut out; more can be no answer.
MAX_ANSWER = 4000
_TAIL = 4000

# A run of backslashes is taken as a whole: from each one of it anew would be quadratic.
_SCAN = re.compile(r"(?<!\\)(\\+)(?:(boxed|fbox)(?![A-Za-z])[ \t]*(\{?)|([{}]))?|(?<!\\)([{}])")
_LOST = re.compile(r"(?<![A-Za-z\\])boxed(\s?\{)")
_JOINER = re.compile(
    r"[\s,;$.&]{0,20}(?:\\text\{)?[\s,;$]{0,20}(?:and|or)?[\s,;$}]{0,20}"
    r"(?:[A-Za-z](?:_\{?\d\}?)?\s{0,3}=)?\s{0,3}",
    re.IGNORECASE,
)
_BARE_BOX = re.compile(r"[^\s$}{,;]+")
_RUN_ON = re.compile(
    r"^[ \t]*(?:#+[ \t]*)?(?:question|q|problem|human|user|exercise)[ \t]*\d{0,4}[ \t]*[:.]",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_HASHES = re.compile(r"^[ \t]*####[ \t]*(\S[^\n]*)$", re.MULTILINE)
_INLINE_HASHES = re.compile(r"####[ \t]*([^\s#][^\n]*)")
_MARKER = re.compile(
    r"\b(?:final\s{1,3})?(?:answer|ans)\b[*_ \t]{0,4}"
    r"(?:(?:to|for|of)\s(?:the|this)\s\w{1,20}[ \t]{1,3})?"
    r"(?:is|are|=|:|would be)[*_ \t]{0,4}:?[*_\s]{0,6}|(?:最终)?答案(?:是|为|:|：)+\s{0,3}",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s+[A-Z(\\]|\s*$)|。|(?<=\$)\.(?=\s)")
_ENDS_IN = re.compile(
    r"(?:\b(?:is|are|was|equals?|be|of|has|have|costs?|gets?|makes?|total(?:s|ing)?|only)|[=:])"
    r"\s{0,3}"
    r"(?:exactly\s|about\s)?[*$\\(]{0,4}"
    r"([-−+]?(?:[$€£]\s?)?[-−+]?\d[\d,]{0,30}(?:\.\d{1,20})?(?:/\d{1,10})?\s?%?"
    r"(?:\s[a-zA-Z]{3,20}){0,2})"
    r"[*$\\)]{0,4}[.!]?\s{0,4}$"
)
_REFUSAL = re.compile(
    r"\b(?:cannot|can't|could not|couldn't|unable|don't know|do not know|not sure|give up|unclear|"
    r"impossible to|no idea|not enough)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Box:
    r"""A box in a text.

    Attributes:
        start: Where its command begins.
        end: Where it ends; of an open one, the end of the text.
        content: What it holds, or None where its brace is not closed.
        framed: It is an ``\fbox``.
    """

    start: int
    end: int
    content: str | None
    framed: bool


def boxes(text: str) -> Iterator[Box]:
    """The outermost boxes in order, in one pass over the text."""
    depth = 0
    opened: tuple[int, int, int, bool] | None = None  # start, content, depth, framed
    resume = 0
    for found in _SCAN.finditer(text):
        if found.start() < resume:
            continue
        name, brace = found[2], found[5] or (found[4] if found[4] and not len(found[1]) % 2 else "")
        if name:
            if found[3]:
                if opened is None:
                    opened = (found.start(), found.end(), depth, name == "fbox")
                depth += 1
            elif opened is None:
                bare = _BARE_BOX.match(text, found.end())
                if bare:
                    resume = bare.end()
                    yield Box(found.start(), bare.end(), bare[0].rstrip(".,"), name == "fbox")
        elif brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if opened is not None and depth == opened[2]:
                yield Box(opened[0], found.end(), text[opened[1] : found.start()], opened[3])
                opened = None
    if opened is not None:
        yield Box(opened[0], len(text), None, opened[3])


def extract(response: str, policies: Policies) -> str | None:
    """The answer of a response, or None where it gives none."""
    text = after_thinking(response)
    if text is None or not text.strip():
        return None
    if "boxed" in text and "\\boxed" not in text:  # the backslash was lost
        text = _LOST.sub(r"\\boxed\g<1>", text)
    if "\x08" in text:  # "\boxed" that went through a parser of escapes
        text = text.replace("\x08oxed", "\\boxed")
    found, boxed = _from_boxes(text, policies)
    if boxed and policies.box_priority:
        return found
    for finder in (_from_tag, _from_hashes, _from_marker):
        answer = finder(text, policies)
        if answer is not None:
            return answer[:MAX_ANSWER]
    if boxed:
        return found
    return _from_last_sentence(text) if policies.unboxed_ok else None


def _from_boxes(text: str, policies: Policies) -> tuple[str | None, bool]:
    """The answer in boxes, and whether there are any."""
    seen = [box for box in boxes(text) if policies.fbox or not box.framed]
    if not seen:
        return None, False
    if policies.first_marker_on_runon and len(seen) > 1:
        cut = _RUN_ON.search(text, seen[0].end)
        if cut:
            seen = [box for box in seen if box.start < cut.start()]
    last = seen[-1]
    if last.content is None:
        return None, True
    group, alternatives = [last], False
    for box in reversed(seen[:-1]):
        between = text[box.end : group[0].start]
        if len(between) > 40 or not _JOINER.fullmatch(between) or box.content is None:
            break
        alternatives = alternatives or "or" in between.lower()
        group.insert(0, box)
    contents = [_inside(box.content or "") for box in group]
    if not contents[-1]:
        return None, True
    if len(set(contents)) == 1:
        return contents[0], True
    if not policies.multi_box_list or (alternatives and policies.multi_box_hack):
        return contents[-1], True
    return (" or " if alternatives else ", ").join(contents), True


def _inside(content: str) -> str:
    """The innermost of nested boxes."""
    if "boxed" in content or "fbox" in content:
        for _ in range(20):
            inner = [box.content for box in boxes(content)]
            if not inner or inner[-1] is None:
                break
            content = inner[-1]
    return content.strip()


def _from_tag(text: str, policies: Policies) -> str | None:
    if not policies.answer_tag:
        return None
    opened: int | None = None
    answer: str | None = None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            answer, opened = text[opened : tag.start()].strip(), None
    return answer


def _from_hashes(text: str, policies: Policies) -> str | None:
    found = list(_HASHES.finditer(text)) or list(_INLINE_HASHES.finditer(text))
    if not found:
        return None
    chosen = found[-1]
    if policies.first_marker_on_runon and len(found) > 1:
        cut = _RUN_ON.search(text, found[0].end())
        if cut:
            chosen = [mark for mark in found if mark.start() < cut.start()][-1]
    return chosen[1].strip()


def _from_marker(text: str, policies: Policies) -> str | None:
    marks = list(_MARKER.finditer(text))
    if not marks:
        return None
    chosen = marks[-1]
    if policies.first_marker_on_runon and len(marks) > 1:
        cut = _RUN_ON.search(text, marks[0].end())
        if cut:
            chosen = [mark for mark in marks if mark.start() < cut.start()][-1]
    # "The final answer is: the answer is $7$": what is left is cut at the end of the sentence.
    rest = text[chosen.end() : chosen.end() + MAX_ANSWER].lstrip()
    if rest.startswith("$") and (close := rest.find("$", 1)) > 0:
        inner = rest[1:close]
        if "\n" not in inner and not (inner[:1].isdigit() and inner.endswith(" ")):
            after = _SENTENCE_END.search(rest, close + 1)
            tail = rest[close + 1 : after.start() if after else len(rest)].strip(" .*")
            if not tail:
                return inner.strip()
    if chosen[0].rstrip().endswith("**") and (close := rest.find("**")) > 0:
        return rest[:close].strip().rstrip(".") or None
    end = _SENTENCE_END.search(rest)
    answer = (rest[: end.start()] if end else rest).strip().strip("*_").strip()
    return answer or None


def _from_last_sentence(text: str) -> str | None:
    tail = text.rstrip()[-_TAIL:]
    line = tail.rsplit("\n", 1)[-1]
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", line)[-1]
    if len(sentence) > 600 or _REFUSAL.search(sentence):
        return None
    found = _ENDS_IN.search(sentence)
    return found[1].strip() if found else None
