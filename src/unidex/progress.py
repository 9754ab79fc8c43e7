"""Progress of long work, told without knowing who listens.

Lower layers say ``with progress.task("reading", total) as advance: advance(n)``. Nobody listens by default; the
command line installs a listener that draws bars on standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol


class Advance(Protocol):
    """Says how much was done, and perhaps how it goes."""

    def __call__(self, amount: float, note: str = "") -> None:
        """So much more is done; ``note`` stands beside the bar until another does."""


class Listener(Protocol):
    """Whoever shows progress."""

    def task(self, what: str, total: float | None, unit: str) -> AbstractContextManager[Advance]:
        """Begin a piece of work of ``total`` units; the result is called with each amount done."""


_listener: ContextVar[Listener | None] = ContextVar("unidex_progress", default=None)


def listen(listener: Listener | None) -> None:
    """Send progress to ``listener`` from now on, or to nobody."""
    _listener.set(listener)


@contextmanager
def task(what: str, total: float | None = None, *, unit: str = "") -> Iterator[Advance]:
    """A piece of work with a name and, where it is known, a size.

    >>> with task("counting", 10) as advance:
    ...     advance(10)
    """
    listener = _listener.get()
    if listener is None:
        yield _nobody
        return
    with listener.task(what, total, unit) as advance:
        yield advance


def _nobody(amount: float, note: str = "") -> None:
    """Nobody listens."""
