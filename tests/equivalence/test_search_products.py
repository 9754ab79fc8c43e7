"""An exact search finds the same labels with the same scores, whichever library multiplies."""

import numpy as np
import pytest
import torch

from unidex.index import exact, tensor_search
from unidex.index.exact import ExactIndex
from unidex.losses import products

NUM_TEXTS, NUM_LABELS, DIM = 150, 333, 64

pytestmark = pytest.mark.skipif(products._by_one_dnn() is None, reason="this torch was built without oneDNN")


@pytest.fixture
def sides():
    rng = np.random.default_rng(4)
    texts = rng.standard_normal((NUM_TEXTS, DIM)).astype(np.float32)
    labels = rng.standard_normal((NUM_LABELS, DIM)).astype(np.float32)
    # Labels that tie, in either half of the columns, and a text that all labels tie for.
    labels[[5, 100, 300, 332]] = labels[7]
    texts[3] = 0
    return texts, labels


def both(monkeypatch, search):
    """What is found by oneDNN, and without it; and the shapes that oneDNN multiplied."""
    compiled, shapes = products._by_one_dnn(), []

    def counted(left, right):
        shapes.append((*left.shape, len(right)))
        return compiled(left, right)

    monkeypatch.setattr(products, "rows_with_rows", lambda: counted)
    fast = search()
    monkeypatch.setattr(products, "rows_with_rows", lambda: None)
    return fast, search(), shapes


@pytest.mark.parametrize("num_hidden", [0, 40, 300])
def test_a_search_of_arrays(sides, num_hidden, monkeypatch):
    texts, labels = sides
    texts.flags.writeable = False
    hidden = np.arange(num_hidden)
    monkeypatch.setattr(exact, "SCORES_AT_ONCE", 50 * NUM_LABELS)
    index = ExactIndex.build(labels)
    fast, slow, shapes = both(monkeypatch, lambda: index.search(texts, 9, forbidden=hidden))
    # Where most labels are hidden, the others are few enough for one block.
    assert len(shapes) == (1 if num_hidden == 300 else 4)
    np.testing.assert_array_equal(fast.ids, slow.ids)
    np.testing.assert_array_equal(fast.scores, slow.scores)
    assert index.search(texts[:2], 9, forbidden=hidden).ids.tolist() == fast.ids[:2].tolist()


@pytest.mark.parametrize("at_once", [1 << 24, 1 << 15])
def test_a_search_of_tensors(sides, at_once, monkeypatch):
    texts, labels = (torch.from_numpy(side) for side in sides)
    monkeypatch.setattr(products, "_MIN_TERMS", 1)
    monkeypatch.setattr(tensor_search, "SCORES_AT_ONCE", at_once)
    arguments = {"hidden": None, "excluded": None, "device": None}
    fast, slow, shapes = both(
        monkeypatch, lambda: tensor_search.search_tensors([labels[:200], labels[200:]], texts, 9, **arguments)
    )
    assert shapes
    np.testing.assert_array_equal(fast.ids, slow.ids)
    np.testing.assert_allclose(fast.scores, slow.scores, rtol=1e-5, atol=1e-5)
