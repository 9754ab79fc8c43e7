"""MixUp and Label-MixUp: the vectors and targets that the formulas name, gradients, and training with each."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.synthetic import QUICK, topics
from unidex.augment.mixup import mixture_of_texts, mixture_with_labels
from unidex.losses import Targets
from unidex.verbs.train import train


def mix_texts(encoded, targets, alpha, rng):
    mixture = mixture_of_texts(targets, alpha, rng)
    return mixture.mix(encoded, encoded[mixture.partners_B]), mixture.targets


def mix_labels(encoded, labels, targets, alpha, rng):
    mixture = mixture_with_labels(targets, alpha, rng)
    return mixture.mix(encoded, labels[mixture.partners_B]), mixture.targets


def dense(targets):
    """Targets and ignored pairs as matrices; a pair named twice would show as a sum above 1."""
    positives, ignored = np.zeros(targets.shape), np.zeros(targets.shape)
    np.add.at(positives, (targets.rows.numpy(), targets.columns.numpy()), targets.weights.double().numpy())
    np.add.at(ignored, (targets.ignored_rows.numpy(), targets.ignored_columns.numpy()), 1)
    return positives, ignored


def random_targets(rng, num_texts, num_labels):
    kinds = rng.choice(3, (num_texts, num_labels), p=[0.6, 0.25, 0.15])
    rows, columns = map(torch.from_numpy, np.nonzero(kinds == 1))
    ignored_rows, ignored_columns = map(torch.from_numpy, np.nonzero(kinds == 2))
    weights = torch.from_numpy(rng.uniform(0.1, 1, len(rows)))
    return Targets.of(
        rows,
        columns,
        weights,
        ignored_rows=ignored_rows,
        ignored_columns=ignored_columns,
        shape=(num_texts, num_labels),
    )


def fixed(lam, order=()):
    """A source of randomness that says what it is told."""
    return SimpleNamespace(
        beta=lambda a, b: lam, permutation=lambda count: np.array(order, dtype=np.int64), integers=lambda high: 5
    )


def test_two_texts_are_mixed_as_the_formula_says():
    encoded = torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 4.0]])
    targets = Targets.of(
        [0, 0, 1, 2],
        [0, 1, 1, 3],
        [1.0, 0.5, 1.0, 0.25],
        ignored_rows=[0, 1, 2],
        ignored_columns=[2, 0, 0],
        shape=(3, 4),
    )
    # Text 0 meets text 1, text 1 meets text 2, text 2 meets text 0.
    mixed, new = mix_texts(encoded, targets, 0.2, fixed(0.75, [1, 2, 0]))
    assert mixed.tolist() == [[0.75, 0.25], [1.0, 1.75], [3.25, 3.0]]
    positives, ignored = dense(new)
    assert positives.tolist() == [[0.75, 0.625, 0, 0], [0, 0.75, 0, 0.0625], [0.25, 0.125, 0, 0.1875]]
    # Pair (0, 0) is ignored for text 1 and positive for text 0; pair (2, 0) likewise.
    assert ignored.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 1, 0]]


def test_a_text_is_mixed_with_its_label_as_the_formula_says():
    encoded, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[8.0, 0.0], [0.0, 8.0], [9.0, 9.0]])
    targets = Targets.of([0, 0], [1, 2], [0.5, 1e-30], ignored_rows=[0], ignored_columns=[0], shape=(2, 3))
    mixed, new = mix_labels(encoded, labels, targets, 0.2, fixed(0.75))
    # The second text has no positive and stays. The label of target 1e-30 is never drawn.
    assert mixed.tolist() == [[0.75, 2.0], [0.0, 1.0]]
    positives, ignored = dense(new)
    np.testing.assert_allclose(positives, [[0, 0.625, 7.5e-31], [0, 0, 0]])
    assert ignored.tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_mixed_targets_are_those_of_the_dense_matrices(seed):
    rng = np.random.default_rng(seed)
    targets = random_targets(rng, 7, 9)
    encoded = torch.from_numpy(rng.normal(size=(7, 3)))
    mixed, new = mix_texts(encoded, targets, 0.5, np.random.default_rng(seed))
    again = np.random.default_rng(seed)
    lam, order = again.beta(0.5, 0.5), again.permutation(7)
    before, ignored_before = dense(targets)
    after, ignored = dense(new)
    np.testing.assert_allclose(mixed, lam * encoded + (1 - lam) * encoded[order])
    np.testing.assert_allclose(after, lam * before + (1 - lam) * before[order])
    np.testing.assert_allclose(after.sum(), before.sum())
    union = (before > 0) | (before[order] > 0)
    assert (ignored == ((ignored_before + ignored_before[order] > 0) & ~union)).all()
    # What the constructor takes on trust holds: no pair twice, every target in (0, 1], ids in range.
    Targets.of(
        new.rows,
        new.columns,
        new.weights,
        ignored_rows=new.ignored_rows,
        ignored_columns=new.ignored_columns,
        shape=new.shape,
    )


def test_label_mixing_moves_targets_to_the_drawn_label_in_proportion_to_them():
    targets = Targets.of([0] * 3, [0, 1, 2], [0.2, 0.2, 0.6], shape=(1, 3))
    counts = np.zeros(3)
    for seed in range(600):
        mixed, new = mix_labels(torch.zeros(1, 3), torch.eye(3), targets, 0.5, np.random.default_rng(seed))
        lam = np.random.default_rng(seed).beta(0.5, 0.5)
        label = int(mixed.argmax())
        expected = lam * np.array([0.2, 0.2, 0.6]) + (1 - lam) * np.eye(3)[label]
        np.testing.assert_allclose(mixed[0], (1 - lam) * np.eye(3)[label], rtol=1e-5)
        np.testing.assert_allclose(new.weights, expected, rtol=1e-5)
        np.testing.assert_allclose(new.weights.sum(), 1, rtol=1e-5)
        counts[label] += 1
    # Five standard deviations of 600 draws are 0.1.
    np.testing.assert_allclose(counts / 600, [0.2, 0.2, 0.6], atol=0.1)


def test_gradients_flow_to_texts_and_labels():
    rng = np.random.default_rng(3)
    targets = random_targets(rng, 5, 6)
    encoded = torch.from_numpy(rng.normal(size=(5, 2))).requires_grad_()
    labels = torch.from_numpy(rng.normal(size=(6, 2))).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mix_texts(x, targets, 1.0, np.random.default_rng(0))[0], encoded)
    assert torch.autograd.gradcheck(
        lambda x, z: mix_labels(x, z, targets, 1.0, np.random.default_rng(0))[0], (encoded, labels)
    )
    mix_labels(encoded, labels, targets, 1.0, np.random.default_rng(0))[0].sum().backward()
    lam = np.random.default_rng(0).beta(1, 1)
    has_positive = np.bincount(targets.rows, minlength=5) > 0
    np.testing.assert_allclose(encoded.grad[:, 0], np.where(has_positive, lam, 1))
    np.testing.assert_allclose(labels.grad.sum(0), (1 - lam) * has_positive.sum())


def test_the_same_rng_mixes_the_same_and_a_single_text_meets_itself():
    targets = random_targets(np.random.default_rng(0), 6, 8)
    encoded, labels = torch.randn(6, 4), torch.randn(8, 4)
    for mix in (
        lambda rng: mix_texts(encoded, targets, 0.3, rng),
        lambda rng: mix_labels(encoded, labels, targets, 0.3, rng),
    ):
        first, second, other = (mix(np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert torch.equal(first[0], second[0])
        assert torch.equal(first[1].weights, second[1].weights)
        assert not torch.equal(first[0], other[0])
    alone = Targets.of([0, 0], [2, 1], [1.0, 0.5], shape=(1, 3))
    mixed, new = mix_texts(torch.ones(1, 2), alone, 0.3, np.random.default_rng(0))
    assert mixed.tolist() == [[1.0, 1.0]]
    assert dense(new)[0].tolist() == [[0, 0.5, 1]]


def test_an_alpha_that_is_not_positive_is_refused():
    targets = Targets.of([0], [0], shape=(1, 1))
    with pytest.raises(ValueError, match=r"alpha must be > 0, but is 0\.0"):
        mix_texts(torch.zeros(1, 1), targets, 0.0, np.random.default_rng(0))


@pytest.mark.parametrize("mode", ["texts", "labels"])
@pytest.mark.parametrize("loss", ["decoupled-softmax", "one-positive"])
def test_training_with_mixed_vectors_learns(mode, loss, tmp_path):
    settings = [*QUICK, f"augment.mixup={mode}", f"loss.dual={loss}", f"loss.classifier={loss}", "pool.start=6"]
    model = train(topics(filters=True), "unidec", settings=settings, out=tmp_path / "model")
    losses = [record["loss"] for record in map(json.loads, model.log.splitlines()) if "loss" in record]
    assert len(losses) == 6
    # Without hard negatives and clusters every epoch has the same task: what falls is the loss of that.
    assert losses[-1] < 0.9 * losses[0]
    # The best a guess can do is one label in 24.
    assert model.metrics["test"]["P@1"] > 60


def test_mixing_changes_the_model_and_the_same_seed_gives_the_same():
    vectors = {}
    for mode in ("none", "texts", "labels"):
        settings = [*QUICK, "train.epochs=1", f"augment.mixup={mode}"]
        first, again = (train(topics(), "unidec", settings=settings, seed=1) for _ in range(2))
        vectors[mode] = first.encode(["w0a w1b"])
        assert np.array_equal(vectors[mode], again.encode(["w0a w1b"]))
    assert not np.allclose(vectors["none"], vectors["texts"])
    assert not np.allclose(vectors["none"], vectors["labels"])


@pytest.mark.parametrize("mode", ["texts", "labels"])
def test_classifiers_alone_are_trained_on_mixed_vectors(mode):
    mixed = train(topics(), "unidec", settings=[*QUICK, "heads.dual=false", f"augment.mixup={mode}"])
    assert mixed.metrics["test"]["P@1"] > 40


@pytest.mark.parametrize("mixup", ["texts", "labels"])
def test_inception_trains_on_mixed_texts_and_labels(mixup):
    # Its BatchNorm reads all texts of a step, and labels that are mixed in by themselves.
    settings = ["encoder.dim=64", "encoder.max_length=8", "encoder.dropout=0", "encoder.layer_dropout=0"]
    settings += [
        "heads.dropout=0",
        "features.min_df=1",
        "train.batch_size=32",
        "train.epochs=10",
        "train.lr_classifier=0.02",
    ]
    model = train(topics(), "inceptionxml", settings=[*settings, f"augment.mixup={mixup}"])
    # One label in 24 by chance.
    assert model.metrics["test"]["P@1"] > 25
