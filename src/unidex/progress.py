"""Progress of long work, reported to a listener if there is one.

Lower layers write ``with progress.task("reading", total) as advance: advance(n)``. There is no listener by default; the
command line installs a listener that draws bars on standard error. A verb of several phases plans them: ``with
progress.plan("training", {"features": 1, "steps": 9}):`` and then ``with progress.phase("steps"):``. The listener gets
one task for all of them, and the tasks within are its notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
_plan: ContextVar[_Plan | None] = ContextVar("unidex_plan", default=None)
_default: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Send progress to ``listener`` from now on; None for no listener."""
    _listener.set(listener)


def listen_by_default(listener: Listener | None) -> None:
    """Send progress to ``listener`` wherever `listen` named no other, in every thread and every cell of a notebook."""
    global _default
    _default = listener


@contextmanager
def task(what: str, total: float | None = None, *, unit: str = "", fills_phase: bool = False) -> Iterator[Advance]:
    """A piece of work with a name and, where it is known, a size.

    A task that fills its phase moves the bar of the whole plan; others within a plan are shown as notes.

    >>> with task("counting", 10) as advance:
    ...     advance(10)
    """
    listener, plan = _listener.get() or _default, _plan.get()
    if listener is None:
        yield _ignore
    elif plan is not None:
        yield plan.task(what, total, fills_phase)
    else:
        with listener.task(what, total, unit) as advance:
            yield advance


@contextmanager
def plan(what: str, phases: Mapping[str, float]) -> Iterator[None]:
    """Work of several phases, each with its share of the whole, in any unit. A phase may be left out."""
    listener = _listener.get() or _default
    if listener is None or _plan.get() is not None:
        yield
        return
    with listener.task(what, sum(phases.values()), "%") as advance:
        token = _plan.set(_Plan(phases, advance))
        try:
            yield
        finally:
            _plan.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A phase of the plan; when it ends, its whole share is done."""
    plan = _plan.get()
    if plan is not None:
        plan.start(name)
    yield
    if plan is not None:
        plan.move(1.0)


class _Plan:
    """The phases of a plan, and the place of the present one.

    >>> done = []
    >>> plan = _Plan({"features": 1, "steps": 9}, lambda amount, note="": done.append((amount, note)))
    >>> plan.start("steps")
    >>> advance = plan.task("training", 3, True)
    >>> advance(1, "epoch 1")
    >>> done
    [(1.0, 'steps'), (3.0, 'steps: epoch 1')]
    """

    def __init__(self, phases: Mapping[str, float], advance: Advance) -> None:
        self._phases, self._advance = phases, advance
        self._done = 0.0
        self._name = ""

    def start(self, name: str) -> None:
        """Begin a phase: all phases before it are done, or were left out."""
        self._name = name
        self.move(0.0)

    def move(self, share: float, note: str = "") -> None:
        """Show that a share of the present phase is done; the bar never moves back."""
        names = list(self._phases)
        before = names[: names.index(self._name)] if self._name in names else names
        place = sum(self._phases[name] for name in before) + share * self._phases.get(self._name, 0.0)
        amount = max(0.0, place - self._done)
        self._done += amount
        self._advance(amount, f"{self._name}: {note}" if note else self._name)

    def task(self, what: str, total: float | None, fills_phase: bool) -> Advance:
        """The advance of a task within the plan."""
        done, last_note = 0.0, ""

        def advance(amount: float, note: str = "") -> None:
            nonlocal done, last_note
            done += amount
            last_note = note or last_note
            share = done / total if total else 0.0
            if fills_phase:
                self.move(min(1.0, share), last_note)
            elif total:
                self._advance(0, f"{self._name}: {what} {100 * share:.0f}%")

        return advance


def _ignore(amount: float, note: str = "") -> None:
    """Do nothing."""
