"""What this machine has left: memory that a process may still take, and free disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available_memory(memory: Path = _MEMORY, group: Path = _GROUP) -> int:
    """Bytes that this process may take without swapping, within the limit of a container."""
    found = _available(memory)
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is not None and used is not None:
        # What the system can take back (the cache of files) counts as used, although it is free for the asking.
        found = min(found, limit - used + (_cached(group / "memory.stat") or 0))
    return max(0, found)


def process_memory(status: Path = Path("/proc/self/status")) -> int:
    """Bytes that this process has taken and the system cannot take back; mapped files are not counted."""
    try:
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def free_disk(folder: Path) -> int:
    """Free bytes of the disk that a folder is on, or will be on."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _available(memory: Path) -> int:
    try:
        for line in memory.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # "max" is no limit.
        return None


def _cached(file: Path) -> int | None:
    try:
        rows = dict(line.split() for line in file.read_text(encoding="ascii").splitlines())
        return int(rows["inactive_file"]) + int(rows["active_file"])
    except (OSError, ValueError, KeyError):
        return None
