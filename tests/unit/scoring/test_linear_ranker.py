"""The learned ranker of a few texts: its fit, its formula, its file."""

import json

import numpy as np
import pytest

from unidex.data.dataset import Propensity
from unidex.errors import ModelError
from unidex.scoring.fitted_ranker import read_ranker
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.linear_ranker import LinearWeights
from unidex.scoring.rankers import LEXICAL, Candidates, Rarity, sum_parts

LAYOUT = Layout(4, 3, Weights(0.3, 0.5, 0.1))
RARITY = Rarity.of("rare", 5000, Propensity(0.55, 1.5))
PRIOR = LinearWeights.prior(LAYOUT, RARITY)


def candidates(num_texts, seed=0, num_candidates=12):
    """Drawn features; the label with the highest classifier score is right."""
    rng = np.random.default_rng(seed)
    shape = (num_texts, num_candidates)
    features = {name: rng.normal(size=shape).astype(np.float32) for name in PRIOR.weights}
    features["frequency"] = rng.integers(0, 200, shape)
    hits = features["classifier"] == features["classifier"].max(axis=1, keepdims=True)
    return features, hits, np.ones(shape, dtype=bool)


def objective(weights_F, features, hits, counts):
    """What the fit minimises, one text after the other."""
    names = list(PRIOR.weights)
    factors_F = weights_F / list(PRIOR.weights.values())
    total = 0.5 * np.sum((factors_F - factors_F.mean()) ** 2) + 0.5 * ((factors_F.mean() - 1) / 3) ** 2
    for text in range(len(hits)):
        there = counts[text]
        right = hits[text] & there
        if right.any():
            logits = sum(
                weight * features[name][text].astype(float) for name, weight in zip(names, weights_F, strict=True)
            )
            logs = logits - np.log(np.exp(logits[there]).sum())
            total -= logs[right].mean()
    return total


def test_a_fit_is_the_minimum_of_its_objective():
    features, hits, counts = candidates(20)
    rng = np.random.default_rng(1)
    hits |= rng.random(hits.shape) < 0.1
    counts &= rng.random(counts.shape) < 0.8
    hits[3], counts[4] = False, False
    fitted = PRIOR.fit(features, hits, counts)
    found = np.array(list(fitted.weights.values()))
    least = objective(found, features, hits, counts)
    for step in 0.05 * np.concatenate([np.eye(len(found)), -np.eye(len(found))]):
        assert objective(found + step, features, hits, counts) > least


def test_more_texts_take_the_weights_further_from_the_prior():
    away = []
    for num_texts in (0, 4, 40):
        fitted = PRIOR.fit(*candidates(num_texts))
        away.append(fitted.weights["classifier"] - PRIOR.weights["classifier"])
    assert away[0] == 0
    assert 0 < away[1] < away[2]
    features, hits, _ = candidates(100, seed=2)
    best = PRIOR.fit(*candidates(40)).ranker(LAYOUT).scores(features).argmax(axis=1)
    assert np.take_along_axis(hits, best[:, None], axis=1).mean() > 0.9


def test_texts_that_any_scale_ranks_well_change_the_scale_more_than_the_ratios_of_weights():
    features, _, counts = candidates(30)
    scores = sum(weight * features[name] for name, weight in PRIOR.weights.items())
    fitted = PRIOR.fit(features, scores == scores.max(axis=1, keepdims=True), counts)
    factors = [fitted.weights[name] / weight for name, weight in PRIOR.weights.items()]
    assert np.mean(factors) > 1.5
    assert np.std(factors) < 0.2 * np.mean(factors)


def test_texts_without_a_right_candidate_teach_nothing():
    features, hits, counts = candidates(5)
    assert PRIOR.fit(features, np.zeros_like(hits), counts) == PRIOR


def test_scores_are_the_formula_and_contributions_sum_to_them():
    features, _, _ = candidates(6)
    ranker = PRIOR.ranker(LAYOUT)
    wanted = sum(weight * features[name] for name, weight in PRIOR.weights.items()) + RARITY(features["frequency"])
    np.testing.assert_allclose(ranker.scores(features), wanted, atol=1e-5)
    parts = ranker.contributions(features)
    assert parts.keys() == {"dual", "classifier", "knn", "label_prior", "words", "frequency"}
    np.testing.assert_allclose(sum_parts(parts), wanted, atol=1e-5)
    ids = np.tile(np.arange(12), (6, 1))
    ids[0, 3:] = -1
    assert ranker.rank(Candidates(ids, features), 5).ids[0, 3:].tolist() == [-1, -1]


def test_features_are_those_of_the_layout():
    assert set(PRIOR.weights) == {"dual", "classifier", "knn", "label_prior", *LEXICAL}
    assert "classifier" not in LinearWeights.prior(Layout(4, 0, Weights(1.0)), RARITY).weights
    tree = LinearWeights.prior(Layout(0, 4, Weights(0.3), has_tree=True), RARITY).weights
    assert {"label_tree", "dual", "classifier"} & set(tree) == {"label_tree"}


def test_the_file_gives_the_same_scores_bit_by_bit():
    fitted = PRIOR.fit(*candidates(9))
    loaded = read_ranker(json.loads(json.dumps(fitted.as_dict())))
    assert loaded == fitted


@pytest.mark.parametrize(
    "damage",
    [{"weights": None}, {"weights": {"dual": "much"}}, {"weights": {"nonsense": 1.0}}, {"power": None}, {"a": []}],
)
def test_a_damaged_file_is_refused(damage):
    with pytest.raises(ModelError, match=r"ranker\.json must .*; copy"):
        read_ranker(PRIOR.as_dict() | damage)
