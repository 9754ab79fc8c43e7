"""SIGINT and SIGTERM as a wish to stop: the step that is under way is finished first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal has asked the run to end."""

    def __init__(self) -> None:
        self.asked = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take note of SIGINT and SIGTERM while inside; a second one interrupts at once."""
        before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, self._note)
        except ValueError:
            # Only the main thread may listen; elsewhere the caller's own handling stays.
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            # Asked twice: do not wait for the step.
            raise KeyboardInterrupt
        self.asked = True
