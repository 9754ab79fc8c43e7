"""Hierarchical precision and recall against sets, one text at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from unidex.metrics.hierarchy import hierarchical_scores, with_broader
from unidex.topk import TopK

LABELS = 6
pairs = st.lists(st.tuples(st.integers(0, LABELS - 1), st.integers(0, LABELS - 1)), max_size=8)
rows = st.lists(st.sets(st.integers(0, LABELS - 1), max_size=3), min_size=1, max_size=4)


def above(labels, broader):
    """Labels with everything broader, by following each pair until nothing is new."""
    found = set(labels)
    while more := {high for low, high in broader if low in found} - found:
        found |= more
    return found


def matrix(entries, shape):
    dense = np.zeros(shape)
    for row, column in entries:
        dense[row, column] = 1
    return sparse.csr_array(dense)


@given(pairs, rows, st.data())
def test_as_with_sets(broader, truth, data):
    shown = [data.draw(st.permutations(range(LABELS)))[: data.draw(st.integers(0, 3))] for _ in truth]
    ids = np.full((len(truth), 3), -1)
    for row, labels in enumerate(shown):
        ids[row, : len(labels)] = labels
    topk = TopK(ids, np.where(ids >= 0, -np.arange(3.0), -np.inf).astype(np.float32))
    positives = matrix([(row, label) for row, labels in enumerate(truth) for label in labels], (len(truth), LABELS))
    found = hierarchical_scores(topk, positives, with_broader(matrix(broader, (LABELS, LABELS))), [2])
    predicted = [above(labels[:2], broader) for labels in shown]
    true = [above(labels, broader) for labels in truth]
    both = sum(len(one & other) for one, other in zip(predicted, true, strict=True))
    precision, recall = both / max(1, sum(map(len, predicted))), both / max(1, sum(map(len, true)))
    assert found["hP@2"] == pytest.approx(100 * precision)
    assert found["hR@2"] == pytest.approx(100 * recall)
    f1 = 2 * precision * recall / (precision + recall) if both else 0
    assert found["hF1@2"] == pytest.approx(100 * f1)
