"""The threads of the numerical libraries: how many there are, and how they wait for each other.

The libraries read both from the environment when they are loaded, so it is set before. What a user has set stays.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def choose_threads(environment: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep, and start no more of them than there are cores for this process."""
    # By default they spin: on a machine with other jobs that takes several times the CPU time of the work itself.
    environment.setdefault("GOMP_SPINCOUNT", "0")
    environment.setdefault("KMP_BLOCKTIME", "0")
    # Of NumPy's library, as a power of two of processor cycles: 4 is the minimum, and 26 its own choice.
    environment.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    usable, limit = _usable_cores(), _limit_of_group(_GROUP)
    # The libraries know which cores a process may use, but not the limit of a container.
    if limit is not None and limit < usable:
        environment.setdefault("OMP_NUM_THREADS", str(limit))


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _limit_of_group(group: Path) -> int | None:
    """The cores that a container may use at once, at least 1; None without a limit."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota, period = ((group / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return None if quota == "max" or int(quota) <= 0 else max(1, int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return None
