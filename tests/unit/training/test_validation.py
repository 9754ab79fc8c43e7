"""Choosing on a validation split: what it looks at, what it never looks at, and that it says what it chose."""

import logging
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import QUICK, topics
from unidex.augment.agreement import Agreement, agreement
from unidex.augment.label_points import Points
from unidex.config import Augment
from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Labels, Split, split_rows
from unidex.data.texts import Texts
from unidex.distributed import ALONE
from unidex.errors import UnidexError
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.scoring.layout import Weights
from unidex.scoring.network_metrics import metric_value, metrics_of
from unidex.training import trials as trying
from unidex.training import validation as validating
from unidex.training.held_out import wanted_share
from unidex.training.training_set import TrainingSet, with_label_points
from unidex.training.trials import TRIALS, plan_trials
from unidex.training.validation import Validation
from unidex.verbs.train import train

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


@pytest.mark.parametrize(("num_shared", "num_few", "all_count"), [(10, 200, True), (30, 200, False), (10, 40, False)])
def test_where_most_of_a_few_held_out_texts_have_new_labels_all_count(monkeypatch, num_shared, num_few, all_count):
    monkeypatch.setattr(validating, "MIN_TREES", num_few)
    data = topics(num_labels=120, num_train=100)
    # The first texts share label 110, the others have one of their own, and the last has none.
    labels = np.where(np.arange(99) < num_shared, 110, np.arange(99))
    positives = sparse.csr_array((np.ones(99, np.float32), (np.arange(99), labels)), shape=(100, 120))
    some = Dataset("new", data.labels, Split.of(data.train.texts, positives), data.test)
    before = Validation.of(some, 0.5, 0, np.arange(100), np.arange(120), ALONE)
    after = before.with_new_labels()
    assert set(before.split.positives.indices) == {110}
    if not all_count:
        assert after is before
        return
    assert len(after.forbidden) == 0
    assert len(after.split) == len(after.texts) == np.count_nonzero(before.held_out_texts != 99)
    assert list(after.split.texts) == [data.train.texts[row] for row in after.texts]
    assert set(after.split.positives.indices) == {110, *after.texts[after.texts >= num_shared]}


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
    with pytest.raises(UnidexError, match="a label that the others have too; add texts"):
        Validation.of(Dataset("alone", data.labels, alone), 0.2, 0, np.arange(40), np.arange(40), ALONE)


@pytest.mark.parametrize(("change", "name"), [("augment.method=auto", "gandalf"), ("augment.method=none", "hard")])
def test_auto_logs_the_scores_of_its_trials(change, name, caplog):
    with caplog.at_level(logging.INFO):
        model = train(topics(filters=True), "auto", settings=[*AUTO, "pool.hard_negatives=0", change])
    lines = [record.getMessage() for record in caplog.records]
    (said,) = (line for line in lines if line.startswith("The model trains ") and f" {TRIALS[name]}: " in line)
    pays = said.startswith("The model trains with ")
    chosen = model.metrics["choice"]
    assert chosen["augment"] == model.config.augment.method == ("gandalf" if pays and name == "gandalf" else "none")
    assert chosen["hard_negatives"] == model.config.pool.hard_negatives == (2 if pays and name == "hard" else 0)
    # The line names both values, and the better one is the model's.
    values = [float(number) for number in re.findall(r"\d+\.\d\d", said)]
    assert len(values) == 2
    assert (values[0] > values[1]) == pays
    assert metric_value(model.metrics["validation"], model.config.train.metric) == pytest.approx(max(values), abs=0.01)


def test_nothing_is_tried_where_nothing_can_be_chosen(caplog):
    with caplog.at_level(logging.INFO):
        found = plan_trials(topics(), load("auto", ["train.validation=0.0"]), 0)
    assert found == {"plain": {"augment": {"method": "none"}}}
    assert "there is no validation split" in caplog.text


def test_nothing_is_tried_where_it_would_take_long(monkeypatch, caplog):
    monkeypatch.setattr(trying, "_MAX_TEXTS", 239)
    with caplog.at_level(logging.INFO):
        assert list(plan_trials(topics(), load("auto"), 0)) == ["plain"]
    assert "240 train texts, and trials take too long above 239" in caplog.text
    monkeypatch.setattr(trying, "_MAX_TEXTS", 240)
    assert list(plan_trials(topics(), load("auto"), 0)) == ["plain", "gandalf"]


def test_label_texts_are_not_tried_where_there_are_many(monkeypatch, caplog):
    monkeypatch.setattr(trying, "_MAX_LABELS", 23)
    with caplog.at_level(logging.INFO):
        assert list(plan_trials(topics(), load("auto"), 0)) == ["plain", "hard"]
    assert "24 labels, and it takes too long above 23" in caplog.text


@pytest.mark.parametrize(
    ("num_known", "has_true_targets", "tried"),
    [(3, False, "gandalf"), (4, False, "hard"), (4, True, "gandalf")],
)
def test_label_texts_are_not_tried_where_a_few_of_them_are_known_to_have_wrong_targets(
    num_known, has_true_targets, tried
):
    data = topics()
    positives, own = np.zeros((2, len(data.train), 24), dtype=bool)
    rows = np.arange(len(data.train))
    # Label n goes with label n + 10, so that 10 + n is the target of its text.
    positives[rows, rows % 10] = positives[rows, rows % 10 + 10] = True
    for text in range(num_known):
        own[text, text] = True
        positives[text] = False
        positives[text, text + 10 if has_true_targets else 23] = True
    train_split = Split.of(data.train.texts, sparse.csr_array(positives.astype(np.float32)), sparse.csr_array(own))
    found = plan_trials(Dataset("own", data.labels, train_split), load("auto"), 0)
    assert list(found) == ["plain", tried]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["augment.method=gandalf", "pool.try_hard_negatives=0"], {"plain": {}}),
        (["augment.method=none"], {"plain": {}, "hard": {"pool": {"hard_negatives": 2}}}),
        (
            [],
            {"plain": {"augment": {"method": "none"}}, "gandalf": {"augment": {"method": "gandalf"}}},
        ),
    ],
)
def test_at_most_one_variant_is_tried(changes, expected):
    assert plan_trials(topics(), load("auto", changes), 0) == expected


def test_labels_without_texts_are_no_training_points():
    data = topics()
    silent = Dataset("silent", Labels(Texts.of([""] * 24)), data.train)
    plain = {"augment": {"method": "none"}}
    assert plan_trials(silent, load("auto"), 0) == {"plain": plain, "hard": plain | {"pool": {"hard_negatives": 2}}}


# Which texts are held out.


@pytest.mark.parametrize(("share", "count"), [(0.1, 10), (0.33, 13), (0.9, 36)])
def test_the_split_is_drawn_at_random_has_the_asked_size_and_depends_on_the_seed_alone(share, count):
    # Every text has label 0: none is without an answer.
    positives = sparse.csr_array(np.eye(1, 3, dtype=np.float32).repeat(40, axis=0))
    data = Dataset(
        "one", Labels(Texts.of(["a", "b", "c"])), Split.of(Texts.of([f"text {n}" for n in range(40)]), positives)
    )

    def drawn(seed):
        found = Validation.of(data, share, seed, np.arange(40), np.arange(3), ALONE)
        assert sorted([*found.rows, *found.texts]) == list(range(40))
        assert list(found.split.texts) == [f"text {n}" for n in found.texts]
        return found.rows.tolist(), found.texts.tolist()

    rows, held_out = drawn(3)
    assert len(held_out) == count
    # Of few texts a quarter.
    assert (rows, held_out) == drawn(3) == tuple(part.tolist() for part in split_rows(40, max(share, 0.25), 3))
    assert len({tuple(drawn(seed)[1]) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("settings", "most"),
    [([], 32_000), (["predict.rank=sum"], 8000), (["train.decay_epochs=0"], 8000), (["train.validation=0"], 0)],
)
def test_no_more_texts_are_held_out_than_choices_and_a_ranker_need(settings, most):
    config = load("auto", settings)
    assert wanted_share(config, 1_000_000) * 1_000_000 == most
    assert wanted_share(config, 1000) == config.train.validation


def test_a_run_holds_out_no_more_texts_than_are_wanted(monkeypatch, caplog):
    monkeypatch.setattr("unidex.training.held_out.MAX_RANKED", 70)
    with caplog.at_level(logging.INFO):
        train(topics(num_train=800, num_labels=3), "auto", settings=[*QUICK, "train.validation=0.2"])
    assert "Training on 730 texts; 70 are held out" in caplog.text


# What is chosen.


@pytest.fixture(scope="module")
def unweighed():
    """A network, the split it has not seen, and the recipe without a choice of weights."""
    fixed = ["predict.choose_fusion=false", "predict.choose_knn=false", "predict.choose_label_prior=false"]
    data = with_rare_labels()
    settings = [*AUTO, *fixed, "augment.method=none", "pool.try_hard_negatives=0", "train.decay_epochs=0"]
    model = train(data, "auto", settings=settings)
    encoder = model.network.encoder
    texts, labels = encoder.prepare(data.train.texts), encoder.prepare(data.labels.texts)
    return model.network, Validation.of(data, 0.2, 0, texts, labels, ALONE), model.config


def with_weights(config, **weights):
    return config.model_copy(update={"predict": config.predict.model_copy(update=weights)})


@pytest.mark.parametrize("fusion", [0.2, 0.5])
def test_weights_that_are_not_to_be_chosen_stay_and_score_as_a_search_does(unweighed, fusion):
    network, validation, config = unweighed
    choice = validation.choice(network, 3, with_weights(config, fusion=fusion))
    assert (choice.epochs, choice.fusion, choice.knn, choice.label_prior) == (3, fusion, 0.0, 0.0)
    assert choice.metrics == pytest.approx(validation.score(network, fusion))
    assert choice.value == metric_value(choice.metrics, config.train.metric)


def test_chosen_weights_are_no_worse_than_the_recipes_and_are_what_their_model_scores(unweighed):
    network, validation, config = unweighed
    before = with_weights(config, fusion=0.98, knn=0.5, label_prior=-0.02)
    free = {"choose_fusion": True, "choose_knn": True, "choose_label_prior": True}
    plain = validation.choice(network, 1, before)
    assert (plain.fusion, plain.knn, plain.label_prior) == (0.98, 0.5, -0.02)
    for names in [(name,) for name in free] + [tuple(free)]:
        found = validation.choice(network, 1, with_weights(before, **{name: free[name] for name in names}))
        assert found.value >= plain.value
        left = {name.removeprefix("choose_") for name in free.keys() - set(names)}
        assert all(getattr(found, name) == getattr(plain, name) for name in left)
    chosen = {name: getattr(found, name) for name in ("fusion", "knn", "label_prior")}
    assert validation.choice(network, 1, with_weights(config, **chosen)).metrics == pytest.approx(found.metrics)


@pytest.mark.parametrize("wanted", ["P@1", "PSP@3+P@1+PSP@1", "nDCG@5 + R@5"])
def test_the_metrics_of_a_sum_are_those_among_all(unweighed, wanted):
    network, validation, config = unweighed
    data, split = validation.dataset, validation.split
    found = validation._predicted(network, config, Weights(0.5), 20, (split, validation.texts))
    every, some = metrics_of(found, data, split), metrics_of(found, data, split, wanted)
    assert some.items() <= every.items()
    assert len(some) == wanted.count("+") + 1
    assert metric_value(some, wanted) == metric_value(every, wanted)


def test_a_choice_scores_as_the_model_of_its_weights_does(unweighed):
    network, validation, config = unweighed
    config = with_weights(config, fusion=0.3, knn=2.0, label_prior=0.05)
    choice = validation.choice(network, 1, config)
    data, rows = validation.dataset, validation.rows
    known = data.train.positives[rows]
    counts = np.bincount(known.indices, minlength=data.num_labels)
    labels = replace(LabelSet.of(data), frequencies=counts)
    model = Model.build(config, network, labels, validation.labels, train=(validation.train_texts[rows], known))
    found = model.topk(list(validation.split.texts), 40, forbidden=validation.forbidden)
    assert choice.metrics == pytest.approx(metrics_of(found, data, validation.split), abs=1e-6)
    # Without the kNN part the metrics differ.
    assert choice.metrics != validation.choice(network, 1, with_weights(config, knn=0.0)).metrics


@pytest.mark.parametrize("self_label", [True, False])
def test_label_points_leave_the_original_data_as_it_is(self_label):
    data = topics(filters=True)
    positives, pairs = data.train.positives, data.train.filter_pairs
    texts, labels = np.arange(240)[:, None], np.arange(1000, 1024)[:, None]
    settings = Augment(method="gandalf", self_label=self_label)
    given = TrainingSet(texts, labels, positives, pairs)
    found = with_label_points(given, settings, 0, np.vstack, given.labels, np.empty(0, dtype=np.int64))
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
    said = [record.getMessage() for record in caplog.records if "Gandalf" in record.getMessage()]
    assert len(said) == 1
    assert "for 130 labels that are train texts themselves, only 0%" in said[0]
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


def test_a_loss_of_weight_0_changes_nothing():
    """Without the weight of the dual encoder, the classifier is that of a network without one."""
    settings = [*QUICK, "loss.dual_weight=0.0", "pool.hard_negatives=0", "pool.batches=random"]
    both = train(topics(), "unidec", settings=settings)
    alone = train(topics(), "unidec", settings=[*settings, "heads.dual=false", "predict.mode=classifier"])
    found, expected = (model.network.classifiers.weight for model in (both, alone))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("recipe", ["auto", "unidec"])
def test_texts_whose_labels_are_all_their_own_are_trained_on_without_validation(recipe, caplog):
    texts = Texts.of([f"w{number}a w{number}b" for number in range(30)])
    data = Dataset("own", Labels(texts), Split.of(texts, sparse.csr_array(np.eye(30, dtype=np.float32))))
    with caplog.at_level(logging.INFO):
        model = train(data, recipe, settings=[*QUICK, "train.epochs=2", "train.validation=0.2"])
    assert "No choices on validation: no held-out text of 0.25 of 30 texts has a label" in caplog.text
    assert model.config.predict.rank == ("learned" if recipe == "auto" else "sum")
    assert "choice" not in model.metrics
    assert len(model.topk(["w3a"], 3).ids[0]) == 3
