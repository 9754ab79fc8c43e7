"""The label tree: nested clusters, a step against slow references, the index against brute force, whole runs."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.gradients import one_graph, step_gradients
from helpers.stopped_runs import digest
from helpers.synthetic import topics
from unidex import index as index_layer
from unidex.config.recipes import load
from unidex.config.tree import kept_levels
from unidex.distributed import ALONE
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError, ModelError
from unidex.features.tokens import TokenRows, token_weights
from unidex.index.tree import TreeIndex
from unidex.losses import Targets
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.model.similar_labels import nearest_labels
from unidex.nn import candidate_scores as candidates
from unidex.nn.assembly import build_network
from unidex.nn.candidate_scores import candidate_scores
from unidex.nn.label_tree import LabelTree, nested_clusters
from unidex.pools.pool import whole_batch
from unidex.training import beam
from unidex.training.beam import Beam, candidate_targets, kept_clusters, targets_of_clusters
from unidex.training.frozen import freeze
from unidex.training.loop import Trainer
from unidex.training.step import Step
from unidex.training.training_set import TrainingSet
from unidex.training.tree_setup import cluster_positives, grow_tree
from unidex.verbs.train import train

# The recipe as a test bears it: three levels of few clusters, narrow beams.
SMALL = ["encoder.dim=32", "features.min_df=1", "train.batch_size=32", "train.epochs=4"]
SMALL += ["tree.levels=[3, 7]", "tree.beam=[1, 2]", "tree.search_beam=[2, 3]", "train.row_optimiser=adagrad"]
SMALL += ["tree.dropout=[0.0]", "heads.dropout=0.0"]
CLUSTERS = "tree.losses=clusters"


def config_of(*settings):
    return load("cascadexml", [*SMALL, *settings])


def built(data, *settings, seed=0):
    """A network with its tree at the start, what it is trained on, and the recipe."""
    config = config_of(*(setting for setting in settings if setting != CLUSTERS))
    if CLUSTERS in settings:
        # For a stage that another follows.
        config = config.model_copy(update={"tree": config.tree.model_copy(update={"losses": "clusters"})})
    torch.manual_seed(seed)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    texts = encoder.prepare(data.train.texts)
    tree = grow_tree(texts, data.train.positives, config.tree, seed)
    network = build_network(config, encoder, data.num_labels, tree=tree)
    whole = TrainingSet(texts, encoder.prepare(data.labels.texts), data.train.positives, data.train.filter_pairs)
    return network, whole, config


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def random_tree(num_labels, counts, seed=0):
    rng = np.random.default_rng(seed)
    return nested_clusters(unit(rng.normal(size=(num_labels, 4))), counts, rng)


# Clusters.


@pytest.mark.parametrize("counts", [[1], [5], [2, 8], [3, 7, 20], [4, 16, 41]])
def test_a_nested_tree_is_a_partition_with_balanced_sizes_on_every_level(counts):
    tree = random_tree(41, counts)
    assert tree.num_clusters == tuple(counts)
    below = [*counts[1:], 41]
    for parents, children, count, size in zip(tree.parents, tree.children, counts, below, strict=True):
        inside = [row[row >= 0].tolist() for row in children]
        assert sorted(child for row in inside for child in row) == list(range(size))
        assert all(parents[child] == cluster for cluster, row in enumerate(inside) for child in row)
        widths = [len(row) for row in inside]
        assert max(widths) - min(widths) <= 1
        assert len(widths) == count
    assert [part.max() + 1 for part in tree.clusters_of_labels()] == counts


def test_upper_clusters_hold_labels_that_are_near():
    kinds = np.repeat(np.arange(4), 8)
    rows = unit(np.eye(4)[kinds] + 0.05 * np.abs(np.random.default_rng(0).normal(size=(32, 4))))
    tree = nested_clusters(rows, [4, 16], np.random.default_rng(1))
    top = tree.clusters_of_labels()[0]
    assert len(set(zip(kinds.tolist(), top.tolist(), strict=True))) == 4
    with pytest.raises(ValueError, match="must rise from level to level"):
        nested_clusters(rows, [4, 4], np.random.default_rng(0))
    with pytest.raises(ValueError, match="clusters must be 1 to 32"):
        nested_clusters(rows, [4, 33], np.random.default_rng(0))


def test_levels_that_are_too_fine_are_left_out():
    assert kept_levels([1024, 8192, 65536], 100_000) == [0, 1, 2]
    assert kept_levels([1024, 8192, 65536], 8192) == [0]
    assert kept_levels([64, 64, 32], 100) == [2]
    assert kept_levels([64], 20) == [0]
    data = topics()
    texts = sparse.csr_array(np.ones((240, 3), dtype=np.float32))
    tree = grow_tree(texts, data.train.positives, config_of("tree.levels=[2, 500]").tree, 0)
    assert (tree.num_clusters, tree.levels) == ((2,), (0,))


def test_tokens_weigh_by_their_rarity():
    rows = TokenRows.of([[5, 2, 2], [5, 3], [], [5, 2]], max_length=8)[[1, 0, 2, 3]]
    found = token_weights(rows).toarray()
    rare = {2: math.log(5 / 3), 3: math.log(5 / 2), 5: math.log(5 / 4)}
    wanted = np.zeros((4, 6))
    wanted[0, [5, 3]] = rare[5], rare[3]
    wanted[1, [5, 2]] = rare[5], 2 * rare[2]
    wanted[3, [5, 2]] = rare[5], rare[2]
    assert found == pytest.approx(wanted, abs=1e-6)


def test_targets_of_clusters_are_capped_sums():
    tree = LabelTree((np.array([0, 0, 1]), np.array([0, 0, 1, 2])), (0, 1))
    positives = sparse.csr_array(np.array([[0.3, 0.4, 0.5, 0], [0, 0, 0, 0.2]], dtype=np.float32))
    top, low = cluster_positives(tree, positives)
    assert top.toarray() == pytest.approx(np.array([[1, 0], [0, 0.2]]))
    assert low.toarray() == pytest.approx(np.array([[0.7, 0.5, 0], [0, 0, 0.2]]))


# Scores of candidates.


@pytest.mark.parametrize("dense", [0, 1000])
def test_scores_of_candidates_and_their_gradients_are_those_of_plain_products(monkeypatch, dense):
    monkeypatch.setattr(candidates, "DENSE_UP_TO", dense)
    monkeypatch.setattr(candidates, "NUMBERS_AT_ONCE", 20)
    torch.manual_seed(0)
    texts, rows = torch.randn(5, 3, requires_grad=True), torch.randn(9, 3, requires_grad=True)
    places, weights = torch.randint(9, (5, 4)), torch.randn(5, 4)
    found = candidate_scores(texts, rows, places)
    found_gradients = torch.autograd.grad((found * weights).sum(), [texts, rows])
    wanted = (texts[:, None] * rows[places]).sum(2)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(found_gradients, torch.autograd.grad((wanted * weights).sum(), [texts, rows]))


def test_true_clusters_are_opened_even_where_they_are_more_than_the_beam():
    ids = torch.tensor([[0, 1, 2, 3, -1], [0, 1, 2, 3, 4]])
    own = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.9], [0.5, 0.4, 0.3, 0.2, 0.1]])
    true = torch.tensor([[True, True, True, False, False], [False, False, False, False, True]])
    kept, probabilities = kept_clusters(ids, own, own, true, 2)
    assert [sorted(row) for row in kept.tolist()] == [[0, 1, 2], [-1, 0, 4]]
    assert probabilities[1, 0] == pytest.approx(0.1)


@pytest.mark.parametrize("whole", [0, 1000])
def test_targets_of_candidates_are_those_of_the_matrix(monkeypatch, whole):
    monkeypatch.setattr(beam, "_WHOLE_UP_TO", whole)
    rows, columns, weights = [0, 1, 1, 1], [1, 0, 2, 3], [0.5, 0.25, 1.0, 0.5]
    targets = Targets.of(rows, columns, weights, ignored_rows=[1, 0], ignored_columns=[1, 2], shape=(3, 4))
    # The texts from the second on, each with candidates of its own.
    found, true = candidate_targets(targets, 1, torch.tensor([[3, 1, 2, -1], [2, 0, -1, -1]]))
    assert (found.rows.tolist(), found.columns.tolist(), found.weights.tolist()) == ([0, 0], [0, 2], [0.5, 1.0])
    assert list(zip(found.ignored_rows.tolist(), found.ignored_columns.tolist(), strict=True)) == [
        (0, 1),
        (0, 3),
        (1, 2),
        (1, 3),
    ]
    assert true.tolist() == [[True, False, True, False], [False] * 4]
    # A cluster has the sum of its labels, at most 1, and a filter pair only where it has no positive.
    of_clusters = targets_of_clusters(targets, torch.tensor([0, 0, 0, 1]), 2)
    found, _ = candidate_targets(of_clusters, 0, torch.tensor([[0, 1]] * 3))
    assert (found.rows.tolist(), found.columns.tolist(), found.weights.tolist()) == (
        [0, 1, 1],
        [0, 0, 1],
        [0.5, 1.0, 0.5],
    )
    assert len(found.ignored_rows) == 0


# A step.


def reference(network, whole, config, rows):
    """Each text by itself, in plain Python: its candidates on every level, and the loss by dense scores and masks."""
    tree, scale = network.tree.shape, network.log_scales[1].exp()
    positives, filters = whole.positives.toarray()[rows], whole.filter_pairs.toarray()[rows] > 0
    tables = [table.weight.clone().requires_grad_() for table in network.tree.tables]
    labels = network.classifiers.weight.clone().requires_grad_()
    features = network.encoder.table.weight.clone().requires_grad_()
    summed = torch.from_numpy(whole.texts[rows].toarray()) @ features
    encoded = torch.nn.functional.normalize(summed, dim=1)
    encoded = encoded + torch.relu(network.encoder.layer(encoded))
    read = torch.nn.functional.pad(encoded, (0, 1), value=1.0)
    of_labels = tree.clusters_of_labels()
    loss, shortlists = 0.0, []
    scores = [read @ table.T * scale for table in [*tables, labels]]
    counts = [torch.zeros(score.shape, dtype=torch.bool) for score in scores]
    targets = [torch.zeros_like(score) for score in scores]
    for text in range(len(rows)):
        candidates_now, above = list(range(tree.num_clusters[0])), {}
        for level, score in enumerate(scores):
            members = [of_labels[level] == node for node in range(score.shape[1])] if level < len(tables) else None
            for node in candidates_now:
                own = positives[text][members[node]] if members else positives[text][node]
                passed = filters[text][members[node]].any() if members else filters[text][node]
                targets[level][text, node] = min(1.0, float(np.sum(own)))
                counts[level][text, node] = bool(not passed or np.sum(own) > 0)
            if not members:
                shortlists.append(sorted(candidates_now))
                continue
            chance = torch.sigmoid(score[text].detach())
            worth = {node: float(chance[node] * above.get(node, 1.0)) for node in candidates_now}
            true = [node for node in candidates_now if targets[level][text, node] > 0]
            others = sorted((node for node in candidates_now if node not in true), key=lambda node: -worth[node])
            beam = config.tree.beam[min(level, len(config.tree.beam) - 1)]
            chosen = true + others[: max(0, beam - len(true))]
            below = {child: chance[node] for node in chosen for child in np.flatnonzero(tree.parents[level] == node)}
            candidates_now, above = [int(child) for child in below], below
    for score, count, target, weight in zip(
        scores, counts, targets, [config.tree.weight] * len(tables) + [1.0], strict=True
    ):
        each = torch.nn.functional.binary_cross_entropy_with_logits(score, target, reduction="none") * count
        loss = loss + weight * each.sum() / (count.sum() if config.loss.bce_reduction == "mean" else len(rows))
    leaves = {"features": features, "classifiers": labels}
    return loss, shortlists, leaves | {f"clusters_{level}": table for level, table in enumerate(tables)}


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["loss.bce_reduction=sum", "tree.weight=0.3", "tree.beam=[2, 4]"],
        ["tree.levels=[5]", "tree.beam=[2]"],
        ["tree.levels=[2, 6, 13]", "tree.beam=[1]"],
    ],
)
def test_a_step_is_that_of_a_slow_reference_with_filter_pairs_and_soft_targets(settings, monkeypatch):
    data = topics(filters=True)
    network, whole, config = built(data, *settings)
    soft = whole.positives.copy()
    soft.data = np.random.default_rng(0).uniform(0.1, 0.7, soft.nnz).astype(np.float32)
    whole = TrainingSet(whole.texts, whole.labels, soft, whole.filter_pairs)
    for table in [*network.tree.tables, network.classifiers]:
        # Far enough from 0 that beams differ from text to text.
        table.weight = torch.randn(table.weight.shape, generator=torch.Generator().manual_seed(3)) * 0.5
    rows = np.array([4, 9, 17, 30, 31])
    wanted, shortlists, leaves = reference(network, whole, config, rows)
    wanted.backward()
    wanted_gradients = {name: leaf.grad for name, leaf in leaves.items()}
    wanted_gradients |= {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad()
    seen, labels = [], Beam._labels
    monkeypatch.setattr(Beam, "_labels", lambda self, x, ids, *more: seen.append(ids) or labels(self, x, ids, *more))
    value, found = step_gradients(network, whole, config, whole_batch(soft, whole.filter_pairs, rows))
    assert [sorted(row[row >= 0].tolist()) for row in seen[0]] == shortlists
    assert len({tuple(row) for row in shortlists}) > 1
    torch.testing.assert_close(value, wanted.detach())
    assert found.keys() == wanted_gradients.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted_gradients[name], atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["tree.detached_epochs=1"],
        ["tree.losses=labels"],
        ["augment.mixup=texts"],
        ["augment.mixup=labels"],
        ["loss.classifier=decoupled-softmax", "loss.temperature=0.2", "loss.classifier_bce=0.5"],
        ["loss.classifier=triplet"],
        ["loss.classifier=contrastive", "loss.sampled_positives=1"],
        ["train.freeze_encoder=true"],
    ],
)
def test_a_step_in_chunks_equals_one_graph(settings):
    data = topics(filters=True)
    network, whole, config = built(data, *settings, "train.chunk=3")
    network.train()
    if config.train.freeze_encoder:
        network, whole = freeze(network, whole, config, ALONE)
        network.train()
    batch = whole_batch(whole.positives, whole.filter_pairs, np.arange(8))
    value, wanted = step_gradients(network, whole, one_graph(config), batch)
    found_value, found = step_gradients(network, whole, config, batch)
    assert float(found_value) == pytest.approx(float(value), rel=1e-5)
    assert found.keys() == wanted.keys() >= {"classifiers"}
    for name, gradient in wanted.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_detached_epochs_keep_the_labels_loss_from_the_encoder():
    network, whole, config = built(topics(), "tree.detached_epochs=2")
    alone, _, alone_config = built(topics(), "tree.losses=clusters")
    batch, found = whole_batch(whole.positives, whole.filter_pairs, np.arange(8)), {}
    for name, net, recipe, epoch in (
        ("early", network, config, 1),
        ("late", network, config, 2),
        ("none", alone, alone_config, 0),
    ):
        found[name] = step_gradients(net, whole, recipe, batch, epoch=epoch)[1]
    # What reaches the encoder early is what clusters alone send there.
    torch.testing.assert_close(found["early"]["features"], found["none"]["features"])
    assert not torch.allclose(found["late"]["features"], found["none"]["features"])
    assert found["early"]["classifiers"].abs().max() > 0
    assert "classifiers" not in found["none"]


@pytest.mark.parametrize("learns", ["clusters", "labels"])
def test_frozen_levels_do_not_change(learns):
    settings = ["tree.residual=true", "train.weight_decay=0.1", "train.epochs=2", f"tree.losses={learns}"]
    network, whole, config = built(topics(), *settings)
    before = {name: table.weight.clone() for name, table in network.tables().items()}
    dense = {name: value.clone() for name, value in network.tree.state_dict().items()}
    Trainer(network, whole, config).run()
    moved = {name for name, table in network.tables().items() if not torch.equal(table.weight, before[name])}
    moved_dense = {name for name, value in network.tree.state_dict().items() if not torch.equal(value, dense[name])}
    assert moved == {"features", "classifiers" if learns == "labels" else "clusters_0"} | (
        set() if learns == "labels" else {"clusters_1"}
    )
    assert bool(moved_dense) == (learns == "clusters")


# The index.


def tree_index(num_labels=60, counts=(3, 12), beam=(1, 3), seed=0, dims=(5, 4, 6)):
    rng = np.random.default_rng(seed)
    tree = random_tree(num_labels, list(counts), seed)
    vectors = rng.normal(size=(num_labels, dims[0])).astype(np.float32)
    clusters = [
        torch.from_numpy(rng.normal(size=(count, dim)).astype(np.float32))
        for count, dim in zip(counts, dims[1:], strict=False)
    ]
    index = TreeIndex.build(vectors, tree=tree, clusters=clusters, beam=list(beam)[: len(counts)], scale=0.7)
    queries = rng.normal(size=(9, index.query_dim)).astype(np.float32)
    return index, queries


def all_values(index, queries):
    """What every label is worth for every text, in double precision."""
    own = index.vectors(np.arange(index.num_ids)).astype(np.float64)
    last = queries[:, -index.clusters[-1].shape[1] :].astype(np.float64) @ index.clusters[-1].double().numpy().T
    labels = queries[:, : index.dim].astype(np.float64) @ own.T

    def sigmoid(scores):
        return 1 / (1 + np.exp(-index.scale * scores))

    return sigmoid(labels) * sigmoid(last)[:, index.tree.parents[-1]]


def best(values, k, hidden=()):
    values = values.copy()
    values[:, list(hidden)] = -1
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    return np.where(np.take_along_axis(values, order, axis=1) < 0, -1, order)


@pytest.mark.parametrize("counts", [(3, 12), (8,), (60,)])
@pytest.mark.parametrize("dense", [0, 8])
def test_a_beam_of_all_clusters_gives_the_ranking_of_all_labels(monkeypatch, counts, dense):
    monkeypatch.setattr(candidates, "DENSE_UP_TO", dense)
    index, queries = tree_index(counts=counts, beam=(99, 99))
    values = all_values(index, queries)
    found = index.search(queries, 60)
    assert found.ids.tolist() == best(values, 60).tolist()
    assert found.scores == pytest.approx(np.take_along_axis(values, found.ids, axis=1), rel=1e-5)


def test_a_narrow_beam_finds_the_labels_of_the_best_clusters_alone():
    index, queries = tree_index(beam=(2, 3))
    found = index.search(queries, 5)

    def sigmoid(scores):
        return 1 / (1 + np.exp(-0.7 * scores))

    top = sigmoid(queries[:, 5:9] @ index.clusters[0].numpy().T)
    low = sigmoid(queries[:, 9:] @ index.clusters[1].numpy().T)
    values = all_values(index, queries)
    for text in range(len(queries)):
        opened = np.argsort(-top[text])[:2]
        below = [node for node in range(12) if index.tree.parents[0][node] in opened]
        kept = sorted(below, key=lambda node: -low[text, node] * top[text, index.tree.parents[0][node]])[:3]
        hidden = [label for label in range(60) if index.tree.parents[1][label] not in kept]
        assert found.ids[text].tolist() == best(values[text : text + 1], 5, hidden)[0].tolist()
    wide = index.search(queries, 5)
    assert wide.ids.shape == (9, 5)


def test_the_laws_of_an_index_hold_for_a_tree(tmp_path):
    index, queries = tree_index(beam=(1, 1))
    # More places than the beam has labels: all labels are searched.
    assert (np.sort(index.search(queries, 99).ids, axis=1)[:, -60:] == np.arange(60)).all()
    index.remove([3, 7])
    assert not np.isin(index.search(queries, 60).ids, [3, 7]).any()
    values = all_values(index, queries)
    allowed = [3, 11, 50]
    assert index.search(queries, 4, allowed=allowed).ids.tolist() == best(values, 4, set(range(60)) - {11, 50}).tolist()
    assert not np.isin(index.search(queries, 5, forbidden=[11]).ids, [11]).any()
    before = index.vectors(np.arange(60))
    index.replace([5], np.full((1, 5), 2.0))
    assert index.vectors(np.array([5])).tolist() == [[2.0] * 5]
    assert index.vectors(np.array([6])).tolist() == before[6:7].tolist()
    assert index.add(before[8:10]).tolist() == [60, 61]
    assert (index.num_ids, index.num_labels) == (62, 60)
    # Their likes' mean is their own direction where a cluster has one label.
    index.save(tmp_path / "index")
    again = index_layer.load(tmp_path / "index")
    assert isinstance(again, TreeIndex)
    first, second = index.search(queries, 7), again.search(queries, 7)
    assert (first.ids.tolist(), first.scores.tolist()) == (second.ids.tolist(), second.scores.tolist())
    assert (
        again.search(queries, 62, forbidden=[0]).ids.tolist()
        == best(all_values(again, queries), 62, [0, 3, 7]).tolist()
    )
    assert index.search(queries[:0], 3).ids.shape == (0, 3)
    with pytest.raises(ValueError, match="must have 15 numbers per row"):
        index.search(queries[:, :-1], 3)
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(queries, 0)
    np.save(tmp_path / "index" / "parents_0.npy", np.zeros(12, dtype=np.int64))
    with pytest.raises(ModelError, match="one vector per cluster"):
        index_layer.load(tmp_path / "index")


def test_equal_labels_tie_to_the_lower_id():
    index, queries = tree_index(counts=(4,), beam=(4,))
    same = np.flatnonzero(index.tree.parents[0] == index.tree.parents[0][0])
    index.replace(same, np.tile(index.vectors(same[:1]), (len(same), 1)))
    found = index.search(queries, 60)
    for row in found.ids:
        places = [label for label in row.tolist() if label in same]
        assert places == sorted(places)


# Whole runs.


@pytest.mark.parametrize("settings", [[], ["tree.levels=[6]", "tree.residual=true", "tree.smooth_centroids=true"]])
def test_a_model_learns_and_its_folder_predicts_the_same(settings, tmp_path):
    data = topics()
    more = ["train.epochs=6", "train.validation=0.2", "train.validate_every=2", "tree.search_beam=[3, 5]", *settings]
    model = train(data, "cascadexml", settings=[*SMALL, *more], out=tmp_path / "model")
    assert model.metrics["test"]["P@1"] > 75
    assert model.metrics["validation"]["P@1"] > 60
    loaded = Model.load(tmp_path / "model")
    texts = list(data.test.texts)
    first, second = model.predict(texts, 5), loaded.predict(texts, 5)
    assert (first.ids.tolist(), first.scores.tolist()) == (second.ids.tolist(), second.scores.tolist())
    assert first.scores[:, 0].min() > 0
    assert first.scores.max() <= 1
    for one, other in zip(model.network.tree.tables, loaded.network.tree.tables, strict=True):
        assert torch.equal(one.weight, other.weight)
    assert "index: tree" in (tmp_path / "model" / "MODEL_CARD.md").read_text()
    # Explanations show the probability as one part; new labels need a dual encoder.
    assert [list(reason.parts) for reason in explain(loaded, texts[0], k=2)] == [["label_tree"]] * 2
    with pytest.raises(ModelError, match="dual encoder"):
        loaded.add_labels(["new"])
    gone = int(first.ids[0, 0])
    loaded.remove_labels([gone])
    assert gone not in loaded.predict(texts[:1], 24).ids
    near = nearest_labels(loaded, (gone + 1) % 24, 23)
    assert not np.isin(near.ids, [gone, (gone + 1) % 24]).any()
    assert (near.ids >= 0).sum() == 22


class StopError(Exception):
    """What stops a run."""


def test_a_resumed_run_is_the_unbroken_one_with_tables_in_files(tmp_path, monkeypatch):
    settings = [*SMALL, "train.table_storage=file", "train.checkpoint_every=5", "train.epochs=3", "tree.dropout=[0.2]"]
    train(topics(), "cascadexml", settings=settings, out=tmp_path / "unbroken")
    steps, plain = [], Step.__call__

    def stopping(self, *given):
        steps.append(1)
        if len(steps) == 13:
            raise StopError
        return plain(self, *given)

    monkeypatch.setattr(Step, "__call__", stopping)
    with pytest.raises(StopError):
        train(topics(), "cascadexml", settings=settings, out=tmp_path / "broken")
    train(topics(), "cascadexml", settings=settings, out=tmp_path / "broken", resume=True)
    # 24 steps, of which 10 were kept.
    assert len(steps) == 13 + 14
    assert digest(tmp_path / "broken") == digest(tmp_path / "unbroken")


STAGES = """
about = "clusters, then labels"
[heads]
dual = false
projection = false
dropout = 0.0
classifier_dropout = 0.0
classifier_search_vectors = "plain"
classifier_bias = "log-odds"
[loss]
classifier = "bce"
temperature = 0.1
[pool]
batches = "random"
hard_negatives = 0
[tree]
levels = [3, 7]
beam = [2, 3]
search_beam = [3, 7]
[train]
row_optimiser = "adagrad"
lr_encoder = 0.1
lr_classifier = 0.1
epochs = 6
[[stages]]
name = "clusters"
tree = { losses = "clusters" }
[[stages]]
name = "labels"
tree = { losses = "labels" }
train = { freeze_encoder = true, epochs = 8 }
"""


def test_clusters_first_then_labels_on_frozen_shortlists(tmp_path):
    (tmp_path / "two.toml").write_text(STAGES)
    small = ["encoder.dim=32", "features.min_df=1", "train.batch_size=32", "augment.method=gandalf"]
    model = train(topics(), tmp_path / "two.toml", settings=small, out=tmp_path / "model")
    # An encoder that knows clusters alone, and far above 4% of chance.
    assert model.metrics["test"]["P@1"] > 50
    # Nothing of the first stage has moved in the second.
    still = train(topics(), tmp_path / "two.toml", settings=[*small, "stages.labels.train.lr_classifier=0.0"])
    for one, other in zip(model.network.tree.tables, still.network.tree.tables, strict=True):
        assert torch.equal(one.weight, other.weight)
    assert torch.equal(model.network.encoder.table.weight, still.network.encoder.table.weight)
    assert not torch.equal(model.network.classifiers.weight, still.network.classifiers.weight)
    phases = [json.loads(line)["phase"] for line in model.log.splitlines()]
    assert phases == ["training-clusters"] * 6 + ["training-labels"] * 8
    with pytest.raises(ConfigError, match=r"same in all stages, but this run has tree\.levels"):
        load(tmp_path / "two.toml", ["stages.clusters.tree.levels=[2]"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["heads.dual=true"], "its own index .* but this run has heads.dual = true"),
        (["heads.classifier_normalised=true"], "searched as they are trained"),
        (["pool.labels=all"], "pool.labels = 'all'"),
        (["pool.hard_negatives=3"], "pool.hard_negatives = 3"),
        (["predict.index=hnsw"], "predict.index = 'hnsw'"),
        (["tree.layers=[[1], [2]]"], "encoder.kind = 'bag', an encoder without layers"),
        (["tree.losses=clusters"], "must learn the labels themselves"),
    ],
)
def test_what_a_tree_cannot_be_trained_with_is_refused_first(settings, said):
    with pytest.raises(ConfigError, match=said):
        train(topics(), "cascadexml", settings=[*SMALL, *settings])


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match=r"tree\.beam"):
        config_of("tree.beam=[]")
    with pytest.raises(ConfigError, match=r"tree\.levels\.0"):
        config_of("tree.levels=[0]")


def test_inception_takes_a_tree():
    small = ["encoder.dim=64", "encoder.max_length=7", "features.min_df=1", "train.batch_size=32", "train.epochs=3"]
    small += ["encoder.dropout=0.0", "encoder.layer_dropout=0.0", "heads.dropout=0.0"]
    small += ["pool.labels=picked", "tree.levels=[8]", "tree.search_beam=[6]", "tree.detached_epochs=1"]
    model = train(topics(), "inceptionxml", settings=small)
    assert isinstance(model.scorer.index, TreeIndex)
    assert model.metrics["test"]["P@1"] > 15
