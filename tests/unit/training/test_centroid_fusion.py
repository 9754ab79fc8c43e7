"""Centroids in classifiers: what is added after training, and that nothing else changes."""

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import topics
from unidex.nn.label_tree import label_centroids
from unidex.training.validation import Validation
from unidex.verbs.train import train

SMALL = ["encoder.dim=12", "features.min_df=1", "train.epochs=2", "stages.surrogate.train.surrogate=6"]


@pytest.mark.parametrize("recipe", ["astec", "decaf"])
def test_the_centroid_of_a_label_joins_its_classifier_and_the_bias_stays(recipe):
    data = topics()
    plain, fused = (
        train(data, recipe, settings=[*SMALL, f"heads.classifier_centroid={weight}"]) for weight in (0.0, 1.5)
    )
    rows = [model.scorer.index.vectors(np.arange(data.num_labels)) for model in (plain, fused)]
    vectors = plain.vectors(list(data.train.texts)).classifier[:, :-1]
    centroids = label_centroids(vectors, sparse.csr_array(data.train.positives))
    assert np.abs(centroids).max() > 0.1
    np.testing.assert_allclose(rows[1][:, :-1], rows[0][:, :-1] + 1.5 * centroids, atol=1e-5)
    np.testing.assert_array_equal(rows[1][:, -1], rows[0][:, -1])


def test_a_ranker_is_fitted_to_the_scores_that_the_model_has(monkeypatch):
    seen = []

    def fit(validation, network, *others):
        seen.append(network.classifiers.weight.clone().numpy())
        return fitted(validation, network, *others)

    fitted = Validation.fit
    monkeypatch.setattr(Validation, "fit", fit)
    data = topics(num_train=120)
    settings = [*SMALL, "heads.classifier_centroid=2.0", "train.validation=0.2", "predict.rank=learned"]
    model = train(data, "astec", settings=settings)
    known = np.flatnonzero(np.bincount(data.train.positives.indices) > 4)
    np.testing.assert_array_equal(seen[0][known], model.scorer.index.vectors(known))
