"""What a run has used, also where several processes have worked on it one after the other.

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
    """Note in a file what this process uses from here to the end of the block, behind what others have noted there."""
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
    """Seconds of all processes together, the highest memory of one, and how many there were."""
    parts = _parts(file)
    return {
        "wall_seconds": round(sum(part["wall_seconds"] for part in parts), 3),
        "cpu_seconds": round(sum(part["cpu_seconds"] for part in parts), 3),
        "peak_memory_bytes": max((part["peak_memory_bytes"] for part in parts), default=0),
        "num_starts": len(parts),
    }


def peak_memory_bytes() -> int:
    """The most memory that this process has had resident so far."""
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss would not begin anew with a program: it keeps what the process that started it had.
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _parts(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
