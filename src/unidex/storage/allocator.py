"""Memory that is freed and wanted again, thousands of times a run."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 2**31 - 1
_LARGEST_OF_HEAP = 32 * 2**20  # glibc takes no higher one


def keep_freed_memory() -> bool:
    """Let the process keep what it frees, up to 2 GB; whether the system could be told.

    A step of training frees and wants again a few blocks of megabytes. glibc gives such blocks back to the system,
    which clears every page anew.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_OF_HEAP)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))
