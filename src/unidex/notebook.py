"""Progress and log lines in notebooks: shown by default, and switched off by one call."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from unidex import progress

_EVERY_SECONDS = 0.5
_WIDTH = 24


class ProgressLine:
    """One line on standard error that each report overwrites; work of less than half a second shows nothing."""

    @contextmanager
    def task(self, what: str, total: float | None, unit: str) -> Iterator[progress.Advance]:
        """Show a piece of work until it ends."""
        started = last = time.monotonic()
        done, length = 0.0, 0

        def advance(amount: float, note: str = "") -> None:
            nonlocal done, last, length
            done += amount
            now = time.monotonic()
            if now - last < _EVERY_SECONDS:
                return
            last = now
            line = _line(what, done, total, unit, now - started)
            line = f"{line}  {note}" if note else line
            sys.stderr.write(f"\r{line:<{length}}")
            sys.stderr.flush()
            length = len(line)

        try:
            yield advance
        finally:
            if length:
                sys.stderr.write(f"\r{'':<{length}}\r")
                sys.stderr.flush()


def _line(what: str, done: float, total: float | None, unit: str, seconds: float) -> str:
    """A bar, an amount and the time left.

    >>> _line("reading", 50, 100, "texts", 3.0)
    'reading [############            ] 50/100 texts, 3 s left'
    >>> _line("reading", 50, None, "texts", 3.0)
    'reading 50 texts, 3 s'
    """
    if not total:
        return f"{what} {done:,.0f} {unit}, {seconds:.0f} s"
    share = min(done / total, 1.0)
    left = seconds * (1 - share) / max(share, 1e-9)
    amount = f"{share:.0%}" if unit == "%" else f"{done:,.0f}/{total:,.0f} {unit}"
    return f"{what} [{'#' * int(_WIDTH * share):<{_WIDTH}}] {amount}, {left:.0f} s left"


def verbose() -> None:
    """Show progress and log lines on standard error. Notebooks do so from the start."""
    progress.listen_by_default(ProgressLine())
    logger = logging.getLogger("unidex")
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        logger.addHandler(_Handler())
    logger.setLevel(logging.INFO)


def quiet() -> None:
    """Show no progress and no log lines from now on, except warnings."""
    progress.listen_by_default(None)
    logger = logging.getLogger("unidex")
    logger.handlers[:] = [handler for handler in logger.handlers if not isinstance(handler, _Handler)]
    logger.setLevel(logging.WARNING)


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class _Handler(logging.Handler):
    """Log lines on standard error, as it is at that moment: notebooks replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(record.getMessage() + "\n")
