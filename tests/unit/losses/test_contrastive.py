"""The contrastive loss against its formula and finite differences; the hardest positives of the triplet loss."""

import math
from functools import partial

import pytest
import torch

from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.losses import HeadLoss, Targets, contrastive, triplet
from unidex.losses.targets import lowest_positives
from unidex.verbs.train import train

# A text with two positives of unequal targets and an ignored pair, one with one, one without a positive, one whose
# positives are its whole pool.
TARGETS = Targets.of(
    [0, 0, 1, 3, 3, 3, 3, 3],
    [0, 3, 2, 0, 1, 2, 3, 4],
    [1.0, 0.25, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ignored_rows=[0, 2],
    ignored_columns=[1, 2],
    shape=(4, 5),
)

TRIPLES = (TARGETS.rows, TARGETS.columns, TARGETS.weights)


def cosines(seed=0):
    return torch.rand(4, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def pairs(i):
    positives = {int(c): float(w) for r, c, w in zip(*TRIPLES, strict=True) if r == i}
    ignored = {int(c) for r, c in zip(TARGETS.ignored_rows, TARGETS.ignored_columns, strict=True) if r == i}
    return positives, [label for label in range(5) if label not in positives and label not in ignored]


def naive(scores, c, d, num_negatives, min_term):
    texts = []
    for i in range(4):
        positives, negatives = pairs(i)
        if not positives:
            continue
        value = sum(w * (-math.log(c) + d * (1 - float(scores[i, p]))) for p, w in positives.items())
        hardest = sorted((float(scores[i, n]) for n in negatives), reverse=True)[:num_negatives]
        terms = [-math.log(1 - (c / math.exp(d)) * math.exp(d * s)) for s in hardest]
        texts.append(value + sum(term for term in terms if term >= min_term))
    return sum(texts) / len(texts)


@pytest.mark.parametrize(
    ("c", "d", "num_negatives", "min_term"), [(0.9, 1.5, 2, 0.0), (0.75, 3.0, 10, 0.05), (0.5, 0.7, 1, 0.0)]
)
def test_contrastive_is_its_formula_and_its_gradient_the_slope_of_its_value(c, d, num_negatives, min_term):
    loss = partial(contrastive, c=c, d=d, num_negatives=num_negatives, min_term=min_term)
    for seed in range(5):
        scores = cosines(seed)
        value, gradient = loss(scores.clone(), TARGETS)
        assert float(value) == pytest.approx(naive(scores, c, d, num_negatives, min_term), rel=1e-12)
        step = 1e-6
        for i in range(4):
            for label in range(5):
                up, down = scores.clone(), scores.clone()
                up[i, label] += step
                down[i, label] -= step
                slope = float(loss(up, TARGETS).value - loss(down, TARGETS).value) / (2 * step)
                assert float(gradient[i, label]) == pytest.approx(slope, abs=1e-8)


def test_terms_below_the_minimum_are_dropped_with_their_gradient():
    targets = Targets.of([0], [0], shape=(1, 3))
    scores = torch.tensor([[0.9, 0.8, -0.9]], dtype=torch.float64)
    kept, dropped = contrastive(scores.clone(), targets), contrastive(scores.clone(), targets, min_term=0.1)
    assert kept.gradient[0, 2] > 0
    assert dropped.gradient[0, 2] == 0
    assert dropped.gradient[0, 1] == kept.gradient[0, 1]
    assert dropped.value < kept.value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_beyond_cosines_give_a_finite_loss_whose_gradient_is_its_slope(dtype):
    targets = Targets.of([0], [0], shape=(1, 2))
    scores = torch.tensor([[1.0, 40.0]], dtype=dtype)
    value, gradient = contrastive(scores.clone(), targets)
    assert torch.isfinite(value)
    more = contrastive(scores + torch.tensor([[0.0, 1.0]], dtype=dtype), targets).value
    assert float(more - value) == pytest.approx(float(gradient[0, 1]), rel=1e-3)


def test_texts_without_positives_or_pairs_have_no_loss():
    nothing = Targets.of([], [], shape=(2, 3))
    value, gradient = contrastive(torch.ones(2, 3), nothing)
    assert float(value) == 0
    assert not gradient.any()
    assert contrastive(torch.ones(0, 3), Targets.of([], [], shape=(0, 3))).gradient.shape == (0, 3)


@pytest.mark.parametrize("wrong", [{"c": 1.0}, {"c": 0.0}, {"d": 0.0}, {"num_negatives": 0}])
def test_constants_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        contrastive(torch.ones(1, 1), Targets.of([0], [0], shape=(1, 1)), **wrong)


def test_triplet_on_the_hardest_positives_is_triplet_on_those_alone():
    scores = cosines(3)
    limited = triplet(scores.clone(), TARGETS, num_positives=1, num_negatives=2)
    rows, columns = TARGETS.rows, TARGETS.columns
    # By hand: of each text, the positive with the largest target x shortfall keeps its target; the others are neither
    # positives nor negatives.
    weights = torch.zeros_like(TARGETS.weights)
    for i in range(4):
        own = [number for number in range(len(rows)) if rows[number] == i]
        if own:
            bar = max((float(scores[i, label]) for label in pairs(i)[1]), default=-10.0) + 0.3
            short = {number: bar - float(scores[i, columns[number]]) for number in own}
            hardest = max(own, key=lambda n: short[n] * (float(TARGETS.weights[n]) if short[n] > 0 else 1))
            weights[hardest] = TARGETS.weights[hardest]
    by_hand = Targets(rows, columns, weights, TARGETS.ignored_rows, TARGETS.ignored_columns, TARGETS.shape)
    wanted = triplet(scores.clone(), by_hand, num_negatives=2)
    assert torch.equal(limited.gradient, wanted.gradient)
    assert limited.value == wanted.value
    assert triplet(scores.clone(), TARGETS, num_positives=9).value == triplet(scores.clone(), TARGETS).value


def test_a_weak_target_with_a_low_score_does_not_take_the_place_of_a_strong_one():
    # Gandalf's targets: the score of a weak one is low for a good reason.
    targets = Targets.of([0, 0], [0, 1], [1.0, 0.1], shape=(1, 3))
    gradient = triplet(torch.tensor([[0.5, 0.2, 0.6]]), targets, num_positives=1).gradient
    assert gradient[0, 0] < 0
    assert gradient[0, 1] == 0
    # Among equal targets the lowest score is the hardest.
    equal = Targets.of([0, 0], [0, 1], [0.1, 0.1], shape=(1, 3))
    gradient = triplet(torch.tensor([[0.5, 0.2, 0.6]]), equal, num_positives=1).gradient
    assert gradient[0, 0] == 0
    assert gradient[0, 1] < 0


def test_hardest_positives_leaves_positives_that_were_not_drawn_out():
    targets = Targets.of([0, 0, 0], [0, 1, 2], shape=(1, 3))
    drawn = Targets(targets.rows, targets.columns, torch.tensor([0.0, 1.0, 1.0]), *([targets.ignored_rows] * 2), (1, 3))
    assert lowest_positives(drawn, torch.tensor([-1.0, 0.5, 0.2]), 1).weights.tolist() == [0, 0, 1]


def test_positives_are_drawn_where_the_recipe_says_so():
    settings = load("unidec", ["loss.sampled_positives=2"]).loss
    targets = Targets.of([0, 0, 0, 1], [0, 1, 2, 0], shape=(2, 3))
    for name in ("triplet", "contrastive"):
        assert HeadLoss.of(name, settings).sample(targets, 0).totals(torch.float32).tolist() == [2, 1]
    assert HeadLoss.of("bce", settings).sample(targets, 0) is targets


@pytest.mark.parametrize("wide", ["pool.labels=all", "train.chunk=16"])
@pytest.mark.parametrize("name", ["contrastive", "triplet"])
def test_all_labels_and_gradient_caches_train(name, wide):
    losses = [f"loss.dual={name}", f"loss.classifier={name}", "loss.temperature=1", "train.epochs=10"]
    model = train(topics(), "unidec", settings=[*QUICK, *losses, wide])
    # One label in 24 by chance.
    assert model.metrics["test"]["P@1"] > 50
