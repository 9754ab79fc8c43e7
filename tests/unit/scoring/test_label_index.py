"""Which index the labels get while a model is trained."""

import numpy as np
import pytest

from helpers.synthetic import QUICK, topics
from unidex.scoring import label_index
from unidex.scoring.label_index import build_index
from unidex.scoring.layout import Layout, Weights
from unidex.verbs.train import train


@pytest.fixture(scope="module")
def labels():
    """A network, its layout, the prepared labels and their frequencies."""
    data = topics()
    network = train(data, "auto", settings=QUICK).network
    prepared = network.encoder.prepare(data.labels.texts)
    return network, Layout.of(network, Weights(0.5)), prepared, data.label_frequencies()


@pytest.mark.parametrize(
    ("listed_from", "for_many_texts", "kind"), [(0, True, "pq"), (0, False, "exact"), (10**6, True, "exact")]
)
def test_thousands_of_texts_search_many_labels_by_their_codes(labels, monkeypatch, listed_from, for_many_texts, kind):
    monkeypatch.setattr(label_index, "LISTED_FROM", listed_from)
    index = build_index(*labels, for_many_texts=for_many_texts)
    assert index.kind == kind
    exact = build_index(*labels)
    every = np.arange(index.num_ids)
    np.testing.assert_array_equal(index.vectors(every), exact.vectors(every))
