"""Numbers in small files: what was written comes back, and what is damaged is named."""

import json
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unidex.errors import ModelError
from unidex.storage import small_numbers
from unidex.storage.small_numbers import has_numbers, load_numbers, save_numbers

TYPES = [np.int32, np.int64, np.uint64, np.float32]


@given(
    st.data(),
    st.sampled_from(TYPES),
    st.one_of(st.tuples(st.integers(0, 30)), st.tuples(st.integers(0, 4), st.integers(0, 5))),
    st.booleans(),
)
@hypothesis_settings(deadline=None)
def test_numbers_come_back_bit_for_bit(tmp_path_factory, data, dtype, shape, is_sorted):
    values = data.draw(arrays.arrays(dtype, shape))
    if is_sorted:
        values = np.sort(values)
    file = tmp_path_factory.mktemp("numbers") / "x"
    assert not has_numbers(file)
    save_numbers(file, values)
    found = load_numbers(file, shape, dtype)
    assert has_numbers(file)
    assert found.dtype == dtype
    assert found.shape == values.shape
    assert found.tobytes() == values.tobytes()


def test_small_and_ascending_numbers_take_little(tmp_path):
    save_numbers(tmp_path / "counts", np.arange(10_000) % 7)
    save_numbers(tmp_path / "ends", np.cumsum(np.arange(10_000) % 50))
    assert (tmp_path / "counts.numbers").stat().st_size < 2000
    assert (tmp_path / "ends.numbers").stat().st_size < 2000


def test_very_many_are_written_so_that_they_can_be_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(small_numbers, "MAPPED_FROM", 5)
    save_numbers(tmp_path / "many", np.arange(5))
    assert isinstance(load_numbers(tmp_path / "many", (5,), np.int64, mapped=True).base, mmap.mmap)


def test_numbers_of_earlier_versions_are_read(tmp_path):
    np.save(tmp_path / "old.npy", np.arange(3))
    assert load_numbers(tmp_path / "old", (None,), np.int64).tolist() == [0, 1, 2]


def test_what_is_damaged_or_of_another_kind_is_named(tmp_path):
    file = tmp_path / "x.numbers"
    save_numbers(tmp_path / "x", np.arange(1000) ** 2)
    whole = file.read_bytes()
    for dtype, shape, message in (
        (np.int32, (1000,), "of type int64, not int32"),
        (np.int64, (999,), "there must be 999 numbers, but there are 1000"),
        (np.int64, (1000, None), "there must be 1000 x any length numbers"),
    ):
        with pytest.raises(ModelError, match=message):
            load_numbers(tmp_path / "x", shape, dtype)
    size = int.from_bytes(whole[:8], "little")
    about = json.loads(whole[8 : 8 + size])
    changed = [
        json.dumps(about | change).encode() for change in ({"shape": [1 << 40]}, {"shape": [-1]}, {"sizes": [3]})
    ]
    headers = [
        len(header).to_bytes(8, "little") + header + whole[8 + size :] for header in [*changed, b"[]", b"[" * 99]
    ]
    for content in (b"", whole[:7], whole[:40], whole[:-1], whole[:-900], b"\xff" * 50, *headers):
        file.write_bytes(content)
        with pytest.raises(ModelError, match=r"x\.numbers: numbers must be here, but cannot be read"):
            load_numbers(tmp_path / "x", (1000,), np.int64)
