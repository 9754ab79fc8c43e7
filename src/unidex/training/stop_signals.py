"""Signals that ask a run to stop: it ends after the step under way, with a checkpoint."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from unidex.errors import UnidexError


class TrainingStoppedError(UnidexError):
    """A signal asked the run to end; the checkpoint is written."""

    exit_code = 130


class StopSignals:
    """Whether SIGINT or SIGTERM has asked to stop."""

    def __init__(self) -> None:
        self.is_stopping = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take both signals as a wish to stop after the step under way; a second one interrupts at once."""
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
        if self.is_stopping:
            raise KeyboardInterrupt
        self.is_stopping = True
