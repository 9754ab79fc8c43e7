"""Who may write a folder: one process at a time under a lock, and what killed ones have left behind is removed.

Locks are those of ``flock``: the system lets go of them when a process ends, however it ends. What is written into a
folder is not said here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unidex.errors import ModelError

WAIT_SECONDS = 60.0  # a model is loaded, taught and saved in less
_UNFINISHED = ".unfinished"


class LockedError(ModelError):
    """A model folder is being changed by another process, and was so for longer than one would wait."""


class _Held:
    """The lock of one folder in this process: ``guard`` keeps its threads apart, ``depth`` counts entries of one."""

    def __init__(self) -> None:
        self.guard = threading.RLock()
        self.depth = 0


_held: dict[Path, _Held] = {}


@contextmanager
def locked(folder: str | Path, *, wait_seconds: float = WAIT_SECONDS) -> Iterator[None]:
    """Let nobody else change a model folder for a while; the lock is on the hidden sibling ``.NAME.lock``.

    A thread that has the lock may take it again. The sibling stays: a lock on a file that is removed guards nothing.

    Args:
        folder: the model folder; it need not exist yet.
        wait_seconds: how long to wait for whoever has the lock.

    Raises:
        LockedError: the lock was not free in that time.
    """
    place = Path(folder).resolve()
    file = place.with_name(f".{place.name}.lock")
    held = _held.setdefault(file, _Held())
    started = time.monotonic()
    if not held.guard.acquire(timeout=wait_seconds):
        raise _locked(folder, wait_seconds)
    try:
        if held.depth:
            held.depth += 1
            try:
                yield
            finally:
                held.depth -= 1
            return
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CREAT, 0o666)
        except OSError as error:
            raise ModelError(
                f"{folder}: to change a model its lock {file.name} must stand beside it, but cannot be made "
                f"({error.strerror}); look at the rights of {file.parent}"
            ) from None
        try:
            while not _take(descriptor):
                if time.monotonic() - started >= wait_seconds:
                    raise _locked(folder, wait_seconds)
                time.sleep(0.01)
            held.depth = 1
            try:
                yield
            finally:
                held.depth = 0
        finally:
            os.close(descriptor)
    finally:
        held.guard.release()


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(folder: str | Path, wait_seconds: float) -> LockedError:
    return LockedError(
        f"{folder}: only one process at a time may change a model folder, but another has been at it for "
        f"{wait_seconds:g} s; try again when it is done"
    )


@contextmanager
def unfinished_sibling(folder: Path) -> Iterator[Path]:
    """A new hidden folder beside ``folder`` to write into; it is removed again unless it was renamed.

    It is locked while it is written. So those that killed processes have left are known by their free lock, and they
    are removed here.
    """
    _remove_leftovers(folder)
    path, descriptor = _new_sibling(folder)
    try:
        yield path
    finally:
        # Gone by now, unless something went wrong.
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _new_sibling(folder: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=_UNFINISHED, dir=folder.parent))
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        # Somebody may have taken it for a leftover before it was locked.
        if _take(descriptor) and path.exists():
            return path, descriptor
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    prefix = f".{folder.name}-"
    for path in folder.parent.iterdir():
        middle = path.name.removeprefix(prefix).removesuffix(_UNFINISHED)
        # Eight letters as of mkdtemp: "a" must not take those of "a-b" for its own.
        if path.name != f"{prefix}{middle}{_UNFINISHED}" or len(middle) != 8:
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _take(descriptor):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)


def synced(folder: Path) -> None:
    """Have the system put the files of a folder on the disk, so that not even a power failure takes them."""
    for entry in [*folder.rglob("*"), folder]:
        sync(entry)


def sync(path: Path) -> None:
    """Have the system put a file on the disk, or the names that stand in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
