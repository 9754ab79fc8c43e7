"""Classifiers made of parts: joins, gradients, the label graph, stages, and that a finished model knows no parts."""

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.gradients import one_graph, step_gradients
from helpers.stopped_runs import digest
from helpers.synthetic import begun, topics
from unidex.config.recipes import load
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.errors import ConfigError
from unidex.features.tokens import TokenRows
from unidex.model.model import Model
from unidex.nn.classifier_parts import (
    ClassifierParts,
    PartAttention,
    WordPart,
    join_by_attention,
    join_by_gates,
    normalised_graph,
    scaled_rows,
    text_rows,
)
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable
from unidex.nn.spectral import spectral_layers
from unidex.pools.pool import whole_batch
from unidex.training.loop import Trainer
from unidex.training.parts_setup import label_graph, make_parts
from unidex.training.transfer import inherit, surrogate_set
from unidex.verbs.train import train

SMALL = ["encoder.dim=16", "features.min_df=1", "train.batch_size=32"]
BRIEF = [
    *SMALL,
    "stages.surrogate.train.surrogate=6",
    "stages.surrogate.train.epochs=2",
    "stages.extreme.train.epochs=2",
]
ALL_PARTS = 'heads.classifier_parts=["free", "text", "graph"]'


def problem(num_labels=12):
    return topics(num_labels=num_labels, num_train=96, num_test=24)


def made(recipe, settings=(), data=None):
    """A network with its parts, as a run begins with it, and what it is trained on."""
    data = data or problem()
    config = list(load(recipe, [*SMALL, *settings]).in_stages().values())[-1]
    network, whole = begun(config, data)
    network.parts = make_parts(network, config, whole, whole.positives, None, seed=0)
    return network, config, whole


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_joins_equal_their_formulas_number_by_number():
    rng = np.random.default_rng(0)
    parts, gates, logits = rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 4)), rng.normal(size=(5, 3))
    by_gates, by_attention = np.zeros((5, 4)), np.zeros((5, 4))
    for label in range(5):
        for k in range(3):
            share = np.exp(logits[label, k]) / sum(np.exp(logits[label, other]) for other in range(3))
            for d in range(4):
                by_gates[label, d] += sigmoid(gates[k, d]) * parts[k, label, d]
                by_attention[label, d] += share * parts[k, label, d]
    given = [torch.from_numpy(array) for array in (parts, gates, logits)]
    assert np.allclose(join_by_gates(given[0], given[1]), by_gates)
    assert np.allclose(join_by_attention(given[0], given[2]), by_attention)


def test_attention_and_the_layer_of_a_part_equal_their_formulas():
    torch.manual_seed(0)
    attention, part = PartAttention(2, 3).eval(), WordPart(3, 3, dropout=0.5, projection=False).eval()
    for layer in spectral_layers(attention) + spectral_layers(part):
        with torch.no_grad():
            if layer.bias is not None:
                layer.bias.normal_()
            layer.parametrizations.weight.original.mul_(3).add_(0.1)
        for _ in range(50):
            layer.sharpen()
    parts = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    inner, outer, own = attention.inner, attention.outer, part.layer

    def weight(layer):
        raw = layer.parametrizations.weight.original.detach().numpy()
        return raw / np.linalg.norm(raw, 2), 0 if layer.bias is None else layer.bias.detach().numpy()

    (a, b), (c, _), (w, bias) = weight(inner), weight(outer), weight(own)
    for label in range(4):
        flat = np.concatenate([a @ np.maximum(parts[k, label], 0) + b for k in range(2)])
        assert np.allclose(attention(torch.from_numpy(parts))[label].detach(), c @ flat, atol=1e-5)
        x = parts[0, label]
        found = part(torch.from_numpy(parts[0]))[label].detach()
        assert np.allclose(found, x + w @ np.maximum(x, 0) + bias, atol=1e-5)


def test_a_part_starts_as_the_sum_of_words_and_its_rectification():
    network, config, data = made("decaf", ["heads.classifier_bias=none"])
    vectors = data.labels @ network.encoder.table.weight.numpy()
    text = vectors + np.maximum(vectors, 0)
    # Gates begin half open; the free vectors here are small random ones.
    assert config.heads.combine_parts == "gates"
    wanted = 0.5 * text + 0.5 * network.classifiers.weight.numpy()
    assert np.allclose(network.eval().all_classifiers(), wanted, atol=1e-6)


def test_the_graph_part_is_the_graph_times_vectors_of_texts():
    network, config, data = made("eclare")
    walks = label_graph(data.positives, config.augment, seed=0)
    vectors = data.labels @ network.encoder.table.weight.numpy()
    assert np.allclose(network.parts.rows["graph"] @ network.encoder.table.weight.numpy(), walks @ vectors, atol=1e-5)
    # Labels that come together are neighbours, at most so many, and each is its own.
    assert np.diff(walks.indptr).max() <= config.augment.walk_max_labels
    assert np.all(walks.diagonal() > 0)
    assert walks.nnz > data.positives.shape[1]
    other = label_graph(data.positives, config.augment, seed=1)
    assert not np.array_equal(other.toarray(), walks.toarray())


def test_a_graph_is_divided_by_the_roots_of_its_sums():
    graph = np.array([[1.0, 0.5, 0.0], [0.2, 1.0, 0.0], [0.0, 0.0, 0.0]])
    found = normalised_graph(sparse.csr_array(graph)).toarray()
    for row in range(2):
        for column in range(2):
            root = np.sqrt(graph[row].sum() * graph[:, column].sum())
            assert found[row, column] == pytest.approx(graph[row, column] / root)
    assert np.array_equal(found[2], np.zeros(3))


@pytest.mark.parametrize("joined", ["gates", "attention"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kinds", [("text",), ("free", "text", "graph"), ("text", "graph")])
def test_gradients_equal_finite_differences(joined, bias, kinds):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    rows = {kind: sparse.random_array((5, 7), density=0.5, format="csr", rng=rng) for kind in kinds if kind != "free"}
    options = {"dim_words": 4, "dim": 3, "joined": joined}
    parts = ClassifierParts(rows, free="free" in kinds, **options).double().eval()
    words = RowTable(torch.randn(7, 4, dtype=torch.float64))
    own = torch.randn(3, 3 + bias, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([0, 2, 4])
    weights = torch.randn(3, 3 + bias, dtype=torch.float64)
    for parameter in parts.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))

    def value(touched=None):
        return (parts(ids, own, words, touched) * weights).sum()

    touched = []
    value(touched).backward()
    (used,) = touched
    whole = torch.zeros_like(words.weight).index_copy_(0, used.ids, used.rows.grad)
    cases = [(words.weight, whole), (own.data, own.grad if own.grad is not None else torch.zeros_like(own))]
    cases += [(parameter.data, parameter.grad) for parameter in parts.parameters() if parameter.grad is not None]
    assert len(cases) == 2 + len(list(parts.parameters()))
    with torch.no_grad():
        for place, gradient in cases:
            direction = torch.randn_like(place)
            place.add_(direction, alpha=1e-6)
            after = value()
            place.sub_(direction, alpha=2e-6)
            before = value()
            place.add_(direction, alpha=1e-6)
            assert float((after - before) / 2e-6) == pytest.approx(float((gradient * direction).sum()), abs=1e-6)


@pytest.mark.parametrize("recipe", ["decaf", "eclare"])
def test_a_step_over_all_labels_in_chunks_equals_one_graph(recipe):
    network, config, data = made(recipe, ["encoder.layer_dropout=0.0", "pool.labels=all", "train.chunk=5"])
    # Attention has a dropout of its own.
    network.eval()
    batch = whole_batch(data.positives, data.filter_pairs, np.arange(20))
    value, wanted = step_gradients(network, data, one_graph(config), batch)
    found_value, found = step_gradients(network, data, config, batch)
    assert float(found_value) == pytest.approx(float(value), rel=1e-5)
    assert found.keys() == wanted.keys() >= {"features", "classifiers", "parts.words.text.layer.bias"}
    for name, gradient in wanted.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)


def test_without_a_free_vector_classifiers_of_their_own_are_not_learned():
    network, _, _ = made("decaf", ['heads.classifier_parts=["text"]', "heads.classifier_bias=none"])
    touched = []
    network.gather_classifiers(torch.tensor([1, 3]), touched)
    assert [used.table for used in touched] == [network.encoder.table]
    # A bias is still the label's own, and the last number.
    network, config, _ = made("decaf", ['heads.classifier_parts=["text"]'])
    network.classifiers.weight[:, -1] = torch.arange(12.0)
    touched = []
    rows = network.gather_classifiers(torch.tensor([1, 3]), touched)
    assert rows.shape == (2, config.encoder.dim + 1)
    assert rows[:, -1].tolist() == [1.0, 3.0]
    assert {id(used.table) for used in touched} == {id(network.encoder.table), id(network.classifiers)}


def test_free_vectors_alone_make_no_parts_and_classifiers_stay_rows_of_the_table():
    network, _, _ = made("astec")
    assert network.parts is None
    assert network.all_classifiers().data_ptr() == network.classifiers.weight.data_ptr()
    assert not [name for name in network.state_dict() if name.startswith("parts")]


@pytest.mark.parametrize("recipe", ["decaf", "eclare"])
def test_a_finished_model_is_a_plain_classifier_that_predicts_as_the_parts_did(recipe, tmp_path, monkeypatch):
    before = {}
    fold = Network.fold

    def watched(network):
        before["vectors"] = network.label_vectors(None).classifier.clone()
        before["kinds"] = network.parts.kinds
        before["layers"] = {name: p.detach().clone() for name, p in network.parts.named_parameters()}
        before["norms"] = [
            float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) for layer in spectral_layers(network.parts)
        ]
        fold(network)

    monkeypatch.setattr(Network, "fold", watched)
    data = problem()
    model = train(data, recipe, settings=BRIEF, out=tmp_path / "model")
    assert before["kinds"] == model.config.heads.classifier_parts
    # The layers of parts learn, and are held to their norm.
    start = torch.eye(model.config.encoder.dim)
    assert not torch.equal(before["layers"]["words.text.layer.parametrizations.weight.original"], start)
    assert before["norms"] == pytest.approx([1.0] * len(before["norms"]), abs=0.05)
    assert model.network.parts is None
    assert torch.equal(model.network.label_vectors(None).classifier, before["vectors"])
    loaded = Model.load(tmp_path / "model")
    assert loaded.network.parts is None
    assert loaded.config == model.config
    texts = list(data.test.texts)
    assert np.array_equal(loaded.predict(texts).ids, model.predict(texts).ids)
    assert np.array_equal(loaded.predict(texts).scores, model.predict(texts).scores)


def test_a_run_that_stops_in_either_stage_resumes_to_the_same_model(tmp_path, monkeypatch):
    data, settings = problem(), [*BRIEF, "train.checkpoint_every=2", "train.validation=0.2"]
    train(data, "eclare", settings=settings, out=tmp_path / "unbroken")
    step = Trainer._step
    for stage, stop in enumerate((3, 7)):
        steps = iter(range(stop))

        def interrupted(trainer, rows, number, steps=steps):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return step(trainer, rows, number)

        monkeypatch.setattr(Trainer, "_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(data, "eclare", settings=settings, out=tmp_path / "broken", resume=stage > 0)
    monkeypatch.setattr(Trainer, "_step", step)
    assert list((tmp_path / "broken.training" / "training-extreme").glob("checkpoint-*"))
    train(data, "eclare", settings=settings, out=tmp_path / "broken", resume=True)
    assert digest(tmp_path / "broken") == digest(tmp_path / "unbroken")


def test_tables_in_files_make_the_same_model(tmp_path):
    models = [
        train(
            problem(),
            "decaf",
            settings=[*BRIEF, "train.epochs=1", f"train.table_storage={tables}"],
            out=tmp_path / tables,
        )
        for tables in ("memory", "file")
    ]
    assert torch.equal(models[0].network.classifiers.weight, models[1].network.classifiers.weight)
    assert torch.equal(models[0].network.encoder.table.weight, models[1].network.encoder.table.weight)


@pytest.mark.parametrize("part", ["text", "free"])
def test_the_vector_of_a_label_that_no_text_has_follows_its_words(part):
    data = problem()
    # Label 0 has no texts, and a word of label 1.
    names = [data.labels.texts[label] for label in range(data.num_labels)]
    names[0] = names[1].split()[0]
    rows = np.flatnonzero(data.train.positives[:, [0]].toarray()[:, 0] == 0)
    data = Dataset("shared", Labels(Texts.of(names)), data.train.take(rows))
    network, config, whole = made("decaf", [f'heads.classifier_parts=["{part}"]', "train.epochs=1"], data)
    config = config.model_copy(update={"pool": config.pool.model_copy(update={"hard_negatives": 0})})
    network.eval()
    before = network.all_classifiers()[0].clone()
    Trainer(network, whole, config).run()
    # It was in no pool, so that nothing was learned about it, but something about its word.
    assert torch.equal(before, network.all_classifiers()[0]) == (part == "free")


def test_a_cluster_has_the_words_and_texts_of_its_labels():
    _, _, data = made("decaf", ["stages.surrogate.train.surrogate=5"])
    surrogate = load("decaf", [*SMALL, "stages.surrogate.train.surrogate=5"]).in_stages()["surrogate"]
    rows = scaled_rows(text_rows(data.labels, data.labels.shape[1]), 2)
    clusters = surrogate_set(data, data.texts, surrogate, 0, rows)
    assert clusters.labels.shape == (5, rows.shape[1])
    assert np.allclose(clusters.labels.sum(axis=0), rows.sum(axis=0), atol=1e-5)
    # Each label is in one cluster, whose texts are those of its labels.
    for label in range(12):
        own = [c for c in range(5) if np.all((clusters.labels[[c]] - rows[[label]]).toarray() >= -1e-6)]
        assert len(own) == 1
        assert np.all(clusters.positives[:, own].toarray() >= data.positives[:, [label]].toarray())
    assert surrogate_set(data, data.texts, surrogate, 0).labels.shape == (5, 0)


def test_a_stage_takes_over_the_parts_that_both_have():
    first, _, _ = made("decaf", ['heads.classifier_parts=["free", "text"]'])
    for parameter in first.parts.parameters():
        parameter.data.add_(torch.randn_like(parameter))
    second, _, _ = made("decaf", [ALL_PARTS])
    inherit(second, first, same_labels=True)
    assert torch.equal(second.parts.gates["text"], first.parts.gates["text"])
    assert torch.equal(second.parts.words["text"].layer.weight, first.parts.words["text"].layer.weight)
    assert not torch.equal(second.parts.words["graph"].layer.weight, first.parts.words["text"].layer.weight)
    attention, _, _ = made("eclare")
    before, _, _ = made("eclare")
    before.parts.attention.inner.bias.data.add_(1)
    inherit(attention, before, same_labels=True)
    assert torch.equal(attention.parts.attention.inner.bias, before.parts.attention.inner.bias)


def test_words_in_order_are_taken_as_their_mean_and_projected():
    settings = ["encoder.dim=64", "encoder.max_length=8", ALL_PARTS]
    network, _, data = made("inceptionxml", settings)
    assert isinstance(data.labels, TokenRows)
    means = np.stack([network.encoder.table.weight.numpy()[words].mean(axis=0) for words in data.labels.as_lists()])
    assert np.allclose(network.parts.rows["text"] @ network.encoder.table.weight.numpy(), means, atol=1e-5)
    assert network.parts.words["text"].projection.weight.shape == (network.encoder.dim, 64)
    touched = []
    assert network.gather_classifiers(torch.arange(3), touched).shape == (3, network.encoder.dim + 1)
    model = train(problem(), "inceptionxml", settings=[*SMALL, *settings, "train.epochs=1"])
    assert model.network.parts is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["encoder.kind=transformer", "encoder.path=minilm"], "an encoder without word vectors"),
        (['heads.classifier_parts=["text", "text"]'], "each name must be there once"),
        (["heads.classifier_parts=[]"], "at least 1 item"),
        (['heads.classifier_parts=["words"]'], "'free', 'text' or 'graph'"),
    ],
)
def test_parts_that_cannot_be_trained_are_refused_before_training(settings, said):
    with pytest.raises(ConfigError, match=said):
        train(problem(), "decaf", settings=[*BRIEF, *settings])


def test_labels_without_texts_are_refused():
    data = problem()
    silent = Dataset("silent", Labels(Texts.of([""] * 12)), Split.of(data.train.texts, data.train.positives))
    with pytest.raises(ConfigError, match="need labels that have some, but this run has classifiers made of words"):
        train(silent, "decaf", settings=BRIEF)


@pytest.mark.parametrize(
    "settings",
    [
        ["stages.extreme.train.freeze_encoder=true"],
        ["stages.extreme.heads.dual=true", "heads.shared_encoder=false", "stages.extreme.loss.temperature=0.1"],
    ],
)
def test_parts_learn_on_a_frozen_encoder_and_on_one_of_their_own(settings):
    model = train(problem(), "decaf", settings=[*BRIEF, *settings])
    assert model.metrics["test"]["P@1"] > 20


def test_words_of_a_frozen_encoder_stay_as_they_are():
    network, config, data = made("decaf", ["train.freeze_encoder=true", "train.epochs=2"])
    before = network.encoder.table.weight.clone()
    parts = {name: value.clone() for name, value in network.parts.state_dict().items()}
    Trainer(network, data, config).run()
    assert torch.equal(network.encoder.table.weight, before)
    assert not torch.equal(network.parts.words["text"].layer.bias, parts["words.text.layer.bias"])
