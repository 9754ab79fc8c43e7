"""Choosing on a validation split: what it looks at, what it never looks at, and that it says what it chose."""

import logging

import numpy as np
import pytest
from scipy import sparse

from synthetic import QUICK, topics
from unidex.augment.agreement import Agreement, agreement
from unidex.augment.points import Points
from unidex.config import Augment
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.distributed import ALONE
from unidex.errors import UnidexError
from unidex.pipeline import train
from unidex.training.batching import TrainingSet
from unidex.training.choosing import Validation
from unidex.training.run import with_label_points

AUTO = [*QUICK, "train.validate_every=1", "train.epochs=4", "train.validation=0.2", "features.min_df=1"]


def with_rare_labels():
    """Every label of the first texts is theirs alone."""
    data = topics(num_labels=40, num_train=120)
    dense = data.train.positives.toarray()
    dense[:, :10] = 0
    dense[np.arange(10), np.arange(10)] = 1
    return Dataset("rare", data.labels, Split.of(data.train.texts, sparse.csr_array(dense)), data.test)


def test_labels_that_only_validation_texts_have_are_neither_asked_for_nor_answered():
    data = with_rare_labels()
    rows = np.arange(len(data.train))
    validation = Validation.of(data, 0.5, 0, rows, np.arange(data.num_labels), ALONE)
    trained = np.bincount(data.train.positives[validation.rows].indices, minlength=data.num_labels) > 0
    assert len(validation.forbidden)
    assert not trained[validation.forbidden].any()
    assert trained[validation.split.positives.indices].all()
    assert np.diff(validation.split.positives.indptr).min() > 0
    assert set(validation.texts).isdisjoint(validation.rows)
    assert len(validation.split) == len(validation.texts)
    # The texts are those of the rows that are left.
    assert list(validation.split.texts) == [data.train.texts[row] for row in validation.texts]


def test_labels_that_no_text_has_may_be_answered():
    data = with_rare_labels()
    positives = data.train.positives.toarray()
    positives[:, 39] = 0
    unknown = Dataset("unknown", data.labels, Split.of(data.train.texts, sparse.csr_array(positives)), data.test)
    validation = Validation.of(unknown, 0.5, 0, np.arange(120), np.arange(40), ALONE)
    assert 39 not in validation.forbidden


def test_a_validation_without_answers_is_an_error():
    data = topics(num_labels=40, num_train=40)
    alone = Split.of(data.train.texts, sparse.csr_array(np.eye(40, dtype=np.float32)))
    with pytest.raises(UnidexError, match="labels other texts have too"):
        Validation.of(Dataset("alone", data.labels, alone), 0.2, 0, np.arange(40), np.arange(40), ALONE)


def test_auto_says_whether_label_texts_pay(caplog):
    with caplog.at_level(logging.INFO):
        model = train(topics(filters=True), "auto", settings=AUTO)
    said = [record.getMessage() for record in caplog.records if "pay" in record.getMessage()]
    assert len(said) == 2
    by_dual, by_gandalf = ("does not pay" not in line for line in said)
    chosen = model.metrics["choice"]
    assert (chosen["augment"] == "gandalf") == by_gandalf
    assert (chosen["dual_weight"] == 0) == by_dual
    assert not (by_dual and by_gandalf)
    assert model.config.augment.method == chosen["augment"]
    assert model.config.loss.dual_weight == chosen["dual_weight"]


@pytest.mark.parametrize("setting", ["train.validation=0.0", "train.refit=false"])
def test_label_texts_are_not_tried_where_nothing_can_be_chosen(setting, caplog):
    with caplog.at_level(logging.INFO):
        model = train(topics(), "auto", settings=[*AUTO, setting])
    assert model.config.augment.method == "none"
    assert sum("are not tried" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("self_label", [True, False])
def test_label_points_leave_the_original_data_as_it_is(self_label):
    data = topics(filters=True)
    positives, pairs = data.train.positives, data.train.filter_pairs
    texts, labels = np.arange(240)[:, None], np.arange(1000, 1024)[:, None]
    settings = Augment(method="gandalf", self_label=self_label)
    given = TrainingSet(texts, labels, positives, pairs)
    found = with_label_points(given, settings, 0, np.vstack)
    assert (found.positives[:240] != positives).nnz == 0
    assert (found.filter_pairs[:240] != pairs).nnz == 0
    assert found.texts[:240].tolist() == texts.tolist()
    assert found.labels is labels
    points = found.texts[240:, 0] - 1000
    own = found.positives[240:].toarray()[np.arange(len(points)), points]
    ignored = found.filter_pairs[240:].toarray()[np.arange(len(points)), points]
    # Its own label is a positive of a label text, or does not count; never a negative.
    assert (own == 1).all() if self_label else ((own == 0) & ignored).all()
    assert found.filter_pairs[240:].nnz == (0 if self_label else len(points))


def test_propensities_test_and_frequencies_are_those_of_the_original_data():
    data = topics()
    plain = train(data, "unidec", settings=[*QUICK, "train.epochs=1"])
    augmented = train(data, "unidec", settings=[*QUICK, "train.epochs=1", "augment.method=gandalf"])
    assert augmented.labels.frequencies.tolist() == plain.labels.frequencies.tolist()
    assert augmented.labels.frequencies.tolist() == data.label_frequencies().tolist()
    assert augmented.metrics["test"]["num_texts"] == len(data.test)
    assert augmented.metrics["data"]["num_train"] == len(data.train)


@pytest.mark.parametrize("recipe", ["unidec", "depsl", "dexml", "dexml-top5", "dexml-mined", "renee"])
@pytest.mark.parametrize("method", ["gandalf", "glas", "random-walk", "one-hot"])
def test_every_recipe_takes_soft_targets(recipe, method):
    settings = [*QUICK, "train.epochs=3", f"augment.method={method}"]
    model = train(topics(labels_per_text=3, filters=True), recipe, settings=settings)
    assert np.isfinite(model.metrics["test"]["P@1"])
    assert model.metrics["test"]["P@1"] > 30


def test_targets_known_to_be_wrong_are_not_tried(caplog):
    """Every text is a label; what stands together on texts is never what the text of a label has."""
    num = 130
    words = [f"w{number}" for number in range(num)]
    dense, pairs = np.zeros((num, num), dtype=np.float32), np.eye(num, dtype=bool)
    dense[np.arange(num), (np.arange(num) + 1) % num] = 1
    dense[np.arange(num), (np.arange(num) + 40) % num] = 1
    texts = Texts.of([f"{word} {words[(place + 1) % num]}" for place, word in enumerate(words)])
    split = Split.of(texts, sparse.csr_array(dense), sparse.csr_array(pairs))
    data = Dataset("wrong", Labels(Texts.of(words)), split)
    with caplog.at_level(logging.INFO):
        model = train(data, "auto", settings=[*AUTO, "augment.delta=0.1"])
    said = [record.getMessage() for record in caplog.records if "gandalf)" in record.getMessage()]
    assert len(said) == 1
    assert "of 130 labels that are train texts themselves, only 0%" in said[0]
    assert model.metrics["choice"]["augment"] == "none"


def test_agreement_counts_true_targets_beside_the_own_label():
    positives = sparse.csr_array(np.array([[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]], dtype=np.float32))
    pairs = sparse.csr_array(np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=bool))
    targets = np.array([[1, 0.5, 0, 0.5], [0.2, 0.2, 1, 0]], dtype=np.float32)
    points = Points(np.arange(3), np.array([0, 2]), sparse.csr_array(targets))
    # Text 0 is label 0: of its targets 1 and 3 it has 1. Text 1 is label 2: of 0 and 1 it has 0.
    assert agreement(points, positives, pairs) == Agreement(2, 4, 0.5)
    nothing = sparse.csr_array(pairs.shape, dtype=bool)
    assert agreement(points, positives, nothing) == Agreement(0, 0, 0.0)


def test_the_dual_encoders_loss_is_left_out_where_label_texts_say_nothing():
    """Labels are named by words that no text has: to draw texts towards them is to learn noise."""
    data = topics(num_labels=30, num_train=300, num_test=0)
    unrelated = Labels(Texts.of([f"x{number} y{number}" for number in range(30)]))
    named = Dataset("unrelated", unrelated, data.train)
    settings = [*AUTO, "augment.method=none", "train.epochs=6"]
    model = train(named, "auto", settings=settings)
    assert model.metrics["choice"]["augment"] == "none"
    plain = train(named, "auto", settings=[*settings, "loss.choose_dual=false"])
    assert model.metrics["validation"]["P@1"] >= plain.metrics["validation"]["P@1"] - 5
    assert plain.metrics["choice"]["dual_weight"] == 0.5


def test_a_loss_that_does_not_count_changes_nothing_but_the_time():
    """Without the weight of the dual encoder, the classifier is that of a network without one."""
    settings = [*QUICK, "loss.dual_weight=0.0", "pool.hard_negatives=0", "pool.batches=random"]
    both = train(topics(), "unidec", settings=settings)
    alone = train(topics(), "unidec", settings=[*settings, "heads.dual=false", "predict.mode=classifier"])
    found, expected = (model.network.classifiers.weight for model in (both, alone))
    np.testing.assert_allclose(found, expected, atol=1e-6)
