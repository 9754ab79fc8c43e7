"""Locks on model folders: one process at a time may change one.

A lock is a ``flock``: the system releases it when the process ends, however it ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unidex.errors import ModelError
from unidex.storage.atomic import lock_descriptor

WAIT_SECONDS = 60.0  # to load, change and save a model takes less


class LockedError(ModelError):
    """Another process holds the lock of a model folder for longer than the waiting time."""


class _Lock:
    """The lock of one folder in this process: ``guard`` separates threads, ``depth`` counts the entries of one."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.depth = 0


_locks: dict[Path, _Lock] = {}


@contextmanager
def locked(folder: str | Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold the lock of a model folder, which is on the hidden sibling ``.NAME.lock``.

    A thread that holds the lock may enter again. The sibling stays: a lock on a deleted file protects nothing.
    The folder need not exist yet. A LockedError says that the lock was not free in time.
    """
    path = Path(folder).resolve()
    file = path.with_name(f".{path.name}.lock")
    lock = _locks.setdefault(file, _Lock())
    deadline = time.monotonic() + wait_seconds
    if not lock.guard.acquire(timeout=wait_seconds):
        raise _timeout(folder, wait_seconds)
    try:
        descriptor = None if lock.depth else _open(file, folder)
        try:
            while descriptor is not None and not lock_descriptor(descriptor):
                if time.monotonic() >= deadline:
                    raise _timeout(folder, wait_seconds)
                time.sleep(0.01)
            lock.depth += 1
            try:
                yield
            finally:
                lock.depth -= 1
        finally:
            if descriptor is not None:
                os.close(descriptor)
    finally:
        lock.guard.release()


def _open(file: Path, folder: str | Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_CREAT, 0o666)
    except OSError as error:
        raise ModelError(
            f"{folder}: changing a model needs the lock file {file.name} beside it, but it cannot be created "
            f"({error.strerror}); check the permissions of {file.parent}"
        ) from None


def _timeout(folder: str | Path, wait_seconds: float) -> LockedError:
    return LockedError(
        f"{folder}: only one process at a time may change a model folder, but another has held the lock for "
        f"{wait_seconds:g} s; try again when it has finished"
    )
