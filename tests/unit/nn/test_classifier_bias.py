"""Biases of classifiers: one number a label that is added to its score, where it begins, and that it is kept."""

import numpy as np
import pytest
import torch

from helpers.synthetic import topics
from unidex.config.recipes import load
from unidex.encoders.registry import build_encoder
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.nn.initialisation import initialise_biases
from unidex.training.towers import Towers
from unidex.verbs.train import train

SMALL = ["encoder.dim=16", "features.min_df=1", "features.num_buckets=8", "train.batch_size=32", "train.epochs=4"]
SMALL += ["encoder.residual=false"]  # so that a text without words has a vector of zeros


def network_of(data, *changes):
    config = load("renee", [*SMALL, *changes])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    return build_network(config, encoder, data.num_labels).eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bias") / "model"
    return train(topics(), "renee", settings=[*SMALL, "heads.classifier_bias=log-odds"], out=folder), folder


def test_a_bias_is_added_to_the_score(saved):
    model, _ = saved
    texts = list(topics().test.texts[:4])
    plain = model.network.encoder(model.network.encoder.prepare(texts)).detach().numpy()
    rows = model.network.classifiers.weight.numpy()
    assert rows.shape[1] == plain.shape[1] + 1
    expected = plain @ rows[:, :-1].T + rows[:, -1]
    found = model.predict(texts, 24)
    np.testing.assert_allclose(found.scores, np.take_along_axis(expected, found.ids, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_initial_biases_are_the_log_odds_of_labels(temperature):
    data = topics()
    network = network_of(data, "heads.classifier_bias=log-odds", f"loss.temperature={temperature}")
    assert network.classifiers.weight[:, -1].abs().max() == 0
    initialise_biases(network, "log-odds", data.train.positives, slice(0, data.num_labels))
    counts = np.asarray(data.train.positives.sum(axis=0))
    said = torch.sigmoid(network.classifiers.weight[:, -1] * network.log_scales[1].exp()).detach().numpy()
    np.testing.assert_allclose(said, (counts + 0.5) / (len(data.train) + 1), rtol=1e-5)
    shard = network_of(data, "heads.classifier_bias=log-odds", f"loss.temperature={temperature}")
    shard.classifiers.weight = shard.classifiers.weight[5:9].clone()
    initialise_biases(shard, "log-odds", data.train.positives, slice(5, 9))
    assert torch.equal(shard.classifiers.weight[:, -1], network.classifiers.weight[5:9, -1])
    initialise_biases(network, "zero", data.train.positives, slice(0, data.num_labels))
    assert network.classifiers.weight[:, -1].abs().max() == 0


def test_a_bias_is_trained_from_its_initial_value():
    data = topics()
    still = [*SMALL, "train.lr_encoder=0.0", "train.lr_heads=0.0", "train.epochs=1"]
    for start in ("zero", "log-odds"):
        settings = [*still, f"heads.classifier_bias={start}"]
        before, after = (
            train(data, "renee", settings=[*settings, f"train.lr_classifier={lr}"]).network.classifiers.weight[:, -1]
            for lr in (0.0, 0.01)
        )
        assert (start == "zero") == (before.abs().max() == 0)
        assert (after - before).abs().min() > 0


def test_a_saved_model_keeps_its_biases(saved):
    model, folder = saved
    assert model.metrics["test"]["P@1"] > 60
    texts = list(topics().test.texts)
    assert np.array_equal(Model.load(folder).predict(texts, 5).scores, model.predict(texts, 5).scores)


def test_no_word_is_credited_with_the_bias(saved):
    model, _ = saved
    for text in (topics().test.texts[1], ""):
        for reason in explain(model, text, k=3):
            bias = float(model.network.classifiers.weight[reason.id, -1])
            carried = sum(token.score for token in reason.tokens)
            assert carried + reason.rest == pytest.approx(reason.score, abs=1e-5)
            if text == "":
                assert reason.score == pytest.approx(bias, abs=1e-5)


def test_a_bias_is_neither_scaled_nor_dropped_with_its_vector():
    settings = ["heads.classifier_bias=zero", "heads.classifier_normalised=true", "heads.classifier_dropout=0.5"]
    network = network_of(topics(num_train=20), *settings, "heads.classifier_search_vectors=unit")
    config = load("renee", [*SMALL, *settings])
    network.classifiers.weight[:, -1] = torch.arange(len(network.classifiers.weight))
    rows = Towers(network, config).gather_classifiers(torch.tensor([3, 5]), [])
    assert rows[:, -1].tolist() == [3.0, 5.0]
    assert rows[:, :-1].norm(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert (rows[:, :-1] == 0).any()
    searched = network.classifier.as_searched(network.all_classifiers())
    assert searched[3, -1] == 3
    assert searched[3, :-1].norm() == pytest.approx(1.0)
