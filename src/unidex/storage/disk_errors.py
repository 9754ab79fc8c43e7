"""Errors of the disk as one line: what cannot be written, why, and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unidex.errors import UnidexError

_SPACE = "free space on the disk, or write elsewhere"
_PERMISSIONS = "check its permissions, or write elsewhere"
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write elsewhere",
    errno.EROFS: "write elsewhere",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
    errno.EIO: "check the disk, or write elsewhere",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "check the path",
    errno.ENAMETOOLONG: "take a shorter name",
}


class DiskError(UnidexError):
    """The disk is full, read-only or broken; what was there before is still there."""


@contextmanager
def writing(target: str | Path) -> Iterator[None]:
    """Raise a DiskError that names ``target`` where the disk refuses something in this block."""
    try:
        yield
    except Exception as error:
        failure = as_disk_error(target, error)
        if failure is None:
            raise
        raise failure from error


def as_disk_error(target: str | Path, error: Exception) -> DiskError | None:
    """The DiskError of an error, or None if the disk is not its cause.

    >>> print(as_disk_error("model", OSError(errno.ENOSPC, "No space left on device")))
    model: cannot be written (No space left on device); free space on the disk, or write elsewhere
    >>> print(as_disk_error("model", RuntimeError("write error in codes: 0 != 9 (File too large)")))
    model: cannot be written (File too large); raise the limit of file sizes (ulimit -f), or write elsewhere
    >>> as_disk_error("model", RuntimeError("shapes differ")) is None
    True
    """
    found = reason_and_remedy(error)
    return None if found is None else DiskError(f"{target}: cannot be written ({found[0]}); {found[1]}")


def reason_and_remedy(error: Exception) -> tuple[str, str] | None:
    """Why the disk refuses, and what to do; None if the disk is not the cause of an error."""
    number = _number(error)
    if number is not None:
        return os.strerror(number), _REMEDIES[number]
    if isinstance(error, OSError) and str(error).endswith(" written"):
        # numpy counts what it could not write, without a reason.
        return f"{error} bytes", _SPACE
    return None


def _number(error: Exception) -> int | None:
    """Which of the known errors it is; libraries that are not Python's name them in their messages."""
    if isinstance(error, UnidexError):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _REMEDIES else None
    message = str(error)
    return next((number for number in _REMEDIES if os.strerror(number) in message), None)
