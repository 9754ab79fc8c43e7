"""Disks of a few kilobytes: full at a byte that a test chooses, or read-only. Root mounts them; others skip."""

import os
import subprocess
from contextlib import contextmanager

import pytest

PAGE = 4096


@contextmanager
def small_disk(folder, num_bytes):
    """A file system in memory of this size, mounted on a new folder."""
    folder.mkdir()
    options = f"size={num_bytes},mode=755"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def leave(disk, num_bytes):
    """Fill a disk up to this many bytes, in whole pages."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    free = os.statvfs(disk)
    size = free.f_bavail * free.f_frsize - num_bytes // PAGE * PAGE
    with filler.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, max(1, size))


def make_read_only(disk):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
