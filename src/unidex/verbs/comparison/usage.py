"""Time and memory of a run, also if several processes worked on it one after the other.

Each process notes its seconds and its memory twice a second, so that hardly anything is lost when it is killed. What
was done twice because of that counts twice: it was used.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unidex.storage.atomic import write_text

_EVERY_SECONDS = 0.5


@contextmanager
def noted_usage(file: Path) -> Iterator[None]:
    """Append the usage of this process within the block to a file."""
    earlier = _parts(file)
    started, cpu_started = time.monotonic(), time.process_time()
    ended = threading.Event()

    def note() -> None:
        part = {
            "wall_seconds": round(time.monotonic() - started, 3),
            "cpu_seconds": round(time.process_time() - cpu_started, 3),
            "peak_memory_bytes": peak_memory_bytes(),
        }
        write_text(file, json.dumps([*earlier, part]) + "\n")

    def keep_noting() -> None:
        while not ended.wait(_EVERY_SECONDS):
            note()

    note()
    thread = threading.Thread(target=keep_noting, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        note()


def usage_so_far(file: Path) -> dict[str, Any]:
    """Return the seconds of all processes, the peak memory of one, and the number of processes."""
    parts = _parts(file)
    return {
        "wall_seconds": round(sum(part["wall_seconds"] for part in parts), 3),
        "cpu_seconds": round(sum(part["cpu_seconds"] for part in parts), 3),
        "peak_memory_bytes": max((part["peak_memory_bytes"] for part in parts), default=0),
        "num_starts": len(parts),
    }


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss does not restart with a program: it includes the peak of the parent process.
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _parts(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
