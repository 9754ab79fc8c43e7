"""Candidates of each text's own: the loss of a step is that of each text on its own candidates, with its gradients."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.gradients import step_gradients, training_set
from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.distributed import ALONE
from unidex.encoders.registry import build_encoder
from unidex.losses import Targets
from unidex.nn import candidate_scores
from unidex.nn.assembly import build_network
from unidex.pools.pool import Batch, make_batch
from unidex.training.own_candidates import OwnCandidates
from unidex.verbs.train import train

SMALL = ["encoder.dim=12", "features.min_df=1", "heads.dim=10", "loss.learn_temperature=true", "loss.text_to_label=1.0"]
PLAIN = ["heads.dropout=0", "heads.classifier_dropout=0", "encoder.dropout=0"]


def setting(changes):
    data = topics(filters=True)
    config = load("unidec", [*SMALL, *PLAIN, *changes])
    torch.manual_seed(0)
    encoder = build_encoder(config, data.train.texts, data.labels.texts)
    network = build_network(config, encoder, data.num_labels)
    network.train()
    return data, config, network, training_set(data, encoder)


def mined_batch(data, texts, number=4):
    """A batch with labels mined for each text: random ones that are neither positives nor filter pairs."""
    rng = np.random.default_rng(1)
    taken = data.train.positives.toarray() + data.train.filter_pairs.toarray()
    shortlist = np.full((len(data.train), number), -1)
    for text, row in enumerate(taken):
        free = rng.permutation(np.flatnonzero(row == 0))[: number - text % 2]
        shortlist[text, : len(free)] = free
    return make_batch(
        data.train.positives, data.train.filter_pairs, texts, num_positives=2, num_negatives=number, size=1000,
        shortlist=shortlist, rng=np.random.default_rng(0), is_shared=False,
    )  # fmt: skip


def batch_of_one(batch, text):
    """The same text with its own candidates as the pool."""
    is_own = batch.targets.rows == text
    positives = batch.targets.columns[is_own].numpy()
    mined = batch.mined[text][batch.mined[text] >= 0]
    assert not set(positives) & set(mined)
    places = np.sort(np.concatenate([positives, mined]))
    targets = Targets.of(
        [0] * len(positives), np.searchsorted(places, positives).tolist(), batch.targets.weights[is_own],
        shape=(1, len(places)),
    )  # fmt: skip
    return Batch(batch.texts[text : text + 1], batch.labels[places], targets)


def assert_close(found, expected):
    assert expected.abs().max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max() + 1))


LOSSES = ("decoupled-softmax", "supcon", "soft-top-k", "triplet", "contrastive", "bce")


@pytest.mark.parametrize("chunk", [0, 7])
@pytest.mark.parametrize(
    "changes",
    [
        *([f"loss.dual={dual}", f"loss.classifier={other}"] for dual, other in itertools.pairwise(LOSSES)),
        ["heads.dual=false", "loss.classifier=bce", "loss.bce_reduction=sum", "heads.classifier_bias=log-odds"],
        ["heads.classifier=false"],
        ["loss.dual_weight=0.0", "heads.shared_encoder=false"],
    ],
    ids=",".join,
)
def test_a_step_is_the_mean_over_texts_on_their_own_candidates(changes, chunk, monkeypatch):
    data, config, network, whole = setting(["loss.bce_reduction=sum", "loss.k=3", *changes])
    batch = mined_batch(data, np.arange(5, 35))
    parts = [step_gradients(network, whole, config, batch_of_one(batch, text)) for text in range(len(batch.texts))]
    own = config.model_copy(
        update={
            "pool": config.pool.model_copy(update={"candidates": "own"}),
            # The direction from labels to texts is left out, whatever the recipe says.
            "loss": config.loss.model_copy(update={"text_to_label": 0.5}),
            "train": config.train.model_copy(update={"chunk": chunk}),
        }
    )
    for dense_up_to in (8, 0):
        monkeypatch.setattr(candidate_scores, "DENSE_UP_TO", dense_up_to)
        value, found = step_gradients(network, whole, own, batch)
        assert float(value) == pytest.approx(np.mean([float(part) for part, _ in parts]), rel=1e-4)
        for name, gradient in found.items():
            expected = sum(of_text[name] for _, of_text in parts) / len(parts)
            assert_close(gradient, expected)


@pytest.mark.parametrize("chunk", [0, 7])
@pytest.mark.parametrize(
    "changes",
    [["loss.classifier=bce"], ["loss.classifier_bce=0.5"], ["loss.dual=one-positive", "loss.classifier=triplet"]],
    ids=",".join,
)
def test_a_step_is_that_of_a_shared_pool_whose_other_pairs_do_not_count(changes, chunk):
    data, config, network, whole = setting([*changes, f"train.chunk={chunk}"])
    batch = mined_batch(data, np.arange(5, 35))
    counts = torch.zeros(batch.targets.shape, dtype=torch.bool)
    counts[batch.targets.rows, batch.targets.columns] = True
    for text, mined in enumerate(batch.mined):
        counts[text, mined[mined >= 0]] = True
    ignored_rows, ignored_columns = (~counts).nonzero(as_tuple=True)
    shared = replace(batch.targets, ignored_rows=ignored_rows, ignored_columns=ignored_columns)
    value, expected = step_gradients(network, whole, config, Batch(batch.texts, batch.labels, shared))
    found_value, found = step_gradients(network, whole, config, batch)
    assert float(found_value) == pytest.approx(float(value), rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_close(gradient, expected[name])


def test_other_labels_of_the_pool_get_no_gradient():
    data, config, network, whole = setting(["heads.dual=false", "loss.classifier=bce"])
    batch = mined_batch(data, np.arange(2))
    # Two texts with one mined label each; the pool has others too.
    batch = Batch(batch.texts, batch.labels, batch.targets, batch.mined[:, :1])
    _, found = step_gradients(network, whole, config, batch)
    moved = set(found["classifiers"].abs().sum(1).nonzero().ravel().tolist())
    mined = set(batch.labels[batch.mined.ravel()].tolist())
    positives = set(batch.labels[batch.targets.columns.numpy()].tolist())
    assert moved == mined | positives
    assert len(batch.labels) > len(moved)


def test_a_mined_label_that_became_positive_or_a_filter_pair_is_that_alone():
    targets = Targets.of([0, 1], [2, 0], [0.3, 0.7], ignored_rows=[1], ignored_columns=[3], shape=(2, 4))
    found = OwnCandidates.of(targets, torch.tensor([[2, 1], [3, 0]]), ALONE)
    assert found.places_bK.tolist() == [[2, 1], [0, -1]]
    assert found.targets.rows.tolist() == [0, 1]
    assert found.targets.columns.tolist() == [0, 0]
    torch.testing.assert_close(found.targets.weights, torch.tensor([0.3, 0.7]))
    assert (found.targets.ignored_rows.tolist(), found.targets.ignored_columns.tolist()) == ([1], [1])


@pytest.mark.parametrize("changes", [[], ["augment.mixup=texts"], ["augment.mixup=labels"]])
def test_it_trains_with_candidates_of_its_own(changes):
    settings = [*QUICK, "encoder.dim=16", "pool.candidates=own", "pool.start=1", "pool.hard_negatives=4", *changes]
    model = train(topics(), "unidec", settings=settings)
    assert model.metrics["test"]["P@1"] > 80
