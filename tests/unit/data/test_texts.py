"""Texts: what is packed comes back, nothing is copied, nothing can be changed, a damaged file is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import strings
from unidex.data import text_packer
from unidex.data.arrays import row_numbers
from unidex.data.text_packer import Packer, UidPacker
from unidex.data.texts import Texts
from unidex.errors import DataError


def joined(titles, contents):
    packer = Packer()
    packer.add_pairs(titles, contents)
    return Texts.packed(packer)


@given(st.lists(strings), st.slices(6), st.lists(st.integers(0, 3), max_size=5))
def test_texts_are_a_list_of_strings(rows, part, chosen):
    packed = Texts.of(rows)
    assert list(packed) == rows
    assert [packed[at] for at in range(-len(rows), len(rows))] == rows + rows
    assert list(packed[part]) == rows[part]
    assert list(packed[part][::-1]) == rows[part][::-1]
    chosen = [at for at in chosen if at < len(rows)]
    assert list(packed.take(chosen)) == [rows[at] for at in chosen]
    assert packed.lengths().tolist() == [len(row.encode()) for row in rows]
    assert packed.num_bytes == sum(len(row.encode()) for row in rows)
    with pytest.raises(IndexError):
        packed[len(rows)]


@given(st.lists(st.tuples(strings, strings)))
def test_titles_and_contents_come_back(pairs):
    packed = joined([title for title, _ in pairs], [content for _, content in pairs])
    assert list(packed.fields()) == pairs
    assert list(packed) == [" ".join(filter(None, pair)) for pair in pairs]
    assert list(packed[::-1].fields()) == pairs[::-1]


def test_pieces_with_and_without_contents_mix():
    packer = Packer()
    packer.add(["plain"])
    packer.add_pairs(["é", ""], ["b", "c"])
    packer.add_pairs(["no", "content"], ["", ""])
    packed = Texts.packed(packer)
    assert list(packed.fields()) == [("plain", ""), ("é", "b"), ("", "c"), ("no", ""), ("content", "")]


@given(st.lists(st.tuples(strings, strings), max_size=6), st.lists(st.integers(0, 5), max_size=6), st.booleans())
def test_saved_texts_come_back(tmp_path_factory, pairs, chosen, in_memory):
    packed = joined([title for title, _ in pairs], [content for _, content in pairs])
    chosen = [at for at in chosen if at < len(pairs)]
    folder = tmp_path_factory.mktemp("texts")
    for number, one in enumerate((packed, packed.take(chosen), packed[1:], packed[::-1], packed[:0])):
        one.save(folder / str(number))
        loaded = Texts.load(folder / str(number), in_memory=in_memory)
        assert list(loaded.fields()) == list(one.fields())
        loaded.take(np.arange(len(loaded))[::-1]).save(folder / "again")
        assert list(Texts.load(folder / "again")) == list(one)[::-1]


def test_a_mapped_file_stays_mapped(tmp_path):
    Texts.of(["red shoe", "blue hat", "é"]).save(tmp_path / "x")
    loaded = Texts.load(tmp_path / "x")
    for one in (loaded, loaded[1:], loaded.take([2, 0]), loaded[1:].take([0])[:1]):
        assert isinstance(one._block, np.memmap)
        assert np.shares_memory(one._block, loaded._block)
        assert str(one._block.filename) == str(tmp_path / "x.bytes.npy")
    assert not isinstance(Texts.load(tmp_path / "x", in_memory=True)._block, np.memmap)


def test_slices_share_the_block_and_the_ranges():
    packed = Texts.of(["a", "b", "c"])
    assert np.shares_memory(packed[1:]._block, packed._block)
    assert np.shares_memory(packed[1:]._ends, packed._ends)
    assert np.shares_memory(packed[1:]._starts, packed._ends)
    assert np.shares_memory(packed.take([2])._block, packed._block)


def test_nothing_can_be_written(tmp_path):
    block = np.frombuffer(bytearray(b"ab"), dtype=np.uint8)
    packed = Texts(block, np.array([0, 1]), np.array([1, 2]))
    Texts.of(["ab"]).save(tmp_path / "x")
    for one in (packed, Texts.of(["ab"]), Texts.load(tmp_path / "x"), Texts.load(tmp_path / "x", in_memory=True)):
        for array in filter(lambda array: array is not None, (one._block, one._starts, one._ends)):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    with pytest.raises(TypeError):
        packed[0] = "x"


def test_blank_texts_take_no_memory():
    blank = Texts.blank(2**31)
    assert len(blank) == 2**31
    assert blank[2**31 - 1] == ""
    assert list(blank[:3].fields()) == [("", "")] * 3


def test_a_mask_is_not_taken_for_row_numbers():
    packed = Texts.of(["a", "b", "c"])
    assert list(packed.take(np.array([True, False, True]))) == ["a", "c"]
    assert row_numbers([]).tolist() == []
    with pytest.raises(TypeError, match="rows must be whole numbers or a mask, but are float64"):
        packed.take(np.array([0.5]))


@given(st.lists(st.sampled_from("abcdé")))
def test_first_repeat(rows):
    expected = next((at for at, row in enumerate(rows) if row in rows[:at]), None)
    assert Texts.of(rows).first_repeat() == expected
    assert Texts.of_uids(rows).first_repeat() == expected


def test_equal_hashes_are_not_taken_for_equal_uids(monkeypatch):
    monkeypatch.setattr(text_packer, "hash", lambda _: 0, raising=False)
    packer = UidPacker()
    packer.add(["a"])
    packer.add(["b"])
    assert Texts.packed(packer).first_repeat() is None


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(DataError, match="a text must be Unicode, but one has half a surrogate pair"):
        Texts.of(["fine", "\ud800"])


def test_bytes_that_are_not_utf8_are_found_where_they_are_read(tmp_path):
    joined(["aa", "bb"], ["x", "y"]).save(tmp_path / "x")
    file = tmp_path / "x.bytes.npy"
    file.write_bytes(file.read_bytes().replace(b"bb", b"b\xff"))
    damaged = Texts.load(tmp_path / "x")
    assert damaged[0] == "aa x"
    for read in (lambda: damaged[1], lambda: list(damaged), lambda: list(damaged.fields())):
        with pytest.raises(DataError, match=r"x.bytes.npy: saved texts must be UTF-8, but are damaged; convert"):
            read()


@pytest.mark.parametrize("ends", [[4, 9], [-1, 6], [5, 3]])
def test_a_place_of_a_large_file_is_checked_when_its_text_is_taken(tmp_path, ends):
    Texts.of(["aa", "bb", "cc"]).save(tmp_path / "x")
    np.save(tmp_path / "x.ends.npy", np.array([*ends, 6], dtype=np.int64))
    damaged = Texts.load(tmp_path / "x", checked_up_to=0)
    for read in (lambda: damaged.take([1]), lambda: damaged[1]):
        with pytest.raises(DataError, match=r"x.bytes.npy: saved texts must be UTF-8, but are damaged; convert"):
            read()


@pytest.mark.parametrize(
    ("part", "array", "match"),
    [
        (
            "bytes",
            np.zeros(5, dtype=np.int8),
            "x.bytes.npy: a saved array must have shape any length and type uint8, but has 5 of int8",
        ),
        ("bytes", np.zeros(3, dtype=np.uint8), "x.ends.npy: ends of saved texts must ascend to the size of the block"),
        (
            "ends",
            np.zeros((2, 2), dtype=np.int64),
            "x.ends.npy: a saved array must have shape any length and type int64, but has 2 x 2 of",
        ),
        ("ends", np.array([5, 4]), "x.ends.npy: ends of saved texts must ascend"),
        ("ends", np.array([-1, 5]), "x.ends.npy: ends of saved texts must ascend"),
        ("titles", np.array([9, 1], dtype=np.int32), "x.titles.npy: titles of saved texts must be parts of the texts"),
        ("titles", np.array([-1, 1], dtype=np.int32), "x.titles.npy: titles of saved texts must be parts"),
        ("titles", np.array([1], dtype=np.int32), "x.titles.npy: titles of saved texts must be parts of the texts"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, part, array, match):
    joined(["a", "b"], ["c", ""]).save(tmp_path / "x")
    np.save(tmp_path / f"x.{part}.npy", array)
    with pytest.raises(DataError, match=match):
        Texts.load(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04 no archive", b"\x80\x04pickle", None])
def test_files_that_are_no_arrays_are_refused(tmp_path, content):
    Texts.of(["a"]).save(tmp_path / "x")
    for part in ("bytes", "ends"):
        file = tmp_path / f"x.{part}.npy"
        whole = file.read_bytes()
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(DataError, match=rf"x.{part}.npy: a saved array cannot be read .*; convert the data set"):
            Texts.load(tmp_path / "x")
        file.write_bytes(whole)
    np.savez(tmp_path / "archive.npz", a=np.zeros(1))
    (tmp_path / "x.ends.npy").write_bytes((tmp_path / "archive.npz").read_bytes())
    with pytest.raises(DataError, match=r"x.ends.npy: a saved array must be here, but this is an archive"):
        Texts.load(tmp_path / "x")
