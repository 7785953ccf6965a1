"""What a run shows while it goes on: a live table in a terminal, plain lines anywhere else.

Showing must never stop a training run: whatever goes wrong with the terminal, the console falls
back to plain lines, and from there to silence.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TextIO, get_args

from agentgym.statistics import wilson_interval
from trainers.metrics import MetricValue, describe, describe_eval, format_metric, format_number

__all__ = ["DEFAULT_COLUMNS", "Console", "Mode", "printable"]

Mode = Literal["auto", "live", "plain", "quiet"]

# Most telling first: a narrow terminal shows those for which it has room.
DEFAULT_COLUMNS: tuple[str, ...] = (
    "phase",
    "reward_mean",
    "success_rate",
    "turns_mean",
    "invalid_action_rate",
    "skill_ema",
    "explained_variance",
    "entropy",
    "loss_policy",
    "grad_norm_actor",
    "step_s",
)

_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ROWS = 12


class Console:
    """Shows a run's progress; use it as a context manager.

    In ``auto`` mode the table is live if the stream is a terminal that can do it and rich is
    installed, unless ``NO_COLOR`` or ``CI`` is set; otherwise each step is one line.

    Args:
        total_steps: Learner steps planned, or None if open-ended.
        columns: Metrics to show; one that a run never logs takes no place.
        first_step: Steps done before this session (a resumed run), for the time estimate.
        mode: ``auto``, ``live``, ``plain`` or ``quiet``.
        title: Heading, for instance the algorithm and environment.
        stream: Where to write; standard output by default.

    Raises:
        MetricError: A column is not a metric's name.
        ImportError: Mode ``live`` without rich.
    """

    def __init__(
        self,
        total_steps: int | None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        first_step: int = 0,
        mode: Mode = "auto",
        title: str = "",
        stream: TextIO | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"console mode must be one of {get_args(Mode)}, got {mode!r}")
        for column in columns:
            describe(column)
        self._stream = sys.stdout if stream is None else stream
        self._columns = tuple(columns)
        self._total = total_steps
        self._first = first_step
        self._title = printable(title)
        self._mode: Mode = _choose(self._stream) if mode == "auto" else mode
        self._screen: _Screen = _Silent()
        self._began = time.monotonic()
        self._phase: MetricValue | None = None
        self._wanted = mode

    @property
    def mode(self) -> Mode:
        """How it shows now: ``live``, ``plain`` or ``quiet``."""
        return self._mode

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._mode == "live":
            try:
                self._screen = _LiveTable(self)
            except ImportError:
                if self._wanted == "live":
                    raise ImportError(
                        "the live table needs the package rich; install it with: "
                        "pip install 'agentgym-suite[cli]'"
                    ) from None
                self._mode = "plain"
            except Exception:
                self._mode = "plain"
        if self._mode == "plain":
            self._screen = _PlainLines(self._stream)
        if self._title:
            self.note(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._try(lambda screen: screen.close())
        self._screen = _Silent()

    def step(self, step: int, metrics: Mapping[str, MetricValue]) -> None:
        """Show a step's row; evaluations and a change of phase get a line of their own."""
        eta = self._eta(step)
        cells = [(describe(name).label, _cell(name, metrics)) for name in self._columns]
        self._try(lambda screen: screen.row(step, self._total, cells, eta))
        for line in _evaluations(metrics):
            self.note(f"step {step}: {line}")
        phase = metrics.get("phase")
        if phase is not None and self._phase is not None and phase != self._phase:
            forced = " (forced by the step limit)" if metrics.get("forced") else ""
            self.note(f"step {step}: phase {self._phase} -> {phase}{forced}")
        self._phase = self._phase if phase is None else phase

    def note(self, text: str) -> None:
        """Show a line of text. Control characters in it are made visible, not obeyed."""
        clean = printable(text)
        self._try(lambda screen: screen.note(clean))

    def table(
        self, title: str, rows: Sequence[Mapping[str, object]] | Sequence[Sequence[object]]
    ) -> None:
        """Show a small table.

        Args:
            title: Heading.
            rows: Mappings (their keys are the columns), or sequences of which the first holds the
                column names.
        """
        grid = _grid(rows)
        clean = printable(title)
        self._try(lambda screen: screen.table(clean, grid))

    def _eta(self, step: int) -> str:
        if self._total is None or step <= self._first:
            return ""
        left = max(self._total - step, 0)
        return _duration((time.monotonic() - self._began) / (step - self._first) * left)

    def _try(self, action: Callable[[_Screen], None]) -> None:
        try:
            action(self._screen)
        except Exception:  # the terminal's trouble, whatever it is, must not end the training
            failed, self._screen = self._screen, _Silent()
            if not isinstance(failed, _LiveTable):
                self._mode = "quiet"
                return
            with contextlib.suppress(Exception):
                failed.close()
            with contextlib.suppress(Exception):
                self._stream.write("\x1b[?25h")  # the cursor, in case closing failed
            self._screen, self._mode = _PlainLines(self._stream), "plain"
            self._try(action)


class _Screen(Protocol):
    def row(
        self, step: int, total: int | None, cells: Sequence[tuple[str, str]], eta: str
    ) -> None: ...

    def note(self, text: str) -> None: ...

    def table(self, title: str, grid: list[list[str]]) -> None: ...

    def close(self) -> None: ...


class _Silent:
    def row(self, step: int, total: int | None, cells: Sequence[tuple[str, str]], eta: str) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def table(self, title: str, grid: list[list[str]]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing to close."""


class _PlainLines:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def row(self, step: int, total: int | None, cells: Sequence[tuple[str, str]], eta: str) -> None:
        of = "" if total is None else f"/{total}"
        parts = [f"step {step}{of}", *(f"{label} {value}" for label, value in cells if value)]
        self._print("  ".join([*parts, f"eta {eta}"] if eta else parts))

    def note(self, text: str) -> None:
        self._print(text)

    def table(self, title: str, grid: list[list[str]]) -> None:
        self._print(title)
        if not grid:
            return
        widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
        for number, row in enumerate(grid):
            cells = [
                cell.rjust(width) if number and _is_number(cell) else cell.ljust(width)
                for cell, width in zip(row, widths, strict=True)
            ]
            self._print("  " + "  ".join(cells).rstrip())

    def close(self) -> None:
        self._stream.flush()

    def _print(self, text: str) -> None:
        try:
            self._stream.write(text + "\n")
        except UnicodeEncodeError as error:
            self._stream.write(
                text.encode(error.encoding, "backslashreplace").decode(error.encoding) + "\n"
            )
        self._stream.flush()


class _LiveTable:
    """Recent steps, redrawn in place above a progress bar (rich)."""

    def __init__(self, owner: Console) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._console = RichConsole(file=owner._stream, force_terminal=True, highlight=False)
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("{task.fields[eta]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=owner._total, completed=owner._first, eta="")
        height = self._console.size.height
        self._rows: deque[tuple[int, dict[str, str]]] = deque(maxlen=max(1, min(_ROWS, height - 8)))
        self._seen: set[str] = set()
        self._live = Live(self._progress, console=self._console, refresh_per_second=4)
        self._live.start()

    def row(self, step: int, total: int | None, cells: Sequence[tuple[str, str]], eta: str) -> None:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        self._rows.append((step, dict(cells)))
        self._seen.update(label for label, value in cells if value)
        labels = self._fitting([label for label, _ in cells if label in self._seen])
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.add_column("step", justify="right", style="dim")
        for label in labels:
            table.add_column(Text(label), justify="right", no_wrap=True)
        for number, row in self._rows:
            table.add_row(str(number), *(Text(row.get(label, "")) for label in labels))
        left = f"{eta} left" if eta and eta != "0s" else ""
        self._progress.update(self._task, completed=step, total=total, eta=left)
        self._live.update(Group(table, self._progress))

    def _fitting(self, labels: list[str]) -> list[str]:
        """The first columns for which the terminal is wide enough."""
        room = self._console.width - 8
        kept = []
        for label in labels:
            room -= 2 + max(len(label), *(len(row.get(label, "")) for _, row in self._rows))
            if room < 0:
                break
            kept.append(label)
        return kept

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text))

    def table(self, title: str, grid: list[list[str]]) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD)
        header, *rows = grid or [[]]
        for i, name in enumerate(header):
            numeric = bool(rows) and all(_is_number(row[i]) for row in rows)
            table.add_column(Text(name), justify="right" if numeric else "left")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._console.print(table)

    def close(self) -> None:
        self._live.stop()


def printable(text: str) -> str:
    """Make control characters, bidirectional overrides and lone surrogates visible.

    Model output is shown in terminals: an escape sequence in it must not be obeyed. Line feeds
    and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or not (unicodedata.category(char) in ("Cc", "Cs") or char in _BIDI)
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def _choose(stream: TextIO) -> Mode:
    try:
        is_terminal = stream.isatty()
    except (AttributeError, ValueError, OSError):
        is_terminal = False
    plain = (
        not is_terminal
        or bool(os.environ.get("NO_COLOR"))
        or os.environ.get("CI", "").lower() not in ("", "0", "false")
        or os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
        # Box characters and the ellipsis of cut cells need Unicode.
        or not (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")
    )
    return "plain" if plain else "live"


def _cell(name: str, metrics: Mapping[str, MetricValue]) -> str:
    return printable(format_metric(name, metrics[name], 3)) if name in metrics else ""


def _evaluations(metrics: Mapping[str, MetricValue]) -> list[str]:
    """One text for each split and mode that was evaluated."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in metrics.items():
        place = describe_eval(name)
        if place is not None and isinstance(value, int | float):
            found.setdefault(place[:2], {})[place[2]] = value
    lines = []
    for (split, mode), numbers in found.items():
        parts = [f"eval {split} {mode}:"]
        if "success" in numbers:
            parts.append(f"success {100 * numbers['success']:.1f}%")
            if numbers.get("n", 0) >= 1:
                low, high = wilson_interval(numbers["success"], int(numbers["n"]))
                parts.append(f"[{100 * low:.1f}, {100 * high:.1f}] n={int(numbers['n'])}")
        for key in ("score", "turns"):
            if key in numbers:
                parts.append(f"{key} {format_number(numbers[key], 3)}")
        if "first_result_share" in numbers:
            parts.append(f"first result {100 * numbers['first_result_share']:.1f}%")
        lines.append("  ".join(parts))
    return lines


def _grid(
    rows: Sequence[Mapping[str, object]] | Sequence[Sequence[object]],
) -> list[list[str]]:
    mappings = [row for row in rows if isinstance(row, Mapping)]
    table: list[list[Any]]
    if mappings:
        header = list(dict.fromkeys(key for row in mappings for key in row))
        table = [header, *([row.get(key, "") for key in header] for row in mappings)]
    else:
        table = [list(row) for row in rows if not isinstance(row, Mapping)]
    width = max((len(row) for row in table), default=0)
    return [
        [
            format_number(cell) if isinstance(cell, float) else printable(str(cell))
            for cell in (*row, *[""] * (width - len(row)))
        ]
        for row in table
    ]


def _is_number(cell: str) -> bool:
    return bool(cell) and (cell[0].isdigit() or cell[0] in "+-." or cell in ("nan", "inf"))


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
