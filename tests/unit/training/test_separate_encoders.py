"""Heads that share no encoder: each loss moves its own, both are kept, and a run that was broken ends the same."""

import hashlib
import json

import numpy as np
import pytest
import torch

from helpers.gradients import step_gradients, training_set
from helpers.stopped_runs import digest, stopped_at_batch
from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError
from unidex.model.model import Model
from unidex.nn.assembly import build_network
from unidex.nn.initialisation import classifiers_from_label_texts
from unidex.nn.network import Network
from unidex.nn.row_table import merged
from unidex.pools.pool import make_batch
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

APART = "heads.shared_encoder=false"
SMALL = ["encoder.dim=12", "features.min_df=1", "heads.dropout=0", "heads.classifier_dropout=0", "encoder.dropout=0"]
TEXTS = list(topics().test.texts)


def setting(*changes):
    data = topics()
    config = load("unidec", [*SMALL, *changes])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    return data, config, network


def gradients_of_a_step(data, config, network):
    """The gradients of a step by name: of dense parameters, and of tables as whole matrices."""
    network.train()
    batch = make_batch(
        data.train.positives,
        data.train.filter_pairs,
        np.arange(5, 40),
        num_positives=2,
        num_negatives=0,
        size=15,
        shortlist=None,
        rng=np.random.default_rng(0),
    )
    return step_gradients(network, training_set(data, network.encoder), config, batch)[1]


def test_each_loss_moves_its_own_encoder_as_if_the_other_were_not_there():
    data, config, network = setting(APART, "loss.dual_weight=0.3")
    found = gradients_of_a_step(data, config, network)
    own, dual, classifier = network.classifier_encoder, network.dual, network.classifier
    temperature = config.loss.temperature
    one_head = {name: config.heads.model_copy(update={name: False}) for name in ("dual", "classifier")}
    dual_alone = gradients_of_a_step(
        data,
        config.model_copy(update={"heads": one_head["classifier"]}),
        Network(network.encoder, dual, None, None, temperature=temperature),
    )
    classifier_alone = gradients_of_a_step(
        data,
        config.model_copy(update={"heads": one_head["dual"]}),
        Network(own, None, classifier, network.classifiers, temperature=temperature),
    )
    expected = {name: 0.3 * value for name, value in dual_alone.items()}
    names = {"features": "classifier_features", "classifiers": "classifiers"}
    expected |= {names.get(name, f"classifier_{name}"): 0.7 * value for name, value in classifier_alone.items()}
    assert found.keys() == expected.keys()
    assert {"encoder.layer.weight", "classifier_encoder.layer.weight", "features", "classifier_features"} < found.keys()
    for name, value in expected.items():
        assert value.abs().max() > 0, name
        torch.testing.assert_close(found[name], value)


@pytest.mark.parametrize(("weight", "still"), [(1.0, "classifier_features"), (0.0, "features")])
def test_a_loss_of_no_weight_leaves_its_encoder_alone(weight, still):
    found = gradients_of_a_step(*setting(APART, f"loss.dual_weight={weight}"))
    moved = ({"features", "classifier_features"} - {still}).pop()
    assert found[moved].abs().max() > 0
    # A dual encoder whose loss does not count is not even asked.
    assert (still in found) == (still == "classifier_features")
    assert still not in found or found[still].abs().max() == 0


def test_both_encoders_have_the_same_features_and_starts_of_their_own():
    data, config, network = setting(APART)
    own = network.classifier_encoder
    assert own.features is network.encoder.features
    assert own.table.weight.shape == network.encoder.table.weight.shape
    # Vectors of 12 dimensions drawn independently: no feature begins alike in both, and none is related on average.
    cosines = torch.nn.functional.cosine_similarity(own.table.weight, network.encoder.table.weight)
    assert cosines.max() < 0.99
    assert abs(float(cosines.mean())) < 0.1
    # The seed alone says what they are, whatever was drawn in between.
    torch.manual_seed(0)
    torch.randn(7)
    again = build_network(config, network.encoder, data.num_labels)
    assert torch.equal(again.classifier_encoder.table.weight, own.table.weight)


def test_random_draws_do_not_depend_on_a_separate_encoder():
    projection = ["heads.projection=true", "heads.dim=10"]
    states = []
    for changes in ([], [APART]):
        network = setting(*projection, *changes)[2]
        drawn_next = torch.tensor([torch.initial_seed(), int(torch.randint(2**62, ()))])
        heads = {name: value for name, value in network.state_dict().items() if ".linear." in name}
        assert len(heads) == 4
        states.append({**heads, "classifiers": network.classifiers.weight, "drawn next": drawn_next})
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())


def test_classifiers_initialised_from_label_texts_use_their_own_encoder():
    data, _, network = setting(APART)
    network.eval()
    labels = network.encoder.prepare(data.labels.texts)
    classifiers_from_label_texts(network, labels)
    with torch.no_grad():
        expected = torch.nn.functional.normalize(network.classifier(network.classifier_encoder(labels)), dim=1)
    torch.testing.assert_close(network.classifiers.weight, expected)


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_one_head_has_one_encoder(head):
    assert setting(APART, f"heads.{head}=false")[2].classifier_encoder is None


def test_encoders_that_have_no_twin_are_refused():
    with pytest.raises(ConfigError, match=r"encoder\.kind = 'transformer'.*heads\.shared_encoder=true"):
        train(topics(), "unidec", settings=[*QUICK, APART, "encoder.kind=transformer"])


@pytest.mark.parametrize("mode", ["texts", "labels"])
def test_both_encoders_learn_from_mixed_vectors(mode):
    model = train(topics(), "unidec", settings=[*QUICK, APART, f"augment.mixup={mode}"])
    assert model.metrics["test"]["P@1"] > 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "apart"
    train(topics(), "unidec", settings=[*QUICK, APART], out=out)
    return out


def test_both_heads_learn_and_predict_the_same_when_loaded(folder, tmp_path):
    model, data = Model.load(folder), topics()
    assert {"features", "classifier_features"} < model.network.tables().keys()
    for mode in ("dual", "classifier", "both"):
        assert evaluate(model, data, mode=mode).metrics["P@1"] > 75
    model.add_labels(["w0a w60i"], ["new"])
    before = model.predict(TEXTS, 5)
    model.save(tmp_path / "again")
    again = Model.load(tmp_path / "again")
    after = again.predict(TEXTS, 5)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)
    assert 24 in again.predict(["w0a w60i"], 2).ids[0]


def test_a_folder_from_before_the_setting_has_one_encoder(tmp_path):
    model = train(topics(), "unidec", settings=[*QUICK, "train.epochs=1"], out=tmp_path / "old")
    config, manifest = tmp_path / "old" / "config.toml", tmp_path / "old" / "manifest.json"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("shared_encoder")))
    said = json.loads(manifest.read_text())
    said["files"]["config.toml"] = hashlib.sha256(config.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(said))
    old = Model.load(tmp_path / "old")
    assert old.network.classifier_encoder is None
    assert np.array_equal(old.predict(TEXTS, 5).scores, model.predict(TEXTS, 5).scores)


def test_both_encoders_are_initialised_from_the_dual_encoder_of_another_model(folder):
    begun = [f"encoder.path={folder}", "train.lr_encoder=0.0", "train.lr_heads=0.0", "train.epochs=1"]
    found = train(topics(), "unidec", settings=[*QUICK, APART, *begun]).network
    before = Model.load(folder).network
    for encoder in (found.encoder, found.classifier_encoder):
        assert torch.equal(encoder.table.weight, before.encoder.table.weight)
        assert torch.equal(encoder.layer.weight, before.encoder.layer.weight)
    assert found.encoder.table.weight is not found.classifier_encoder.table.weight


@pytest.mark.parametrize("phase", ["training", "decay"])
def test_a_resumed_run_with_two_encoders_equals_an_unbroken_one(phase, monkeypatch, tmp_path):
    changes = [APART, "train.validation=0.2", "train.decay_epochs=2", "encoder.dropout=0.2"]
    settings = [*QUICK, *changes, "train.validate_every=2", "train.epochs=5", "train.checkpoint_every=5"]
    whole = train(topics(), "unidec", settings=settings, out=tmp_path / "whole")
    steps = {record["phase"]: record["step"] for record in map(json.loads, whole.log.splitlines())}
    assert list(steps) == ["training", "decay"]
    with stopped_at_batch(7 if phase == "training" else steps["training"] + 7, monkeypatch):
        train(topics(), "unidec", settings=settings, out=tmp_path / "broken")
    assert list((tmp_path / "broken.training" / phase).glob("checkpoint-8"))
    train(topics(), "unidec", settings=settings, out=tmp_path / "broken", resume=True)
    assert digest(tmp_path / "broken") == digest(tmp_path / "whole")


# Rare features count less.


def test_rare_features_count_less_in_the_classifiers_encoder_alone(tmp_path):
    rare = ["heads.classifier_feature_smoothing=3.0", "encoder.residual=false", "train.epochs=2"]
    data = topics()
    model = train(data, "unidec", settings=[*QUICK, APART, *rare], out=tmp_path / "rare")
    own, dual = model.network.classifier_encoder, model.network.encoder
    assert dual.feature_weights_F is None
    counts = (dual.prepare(data.train.texts) != 0).sum(axis=0)
    np.testing.assert_allclose(own.feature_weights_F, counts / (counts + 3), rtol=1e-6)
    assert 0 <= own.feature_weights_F.min() < own.feature_weights_F.max() < 1
    # By hand: each feature of a text says its vector times its value times its weight.
    rows = dual.prepare(TEXTS)
    weighed = torch.from_numpy(rows.toarray()) * own.feature_weights_F
    expected = torch.nn.functional.normalize(weighed @ own.table.weight, dim=1)
    found = model.network.text_vectors(rows).classifier
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    # In training as in search, and in the folder too.
    touched = []
    torch.testing.assert_close(own(rows, touched), own(rows), atol=1e-5, rtol=0)
    assert touched
    loaded = Model.load(tmp_path / "rare")
    assert torch.equal(loaded.network.classifier_encoder.feature_weights_F, own.feature_weights_F)
    assert torch.equal(loaded.network.text_vectors(rows).classifier, found)
    assert loaded.network.encoder.feature_weights_F is None


def test_a_rare_feature_moves_as_little_as_it_counts():
    data, _, network = setting(APART, "encoder.residual=false")
    rows = network.encoder.prepare(data.train.texts)[:20]
    own = network.classifier_encoder
    weights = torch.linspace(0.1, 1, own.features.num_features)
    own.weigh(weights)
    towards = torch.randn(20, 12)
    touched = []
    (own(rows, touched) * towards).sum().backward()
    (used,) = merged(touched)
    table = own.table.weight.clone().requires_grad_()
    by_hand = torch.nn.functional.normalize((torch.from_numpy(rows.toarray()) * weights) @ table, dim=1)
    (by_hand * towards).sum().backward()
    torch.testing.assert_close(used.rows.grad, table.grad[used.ids], atol=1e-5, rtol=1e-4)
