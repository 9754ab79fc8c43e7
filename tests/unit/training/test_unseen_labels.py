"""Labels that no train text has, in a model of classifiers alone: they stand behind labels that were learned."""

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.training.unseen_labels import are_left_random
from unidex.verbs.train import train

ALONE = [*QUICK, "heads.dual=false", "heads.classifier_init=random", "loss.classifier=bce", "pool.hard_negatives=0"]


def with_unseen(data: Dataset, count: int) -> Dataset:
    """The data set with further labels that no text has."""
    wider = [
        Split.of(split.texts, sparse.hstack([split.positives, sparse.csr_array((len(split), count))], format="csr"))
        for split in (data.train, data.test)
    ]
    texts = Texts.of([*data.labels.texts, *(f"nobody {number}" for number in range(count))])
    return Dataset(data.name, Labels(texts), *wider)


def test_a_label_without_texts_scores_below_what_was_learned():
    data = topics()
    known = train(data, "unidec", settings=ALONE).metrics["test"]
    model = train(with_unseen(data, 60), "unidec", settings=ALONE)
    found = model.predict(list(data.test.texts), 5).ids
    assert np.mean(found >= data.num_labels) < 0.02
    assert model.metrics["test"]["P@1"] > known["P@1"] - 5


@pytest.mark.parametrize(
    ("recipe", "settings", "wanted"),
    [
        ("astec", [], True),
        ("unidec", [], False),
        ("renee", [], False),
        ("inceptionxml", [], False),
        ("decaf", [], False),
        ("unidec", ["heads.dual=false", "heads.classifier_init=zero"], True),
        ("unidec", ["heads.dual=false"], False),
    ],
)
def test_only_classifiers_of_labels_without_texts_are_changed(recipe, settings, wanted):
    assert are_left_random(load(recipe, settings)) == wanted
