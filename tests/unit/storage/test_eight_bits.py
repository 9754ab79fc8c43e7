"""Rows of 8 bits: near what was given, and the same when they are rounded again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unidex.index.stored_rows import read_rows, write_rows
from unidex.storage.eight_bits import BLOCK, EightBitRows, on_grid, rounded

some_rows = arrays.arrays(
    np.float32,
    st.tuples(st.integers(0, 5), st.integers(1, 2 * BLOCK + 3)),
    elements=st.floats(-1e6, 1e6, width=32),
)


@given(some_rows)
@hypothesis_settings(deadline=None)
def test_an_error_is_at_most_half_a_step_of_its_block(rows):
    found = rounded(rows)
    even = rows.shape[1] // 2 * 2
    for start in range(0, even, BLOCK):
        block = slice(start, min(start + BLOCK, even))
        highest = np.abs(rows[:, block]).max(axis=1, initial=0)
        assert (np.abs(found - rows)[:, block] <= 0.501 * highest[:, None] / 127 + 1e-30).all()
    # The last of an odd number of columns is exact.
    assert np.array_equal(found[:, even:], rows[:, even:])


@given(some_rows)
@hypothesis_settings(deadline=None)
def test_rounded_rows_are_on_the_grid_and_come_back_bit_for_bit(rows):
    once = EightBitRows.of(rows)
    again = on_grid(once.whole())
    assert again is not None
    assert np.array_equal(again.codes_RD, once.codes_RD)
    assert np.array_equal(again.whole(), once.whole())
    if len(rows):
        assert np.array_equal(once.take(np.array([0])), once.whole()[:1])


@pytest.mark.parametrize("dim", [64, 100, 257])
def test_label_vectors_are_stored_by_8_bits_only_where_nothing_is_lost(dim, tmp_path):
    rows = np.random.default_rng(0).standard_normal((70, dim)).astype(np.float32)
    for name, given_rows in (("plain", rows), ("coded", rounded(rows))):
        folder = tmp_path / name
        folder.mkdir()
        write_rows(folder, given_rows.shape, [given_rows[:50], given_rows[50:]])
        assert np.array_equal(read_rows(folder, given_rows.shape), given_rows)
        assert (folder / "vectors_int8.npy").exists() == (name == "coded")


@pytest.mark.parametrize("dim", [BLOCK, BLOCK + 1])
def test_no_rows_are_an_empty_array(dim):
    """A text of which nothing is known has no rows."""
    rows = EightBitRows.of(np.ones((3, dim), dtype=np.float32))
    assert rows.take(np.empty(0, dtype=np.int64)).shape == (0, dim)
