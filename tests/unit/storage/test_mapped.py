"""Saved arrays that are mapped: copy-on-write, whatever their size."""

import os

import numpy as np
import pytest

from unidex.storage.mapped import expect_random_reads, fetch_rows, map_privately, read_array


def test_an_array_larger_than_memory_can_be_mapped_and_written_to(tmp_path):
    """numpy's own mode "c" is refused there: the system would have to promise memory for the whole file."""
    file, width = tmp_path / "large.npy", 1 << 10
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    num_rows = 3 * memory // (4 * width)
    # Without a single page on the disk.
    np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(num_rows, width))[0, 0] = 7
    assert file.stat().st_blocks * 512 < 1 << 20
    for array in (map_privately(file), read_array(file, (None, width), np.float32, "c", always=True)):
        assert array.shape == (num_rows, width)
        assert array[0, 0] == 7
        array[num_rows - 1] = 1
        assert float(array[num_rows - 1].sum()) == width
    assert float(np.load(file, mmap_mode="r")[num_rows - 1].sum()) == 0


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(4, 3), (12,), (0, 3)])
def test_a_mapped_array_is_the_saved_one_and_its_file_stays(tmp_path, order, shape):
    file = tmp_path / "array.npy"
    saved = np.asarray(np.arange(np.prod(shape), dtype=np.int32).reshape(shape), order=order)
    np.save(file, saved)
    before = file.read_bytes()
    array = map_privately(file)
    assert np.array_equal(array, saved)
    array[...] = -1
    assert file.read_bytes() == before


@pytest.mark.parametrize("width", [3, 1024, 5000])
def test_rows_that_are_fetched_first_are_the_saved_ones(tmp_path, width):
    saved = np.random.default_rng(0).standard_normal((300, width)).astype(np.float32)
    np.save(tmp_path / "rows.npy", saved)
    array, rows = map_privately(tmp_path / "rows.npy"), np.array([0, 1, 7, 150, 299])
    expect_random_reads(array)
    fetch_rows(array, rows)
    fetch_rows(array, rows[:0])
    fetch_rows(saved, rows)  # in memory: nothing to do
    assert np.array_equal(array[rows], saved[rows])
