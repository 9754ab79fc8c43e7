"""Memory that training frees and allocates again, thousands of times per run, and gives back between its phases."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Within this, the collector leaves out the objects that exist now: those of torch take it 0.1 s each time."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def give_back_memory() -> bool:
    """Give freed memory back to the system, between two phases of a training; returns whether the system supports it.

    What a phase has freed lies in pieces that the next one may have no use for, and objects that refer to each other,
    such as a trainer and its step, wait for the collector.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    return trim is not None and bool(trim(0))
