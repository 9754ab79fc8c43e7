"""Memory that training frees and allocates again, thousands of times per run."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MAX_KEPT = 2**31 - 1
_MAX_HEAP_BLOCK = 32 * 2**20  # the maximum that glibc accepts


def keep_freed_memory() -> bool:
    """Let the process keep up to 2 GB of freed memory; returns whether the system supports it.

    A training step frees and allocates a few blocks of megabytes. glibc returns such blocks to the system, which
    clears every page when it gives them out again.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _MAX_HEAP_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, _MAX_KEPT))
