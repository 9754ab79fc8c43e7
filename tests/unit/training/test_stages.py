"""Several stages in one recipe: settings, what goes on from stage to stage, frozen encoders, resuming in each stage."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.command import run
from helpers.stopped_runs import digest, kill_at_checkpoint, train_command
from helpers.synthetic import QUICK, begun, topics
from helpers.tiny_transformer import topics_settings
from unidex.config.recipes import load
from unidex.data import formats
from unidex.data.concepts import Concept, Term
from unidex.distributed import ALONE
from unidex.errors import ConfigError
from unidex.features.tokens import TokenRows, token_weights
from unidex.model.model import Model
from unidex.nn.label_tree import balanced_clusters, cut, label_centroids
from unidex.pools.batches import cluster_size, joined_clusters
from unidex.training.frozen import freeze
from unidex.training.loop import Trainer
from unidex.training.parts_setup import label_graph
from unidex.training.stage_networks import StageNetworks
from unidex.training.training_set import Batching
from unidex.verbs.train import train

RECIPE = """
about = "two stages"
[heads]
projection = false
dropout = 0.0
classifier_init = "label-text"
classifier_normalised = true
classifier_dropout = 0.0
[pool]
batches = "random"
[train]
row_optimiser = "adagrad"
lr_encoder = 0.1
lr_classifier = 0.05
[[stages]]
name = "first"
heads = { classifier = false }
train = { epochs = 4 }
[stages.bag.train]
checkpoint_every = 7
[[stages]]
name = "second"
loss = { dual_weight = 0.0 }
train = { epochs = 3, freeze_encoder = true }
"""
SMALL = ["encoder.dim=24", "features.min_df=1", "train.batch_size=32", "pool.hard_negatives=2", "pool.start=1"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    file = tmp_path_factory.mktemp("recipe") / "two.toml"
    file.write_text(RECIPE)
    return file


def test_a_stage_overrides_the_recipe_and_set_overrides_the_stage(recipe):
    stages = load(recipe, ["train.batch_size=9", "stages.second.train.epochs=2"]).in_stages()
    assert list(stages) == ["first", "second"]
    first, second = stages.values()
    assert (first.train.epochs, second.train.epochs) == (4, 2)
    assert (first.train.batch_size, second.train.batch_size) == (9, 9)
    assert (first.heads.classifier, second.heads.classifier) == (False, True)
    assert first.train.checkpoint_every == 7
    everywhere = load(recipe, ["train.epochs=1"]).in_stages().values()
    assert [config.train.epochs for config in everywhere] == [1, 1]
    assert load("unidec").in_stages() == {"": load("unidec")}


def test_a_printed_recipe_with_stages_reads_back(recipe, tmp_path):
    config = load(recipe, ["stages.first.train.epochs=9"])
    # The whole recipe is that of the model in the end.
    assert config.heads.classifier
    assert config.train.freeze_encoder
    (tmp_path / "printed.toml").write_text(config.as_toml())
    again = load(tmp_path / "printed.toml")
    assert again == config
    assert again.in_stages() == config.in_stages()
    done = run("config", recipe)
    assert '[[stages]]\nname = "first"' in done.stdout
    assert "epochs = 4  # passes over the texts" in done.stdout.split("[[stages]]")[1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["stages.third.train.epochs=1"], "there is no 'third'; it has first, second"),
        (["stages.first.train.epochz=1"], "stage first: there is no setting train.epochz"),
        (["stages.first.heads.dim=3"], "same in all stages, but this run has heads.dim = 3 in the stage 'first'"),
        (["stages.first.encoder.dim=3"], "same in all stages, but this run has encoder.dim = 3 in the stage 'first'"),
        (["stages.first.predict.fusion=0.1"], "but this one has 'predict'"),
        (["stages.first=1"], "must be stages.NAME.section.key=value"),
    ],
)
def test_settings_a_stage_cannot_change_are_refused_with_their_name(recipe, settings, said):
    with pytest.raises(ConfigError, match=said):
        load(recipe, settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["train.decay_epochs=1"], "need a recipe of one stage, but this run has train.decay_epochs = 1"),
        (
            ["stages.second.heads.dual=false", "stages.second.train.surrogate=4"],
            "last stage must learn the labels themselves",
        ),
        (["stages.first.train.surrogate=4"], "have no texts: only a classifier learns them"),
        (["predict.rank=decision-tree"], "but this run has train.validation = 0"),
    ],
)
def test_stages_that_cannot_be_trained_are_refused_before_training(recipe, settings, said):
    with pytest.raises(ConfigError, match=said):
        train(topics(), recipe, settings=[*SMALL, *settings])


def test_a_recipe_without_that_stage_says_so():
    with pytest.raises(ConfigError, match="there is no 'x'; it has none"):
        load("unidec", ["stages.x.train.epochs=1"])


def test_a_stage_continues_the_network_and_a_frozen_encoder_does_not_change(recipe, tmp_path):
    # Stopped after the first stage: the same settings with a second one that learns nothing.
    still = train(topics(), recipe, settings=[*SMALL, "stages.second.train.lr_classifier=0.0"], seed=5)
    model = train(topics(), recipe, settings=SMALL, seed=5, out=tmp_path / "model")
    assert torch.equal(still.network.encoder.table.weight, model.network.encoder.table.weight)
    for name, weight in still.network.encoder.state_dict().items():
        assert torch.equal(weight, model.network.encoder.state_dict()[name])
    # Where nothing is learned, classifiers are the label vectors of the first stage.
    labels = still.network.encoder.prepare(list(still.labels.texts))
    assert torch.allclose(still.network.classifiers.weight, still.network.text_vectors(labels).classifier, atol=1e-6)
    assert not torch.equal(still.network.classifiers.weight, model.network.classifiers.weight)
    assert model.metrics["test"]["P@1"] > 80
    assert model.metrics["training"]["epochs"] == 7
    assert list(model.metrics["training"]["stages"]) == ["first", "second"]
    assert model.config.in_stages() == load(recipe, SMALL).in_stages()
    # The folder keeps stages, phases and predictions.
    loaded = Model.load(tmp_path / "model")
    assert loaded.config == model.config
    assert [stage.name for stage in loaded.config.stages] == ["first", "second"]
    texts = list(topics().test.texts)
    assert np.array_equal(loaded.predict(texts).ids, model.predict(texts).ids)
    phases = [json.loads(line)["phase"] for line in loaded.log.splitlines()]
    assert phases == ["training-first"] * 4 + ["training-second"] * 3


def test_steps_on_stored_vectors_equal_steps_with_a_frozen_encoder():
    data, config = topics(), load("unidec", [*QUICK, "loss.dual_weight=0.0", "train.freeze_encoder=true"])
    found = []
    for kept in (True, False):
        network, whole = begun(config, data)
        # A learning rate of 0 leaves the vectors where they are, at the price of their gradients.
        settings = config
        if not kept:
            settings = config.model_copy(
                update={
                    "train": config.train.model_copy(
                        update={"freeze_encoder": False, "lr_encoder": 0.0, "lr_heads": 0.0}
                    )
                }
            )
        trainer = Trainer(network, whole, settings)
        trainer.run()
        found.append(network.classifiers.weight)
        if kept:
            step, vectors = freeze(network, whole, config, ALONE)
            assert set(step.tables()) == {"classifiers"}
            assert torch.equal(vectors.texts, network.encode(whole.texts))
    assert torch.allclose(found[0], found[1], atol=1e-5)


def test_a_frozen_encoder_needs_something_that_learns():
    with pytest.raises(ConfigError, match="needs a classifier, a projection or a temperature that learns"):
        train(topics(), "depsl", settings=[*QUICK, "train.freeze_encoder=true"])


def test_several_stages_with_validation_choose_in_the_last_one(recipe):
    settings = [*SMALL, "train.validation=0.2", "train.validate_every=1", "predict.choose_fusion=true"]
    model = train(topics(), recipe, settings=settings)
    assert model.metrics["choice"]["fusion"] == model.config.predict.fusion
    # What was chosen in the last stage does not reach into the first.
    assert model.config.in_stages()["first"].train.epochs == 4


def command(data, out, recipe, *more):
    return train_command(data, out, recipe, [*SMALL, "train.checkpoint_every=3", "train.epochs=6"], *more)


def test_a_run_that_is_killed_in_every_stage_resumes_to_the_same_model(recipe, tmp_path):
    data = tmp_path / "topics"
    formats.write(topics(), data, "xc-raw")
    unbroken, broken, work = tmp_path / "unbroken", tmp_path / "broken", tmp_path / "broken.training"
    assert run(*command(data, unbroken, recipe)).returncode == 0
    resume = []
    for stage in ("first", "second"):
        kill_at_checkpoint(command(data, broken, recipe, *resume), work / f"training-{stage}")
        resume = ["--resume"]
    done = run(*command(data, broken, recipe, "--resume"))
    assert done.returncode == 0, done.stderr
    assert "Resumed at step" in done.stderr
    assert digest(broken) == digest(unbroken)
    assert (broken / "train.jsonl").read_text().count('"training-second"') == 6


def test_clusters_grow_and_batches_are_made_of_whole_ones():
    assert [cluster_size(epoch, [10, 20, 25], 64) for epoch in (0, 9, 10, 19, 20, 25, 99)] == [1, 1, 2, 2, 4, 8, 8]
    assert cluster_size(99, list(range(20)), 64) == 64
    clusters = np.split(np.arange(64), 16)
    batches = joined_clusters(clusters, 16, np.random.default_rng(0))
    assert sorted(np.concatenate(batches).tolist()) == list(range(64))
    assert [len(batch) for batch in batches] == [16] * 4
    for batch in batches:
        assert sorted(np.unique(batch // 4, return_counts=True)[1].tolist()) == [4] * 4
    other = joined_clusters(clusters, 16, np.random.default_rng(1))
    assert not all(np.array_equal(*pair) for pair in zip(batches, other, strict=True))


def test_growing_clusters_have_the_planned_steps_and_resume_with_their_state():
    settings = [*QUICK, "pool.cluster_growth=[2, 4]", "pool.batches=clustered"]
    model = train(topics(), "depsl", settings=settings)
    # 240 texts in batches of 32 are 8 a epoch, clustered or not.
    assert model.metrics["training"]["steps"] == 6 * 8
    assert model.metrics["test"]["P@1"] > 80


@pytest.mark.parametrize("encoder", ["bag", "transformer"])
def test_batches_of_texts_with_like_words_need_no_vectors(encoder, monkeypatch):
    settings = [*QUICK, *(topics_settings(80) if encoder == "transformer" else [])]
    settings += ["pool.batches=clustered", "pool.similar_by=words", "pool.cluster_growth=[0, 0]"]
    settings += ["pool.hard_negatives=0", "train.epochs=2"]
    seen = []
    batches = Batching.batches

    def watched(self, epoch):
        found = batches(self, epoch)
        seen.append((self._data.texts, self._clusters, found))
        return found

    monkeypatch.setattr(Batching, "batches", watched)
    train(topics(), "depsl", settings=settings)
    texts, clusters, found = seen[0]
    rows = (token_weights(texts) if isinstance(texts, TokenRows) else texts).toarray()
    # Clusters of four texts from the first epoch on, whose words are more alike than those of any four.
    assert max(len(cluster) for cluster in clusters) <= 4
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def likeness(groups):
        return np.mean([(rows[some] @ rows[some].T)[~np.eye(len(some), dtype=bool)].mean() for some in groups])

    assert likeness(clusters) > 1.5 * likeness(np.array_split(np.arange(len(rows)), len(clusters)))
    # A batch is made of whole clusters, and an epoch of all texts, in another order each time.
    assert sorted(np.concatenate(found).tolist()) == sorted(np.concatenate(clusters).tolist())
    assert seen[-1][1] is clusters
    assert [batch.tolist() for batch in seen[-1][2]] != [batch.tolist() for batch in found]


def test_a_pool_that_is_not_filled_has_the_drawn_labels_alone():
    from unidex.pools.pool import make_batch

    positives = sparse.csr_array(np.ones((3, 6), dtype=np.float32))
    none = sparse.csr_array((3, 6), dtype=bool)
    options = {"num_positives": 1, "num_negatives": 0, "size": 100, "shortlist": None}
    drawn = make_batch(positives, none, np.arange(3), **options, rng=np.random.default_rng(0), fill=False)
    filled = make_batch(positives, none, np.arange(3), **options, rng=np.random.default_rng(0))
    assert len(drawn.labels) <= 3 < len(filled.labels) == 6


def points(num_labels, seed):
    rows = np.random.default_rng(seed).normal(size=(num_labels, 3))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def value_of(rows, groups):
    # The sum of similarities to the best centre of a group is the length of the group's sum.
    return sum(float(np.linalg.norm(rows[list(group)].sum(axis=0))) for group in groups)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [3, 4])
def test_a_cut_is_near_the_best_of_all_and_the_best_for_its_centres(seed, size):
    rows = points(8, seed)
    everybody = set(range(8))
    splits = [(set(first), everybody - set(first)) for first in combinations(range(8), size)]
    best = max(value_of(rows, split) for split in splits)
    first, second = cut(rows, np.arange(8), size, np.random.default_rng(seed), min_gain=0.0)
    assert len(first) == size
    found = value_of(rows, (first, second))
    assert found >= 0.85 * best
    # No other split is nearer to the centres of this one.
    centres = np.stack([rows[part].sum(axis=0) / np.linalg.norm(rows[part].sum(axis=0)) for part in (first, second)])
    similarity = rows @ centres.T
    nearest = max(similarity[list(a), 0].sum() + similarity[list(b), 1].sum() for a, b in splits)
    assert similarity[first, 0].sum() + similarity[second, 1].sum() == pytest.approx(nearest, abs=1e-4)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("num_clusters", [1, 3, 4, 7, 16])
def test_clusters_are_balanced_and_find_groups_that_are_there(num_clusters, is_sparse):
    rng = np.random.default_rng(0)
    kinds = np.repeat(np.arange(4), 4)
    rows = np.eye(4)[kinds] + 0.05 * np.abs(rng.normal(size=(16, 4)))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    found = balanced_clusters(sparse.csr_array(rows) if is_sparse else rows, num_clusters, rng)
    sizes = np.bincount(found, minlength=num_clusters)
    assert sizes.max() - sizes.min() <= 1
    if num_clusters == 4:
        assert len({(kind, cluster) for kind, cluster in zip(kinds, found, strict=True)}) == 4
    with pytest.raises(ValueError, match="clusters must be 1 to 16"):
        balanced_clusters(rows, 17, rng)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_centroids_are_the_mean_directions_smoothed_by_the_graph(is_sparse):
    rng = np.random.default_rng(0)
    texts = np.abs(rng.normal(size=(12, 5))).astype(np.float32)
    dense = (rng.random((12, 4)) < 0.4).astype(np.float32)
    dense[:, 3] = 0
    graph = sparse.csr_array(np.eye(4) + np.eye(4, k=1))
    given = sparse.csr_array(texts) if is_sparse else texts

    def unit(rows):
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(lengths > 0, lengths, 1)

    plain = unit(dense.T @ unit(texts))
    for found, wanted in (
        (label_centroids(given, sparse.csr_array(dense)), plain),
        (label_centroids(given, sparse.csr_array(dense), graph), unit(graph.toarray() @ plain)),
    ):
        shown = found.toarray() if sparse.issparse(found) else found
        assert np.allclose(shown, wanted, atol=1e-6)


def test_classifiers_start_from_label_vectors_summed_over_the_label_graph():
    data = topics()
    config = load("unidec", [*QUICK, "heads.classifier_init=label-graph"])
    stage = StageNetworks(data, config, seed=0, device=torch.device("cpu"), folder=None, processes=ALONE)
    training = stage.training_set(config, None)
    network = stage.network(config, training, None, "training")
    vectors = network.text_vectors(training.labels).classifier
    graph = label_graph(data.train.positives, config.augment, 0)
    wanted = torch.from_numpy(graph @ vectors.numpy())
    torch.testing.assert_close(network.classifiers.weight, wanted)
    # Labels of one topic come together: their classifiers are not their own texts' alone.
    assert not torch.allclose(wanted, vectors)


@pytest.mark.parametrize(("setting", "num_points"), [("false", 40), ("true", 43)])
def test_further_texts_of_labels_are_points_on_wish(setting, num_points):
    data = topics(num_labels=40)
    concepts = {3: Concept(texts=(Term("first"), Term("second"))), 7: Concept(texts=(Term("third"),))}
    data = replace(data, labels=replace(data.labels, concepts=concepts))
    config = load("auto", [*QUICK, "augment.method=gandalf", f"augment.further_texts={setting}"])
    stage = StageNetworks(data, config, seed=0, device=torch.device("cpu"), folder=None, processes=ALONE)
    found = stage.training_set(config, None)
    assert found.texts.shape[0] == len(data.train) + num_points
    # A point is a single text of its label.
    own = stage._encoder.prepare(data.labels.texts)
    assert (found.texts[len(data.train) : len(data.train) + 40] != own).nnz == 0
