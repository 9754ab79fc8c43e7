"""The learned ranker: its fit, its formula, its explanation and its file."""

import json
import re
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from helpers import warm_start
from unidex.data.dataset import Propensity
from unidex.errors import ModelError
from unidex.metrics.propensity import inverse_propensity
from unidex.scoring.boosted_trees import BoostedTrees, BoostedTreesRanker, feature_names
from unidex.scoring.decision_tree import DecisionTreeFusion
from unidex.scoring.fitted_ranker import read_ranker
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.rankers import POWERS, Candidates, Rarity, sum_parts
from unidex.scoring.tree_scores import checked_text

LAYOUT = Layout(4, 3, Weights(0.3, 0.5, 0.1))
PROPENSITY = Propensity(0.55, 1.5)
NUM_TRAIN = 5000


def pairs(seed=0, shape=(300, 20), names=None):
    """Drawn features, and hits that follow two of them and the frequency."""
    rng = np.random.default_rng(seed)
    names = names or feature_names(LAYOUT)
    features = {name: rng.normal(size=shape).astype(np.float32) for name in names}
    features["frequency"] = rng.integers(0, 200, shape)
    chance = features["dual"] + features["word_coverage"] - np.log1p(features["frequency"]) / 4
    return features, chance + 0.3 * rng.normal(size=shape) > 0.5


def flat(features):
    return {name: values.ravel() for name, values in features.items()}


def fit(features, hits, favour="balanced"):
    return BoostedTrees.fit(flat(features), hits.ravel(), Rarity.of(favour, NUM_TRAIN, PROPENSITY))


@pytest.fixture(scope="module")
def fitted():
    return fit(*pairs())


def test_a_fit_is_the_same_twice_and_better_than_chance(fitted):
    again = fit(*pairs())
    assert again == fitted
    assert again.trees == fitted.trees
    features, hits = pairs(seed=1)
    scores = fitted.ranker(LAYOUT).scores(features)
    assert np.mean(scores[hits]) > np.mean(scores[~hits]) + 1
    best = scores.argmax(axis=1)
    assert np.take_along_axis(hits, best[:, None], axis=1).mean() > 0.8
    assert hits.mean() < 0.3


@pytest.mark.parametrize("favour", ["accuracy", "balanced", "rare"])
def test_scores_are_the_formula(fitted, favour):
    features, _ = pairs(seed=2, shape=(5, 7))
    ranker = replace(fitted, rarity=Rarity.of(favour, NUM_TRAIN, PROPENSITY)).ranker(LAYOUT)
    columns = np.stack([features[name].ravel() for name in fitted.names], axis=1)
    logits = lightgbm.Booster(model_str=fitted.trees).predict(columns.astype(np.float32), raw_score=True).reshape(5, 7)
    weights = inverse_propensity(features["frequency"].ravel(), NUM_TRAIN, PROPENSITY).reshape(5, 7)
    wanted = np.log(1 / (1 + np.exp(-logits))) + POWERS[favour] * np.log(weights)
    np.testing.assert_allclose(ranker.scores(features), wanted, atol=1e-5)


@pytest.mark.parametrize("favour", ["accuracy", "rare"])
def test_contributions_sum_to_the_scores_and_have_one_part_per_group(fitted, favour):
    features, _ = pairs(seed=3, shape=(6, 9))
    ranker = replace(fitted, rarity=Rarity.of(favour, NUM_TRAIN, PROPENSITY)).ranker(LAYOUT)
    parts = ranker.contributions(features)
    np.testing.assert_allclose(sum_parts(parts), ranker.scores(features), atol=1e-5)
    assert parts.keys() == {"dual", "classifier", "knn", "weighted_sum", "words", "frequency", "base"}
    assert all(values.shape == (6, 9) for values in parts.values())
    # Features that make hits contribute most.
    size = {name: np.ptp(parts[name]) for name in parts.keys() - {"base"}}
    assert {*sorted(size, key=size.__getitem__)[-3:]} == {"dual", "words", "frequency"}


def test_the_rarest_label_moves_up_from_accuracy_to_rare():
    """Trees fitted without regard to the frequency give both labels nearly the same chance."""
    features, _ = pairs()
    hits = features["dual"] + 0.5 * np.random.default_rng(0).normal(size=features["dual"].shape) > 0.8
    fits = {favour: fit(features, hits, favour) for favour in POWERS}
    assert len({one.trees for one in fits.values()}) == 1
    assert fits["accuracy"].rarity.power == 0 < fits["balanced"].rarity.power < fits["rare"].rarity.power
    ask, _ = pairs(seed=4, shape=(200, 10))
    ask["frequency"][:, 0], ask["frequency"][:, 1:] = 0, 150
    ids = np.tile(np.arange(10), (200, 1))
    places = {}
    for favour, one in fits.items():
        best = one.ranker(LAYOUT).rank(Candidates(ids, ask), 10)
        places[favour] = np.argmax(best.ids == 0, axis=1)
    assert (places["rare"] <= places["balanced"]).all()
    assert (places["balanced"] <= places["accuracy"]).all()
    assert places["rare"].mean() < places["accuracy"].mean() - 0.1
    assert places["balanced"].mean() < places["accuracy"].mean()


def test_a_right_pair_of_a_rare_label_weighs_more_in_the_fit():
    """Where half of the pairs are right whatever their features, the chance of rare labels is above that of others."""
    rng = np.random.default_rng(0)
    features, _ = pairs()
    features["frequency"] = np.where(rng.random(features["dual"].shape) < 0.5, 0, 4000)
    one = fit(features, rng.random(features["dual"].shape) < 0.5, "accuracy")
    scores = one.ranker(LAYOUT).scores(features)
    rare = features["frequency"] == 0
    assert scores[rare].mean() > scores[~rare].mean() + 0.1


@pytest.mark.parametrize(
    ("name", "sign"), [("knn", 1), ("word_overlap", 1), ("dual_gap", -1), ("knn_place", 0), ("label_length", 0)]
)
def test_a_score_never_falls_where_a_part_rises_even_if_held_out_texts_say_so(name, sign):
    features, _ = pairs()
    # In these texts, the feature speaks against the label, or as a gap for it.
    hits = features[name] * (sign or 1) + 0.3 * features["dual"] < -0.5
    ranker = fit(features, hits).ranker(LAYOUT)
    some, _ = pairs(seed=3, shape=(1, 20))
    scores = [ranker.scores(some | {name: np.full((1, 20), value, np.float32)}) for value in np.linspace(-3, 3, 13)]
    steps = np.diff(np.concatenate(scores), axis=0)
    if sign:
        assert (sign * steps >= 0).all()
    else:
        # A feature that may speak for a label or against it follows the texts.
        assert (steps < -0.1).any()


def test_empty_places_are_never_ranked(fitted):
    features, _ = pairs(seed=5, shape=(4, 6))
    for values in features.values():
        if values.dtype == np.float32:
            values[:, 2] = np.inf
    ids = np.tile(np.array([4, 9, -1, 2, 7, 0]), (4, 1))
    ids[3] = -1
    found = fitted.ranker(LAYOUT).rank(Candidates(ids, features), 6)
    assert sorted(found.ids[0].tolist()) == [-1, 0, 2, 4, 7, 9]
    assert found.ids[3].tolist() == [-1] * 6
    assert np.isneginf(found.scores[3]).all()


@pytest.mark.parametrize("kind", ["all right", "all wrong", "one feature", "few pairs"])
def test_a_fit_to_pairs_that_teach_nothing_still_ranks(kind):
    features, hits = pairs(shape=(3, 5) if kind == "few pairs" else (40, 10))
    if kind.startswith("all"):
        hits = np.full(hits.shape, kind == "all right")
    if kind == "one feature":
        features = {name: np.zeros_like(values) for name, values in features.items()}
    one = read_ranker(json.loads(json.dumps(fit(features, hits).as_dict())))
    ranker = one.ranker(LAYOUT)
    scores = ranker.scores(features)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(sum_parts(ranker.contributions(features)), scores, atol=1e-5)


def test_the_file_gives_the_same_scores_bit_by_bit(fitted):
    loaded = read_ranker(json.loads(json.dumps(fitted.as_dict())))
    assert isinstance(loaded, BoostedTrees)
    assert loaded == fitted
    features, _ = pairs(seed=6)
    assert np.array_equal(loaded.ranker(LAYOUT).scores(features), fitted.ranker(LAYOUT).scores(features))
    one, other = (each.ranker(LAYOUT).contributions(features) for each in (loaded, fitted))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    # Of LightGBM's text only the trees are stored.
    assert "parameters" not in fitted.trees


def test_a_decision_tree_is_read_with_and_without_its_kind():
    tree = {"features": [-1], "thresholds": [0.0], "left": [-1], "right": [-1], "probabilities": [0.5]}
    values = {"tree": tree, "weight": 1.0, "num_train": 3, "a": 0.55, "b": 1.5}
    assert isinstance(read_ranker(values), DecisionTreeFusion)
    assert read_ranker(values) == read_ranker(values | {"kind": "decision-tree"})


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values | {"kind": "forest"},
        lambda values: values | {"trees": ""},
        lambda values: values | {"trees": "tree\nversion=v4\nnum_class=1"},
        lambda values: values | {"trees": 3},
        lambda values: values | {"names": values["names"][:-1]},
        lambda values: values | {"names": ["nonsense", *values["names"][1:]]},
        lambda values: values | {"names": None},
        lambda values: values | {"power": "much"},
        lambda values: values | {"num_train": None},
        lambda values: {name: value for name, value in values.items() if name != "a"},
        lambda values: {},
        lambda values: [values],
        lambda values: "trees",
    ],
)
def test_a_damaged_file_is_refused(fitted, damage):
    with pytest.raises(ModelError, match=r"ranker\.json must .*; copy the model again"):
        read_ranker(damage(json.loads(json.dumps(fitted.as_dict()))))


def test_checked_trees_are_those_of_the_text(fitted):
    columns = np.random.default_rng(7).normal(size=(50, len(fitted.names)))
    plain, checked = (lightgbm.Booster(model_str=text) for text in (fitted.trees, checked_text(fitted.trees)))
    for how in ({}, {"raw_score": True}, {"pred_contrib": True}):
        assert np.array_equal(plain.predict(columns, **how), checked.predict(columns, **how))


# Numbers and lines of the trees are changed at random, as somebody does who can also write a matching hash.
DAMAGING = """
import json, re, sys
import numpy as np
from unidex.errors import ModelError
from unidex.scoring.fitted_ranker import read_ranker
values = json.loads(open(sys.argv[1]).read())
rng = np.random.default_rng(int(sys.argv[2]))
ODD = ["-1", "0", "1", "63", "2147483647", "-2147483648", "99999999999999999999", "nan", "inf", "1e308", "", "x", "-7"]
columns = {name: np.zeros((2, 3), dtype=np.float32) for name in values["names"]}
columns["frequency"] = columns["frequency"].astype(np.int64)
refused = 0
for turn in range(int(sys.argv[3])):
    text = values["trees"]
    for _ in range(rng.integers(1, 4)):
        if rng.random() < 0.2:
            lines = text.split("\\n")
            first, second = rng.integers(len(lines), size=2)
            lines[first] = lines[second] if rng.random() < 0.5 else ""
            text = "\\n".join(lines)
        else:
            numbers = list(re.finditer(r"-?[0-9.]+(e-?[0-9]+)?", text))
            chosen = numbers[rng.integers(len(numbers))]
            text = text[: chosen.start()] + str(rng.choice(ODD)) + text[chosen.end() :]
    try:
        found = read_ranker(values | {"trees": text})
    except ModelError:
        refused += 1
        continue
    from unidex.scoring.layout import Layout, Weights
    ranker = found.ranker(Layout(4, 3, Weights(0.3, 0.5, 0.1)))
    assert ranker.scores(columns).shape == (2, 3)
    ranker.contributions(columns)
print(refused)
"""


def test_trees_that_were_changed_on_purpose_do_not_end_the_process(fitted, tmp_path):
    (tmp_path / "ranker.json").write_text(json.dumps(fitted.as_dict()))
    done = warm_start.run(tmp_path / "ranker.json", 0, 40, program=DAMAGING)
    assert done.returncode == 0, done.stderr
    assert 10 < int(done.stdout) < 40


@pytest.mark.parametrize(
    ("field", "numbers"),
    [
        ("left_child", "1 2 3 4 5 6 7 8 9 10 11 12 13 -1"),
        ("leaf_count", "1"),
        ("split_feature", "0 x"),
        ("decision_type", "1"),
    ],
)
def test_trees_that_are_none_are_refused(fitted, field, numbers):
    """Shared and repeated nodes would take 2^13 steps to walk, or for ever."""
    values = fitted.as_dict()
    values["trees"] = re.sub(rf"(?m)^{field}=.*$", f"{field}={numbers}", values["trees"])
    with pytest.raises(ModelError, match=r"ranker\.json must hold trees"):
        read_ranker(values)


def test_features_of_heads_and_of_a_label_tree():
    names = feature_names(LAYOUT)
    assert len(names) == len(set(names)) == 30
    assert {"dual_gap", "classifier_place", "knn", "weighted_sum_gap", "word_coverage_gap", "best_sum"} < set(names)
    alone = feature_names(Layout(4, 0, Weights(0.3)))
    assert {name for name in names if "classifier" in name} == set(names) - set(alone)
    tree = feature_names(Layout(0, 4, Weights(0.3), has_tree=True))
    assert {"label_tree", "label_tree_gap", "label_tree_place"} == {name for name in tree if "tree" in name}
    assert not any(name.startswith(("dual", "classifier")) for name in tree)


def test_a_ranker_asks_for_few_candidates_and_gives_the_weights_of_heads(fitted):
    ranker = fitted.ranker(LAYOUT)
    assert isinstance(ranker, BoostedTreesRanker)
    assert ranker.compares_candidates
    assert dict(ranker.head_weights) == {"dual": 0.3, "classifier": 0.7}
    assert ranker.features == fitted.names


@pytest.mark.parametrize(
    ("num_texts", "leaves", "trees"),
    [(0, 7, 150), (3499, 7, 150), (3500, 15, 150), (15_999, 15, 150), (16_000, 15, 200)],
)
def test_many_texts_get_more_leaves_and_very_many_more_trees(num_texts, leaves, trees):
    rng = np.random.default_rng(0)
    features = {"frequency": rng.integers(1, 50, 6000), "dual": rng.random(6000), "best_sum": rng.random(6000)}
    chances = features["dual"] * (1 + np.sin(9 * features["best_sum"])) / 2
    fitted = BoostedTrees.fit(features, rng.random(6000) < chances, Rarity(0.05, 100, 0.55, 1.5), num_texts=num_texts)
    assert max(line.count(" ") + 1 for line in fitted.trees.splitlines() if line.startswith("leaf_value=")) == leaves
    assert fitted.trees.count("\nTree=") == trees
