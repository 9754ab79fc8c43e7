"""The index past memory: built in blocks, continued after kill -9, recall against exact search."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import warm_start
from helpers.waits import PATIENCE, wait_until
from unidex import index as index_layer
from unidex.errors import ModelError
from unidex.index import disk, disk_lists, faiss_library, mapped_lists
from unidex.index.disk import DiskIndex
from unidex.storage.disk_errors import DiskError


def clustered(number, dim, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((200, dim))
    found = centres[rng.integers(len(centres), size=number)] + 0.7 * rng.standard_normal((number, dim))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def recall(found, wanted):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), wanted.tolist(), strict=True)])


@pytest.fixture(scope="module")
def many():
    vectors = clustered(12_000, 34)
    return vectors, DiskIndex.build(vectors)


def test_recall_is_that_of_the_contract(many):
    vectors, index = many
    queries = clustered(200, 34, seed=1)
    wanted = index_layer.build("exact", vectors).search(queries, 10)
    found = index.search(queries, 10)
    assert recall(found.ids, wanted.ids) >= 0.95
    same = found.ids == wanted.ids
    assert found.scores[same] == pytest.approx(wanted.scores[same], rel=1e-5)


def test_added_moved_and_removed_labels_are_found_beside_the_lists(many, tmp_path):
    vectors, _ = many
    index = DiskIndex.build(vectors)
    new = clustered(50, 34, seed=3)
    ids = index.add(new)
    index.replace([5, 12_003], -vectors[[5, 6]])
    index.remove([17])
    index.save(tmp_path / "index")
    for each in (index, index_layer.load(tmp_path / "index")):
        assert each.search(new[10:], 1).ids[:, 0].tolist() == ids[10:].tolist()
        assert each.search(-vectors[[5, 6]], 1).ids[:, 0].tolist() == [5, 12_003]
        assert 5 not in each.search(vectors[5:6], 20).ids
        assert 17 not in each.search(vectors[17:18], 20).ids
        assert each.vectors(np.array([12_003, 5, 7])) == pytest.approx(-vectors[[6, 5, 7]] * [[1], [1], [-1]])


def test_many_new_labels_are_coded(monkeypatch, many):
    monkeypatch.setattr(disk, "MAX_UNCODED", 100)
    index = DiskIndex.build(clustered(5_000, 16))
    index.remove([3])
    index.add(clustered(700, 16, seed=5))
    assert index._num_coded == 5_700
    assert index.num_labels == 5_699
    vectors = index.vectors(np.arange(5_700))
    assert recall(index.search(vectors[::100], 1).ids, np.arange(0, 5_700, 100)[:, None]) == 1


def test_half_numbers_take_half_the_disk(tmp_path):
    vectors = clustered(300, 32)
    index = DiskIndex.build(vectors, numbers="float16")
    index.save(tmp_path / "index")
    assert (tmp_path / "index" / "vectors.npy").stat().st_size < 300 * 32 * 2 + 256
    assert index_layer.load(tmp_path / "index").search(vectors, 1).ids[:, 0].tolist() == list(range(300))


def test_an_index_beyond_memory_finds_the_same(monkeypatch, many, tmp_path):
    index = many[1]
    index.save(tmp_path / "index")
    monkeypatch.setattr("unidex.index.disk.available_memory", lambda: 1)
    beyond, queries = index_layer.load(tmp_path / "index"), clustered(50, 34, seed=3)
    found, wanted = beyond.search(queries, 10), index.search(queries, 10)
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.scores, wanted.scores)


def test_two_levels_of_centres_find_as_much(monkeypatch, many):
    vectors, _ = many
    monkeypatch.setattr(disk_lists, "TWO_LEVELS_FROM", 64)
    index, queries = DiskIndex.build(vectors), clustered(100, 34, seed=2)
    wanted = index_layer.build("exact", vectors).search(queries, 10)
    assert recall(index.search(queries, 10).ids, wanted.ids) >= 0.95


_BUILD = """
import sys, time
from pathlib import Path
import numpy as np
from unidex.index import disk_lists
from unidex.index.disk import DiskIndex
disk_lists.ROWS_AT_ONCE = 1000
note = disk_lists.Building._note
def slow(self, done):
    note(self, done)
    if sys.argv[2] in done and done[sys.argv[2]] >= int(sys.argv[3]):
        time.sleep(3600)
disk_lists.Building._note = slow
rng = np.random.default_rng(0)
DiskIndex.build(rng.standard_normal((6000, 8)).astype(np.float32), folder=Path(sys.argv[1]))
"""


def progress(folder):
    file = folder / "progress.json"
    return json.loads(file.read_text()) if file.exists() else {}


def test_a_killed_build_continues_and_gives_the_same_files(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_lists, "ROWS_AT_ONCE", 1000)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for name, wanted in (("vectors.npy", 3000), ("codes.npy", 2000)):
        process = warm_start.start(killed, name, wanted, program=_BUILD)
        wait_until(lambda name=name, wanted=wanted: progress(killed).get(name, 0) >= wanted)
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        done = json.loads((killed / "progress.json").read_text())[name]
        assert wanted <= done < 6000
    written = (killed / "vectors.npy").stat().st_mtime_ns
    for folder in (killed, whole):
        DiskIndex.build(np.random.default_rng(0).standard_normal((6000, 8)).astype(np.float32), folder=folder)
    assert (killed / "vectors.npy").stat().st_mtime_ns == written
    for name in ("vectors.npy", "lists.faiss", "list_sizes.npy", "lists.bin"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_that_was_killed_after_the_build_takes_the_index_as_it_is(tmp_path):
    vectors = clustered(5_000, 8)
    DiskIndex.build(vectors, folder=tmp_path)
    written = (tmp_path / "lists.faiss").stat().st_mtime_ns
    index = DiskIndex.build(vectors, folder=tmp_path)
    assert (tmp_path / "lists.faiss").stat().st_mtime_ns == written
    assert index.search(vectors[:50], 1).scores[:, 0] == pytest.approx((vectors[:50] ** 2).sum(axis=1))


# The width, and the size of files beyond which the disk takes no more: vectors, then what comes of them.
@pytest.mark.parametrize(
    ("dim", "limit", "name"),
    [(8, 100_000, "vectors.npy"), (1, 15_000, "vectors.npy"), (1, 24_000, "lists.bin"), (64, 0, "vectors.npy")],
)
def test_a_full_disk_names_the_file_and_the_build_continues_when_there_is_room(tmp_path, dim, limit, name):
    vectors = clustered(5_000, dim)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(DiskError, match=rf"{name}: cannot be written"):
            DiskIndex.build(vectors, folder=tmp_path / "index")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    index = DiskIndex.build(vectors, folder=tmp_path / "index")
    assert index.search(vectors[:50], 1).scores[:, 0] == pytest.approx((vectors[:50] ** 2).sum(axis=1))


def test_a_list_file_that_was_cut_short_is_named(tmp_path):
    DiskIndex.build(clustered(5_000, 8)).save(tmp_path / "index")
    file = tmp_path / "index" / "lists.faiss"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"index is not a whole index|lists\.faiss"):
        index_layer.load(tmp_path / "index")


def test_a_file_of_codes_that_was_cut_short_is_named(tmp_path):
    DiskIndex.build(clustered(5_000, 8)).save(tmp_path / "index")
    file = tmp_path / "index" / "lists.bin"
    whole = file.read_bytes()
    for content in (whole[:-1], whole + b"x", b"", None):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(ModelError, match=rf"lists\.bin must have {len(whole)} bytes as list_sizes\.npy says, but"):
            index_layer.load(tmp_path / "index")


def test_sizes_of_lists_that_are_no_sizes_are_refused(tmp_path):
    DiskIndex.build(clustered(5_000, 8)).save(tmp_path / "index")
    file = tmp_path / "index" / "list_sizes.npy"
    sizes = np.load(file)
    np.save(file, np.append(sizes[:-2] + 0, [-32, sizes[-2:].sum() + 32]))
    with pytest.raises(ModelError, match=r"lists\.bin must have"):
        index_layer.load(tmp_path / "index")
    np.save(file, sizes[:-1])
    with pytest.raises(ModelError, match=r"list_sizes\.npy: a saved array must have shape"):
        index_layer.load(tmp_path / "index")


@pytest.mark.parametrize("dim", [3, 34, 64])
def test_lists_in_a_mapped_file_give_what_those_of_faiss_give_in_memory(tmp_path, monkeypatch, dim):
    """Indexes of earlier versions have the lists in the file of faiss: they are read, and find the same."""
    taken = []

    def noted(folder, empty, assigned, codes):
        # The index of faiss with these lists, made by its own means.
        order, start = np.argsort(assigned, kind="stable"), 0
        for number, size in enumerate(np.bincount(assigned, minlength=empty.nlist).tolist()):
            ids = np.ascontiguousarray(order[start : start + size], dtype=np.int64)
            own = np.ascontiguousarray(codes[ids])
            if size:
                empty.invlists.add_entries(number, size, faiss.swig_ptr(ids), faiss.swig_ptr(own))
            start += size
        empty.ntotal = len(assigned)
        taken.append(faiss.serialize_index(faiss.IndexIVFPQFastScan(empty)))
        empty.reset()
        mapped_lists.write_lists(folder, empty, assigned, codes)

    faiss = faiss_library.library()
    monkeypatch.setattr(disk_lists, "write_lists", noted)
    vectors, queries = clustered(6_000, dim), clustered(100, dim, seed=1)
    DiskIndex.build(vectors).save(tmp_path / "index")
    new = index_layer.load(tmp_path / "index")
    assert str(tmp_path / "index" / "lists.bin") in Path("/proc/self/maps").read_text()
    for name in ("lists.bin", "list_sizes.npy"):
        (tmp_path / "index" / name).unlink()
    (tmp_path / "index" / "lists.faiss").write_bytes(taken[0].tobytes())
    old = index_layer.load(tmp_path / "index")
    parameters = faiss.SearchParametersIVF(nprobe=20)
    for number in (1, 100):
        wanted = old._lists.search(disk_lists.padded(queries[:number]), 200, params=parameters)
        found = new._lists.search(disk_lists.padded(queries[:number]), 200, params=parameters)
        assert np.array_equal(wanted[0], found[0])
        assert np.array_equal(wanted[1], found[1])
    for allowed in (None, np.arange(3_000)):
        wanted, found = (each.search(queries, 10, allowed=allowed) for each in (old, new))
        assert np.array_equal(wanted.ids, found.ids)
        assert np.array_equal(wanted.scores, found.scores)
    old.save(tmp_path / "again")
    assert not (tmp_path / "again" / "lists.bin").exists()
    assert np.array_equal(index_layer.load(tmp_path / "again").search(queries, 10).ids, old.search(queries, 10).ids)


def test_ids_of_a_damaged_file_are_refused_where_they_are_found(tmp_path):
    vectors = clustered(5_000, 8)
    DiskIndex.build(vectors).save(tmp_path / "index")
    file = tmp_path / "index" / "lists.bin"
    content = np.frombuffer(file.read_bytes(), dtype=np.int64).copy()
    # Codes of a list, then its ids, with room for whole blocks of 32.
    first = -(-int(np.load(tmp_path / "index" / "list_sizes.npy")[0]) // 32) * 32
    ids = slice(first * 2 // 8, first * 2 // 8 + first)
    assert vectors[content[ids]].shape == (first, 8)
    content[ids] = 5_000
    file.write_bytes(content.tobytes())
    with pytest.raises(ModelError, match=r"lists\.bin: lists must name labels of the index, but do not"):
        index_layer.load(tmp_path / "index").search(vectors, 10)


def test_an_index_is_loaded_and_searched_without_torch(tmp_path):
    vectors = clustered(5_000, 8)
    DiskIndex.build(vectors).save(tmp_path / "index")
    np.save(tmp_path / "queries.npy", vectors[:3])
    code = (
        "import sys, numpy as np, unidex.index as layer; from pathlib import Path; folder = Path(sys.argv[1]);"
        "print(layer.load(folder / 'index').search(np.load(folder / 'queries.npy'), 1).ids[:, 0].tolist());"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "[0, 1, 2]\nFalse\n"
