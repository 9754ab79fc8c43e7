"""The linear part: scores of candidates, labels that it does not know, and its files."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from unidex import native
from unidex.errors import ModelError
from unidex.scoring import linear_part
from unidex.scoring.linear_part import NO_CLASSIFIER, LinearPart, unit_length
from unidex.storage.small_numbers import save_numbers

FEATURES, LABELS = 40, 15


@pytest.fixture
def part():
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(FEATURES, LABELS)) * (rng.random((FEATURES, LABELS)) < 0.3)
    return LinearPart(sparse.csr_array(weights.astype(np.float32)), rng.normal(size=LABELS).astype(np.float32))


@pytest.fixture
def rows():
    return sparse.random_array((20, FEATURES), density=0.2, rng=np.random.default_rng(4), dtype=np.float32).tocsr()


@pytest.mark.parametrize("has_kernels", [True, False])
def test_scores_are_those_of_dense_rows_of_length_one(part, rows, has_kernels, monkeypatch):
    if not has_kernels:
        monkeypatch.setattr(native, "kernels", None)
    rows = sparse.csr_array(rows)
    rows.sort_indices()
    ids = np.tile(np.arange(LABELS), (20, 1))
    dense = rows.toarray()
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    expected = dense @ part.weights_FL.toarray() + part.biases_L
    assert np.allclose(part.scores(rows, ids), expected, atol=1e-5)


@pytest.mark.parametrize("texts", [[0, 1, 2], [1, 0, 2], [1, 2, 1, 0, 0, 2]])
def test_a_text_adds_nothing_to_the_scores_of_the_next(texts):
    # Feature 0 has a weight for each of 1,000 labels, feature 1 for one label, feature 2 for none: the sums of a text
    # are cleared in one piece where there are many, else one by one.
    weights = np.zeros((3, 1000), dtype=np.float32)
    weights[0], weights[1, 5] = 2, 3
    part = LinearPart(sparse.csr_array(weights), np.full(1000, -0.5, dtype=np.float32))
    rows = sparse.csr_array(np.eye(3, dtype=np.float32)[texts])
    expected = weights[texts] - 0.5
    assert np.array_equal(part.scores(rows, np.tile(np.arange(1000), (len(texts), 1))), expected)


def test_a_label_that_was_added_later_has_the_score_of_no_classifier(part, rows):
    rows = sparse.csr_array(rows)
    found = part.scores(rows, np.full((20, 2), [LABELS, LABELS + 7]))
    assert (found == NO_CLASSIFIER).all()


def test_a_saved_part_gives_the_same_scores_to_the_last_bit(part, rows, tmp_path):
    part.save(tmp_path / "linear")
    again = LinearPart.load(tmp_path / "linear", FEATURES)
    rows, ids = sparse.csr_array(rows), np.tile(np.arange(LABELS), (20, 1))
    assert np.array_equal(again.scores(rows, ids), part.scores(rows, ids))


@pytest.mark.parametrize("counts", [[0, 2, 0, 3, 0], [2, 0, 0, 0, 3], [5, 0, 0, 0, 0], [0, 0, 0, 0, 5]])
def test_labels_ascend_in_each_row_alone(counts, tmp_path):
    starts = np.append(0, np.cumsum(counts)).astype(np.int32)
    labels = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
    weights = sparse.csr_array((np.ones(5, dtype=np.float32), labels, starts), shape=(5, 6))
    LinearPart(weights, np.zeros(6, dtype=np.float32)).save(tmp_path / "linear")
    assert np.array_equal(LinearPart.load(tmp_path / "linear", 5).weights_FL.toarray(), weights.toarray())
    inside = np.flatnonzero(np.append(False, labels[1:] > labels[:-1]))
    labels[inside[-1]] = labels[inside[-1] - 1]
    save_numbers(tmp_path / "linear" / "labels", labels)
    with pytest.raises(ModelError, match="labels must ascend in each row"):
        LinearPart.load(tmp_path / "linear", 5)


@pytest.mark.parametrize(
    ("name", "values", "what"),
    [
        ("labels", lambda old: old + np.int32(LABELS), "labels must be below 15"),
        ("labels", lambda old: old[::-1].copy(), "labels must ascend"),
        ("labels", lambda old: old[:-1], "there must be"),
        ("counts", lambda old: old + np.int32(1), "counts must add up"),
        ("counts", lambda old: old[:-1], "there must be 40 numbers"),
        ("biases", lambda old: old[:3], "labels must be below 3"),
        ("biases", lambda old: np.append(old[:-1], np.float32(np.nan)), "must be numbers"),
    ],
)
def test_files_that_do_not_fit_each_other_are_refused(part, tmp_path, name, values, what):
    folder = tmp_path / "linear"
    part.save(folder)
    kept = {
        "labels": part.weights_FL.indices,
        "counts": np.diff(part.weights_FL.indptr),
        "biases": part.biases_L,
    }
    save_numbers(folder / name, values(kept[name]))
    with pytest.raises(ModelError, match=what):
        LinearPart.load(folder, FEATURES)


def test_the_lengths_of_many_texts_take_little_more_memory_than_their_rows(monkeypatch):
    values = np.random.default_rng(0).random((2000, 50)).astype(np.float32)
    rows = sparse.csr_array(values)
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    expected = unit_length(rows)
    np.testing.assert_allclose(expected.toarray(), values / np.linalg.norm(values, axis=1, keepdims=True), rtol=1e-5)
    monkeypatch.setattr(linear_part, "_ROWS_AT_ONCE", 100)
    tracemalloc.start()
    found = unit_length(rows)
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found.data, expected.data)
    assert highest < 2 * found.data.nbytes
