"""Rows of 8 and of 6 bits: near what was given, and the same when they are rounded again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unidex.index.stored_rows import read_rows, write_rows
from unidex.storage.eight_bits import BLOCK, EightBitRows, on_grid, read_table, rounded, table_arrays
from unidex.storage.packed_bits import max_code, pack, unpack

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


@given(some_rows)
@hypothesis_settings(deadline=None)
def test_rows_of_6_bits_err_by_half_a_step_and_come_back_bit_for_bit(rows):
    once = EightBitRows.of(rows, 6)
    even = rows.shape[1] // 2 * 2
    highest = np.abs(rows[:, :even]).max(axis=1, initial=0)
    # A scale of 8 digits is up to 1/128 larger than it must be.
    assert (np.abs(once.whole() - rows)[:, :even] <= 0.505 * highest[:, None] / 31 + 1e-30).all()
    again = EightBitRows.of(once.whole(), 6)
    assert np.array_equal(again.codes_RD, once.codes_RD)
    assert np.array_equal(again.scales_RG, once.scales_RG)
    read = read_table(table_arrays(once, "features"), "features")
    assert np.array_equal(read.whole(), once.whole())


def test_a_table_of_6_bits_is_packed_and_one_of_8_is_not():
    rows = np.random.default_rng(0).standard_normal((5, 128)).astype(np.float32)
    packed = table_arrays(EightBitRows.of(rows, 6), "t")
    assert {name: array.nbytes for name, array in packed.items()} == {"t.int6": 5 * 96, "t.scales16": 5 * 4}
    assert table_arrays(EightBitRows.of(rows), "t").keys() == {"t.int8", "t.scales"}
    with pytest.raises(ValueError, match="must have scales"):
        read_table(packed | {"t.scales16": packed["t.scales16"][:3]}, "t")
    with pytest.raises(ValueError, match="must be rows of bytes"):
        read_table(packed | {"t.int6": packed["t.int6"][:, :95]}, "t")


@given(st.integers(4, 7), st.integers(0, 3), st.integers(1, 3), st.randoms(use_true_random=False))
def test_packed_numbers_come_back(bits, num_rows, width, rng):
    codes = np.array(
        [rng.randint(-max_code(bits), max_code(bits)) for _ in range(num_rows * 16 * width)], dtype=np.int8
    )
    codes = codes.reshape(num_rows, 16 * width)
    packed = pack(codes, bits)
    assert packed.shape == (num_rows, 2 * bits * width)
    assert np.array_equal(unpack(packed, 16 * width, bits), codes)


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
