"""Random data sets for property tests, and what it means that two of them are equal."""

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts

# Surrogates have no UTF-8; the named characters end a line for str.splitlines, but not for a reader of ours.
characters = st.one_of(
    st.sampled_from("ab \t\n\r\"'\\,;|[]\u2028\u2029\x85\x00\x1c\ufeffé漢🙂"),
    st.characters(exclude_categories=["Cs"]),
)
strings = st.text(characters, max_size=12)
relevances = st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.0, 3.0, 1e-30, 1e30])


@st.composite
def texts(draw, size, *, text=strings):
    """Texts, with titles and contents apart or not."""
    if draw(st.booleans()):
        return Texts.of(draw(st.lists(text, min_size=size, max_size=size)))
    packer = Packer()
    packer.add_pairs(*(draw(st.lists(text, min_size=size, max_size=size)) for _ in range(2)))
    return Texts.packed(packer)


def uids(size, *, text=strings):
    """Different names, or None; no file of no rows can tell the two apart, so that no rows have None."""
    if size == 0:
        return st.none()
    return st.none() | st.lists(text, min_size=size, max_size=size, unique=True).map(Texts.of)


@st.composite
def pairs(draw, rows, columns, values):
    """A sparse rows x columns table."""
    entries = st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1))
    chosen = draw(st.lists(entries, max_size=12, unique=True)) if rows else []
    table = np.zeros((rows, columns), dtype=np.float32)
    for row, column in chosen:
        table[row, column] = draw(values)
    return sparse.csr_array(table)


@st.composite
def splits(draw, num_labels, *, min_texts=0, graded=True, filters=True, text=strings, uid_text=strings):
    """A split over ``num_labels`` labels."""
    size = draw(st.integers(min_texts, 5))
    values = relevances if graded and draw(st.booleans()) else st.just(1.0)
    filter_pairs = draw(pairs(size, num_labels, st.just(1.0))) if filters else None
    return Split.of(
        draw(texts(size, text=text)),
        draw(pairs(size, num_labels, values)),
        filter_pairs,
        draw(uids(size, text=uid_text)),
    )


@st.composite
def datasets(draw, *, graded=True, filters=True, empty_test=True, text=strings, uid_text=strings):
    """A data set with whatever a data set may have.

    Args:
        draw: given by hypothesis.
        graded: whether relevance may differ from 1.
        filters: whether there may be filter pairs.
        empty_test: whether test may be without texts.
        text: texts of texts and labels.
        uid_text: uids of texts and labels.
    """
    num_labels = draw(st.integers(1, 5))
    labels = Labels(draw(texts(num_labels, text=text)), draw(uids(num_labels, text=uid_text)))
    how = {"graded": graded, "filters": filters, "text": text, "uid_text": uid_text}
    train = draw(splits(num_labels, min_texts=1, **how))
    test = draw(splits(num_labels, min_texts=0 if empty_test else 1, **how))
    return Dataset(draw(st.sampled_from(["shop", "wiki"])), labels, train, test)


def assert_equal_texts(found, expected):
    assert list(found) == list(expected)
    assert list(found.fields()) == list(expected.fields())


def assert_equal_splits(found, expected):
    assert_equal_texts(found.texts, expected.texts)
    for name in ("positives", "filter_pairs"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.toarray(), other.toarray())
    assert (found.uids is None) == (expected.uids is None)
    if expected.uids is not None:
        assert list(found.uids) == list(expected.uids)


def assert_equal_datasets(found, expected):
    """Equal but for the name; labels without uids may come back with their numbers as uids."""
    assert_equal_texts(found.labels.texts, expected.labels.texts)
    assert [*map(found.labels.uid, range(len(found.labels)))] == [
        *map(expected.labels.uid, range(len(expected.labels)))
    ]
    assert_equal_splits(found.train, expected.train)
    assert_equal_splits(found.test, expected.test)
