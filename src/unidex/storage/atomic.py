"""Files and folders that are written whole or not at all, also when the process is killed.

New content is written under a hidden name beside the target and renamed into place when it is complete.
"""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unidex.errors import DataError
from unidex.storage.disk_errors import writing

_UNFINISHED = ".unfinished"
_RANDOM_LETTERS = 8  # tempfile.mkdtemp draws this many


def write_text(file: Path, text: str, *, errors: str = "strict") -> None:
    """Write a text file as UTF-8; a file of this name is replaced."""
    with writing(file), unfinished_file(file) as unfinished:
        unfinished.write_text(text, encoding="utf-8", errors=errors)


@contextmanager
def unfinished_file(file: Path) -> Iterator[Path]:
    """Yield a hidden file to write, which becomes ``file`` at the end of the block; an error deletes it.

    The hidden name ends as ``file`` does: some writers look at the ending. The hidden file is locked during the block.
    A hidden file without a lock belongs to a killed process and is deleted here.
    """
    for leftover in file.parent.glob(f".unfinished-{'?' * _RANDOM_LETTERS}-{glob.escape(file.name)}"):
        _delete_unlocked(leftover)
    unfinished, descriptor = _create_locked_file(file)
    try:
        yield unfinished
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
        os.close(descriptor)


@contextmanager
def write_folder(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a hidden folder to write into, which becomes ``folder`` at the end of the block.

    An error inside the block deletes the hidden folder. Without ``replace``, a folder with files causes an OSError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(folder) as unfinished:
        yield unfinished
        if replace:
            replace_folder(unfinished, folder)
        else:
            unfinished.rename(folder)


def check_new_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written with ``write_folder(folder, replace=False)``, before the work begins."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        here = folder.resolve() == Path.cwd()
    except OSError as error:
        raise DataError(f"the folder to write cannot be read ({error.strerror})", file=folder) from None
    if taken:
        raise DataError("the folder to write must be new or empty, but holds something; name another", file=folder)
    if here:
        # The finished folder replaces the empty one; a process inside the empty one would be in a deleted folder.
        raise DataError("the folder to write must not be the current one; name a folder inside it", file=folder)


@contextmanager
def unfinished_folder(folder: Path) -> Iterator[Path]:
    """Yield a new hidden folder beside ``folder``; at the end of the block it is deleted unless it was renamed.

    The hidden folder is locked during the block. A hidden folder without a lock belongs to a killed process and is
    deleted here.
    """
    _delete_leftovers(folder)
    path, descriptor = _create_locked(folder)
    try:
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def replace_folder(new: Path, folder: Path) -> None:
    """Rename ``new`` to ``folder``. An existing ``folder`` is moved aside first and deleted afterwards.

    After a crash between the two renames, ``restore_folder`` brings the old folder back.
    """
    aside = _aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    new.rename(folder)
    sync(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def needs_restore(folder: Path) -> bool:
    """Whether a crash has left the old folder moved aside and none in its place."""
    return not folder.exists() and _aside(folder).exists()


def restore_folder(folder: Path) -> None:
    """Move the old folder back after a crash between the two renames of ``replace_folder``."""
    if needs_restore(folder):
        _aside(folder).rename(folder)


def sync_folder(folder: Path) -> None:
    """Flush all files of a folder to the disk, so that they survive a power failure."""
    for entry in [*folder.rglob("*"), folder]:
        sync(entry)


def sync(path: Path) -> None:
    """Flush a file to the disk, or the list of names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_descriptor(descriptor: int) -> bool:
    """Try to get the ``flock`` of an open file; the system releases it when the process ends, however it ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-before")


def _create_locked_file(file: Path) -> tuple[Path, int]:
    while True:
        # Like other files that a process opens, and unlike those of tempfile: others may read it.
        path = file.with_name(f".unfinished-{secrets.token_hex(_RANDOM_LETTERS // 2)}-{file.name}")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if lock_descriptor(descriptor) and path.exists():
            return path, descriptor
        os.close(descriptor)


def _create_locked(folder: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=_UNFINISHED, dir=folder.parent))
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            # Before the lock was taken, another process may have deleted the folder as a leftover.
            if lock_descriptor(descriptor) and path.exists():
                return path, descriptor
            os.close(descriptor)


def _delete_leftovers(folder: Path) -> None:
    prefix = f".{folder.name}-"
    for path in folder.parent.glob(f"{glob.escape(prefix)}{'?' * _RANDOM_LETTERS}{_UNFINISHED}"):
        _delete_unlocked(path)


def _delete_unlocked(path: Path) -> None:
    """Delete a file or a folder unless the process that writes it holds its lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        if lock_descriptor(descriptor):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
