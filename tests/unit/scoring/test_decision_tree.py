"""Fusion of both heads' scores by a decision tree: against scikit-learn, in a model, in its folder."""

import importlib.util
import json

import numpy as np
import pytest

from helpers.synthetic import QUICK, topics
from unidex.data.dataset import Propensity
from unidex.errors import MissingExtraError, ModelError
from unidex.metrics.propensity import inverse_propensity
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.scoring.decision_tree import DEPTH, DecisionTreeFusion, DecisionTreeRanker, Tree
from unidex.scoring.rankers import Candidates, sum_parts
from unidex.verbs.evaluate import evaluate
from unidex.verbs.train import train

SETTINGS = [
    *QUICK,
    "train.validation=0.3",
    "train.epochs=4",
    "predict.rank=decision-tree",
    "predict.decision_tree_weight=0.7",
]


def pairs(seed=0, count=4000):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3)).astype(np.float32)
    # What is right depends on two scores together, as no sum of them can say.
    return features, (features[:, 0] * features[:, 1] > 0.2) & (features[:, 2] < 1)


def test_the_tree_is_scikit_learns_evaluated_with_numpy():
    sklearn = pytest.importorskip("sklearn.tree")
    features, hits = pairs()
    fitted = sklearn.DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=10, random_state=0).fit(features, hits)
    new, truth = pairs(seed=1)
    found = Tree.fit(features, hits).probability(new)
    assert np.allclose(found, fitted.predict_proba(new)[:, 1], atol=1e-7)
    assert ((found > 0.5) == truth).mean() > 0.9


@pytest.mark.parametrize("hit", [True, False])
def test_pairs_of_one_kind_give_one_probability(hit):
    pytest.importorskip("sklearn")
    features = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    tree = Tree.fit(features, np.full(30, hit))
    assert tree.probability(features).tolist() == [float(hit)] * 30


def test_fused_scores_are_the_formula():
    tree = Tree(
        [2, -1, 0, -1, -1], [1.5, 0, 0.2, 0, 0], [1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0.5, 0.1, 0.5, 0.3, 0.8]
    )
    fusion = DecisionTreeFusion(tree, weight=0.5, num_train=100, a=0.55, b=1.5)
    frequencies = np.array([[0, 90, 3]])
    weights = inverse_propensity(frequencies[0], 100, Propensity(0.55, 1.5))
    classifier, dual = np.array([[0.1, 0.9, 0.4]], dtype=np.float32), np.array([[0.6, 0.2, 0.4]], dtype=np.float32)
    by_hand = [
        0.1 if weight <= 1.5 else 0.3 if score <= 0.2 else 0.8
        for weight, score in zip(weights, classifier[0], strict=True)
    ]
    assert set(by_hand) == {0.1, 0.3, 0.8}
    wanted = classifier[0] + 0.5 * (dual[0] + np.array(by_hand))
    ranker = DecisionTreeRanker(fusion)
    features = {"classifier": classifier, "dual": dual, "frequency": frequencies}
    assert np.allclose(sum_parts(ranker.contributions(features))[0], wanted, atol=1e-6)
    ids = np.array([[4, -1, 2]])
    order = sorted((0, 2), key=lambda place: -wanted[place])
    assert ranker.rank(Candidates(ids, features), 3).ids.tolist() == [[*ids[0, order].tolist(), -1]]
    # The kNN part and the label prior are added with their weights.
    added = DecisionTreeRanker(fusion, {"knn": 2.0, "label_prior": 0.5})
    more = features | {"knn": np.array([[0.1, 0.2, 0.3]]), "label_prior": np.log1p(frequencies)}
    both = wanted + 2 * more["knn"][0] + 0.5 * np.log1p(frequencies[0])
    assert np.allclose(sum_parts(added.contributions(more))[0], both, atol=1e-6)


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("sklearn")
    return train(topics(), "unidec", settings=SETTINGS)


def test_a_model_with_a_tree_predicts_by_its_formula_and_is_the_same_from_its_folder(model, tmp_path):
    texts = list(topics().test.texts)[:8]
    found = model.topk(texts, 5)
    every = model.network.text_vectors(model.network.encoder.prepare(texts))
    labels = model.network.label_vectors(model.network.encoder.prepare(list(model.labels.texts)))
    classifier, dual = every.classifier @ labels.classifier.T, every.dual @ labels.dual.T
    ids = np.tile(np.arange(len(model.labels)), (len(texts), 1))
    features = {"classifier": classifier.numpy(), "dual": dual.numpy(), "frequency": model.labels.frequencies[ids]}
    wanted = DecisionTreeRanker(model.scorer.fitted).rank(Candidates(ids, features), 5)
    assert np.allclose(found.scores, wanted.scores, atol=1e-5)
    assert (found.ids == wanted.ids).mean() > 0.9  # ties of a tree may turn by rounding
    assert model.metrics["test"]["P@1"] > 80
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert loaded.scorer.fitted == model.scorer.fitted
    again = loaded.predict(texts, 5)
    assert np.array_equal(again.ids, found.ids)
    assert np.array_equal(again.scores, found.scores)
    assert loaded.scorer.fitted.weight == 0.7
    # Calibrated on what the tree says, by trees that had not seen the text.
    assert model.scorer.calibration is not None
    assert model.probabilities(found).max() <= 1


def test_one_head_alone_is_searched_as_without_a_tree(model):
    texts = list(topics().test.texts)[:8]
    fusion, model.scorer.fitted = model.scorer.fitted, None
    plain = {mode: model.topk(texts, 3, mode=mode) for mode in ("dual", "classifier", "both")}
    model.scorer.fitted = fusion
    for mode in ("dual", "classifier"):
        assert np.array_equal(model.topk(texts, 3, mode=mode).scores, plain[mode].scores)
    assert not np.array_equal(model.topk(texts, 3).scores, plain["both"].scores)
    assert evaluate(model, topics(), mode="dual").metrics["P@1"] > 50


def test_allowed_labels_more_places_than_labels_and_new_labels_work(model, tmp_path):
    found = model.topk(["w0a w1b"], 3, allowed=[4, 5])
    assert set(found.ids[0].tolist()) == {4, 5, -1}
    assert model.topk(["w0a w1b"], 40).ids.shape == (1, 40)
    model.save(tmp_path / "model")
    grown = Model.load(tmp_path / "model")
    grown.add_labels(["brandnew word"], ["new"])
    assert grown.predict(["brandnew word"], 30).ids.max() == len(grown.labels) - 1


@pytest.mark.parametrize("mode", ["both", "dual", "classifier"])
def test_an_explanation_has_the_labels_and_scores_of_the_prediction(model, mode):
    texts = list(topics().test.texts)
    found = model.topk(texts, 5, mode=mode)
    for row, text in enumerate(texts):
        reasons = explain(model, text, mode=mode)
        assert [reason.id for reason in reasons] == found.ids[row].tolist()
        assert [reason.score for reason in reasons] == pytest.approx(found.scores[row].tolist(), abs=1e-5)
        names = {"dual", "classifier", "decision_tree"} if mode == "both" else {mode}
        assert all(reason.parts.keys() == names for reason in reasons)


def test_without_scikit_learn_the_extra_is_named_before_training(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "unidex.scoring.decision_tree.find_spec", lambda name: None if name == "sklearn" else found(name)
    )
    with pytest.raises(MissingExtraError, match=r'needs the "fuse" extra, .*pip install "unidex\[fuse\]"'):
        train(topics(), "unidec", settings=SETTINGS)


@pytest.mark.parametrize(
    "broken",
    [
        {"features": [0], "thresholds": [0.0], "left": [0], "right": [0], "probabilities": [0.5]},
        {"features": [], "thresholds": [], "left": [], "right": [], "probabilities": []},
        {"features": [-1]},
    ],
)
def test_a_tree_that_cannot_be_followed_is_refused(broken):
    values = {"tree": broken, "weight": 1.0, "num_train": 3, "a": 0.55, "b": 1.5}
    with pytest.raises(ModelError, match=r"ranker\.json must be a decision tree"):
        DecisionTreeFusion.from_dict(json.loads(json.dumps(values)))
