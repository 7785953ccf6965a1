"""Looking at pages: Chromium, driven by Selenium, in the sandbox without a network."""

from __future__ import annotations

import base64
import importlib.util
import json
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agentgym.sandbox import Limits, SandboxError, Status
from envs.agencybench.assessment import Assessment, Unmet, inside

__all__ = [
    "Answer",
    "Picture",
    "browse",
    "browser_missing",
    "colour_of",
    "keep",
    "look",
    "need",
    "read_png",
    "screens",
    "value_of",
]

_PROGRAMS = ("/usr/bin/chromium", "/usr/bin/chromedriver")
_LIMITS = Limits(memory=3 << 30, address_space=0, processes=400, open_files=2048, report=16 << 20)
#: Wall-clock seconds that a page may take for one step before it counts as hanging, and of a whole
#: look before the browser is killed from outside, which is no fault of the page.
PATIENCE = 25.0
MOST_SECONDS = 300.0
#: Seconds of one step that no machine takes by itself.
_SLOW = 10.0


@cache
def browser_missing() -> str | None:
    """What a look at a page lacks here, or None."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed; it comes with: pip install 'agentgym-suite[browser]'"
    absent = [program for program in _PROGRAMS if not Path(program).exists()]
    return f"{', '.join(absent)} not found (Debian: chromium, chromium-driver)" if absent else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one step: a value, or an error of the page or the driver."""

    value: Any = None
    error: str | None = None


def browse(
    assessment: Assessment,
    steps: Sequence[Sequence[Any]],
    *,
    viewport: tuple[int, int] = (1280, 720),
    seconds: float = MOST_SECONDS,
    files: Mapping[str, bytes] | None = None,
) -> list[Answer]:
    """Open the workspace in a browser and play steps.

    Steps: ``open PATH``; ``reload``; ``js SCRIPT ARGUMENTS…`` (with ``return``; it speaks with the
    page's own scripts); ``see SCRIPT ARGUMENTS…`` (apart from them, so that they cannot deceive
    it); ``until SCRIPT SECONDS`` and ``await SCRIPT SECONDS`` (whether it came true, as ``js`` and
    as ``see``); ``write PATH TEXT`` (change a file that is served); ``click SELECTOR``; ``tap
    SCRIPT`` (a press of the mouse where the script says: ``[x, y]`` or ``{x, y}`` in the viewport);
    ``focus SELECTOR``; ``keys KEY…``; ``wait SECONDS``; ``viewport WIDTH HEIGHT``; ``screenshot``
    (base64 PNG of the viewport; with ``page`` of the whole page); and ``console`` (what was logged
    since). ``Math.random`` of the page is seeded.

    Returns:
        One answer a step; those that a page that hangs did not let come are errors.

    Raises:
        SandboxError: If the browser does not start, or is ended by no fault of the page.
    """
    payload = {
        "seed": assessment.dice("page").between(1, 2**31),
        "viewport": list(viewport),
        "patience": PATIENCE,
        "steps": [list(step) for step in steps],
    }
    head = "import sys\nsys.path[:] = [p for p in sys.path if p not in ('', '/box')]\n"
    head += f"import json\nPAYLOAD = json.loads({json.dumps(payload)!r})\n"
    result = assessment.sandbox.run(
        head + inside("inside/browser"),
        files=dict(assessment.files if files is None else files),
        report=True,
        limits=_LIMITS.but(seconds=seconds),
    )
    first, *lines = result.report.split(b"\n")
    if result.status is Status.DIED or not first:
        last = result.stderr.strip().splitlines()[-1:] or [result.message]
        raise SandboxError(f"the browser did not start: {last[0][:300]}")
    answers, slowest = [], 0.0
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            break
        slowest = max(slowest, told.get("seconds", 0.0))
        answers.append(Answer(told.get("value"), told.get("error")))
        if told.get("hangs"):
            late = Answer(error="the page hung before")
            return answers + [late] * (len(steps) - len(answers))
    if len(answers) < len(steps):
        # A page that takes all memory, or seconds for each step, has to answer for it.
        greedy = result.status in (Status.MEMORY, Status.DISK, Status.OUTPUT)
        if not greedy and not (result.status is Status.TIMEOUT and slowest > _SLOW):
            raise SandboxError(f"the browser was ended: {result.message}")
        late = Answer(error=f"the page was ended: {result.message}")
        answers += [late] * (len(steps) - len(answers))
    return answers


def look(assessment: Assessment, steps: Sequence[Sequence[Any]], **more: Any) -> list[Answer]:
    """Open ``index.html`` and play steps; one answer for each of them.

    Raises:
        Unmet: If there is no page.
    """
    need("index.html" in assessment.files, "there is no index.html")
    return browse(assessment, [["open", "index.html"], *steps], **more)[1:]


def value_of(answer: Answer) -> Any:
    """The value of an answer.

    Raises:
        Unmet: If it is an error.
    """
    if answer.error is not None:
        raise Unmet(answer.error[:200])
    return answer.value


def need(condition: bool, told: str) -> None:
    """Go on only if something is so.

    Raises:
        Unmet: If not.
    """
    if not condition:
        raise Unmet(told)


def screens(assessment: Assessment) -> Sequence[bytes]:
    """Screenshots of ``index.html`` at two widths, for a vision judge.

    Raises:
        Unmet: If there is no page.
    """
    if "index.html" not in assessment.files:
        raise Unmet("there is no index.html")
    steps: list[list[Any]] = [["open", "index.html"], ["wait", 0.3], ["screenshot"]]
    steps += [["viewport", 375, 720], ["wait", 0.2], ["screenshot"]]
    made = browse(assessment, steps)
    shots = [base64.b64decode(answer.value) for answer in (made[2], made[5]) if answer.value]
    for place, shot in enumerate(shots):
        keep(assessment, f"screen{place}.png", shot)
    return shots


def keep(assessment: Assessment, name: str, content: bytes) -> None:
    """Hand what was made to whoever keeps artefacts."""
    if assessment.keep is not None:
        assessment.keep(f"{assessment.key}/{name}", content)


# Pictures ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: rows of RGB bytes."""

    width: int
    height: int
    rows: tuple[bytes, ...]

    def at(self, x: float, y: float) -> tuple[int, int, int]:
        """Colour of a pixel; the nearest one inside for places outside."""
        row = self.rows[min(self.height - 1, max(0, int(y)))]
        start = 3 * min(self.width - 1, max(0, int(x)))
        return row[start], row[start + 1], row[start + 2]


def colour_of(picture: Picture, box: Sequence[float]) -> tuple[int, int, int]:
    """The colour of most of the pixels in the middle of a box ``[x, y, width, height]``."""
    x, y, width, height = box
    counts: Counter[tuple[int, int, int]] = Counter()
    for row in range(12):
        for column in range(12):
            part = 0.2 + 0.6 * (row + 0.5) / 12, 0.2 + 0.6 * (column + 0.5) / 12
            counts[picture.at(x + width * part[1], y + height * part[0])] += 1
    return counts.most_common(1)[0][0]


def read_png(content: bytes) -> Picture:
    """Read a PNG with 8-bit RGB or RGBA, not interlaced, as browsers write it.

    Raises:
        ValueError: If it is something else.
    """
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG")
    at, packed, header = 8, b"", b""
    while at + 8 <= len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = body
        elif kind == b"IDAT":
            packed += body
        at += size + 12
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colour not in (2, 6) or interlaced:
        raise ValueError(f"a PNG of depth {depth}, colour type {colour} is not read")
    step = 3 if colour == 2 else 4
    data = zlib.decompress(packed)
    length = width * step
    before, rows = bytearray(length), []
    for number in range(height):
        start = number * (length + 1)
        row = bytearray(data[start + 1 : start + 1 + length])
        _unfilter(data[start], row, before, step)
        rows.append(bytes(row) if step == 3 else bytes(b for n, b in enumerate(row) if n % 4 != 3))
        before = row
    return Picture(width, height, tuple(rows))


def _unfilter(kind: int, row: bytearray, before: bytearray, step: int) -> None:
    """Undo a row's filter (PNG specification, section 9)."""
    for n in range(len(row)):
        left = row[n - step] if n >= step else 0
        up = before[n]
        if kind == 1:
            row[n] = (row[n] + left) & 255
        elif kind == 2:
            row[n] = (row[n] + up) & 255
        elif kind == 3:
            row[n] = (row[n] + (left + up) // 2) & 255
        elif kind == 4:
            corner = before[n - step] if n >= step else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda c: abs(guess - c))
            row[n] = (row[n] + nearest) & 255
