"""Results on standard output, progress and logs on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unidex import progress

_SHOW_AFTER_SECONDS = 1.0
_DRAW_SECONDS = 0.1
_BAR_WIDTH = 18


class ReaderLeftError(Exception):
    """The reader of our output closed it. Typer would turn a BrokenPipeError into exit code 1."""


def print_json(value: Any) -> None:
    """Print one JSON document, or one line of JSON lines."""
    print_text(json.dumps(value, ensure_ascii=False, allow_nan=False))


def print_result(value: Any, as_json: bool, shown: str | Callable[[], None]) -> None:
    """Print a result as JSON, or for a person: one line, or what a function prints."""
    if as_json:
        print_json(value)
    elif isinstance(shown, str):
        print_text(shown)
    else:
        shown()


def print_text(text: str = "") -> None:
    """Print one line."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise ReaderLeftError from None


def print_note(text: str) -> None:
    """Print a sentence beside a table; a comment if the output is piped."""
    print_text(text if sys.stdout.isatty() else f"# {text}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table: drawn on a terminal, tab-separated if the output is piped."""
    if not sys.stdout.isatty():
        if title:
            print_note(title)
        for row in (columns, *rows):
            # A tab or a line end inside a cell would break the table.
            print_text("\t".join(" ".join(str(cell).split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        # Text: the data of a user is never read as markup.
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def install_progress() -> None:
    """Show progress bars on standard error, if that is a terminal."""
    if sys.stderr.isatty():
        progress.listen(_bars)


def install_logging(*, quiet: bool = False) -> None:
    """Show the library's log lines on standard error, or none of them."""
    handler = _LogHandler(_bars)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("unidex")
    logger.handlers[:] = [handler]
    # Without a handler Python itself prints warnings: quiet is a level.
    logger.setLevel(logging.CRITICAL if quiet else logging.INFO)


class _Bars:
    """Progress bars that appear after one second of work; one display for all tasks."""

    def __init__(self) -> None:
        self.display: Any = None

    @contextmanager
    def task(self, what: str, total: float | None, unit: str) -> Iterator[progress.Advance]:
        started = time.monotonic()
        number: Any = None
        done = shown = 0.0
        last_note = ""

        def advance(amount: float, note: str = "") -> None:
            nonlocal number, done, last_note, shown
            done += amount
            last_note = note or last_note
            now = time.monotonic()
            if number is None and now - started > _SHOW_AFTER_SECONDS:
                if self.display is None:
                    self.display = _display()
                    self.display.start()
                number = self.display.add_task(what, total=total, rest="")
            if number is not None and now - shown > _DRAW_SECONDS:
                shown = now
                rest = f"{_amount(done, total, unit)}  {_time_left(now - started, done, total)}  {last_note}".rstrip()
                rest = _fit(rest, what, self.display.console.width)
                self.display.update(number, completed=done, rest=rest, refresh=True)

        try:
            yield advance
        finally:
            if number is not None:
                self.display.remove_task(number)
                if self.display.tasks:
                    self.display.refresh()
                else:
                    self.display.stop()
                    self.display = None


def _amount(done: float, total: float | None, unit: str) -> str:
    if unit == "%":
        return f"{100 * done / total:3.0f}%" if total else ""
    if unit == "B":
        done, total, unit = done / 1e6, None if total is None else total / 1e6, "MB"
    whole = "" if total is None else f"/{total:,.0f}"
    return f"{done:,.0f}{whole} {unit}"


def _time_left(seconds: float, done: float, total: float | None) -> str:
    """The time that is left if the rest goes as fast as the work so far.

    >>> _time_left(30, 1, 4), _time_left(4000, 1, 2), _time_left(30, 0, 4), _time_left(30, 5, None)
    ('1:30 left', '1:06:40 left', '0:30', '0:30')
    """
    left = f"{seconds:.0f}" if not done or not total else f"{seconds * max(0.0, total - done) / done:.0f}"
    minutes, rest = divmod(int(left), 60)
    clock = f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    return f"{clock} left" if done and total else clock


def _fit(rest: str, what: str, width: int) -> str:
    """What stands behind a bar, cut to the width of the terminal.

    >>> _fit("50%  0:10 left  steps: epoch 3", "training", 50)
    '50%  0:10 left  step…'
    """
    room = width - len(what) - _BAR_WIDTH - 3
    return rest if len(rest) <= room else rest[: max(0, room - 1)] + "…"


def _display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=_BAR_WIDTH),
        TextColumn("{task.fields[rest]}", markup=False),
        console=Console(stderr=True),
        transient=True,
        # Drawn by whoever advances a task: a thread that draws on its own may show a bar older than the last one.
        auto_refresh=False,
    )


class _LogHandler(logging.Handler):
    """Log lines on standard error, above the progress bars."""

    def __init__(self, bars: _Bars) -> None:
        super().__init__()
        self._bars = bars

    def emit(self, record: logging.LogRecord) -> None:
        message = self.format(record)
        if self._bars.display is not None:
            self._bars.display.console.print(message, markup=False, highlight=False)
        else:
            sys.stderr.write(message + "\n")


_bars = _Bars()
