"""Rows of 8, 5 and 4 bits: near what was given, and the same when they are rounded again."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unidex.index.stored_rows import read_rows, write_rows
from unidex.storage.eight_bits import BLOCK, EightBitRows, max_code, on_grid, read_table, rounded, table_arrays

# Below the numbers of which float32 has all digits, and on the grid of 5 bits as well as on that of 8.
TINY = np.array([[1.188301e-41, -1.215206e-41, -3.632166e-42, 3.654586e-42]], dtype=np.float32)
ON_BOTH_GRIDS = np.full((1, 2), 119.0625, dtype=np.float32)
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
@example(TINY)
@example(ON_BOTH_GRIDS)
@hypothesis_settings(deadline=None)
def test_rounded_rows_are_on_the_grid_and_come_back_bit_for_bit(rows):
    once = EightBitRows.of(rows)
    again = on_grid(once.whole())
    assert again is not None
    assert np.array_equal(again.whole(), once.whole())
    if len(rows):
        assert np.array_equal(once.take(np.array([0])), once.whole()[:1])


@pytest.mark.parametrize("bits", [4, 5, 8])
@given(some_rows)
@example(TINY)
@example(ON_BOTH_GRIDS)
@hypothesis_settings(deadline=None)
def test_rows_of_few_bits_err_by_half_a_step_and_come_back_bit_for_bit(bits, rows):
    once = EightBitRows.of(rows, bits)
    even = rows.shape[1] // 2 * 2
    highest = np.abs(rows[:, :even]).max(axis=1, initial=0)
    # A scale of 8 digits is up to 1/128 larger than it must be.
    assert (np.abs(once.whole() - rows)[:, :even] <= 0.505 * highest[:, None] / max_code(bits) + 1e-30).all()
    again = EightBitRows.of(once.whole(), bits)
    assert np.array_equal(again.codes_RD, once.codes_RD)
    assert np.array_equal(again.scales_RG, once.scales_RG)
    read = read_table(table_arrays(once, "features"), "features")
    assert np.array_equal(read.whole(), once.whole())


def test_a_file_has_frequent_codes_in_few_bits_and_few_bytes_of_a_scale():
    rows = np.random.default_rng(0).standard_normal((500, 128)).astype(np.float32)
    found = table_arrays(EightBitRows.of(rows, 4), "t")
    assert found["t.shape"].tolist() == [500, 128, 2]
    # 64,000 numbers of 3.5 bits, 1,000 scales of 8: the upper byte of a scale hardly differs.
    assert 28_000 < found["t.codes"].nbytes < 30_500
    assert table_arrays(EightBitRows.of(rows), "t")["t.shape"].tolist() == [500, 128, 4]


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ([500, 128, 3], "2 or 4 bytes"),
        ([500, 127, 2], "others"),
        ([1 << 40, 1 << 20, 2], "cannot have"),
        ([-1, 128, 2], "cannot have"),
        ([0, 0, 2], "cannot have"),
    ],
)
def test_numbers_that_are_not_those_of_a_stream_are_refused(shape, reason):
    arrays = table_arrays(EightBitRows.of(np.ones((500, 128), dtype=np.float32), 4), "t")
    with pytest.raises(ValueError, match=reason):
        read_table(arrays | {"t.shape": np.array(shape)}, "t")


def packed_in_six_bits(codes):
    """Codes from -31 to 31 as format 5 has them."""
    shifted, half = (codes + 32).astype(np.uint8), codes.shape[1] // 2
    low = (shifted[:, :half] & 15) | (shifted[:, half:] & 15) << 4
    return np.concatenate([low, *(np.packbits(shifted >> bit & 1, axis=1) for bit in (4, 5))], axis=1)


@pytest.mark.parametrize("dim", [64, 128, 192])
def test_tables_of_6_bits_of_format_5_are_read(dim):
    rng = np.random.default_rng(dim)
    codes = rng.integers(-31, 32, (70, dim)).astype(np.int8)
    halves = rng.integers(0x3C00, 0x3D00, (70, dim // BLOCK)).astype(np.uint16)
    arrays = {"t.int6": packed_in_six_bits(codes), "t.scales16": halves.view(np.int16)}
    found = read_table(arrays, "t")
    assert np.array_equal(found.codes_RD, codes)
    assert np.array_equal(found.scales_RG, (halves.astype(np.uint32) << 16).view(np.float32))
    assert np.array_equal(read_table(table_arrays(found, "t"), "t").whole(), found.whole())
    with pytest.raises(ValueError, match="must have scales"):
        read_table(arrays | {"t.scales16": arrays["t.scales16"][:3]}, "t")
    with pytest.raises(ValueError, match="must be rows of bytes"):
        read_table(arrays | {"t.int6": arrays["t.int6"][:, 1:]}, "t")


@pytest.mark.parametrize("dim", [64, 100, 257])
def test_label_vectors_are_stored_by_few_bits_only_where_nothing_is_lost(dim, tmp_path):
    rows = np.random.default_rng(0).standard_normal((70, dim)).astype(np.float32)
    for name, given_rows in (("plain", rows), ("coded", rounded(rows)), ("short", rounded(rows, 5))):
        folder = tmp_path / name
        folder.mkdir()
        write_rows(folder, given_rows.shape, [given_rows[:50], given_rows[50:]])
        assert np.array_equal(read_rows(folder, given_rows.shape), given_rows)
        assert (folder / "vectors_int8.numbers").exists() == (name != "plain")


@pytest.mark.parametrize("dim", [BLOCK, BLOCK + 1])
def test_no_rows_are_an_empty_array(dim):
    """A text of which nothing is known has no rows."""
    rows = EightBitRows.of(np.ones((3, dim), dtype=np.float32))
    assert rows.take(np.empty(0, dtype=np.int64)).shape == (0, dim)
