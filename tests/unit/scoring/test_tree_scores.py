"""The sums of trees by array operations are those of LightGBM."""

import lightgbm
import numpy as np
import pytest

from unidex.scoring.tree_scores import TreeScores


def _fitted(num_leaves, num_trees=7, num_pairs=600):
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(num_pairs, 4)).astype(np.float32).round(1)
    hits = columns[:, 0] * columns[:, 1] + columns[:, 2] > 0
    settings = {"objective": "binary", "num_leaves": num_leaves, "min_data_in_leaf": 2, "verbose": -1, "num_threads": 1}
    return lightgbm.train(settings, lightgbm.Dataset(columns, hits), num_trees), columns


@pytest.mark.parametrize("num_leaves", [2, 15, 33, 64])
def test_the_sums_are_those_of_lightgbm(num_leaves):
    booster, columns = _fitted(num_leaves)
    scores = TreeScores.parse(booster.model_to_string())
    # Values at a threshold, between two of them, and outside all.
    thresholds = np.concatenate(scores.thresholds)
    rng = np.random.default_rng(1)
    at = rng.choice(np.concatenate([thresholds, np.nextafter(thresholds, np.float32(9)), [-9, 9, np.inf]]), (500, 4))
    # LightGBM takes numbers up to 1e-35 as 0.
    columns = np.concatenate([columns, np.where(np.abs(at) < 1e-30, 0, at).astype(np.float32)])
    np.testing.assert_allclose(scores(columns), booster.predict(columns, raw_score=True), rtol=0, atol=1e-12)


def test_trees_of_one_leaf_give_their_value():
    rng = np.random.default_rng(0)
    data = lightgbm.Dataset(np.zeros((50, 2), dtype=np.float32), rng.random(50) > 0.5)
    booster = lightgbm.train({"objective": "binary", "verbose": -1}, data, 2)
    columns = np.ones((3, 2), dtype=np.float32)
    expected = booster.predict(columns, raw_score=True)
    np.testing.assert_allclose(TreeScores.parse(booster.model_to_string())(columns), expected, atol=1e-12)


@pytest.mark.parametrize("change", [("decision_type=2", "decision_type=9"), ("max_feature_idx=3", "max_feature_idx=0")])
def test_trees_that_are_not_whole_are_refused(change):
    text = _fitted(15)[0].model_to_string()
    with pytest.raises(ValueError, match="trees must"):
        TreeScores.parse(text.replace(*change))
    with pytest.raises(ValueError, match="there must be trees"):
        TreeScores.parse(text.split("Tree=0")[0])
