"""Astec's block of the bag encoder: its formula, spectral norm, gradients, training, reasons, what stays as it was."""

import numpy as np
import pytest
import torch
from torch.nn.utils.parametrizations import spectral_norm

from helpers.gradients import gradients
from helpers.naive_features import settings_with
from helpers.stopped_runs import digest, train_stopped_and_resumed
from helpers.synthetic import topics
from unidex.config import Encoder
from unidex.config.recipes import load
from unidex.encoders.bag import BagEncoder
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError
from unidex.features.extractor import FeatureExtractor
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.nn.spectral import SpectralLinear, spectral_layers
from unidex.verbs.train import train

TEXTS = ["red shoe of leather", "", "blue hat", "the red hat of the blue shoe", "red red"]
BLOCK = ["encoder.spectral=true", "encoder.layer_dropout=0.5"]
SMALL = ["encoder.dim=16", "features.min_df=1", "features.num_buckets=8", "train.batch_size=32", "train.epochs=4"]


def encoder_of(dim=6, **settings):
    torch.manual_seed(0)
    features = FeatureExtractor.fit(TEXTS, [], settings_with(min_df=1))
    return BagEncoder(features, Encoder(dim=dim, spectral=True, **{"dropout": 0.0, "layer_dropout": 0.0} | settings))


def stirred(encoder):
    """The same encoder with a layer far from its start, and power iteration not yet at its end."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        encoder.layer.parametrizations.weight.original.normal_(0, 1, generator=generator)
        encoder.layer.bias.normal_(0, 0.3, generator=generator)
    for _ in range(3):
        encoder.layer.sharpen()
    return encoder


def slow(encoder, rows):
    """The formula, number by number."""
    table, bias = encoder.table.weight.numpy(), encoder.layer.bias.detach().numpy()
    norm = encoder.layer.parametrizations.weight
    weight = norm.original.detach().numpy()
    scale = norm[0]._u.numpy() @ weight @ norm[0]._v.numpy()
    found = np.zeros((rows.shape[0], encoder.dim))
    for text in range(rows.shape[0]):
        summed = np.zeros(encoder.dim)
        for place in range(rows.indptr[text], rows.indptr[text + 1]):
            summed += rows.data[place] * table[rows.indices[place]]
        x = np.maximum(summed, 0)
        for out in range(encoder.dim):
            found[text, out] = x[out] + max(0.0, (weight[out] / scale) @ x + bias[out])
    return found


def test_the_block_starts_as_twice_the_rectified_sum():
    encoder = encoder_of().eval()
    rows = encoder.prepare(TEXTS)
    expected = 2 * np.maximum(rows @ encoder.table.weight.numpy(), 0)
    np.testing.assert_allclose(encoder(rows).detach().numpy(), expected, atol=1e-6)
    without = encoder_of(residual=False).eval()
    np.testing.assert_allclose(without(rows).numpy(), expected / 2, atol=1e-6)


def test_the_block_equals_the_formula():
    encoder = stirred(encoder_of()).eval()
    rows = encoder.prepare(TEXTS)
    np.testing.assert_allclose(encoder(rows).detach().numpy(), slow(encoder, rows), atol=1e-5)


def test_gradients_are_those_of_differences():
    encoder = stirred(encoder_of()).double()
    encoder.table.weight = encoder.table.weight.double()
    rows = encoder.prepare(TEXTS).astype(np.float64)
    aim = torch.randn(len(TEXTS), encoder.dim, dtype=torch.float64)
    touched = []
    (encoder(rows, touched) * aim).sum().backward()
    whole = torch.zeros_like(encoder.table.weight).index_copy_(0, touched[0].ids, touched[0].rows.grad)
    original = encoder.layer.parametrizations.weight.original
    for weights, gradient in (
        (encoder.table.weight, whole),
        (original.data, original.grad),
        (encoder.layer.bias.data, encoder.layer.bias.grad),
    ):
        flat = weights.view(-1)
        for place in range(0, len(flat), 5):
            before, values = float(flat[place]), []
            for step in (1e-6, -1e-6):
                flat[place] = before + step
                with torch.no_grad():
                    values.append(float((encoder(rows) * aim).sum()))
            flat[place] = before
            assert float(gradient.view(-1)[place]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-6)


def test_dropout_is_for_training_alone():
    encoder = encoder_of(dim=200, layer_dropout=0.5).train()
    rows = encoder.prepare(TEXTS[:1])
    plain = encoder(rows).detach()
    learned = encoder(rows, []).detach()
    torch.testing.assert_close(encoder.eval()(rows, []).detach(), plain)
    said = plain[0] > 0
    # A number is kept by both dropouts, by the first alone, or by none; 1 and 1 of x + relu(x) become 4 or 2 of them.
    shares = (learned[0] / plain[0])[said]
    values, counts = shares.round(decimals=4).unique(return_counts=True)
    assert values.tolist() == [0.0, 1.0, 3.0]
    assert 0.3 < counts[0] / counts.sum() < 0.7


def test_the_power_iteration_is_that_of_torch_once_a_step():
    torch.manual_seed(0)
    start = torch.randn(5, 3)
    ours, theirs = SpectralLinear(start), torch.nn.Linear(3, 5)
    theirs.weight.data.copy_(start)
    spectral_norm(theirs)
    theirs.eval()
    theirs.load_state_dict(ours.state_dict())
    moved = torch.randn(5, 3)
    for layer in (ours, theirs):
        layer.parametrizations.weight.original.data.add_(moved)
        layer.train()
    before = ours.weight.detach().clone()
    assert torch.equal(ours.weight.detach(), before), "reading must not move anything"
    ours.sharpen()
    assert torch.equal(ours.weight.detach(), theirs.weight.detach())
    for _ in range(40):
        ours.sharpen()
    assert float(torch.linalg.svdvals(ours.weight.detach())[0]) == pytest.approx(1, abs=1e-4)


def test_a_layer_that_does_not_learn_stays_as_it_is():
    layer = SpectralLinear(torch.randn(5, 5))
    layer.parametrizations.weight.original.data.normal_()
    layer.requires_grad_(False)
    before = layer.weight.clone()
    layer.sharpen()
    assert torch.equal(layer.weight, before)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("astec") / "model"
    settings = [*SMALL, *BLOCK, "encoder.dim=32", "encoder.layer_dropout=0.2", "train.epochs=8"]
    return train(topics(), "unidec", settings=settings, out=folder), folder


def test_a_model_with_the_block_learns_and_its_layer_makes_no_vector_longer(saved):
    model, _ = saved
    assert model.metrics["test"]["P@1"] > 80
    (layer,) = spectral_layers(model.network)
    weight = layer.weight.detach()
    assert not torch.equal(weight, torch.eye(32))
    assert float(torch.linalg.svdvals(weight)[0]) == pytest.approx(1, abs=0.05)


def test_a_saved_model_predicts_the_same(saved):
    model, folder = saved
    texts = list(topics().test.texts)
    before, after = model.predict(texts, 5), Model.load(folder).predict(texts, 5)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)
    assert np.array_equal(model.predict(texts, 5).scores, before.scores)


def test_word_attributions_sum_to_the_score(saved):
    model, _ = saved
    for text in [topics().test.texts[3], "w0a", "", "unknown"]:
        for reason in explain(model, text, k=3):
            said = reason.parts["dual"] + reason.parts["classifier"]
            assert sum(token.score for token in reason.tokens) + reason.rest == pytest.approx(said, abs=1e-5)


def test_a_resumed_run_with_the_block_equals_an_unbroken_one(tmp_path, monkeypatch):
    data, settings = topics(num_train=90, num_test=5), [*SMALL, *BLOCK, "train.checkpoint_every=2"]
    for name, seed in (("one", 1), ("other", 2)):
        train(data, "unidec", settings=settings, seed=seed, out=tmp_path / name)
    assert digest(tmp_path / "one") != digest(tmp_path / "other")
    broken = tmp_path / "broken"
    train_stopped_and_resumed(data, "unidec", settings=settings, seed=1, out=broken, step=4, monkeypatch=monkeypatch)
    assert digest(broken) == digest(tmp_path / "one")


def test_chunks_see_one_layer():
    """Texts that are encoded twice, chunk by chunk, move everything as if they were encoded once."""
    data = topics(num_train=90, num_test=0)
    changes = ["encoder.spectral=true", "heads.dropout=0.0", "heads.classifier_dropout=0.0", "train.lr_heads=0.01"]
    whole, chunked = (
        train(data, "dexml", settings=[*SMALL, *changes, f"train.chunk={chunk}"]).network.state_dict()
        for chunk in (0, 7)
    )
    assert not torch.equal(whole["encoder.layer.parametrizations.weight.original"], torch.eye(16))
    for name, value in whole.items():
        torch.testing.assert_close(chunked[name], value, atol=1e-4, rtol=1e-4)


def test_a_classifier_of_its_own_has_the_block_too():
    data, config = topics(num_train=40), load("unidec", [*SMALL, *BLOCK, "heads.shared_encoder=false"])
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    assert len(spectral_layers(network)) == 2


def test_an_encoder_of_another_shape_is_refused(saved):
    _, folder = saved
    path = ["encoder.dim=32", f'encoder.path="{folder}"']
    taken = build_encoder(load("unidec", [*SMALL, *BLOCK, *path]), [], [])
    assert len(spectral_layers(taken)) == 1
    with pytest.raises(ConfigError, match="spectral must be that of the model"):
        build_encoder(load("unidec", [*SMALL, *path]), [], [])


def test_a_bag_without_the_block_is_unchanged():
    torch.manual_seed(3)
    features = FeatureExtractor.fit(TEXTS, [], settings_with(min_df=1))
    table = torch.randn(features.num_features, 8) / 8**0.5
    layer = torch.nn.Linear(8, 8)
    torch.nn.init.normal_(layer.weight, std=0.1 / 8**0.5)
    torch.nn.init.zeros_(layer.bias)
    torch.manual_seed(3)
    encoder = BagEncoder(features, Encoder(dim=8, dropout=0.0))
    assert list(encoder.state_dict()) == ["layer.weight", "layer.bias"]
    rows = encoder.prepare(TEXTS)
    unit = torch.nn.functional.normalize(torch.from_numpy(rows @ table.numpy()), dim=1)
    torch.testing.assert_close(encoder(rows), unit + torch.relu(layer(unit)), rtol=1e-5, atol=1e-6)
    assert not load("unidec").encoder.spectral


def test_every_part_of_the_block_is_moved_by_a_step():
    data, config = topics(num_train=40), load("unidec", [*SMALL, *BLOCK])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels).train()
    touched = []
    network.dual(network.encoder(encoder.prepare(data.train.texts), touched))[:, 0].sum().backward()
    found = gradients(network, touched)
    names = {"encoder.layer.bias", "encoder.layer.parametrizations.weight.original", "features"}
    assert all(found[name].abs().max() > 0 for name in names)
