import platform
import sys

import numpy as np
import pytest

from unidex.storage import allocator as memory
from unidex.storage.allocator import give_back_memory, keep_freed_memory
from unidex.storage.resources import process_memory


def test_the_glibc_setting_is_made_and_memory_still_works():
    assert keep_freed_memory() is (sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc")
    assert isinstance(keep_freed_memory(), bool)
    # Blocks below and above what the heap may hold, freed and wanted again.
    for size in (1 << 10, 1 << 22, 1 << 24) * 3:
        block = np.full(size, 7, dtype=np.float32)
        assert block[0] == block[-1] == 7


@pytest.mark.parametrize("name", ["darwin", "win32"])
def test_other_systems_are_left_alone(name, monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", name)
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: pytest.fail("the system's library was asked for"))
    assert keep_freed_memory() is False


def test_a_system_without_the_setting_says_so(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    assert keep_freed_memory() is False


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back on demand")
def test_memory_that_was_freed_goes_back_to_the_system():
    keep_freed_memory()
    blocks = [np.ones(1 << 17, dtype=np.float32) for _ in range(200)]
    last = np.ones(1 << 10)
    cycle = [blocks]
    cycle.append(cycle)
    before = process_memory()
    del blocks, cycle
    give_back_memory()
    assert process_memory() < before - 50_000_000
    assert last.sum() == 1 << 10


def test_a_system_that_gives_nothing_back_says_so(monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert give_back_memory() is False
