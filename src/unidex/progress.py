"""Progress of long work, reported to a listener if there is one.

Lower layers write ``with progress.task("reading", total) as advance: advance(n)``. There is no listener by default; the
command line installs a listener that draws bars on standard error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol


class Advance(Protocol):
    """Reports an amount of finished work, with an optional note."""

    def __call__(self, amount: float, note: str = "") -> None:
        """``amount`` more is done; ``note`` is shown beside the bar until the next one."""


class Listener(Protocol):
    """Shows progress."""

    def task(self, what: str, total: float | None, unit: str) -> AbstractContextManager[Advance]:
        """Start a piece of work of ``total`` units; the result is called with each finished amount."""


_listener: ContextVar[Listener | None] = ContextVar("unidex_progress", default=None)


_default: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Send progress to ``listener`` from now on; None for no listener."""
    _listener.set(listener)


def listen_by_default(listener: Listener | None) -> None:
    """Send progress to ``listener`` wherever `listen` named no other, in every thread and every cell of a notebook."""
    global _default
    _default = listener


@contextmanager
def task(what: str, total: float | None = None, *, unit: str = "") -> Iterator[Advance]:
    """A piece of work with a name and, where it is known, a size.

    >>> with task("counting", 10) as advance:
    ...     advance(10)
    """
    listener = _listener.get() or _default
    if listener is None:
        yield _ignore
        return
    with listener.task(what, total, unit) as advance:
        yield advance


def _ignore(amount: float, note: str = "") -> None:
    """Do nothing."""
