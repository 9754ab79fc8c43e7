"""Dataset: checked once, then immutable; parts share the memory of the whole."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.strategies import datasets, splits
from unidex.data import formats
from unidex.data.dataset import Dataset, Labels, Propensity, Split, canonical, split_rows
from unidex.data.texts import Texts
from unidex.errors import DataError


def split_of(rows, **more):
    return Split.of(Texts.of([f"text {row}" for row in range(len(rows))]), sparse.csr_array(np.array(rows)), **more)


def labels_of(count):
    return Labels(Texts.of([f"label {label}" for label in range(count)]))


def matrices(split):
    return [split.positives, split.filter_pairs] + ([] if split.features is None else [split.features])


entries = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, 2.0])), max_size=20)


@given(entries)
def test_canonical_pairs_are_sorted_and_merged_by_the_larger(pairs):
    pairs.sort(key=lambda pair: pair[0])
    rows = np.array([row for row, _, _ in pairs], dtype=int)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=4))])
    given_pairs = sparse.csr_array(
        ([value for _, _, value in pairs], [column for _, column, _ in pairs], indptr), shape=(4, 5), dtype=np.float64
    )
    expected = {}
    for row, column, value in pairs:
        if value:
            expected[row, column] = max(value, expected.get((row, column), 0))
    found = canonical(given_pairs, np.float32)
    stored = {
        (row, int(column)): float(value)
        for row in range(4)
        for column, value in zip(
            found.indices[found.indptr[row] : found.indptr[row + 1]],
            found.data[found.indptr[row] : found.indptr[row + 1]],
            strict=True,
        )
    }
    assert list(stored.items()) == sorted(expected.items())
    assert found.dtype == np.float32
    found.check_format(full_check=True)


def test_nothing_can_be_written():
    source = sparse.csr_array(np.array([[1.0, 0.0], [0.5, 1.0]]))
    split = Split.of(Texts.of(["a", "b"]), source, source, features=source)
    data = Dataset("shop", labels_of(2), split)
    source.data[:] = 7
    assert data.train.positives.data.tolist() == [1, 0.5, 1]
    assert data.train.features.data.tolist() == [1, 0.5, 1]
    for part in (data.train, data.train.take([1]), data.train.take(slice(0, 1)), data.test):
        for matrix in matrices(part):
            for array in (matrix.data, matrix.indices, matrix.indptr):
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 0
    with pytest.raises(FrozenInstanceError):
        data.name = "other"
    with pytest.raises(FrozenInstanceError):
        data.train.texts = Texts.of([])


@given(splits(4, min_texts=1), st.slices(5), st.data())
def test_any_rows_can_be_taken(split, part, data):
    chosen = data.draw(st.lists(st.integers(0, len(split) - 1), max_size=6))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(split), max_size=len(split))))
    for rows in (part, chosen, np.array(chosen, dtype=np.int32), mask):
        numbers = np.arange(len(split))[np.array(rows, dtype=int) if isinstance(rows, list) else rows]
        taken = split.take(rows)
        assert list(taken.texts) == [split.texts[row] for row in numbers]
        assert (taken.uids is None) == (split.uids is None)
        if split.uids is not None:
            assert list(taken.uids) == [split.uids[row] for row in numbers]
        for found, expected in zip(matrices(taken), matrices(split), strict=True):
            np.testing.assert_array_equal(found.toarray(), expected.toarray()[numbers])
            found.check_format(full_check=True)
            assert found.dtype == expected.dtype


def test_neighbouring_rows_share_memory():
    split = split_of(np.eye(6), features=sparse.csr_array(np.eye(6)))
    part = split.take(slice(1, 5)).take(slice(1, None))
    assert list(part.texts) == ["text 2", "text 3", "text 4"]
    for found, whole in zip(matrices(part), matrices(split), strict=True):
        if whole.nnz:
            assert np.shares_memory(found.data, whole.data)
            assert np.shares_memory(found.indices, whole.indices)
    assert np.shares_memory(part.texts._block, split.texts._block)


def test_the_unidex_format_is_mapped(tmp_path):
    data = Dataset(
        "shop", labels_of(3), split_of(np.eye(3), filter_pairs=sparse.csr_array(np.eye(3)[::-1]), uids=Texts.of("abc"))
    )
    formats.write(data, tmp_path / "shop", "unidex")
    mapped = formats.read(tmp_path / "shop")
    part = mapped.train.take(slice(0, 2))
    for one in (mapped.train, part):
        arrays = [one.texts._block, one.uids._block]
        for matrix in matrices(one):
            arrays += [matrix.data, matrix.indices]
        assert all(map(_is_mapped, arrays))
    assert _is_mapped(mapped.train.positives.indptr)
    assert _is_mapped(mapped.labels.texts._block)
    assert not _is_mapped(data.train.positives.data)


def _is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def test_split_rows_depend_on_the_seed_alone():
    one, other = split_rows(1000, 0.3, 1), split_rows(1000, 0.3, 2)
    assert [len(part) for part in one] == [700, 300]
    assert np.array_equal(np.sort(np.concatenate(one)), np.arange(1000))
    assert not np.array_equal(one[1], other[1])
    assert np.array_equal(one[1], split_rows(1000, 0.3, 1)[1])
    with pytest.raises(DataError, match=r"a split fraction must be between 0 and 1, but is 1.5"):
        split_rows(10, 1.5, 0)


@given(datasets())
def test_frequencies_count_train_texts(data):
    expected = (data.train.positives.toarray() > 0).sum(axis=0)
    assert data.label_frequencies().tolist() == expected.tolist()


def test_a_data_set_without_test_has_an_empty_one():
    data = Dataset("shop", labels_of(2), split_of([[1.0, 0.0]]))
    assert len(data.test) == 0
    assert data.test.positives.shape == (0, 2)
    assert data.splits == (data.train, data.test)
    other = split_of([[0.0, 1.0]])
    assert data.with_test(other).test is other


def test_labels_are_named_by_uid_or_number():
    assert labels_of(2).uid(1) == "1"
    assert Labels(Texts.of(["x", "x"]), Texts.of(["a", "b"])).uid(1) == "b"


ONE = split_of([[1.0, 0.0]])
WIDE = split_of([[1.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Dataset("s", labels_of(0), ONE), "data set 's' must have at least one label, but has none"),
        (lambda: Dataset("s", labels_of(2), Split.empty(2)), "'s' must have at least one train text, but has none"),
        (lambda: Dataset("s", labels_of(2), WIDE), r"positives of train must have 1 rows .* and 2 columns .* 1 and 3"),
        (lambda: Dataset("s", labels_of(2), ONE, WIDE), r"positives of test must have 1 rows .* and 2 columns"),
        (
            lambda: Dataset("s", labels_of(2), split_of([[1.0, 0.0]], filter_pairs=sparse.csr_array((2, 2)))),
            r"filter pairs of train must have 1 rows",
        ),
        (
            lambda: Dataset("s", labels_of(2), split_of([[1.0, 0.0]], features=sparse.csr_array((2, 2)))),
            r"features of train must have 1 rows \(texts\), but have 2",
        ),
        (
            lambda: Dataset("s", labels_of(2), split_of([[-1.0, 1]])),
            r"relevance in train must be a number > 0, .* -1.0",
        ),
        (lambda: Dataset("s", labels_of(2), split_of([[np.nan, 1]])), r"relevance in train .* one is nan"),
        (lambda: Dataset("s", labels_of(2), split_of([[np.inf, 1]])), r"relevance in train .* one is inf"),
        (
            lambda: Dataset("s", labels_of(2), split_of(np.ones((2, 2)), uids=Texts.of(["a", "a"]))),
            "uids of train must differ, but 'a' comes again in row 2; rename one, or leave the uids out",
        ),
        (
            lambda: Dataset("s", labels_of(2), split_of(np.ones((2, 2)), uids=Texts.of(["a"]))),
            "train must have one uid each, but there are 2 rows and 1 uids",
        ),
        (lambda: Labels(Texts.of(["x", "y"]), Texts.of(["a", "a"])), "uids of labels must differ, but 'a' comes again"),
        (
            lambda: Dataset(
                "s",
                labels_of(2),
                Split(Texts.of(["a"]), sparse.csr_array(np.ones((1, 2))), sparse.csr_array((1, 2), dtype=bool)),
            ),
            "positives of train must be sorted, without repeats and read-only; make them with Split.of",
        ),
        (lambda: Propensity(-1, 1), "propensity constants must be numbers >= 0, but are A=-1, B=1"),
        (lambda: Propensity(np.nan, 1), "propensity constants must be numbers >= 0, but are A=nan"),
    ],
)
def test_invalid_data_is_refused(make, match):
    with pytest.raises(DataError, match=match):
        make()
