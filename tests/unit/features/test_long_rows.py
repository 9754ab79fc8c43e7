"""Feature rows with 64-bit row ends: the same rows as SciPy's, and the same model, where no matrix has so many."""

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import topics
from unidex.features import long_rows
from unidex.features.long_rows import LongRows
from unidex.verbs.train import train


@pytest.fixture
def both():
    rng = np.random.default_rng(0)
    plain = sparse.csr_array(rng.integers(0, 3, size=(40, 30)) * (rng.random((40, 30)) < 0.2).astype(np.float32))
    return plain, LongRows.of(plain.data, plain.indices, plain.indptr.astype(np.int64), 30)


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(3, 17),
        slice(5, 5),
        slice(None, None, -2),
        [4, 4, 0],
        [-1, 39],
        np.empty(0, dtype=np.int64),
        np.arange(40) % 3 == 0,
    ],
    ids=["all", "neighbours", "none", "backwards", "repeated", "from the end", "empty", "mask"],
)
def test_selected_rows_are_those_of_scipy(both, rows):
    plain, long = both
    found, wanted = long[rows], plain[rows]
    assert type(found) is sparse.csr_array
    assert (found.indices.dtype, found.indptr.dtype) == (np.int32, np.int32)
    assert found.shape == wanted.shape
    assert np.array_equal(found.toarray(), wanted.toarray())


def test_neighbouring_rows_are_not_copied_and_rows_that_are_not_there_are_refused(both):
    _, long = both
    assert np.shares_memory(long[3:17].indices, long.indices)
    for rows in ([40], [-41, 2]):
        with pytest.raises(IndexError, match="rows must be those of 40 rows"):
            long[rows]


def test_a_selection_with_too_many_entries_is_long_again(both, monkeypatch):
    monkeypatch.setattr(long_rows, "LONG_FROM", 5)
    plain, long = both
    found = long[::2]
    assert isinstance(found, LongRows)
    assert np.array_equal(found[[0, 3]].toarray(), plain[[0, 6]].toarray())


def test_ends_beyond_32_bits_are_read_as_they_are():
    # Ids and weights of nothing but the last row: the rest of such a matrix would take 17 GB.
    first = (1 << 31) + 5
    ids = np.broadcast_to(np.int32(7), (first + 2,))
    weights = np.broadcast_to(np.float32(0.5), (first + 2,))
    long = LongRows.of(weights, ids, np.array([0, first, first + 2]), 9)
    assert long[[1]].indices.tolist() == long[1:].indices.tolist() == [7, 7]
    assert long[1:].indptr.tolist() == [0, 2]


def test_a_model_of_long_rows_is_the_same_model(monkeypatch, tmp_path):
    made = []
    plain_of = LongRows.of
    monkeypatch.setattr(LongRows, "of", lambda *arrays: made.append(len(arrays[2])) or plain_of(*arrays))
    settings = ["encoder.dim=8", "train.epochs=2"]
    train(topics(), settings=settings, out=tmp_path / "plain")
    assert not made
    monkeypatch.setattr(long_rows, "LONG_FROM", 2000)
    train(topics(), settings=settings, out=tmp_path / "long")
    assert made
    written = [file.relative_to(tmp_path / "plain") for file in (tmp_path / "plain").rglob("*") if file.is_file()]
    with_times = ("manifest.json", "metrics.json", "train.jsonl")
    assert {"encoder.safetensors", "ranker.json", "labels.jsonl"} <= {str(name) for name in written}
    for name in written:
        if str(name) not in with_times:
            assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "long" / name).read_bytes(), name
