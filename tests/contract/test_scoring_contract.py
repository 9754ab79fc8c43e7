"""The verbs of a model agree with one another and with the formula of the score, whatever its score is made of.

A cell is a choice of heads, label prior, kNN part, ranker and label tree. Every cell is either refused by a rule of
`unidex.config.rules`, or all verbs work on it, except those in the table `unidex.model.refusals`.
"""

import itertools
import time
from dataclasses import dataclass
from functools import cache

import lightgbm
import numpy as np
import pytest
import torch
from scipy import sparse
from starlette.testclient import TestClient

from helpers.naive_lexical import NaiveLexical
from helpers.naive_ranking import naive_learned_scores, naive_ranking_features
from helpers.synthetic import topics
from unidex.config.recipes import load
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError, ModelError
from unidex.metrics.propensity import inverse_propensity
from unidex.model.explanation import explain
from unidex.model.incremental import teach
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.model.refusals import REFUSALS
from unidex.model.similar_labels import nearest_labels
from unidex.nn.assembly import build_network
from unidex.scoring.boosted_trees import BoostedTrees
from unidex.scoring.decision_tree import DecisionTreeFusion, Tree
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.matches import MATCHES
from unidex.scoring.rankers import Rarity
from unidex.server.app import create_app
from unidex.server.settings import Settings
from unidex.training.tree_setup import grow_tree

DATA = topics(num_labels=18, num_train=80, num_test=6, labels_per_text=3)
TEXTS = [*DATA.test.texts, "w0a w1b w2c", "nothing of this is known"]
FUSION, KNN, KNN_TEXTS, TEMPERATURE, PRIOR = 0.3, 0.4, 6, 0.2, 0.05
# Features: classifier score, dual score, inverse propensity.
TREE = Tree([0, 1, -1, -1, -1], [0.05, 0.0, 0, 0, 0], [1, 2, -1, -1, -1], [4, 3, -1, -1, -1], [0.5, 0.3, 0.1, 0.4, 0.8])
FITTED = DecisionTreeFusion(TREE, weight=0.7, num_train=80, a=0.55, b=1.5)


@dataclass(frozen=True)
class Cell:
    """What a score is made of."""

    heads: str
    prior: bool
    knn: bool
    fusion: str
    tree: bool

    def __str__(self):
        return "-".join(
            [self.heads, *["prior"] * self.prior, *["knn"] * self.knn, self.fusion, *["label tree"] * self.tree]
        )

    @property
    def settings(self):
        """The recipe of the cell."""
        found = [
            "encoder.dim=16",
            "features.min_df=1",
            f"heads.dual={str(self.heads != 'classifier').lower()}",
            f"heads.classifier={str(self.heads != 'dual').lower()}",
            f"predict.fusion={FUSION}",
            f"predict.knn={KNN if self.knn else 0.0}",
            f"predict.knn_texts={KNN_TEXTS}",
            f"predict.knn_temperature={TEMPERATURE}",
            f"predict.label_prior={PRIOR if self.prior else 0.0}",
            f"predict.rank={self.fusion}",
            f"predict.snippet_length={20 if self.knn else 0}",
        ]
        if self.fusion == "decision-tree":
            found.append("train.validation=0.2")
        return [*found, *(["tree.levels=[3, 6]"] if self.tree else [])]

    @property
    def config(self):
        """The recipe; refused where a rule refuses the cell."""
        return load("cascadexml" if self.tree else "unidec", self.settings)

    @property
    def modes(self):
        return ["both", *(["dual", "classifier"] if self.heads == "both" else [self.heads])]

    @property
    def has_knn(self):
        """Whether the kNN part counts; a learned ranker reads it also where its weight in the sum is 0."""
        return self.knn or self.fusion == "learned"

    @property
    def weights(self):
        """The weights of the weighted sum by part."""
        heads = {"dual": FUSION, "classifier": 1 - FUSION} if self.heads == "both" else {self.heads: 1.0}
        added = {"knn": KNN * self.knn, "label_prior": PRIOR * self.prior}
        return ({"label_tree": 1.0} if self.tree else heads) | added


CELLS = [
    Cell(*cell)
    for cell in itertools.product(
        ("dual", "classifier", "both"), (False, True), (False, True), ("sum", "decision-tree", "learned"), (False, True)
    )
]


def is_refused(cell):
    """A decision tree joins two heads, and a label tree is one of classifiers alone."""
    return (cell.tree and cell.heads != "classifier") or (cell.fusion == "decision-tree" and cell.heads != "both")


SERVED = [cell for cell in CELLS if not is_refused(cell)]


@pytest.mark.parametrize("cell", [cell for cell in CELLS if is_refused(cell)], ids=str)
def test_a_rule_refuses_the_cell(cell):
    with pytest.raises(ConfigError, match=r"; .*(change that|set) "):
        load("cascadexml" if cell.tree else "unidec", cell.settings)


def test_most_cells_are_served():
    assert len(SERVED) == 36
    assert set(REFUSALS) == {"add_labels", "remember"}


@cache
def network_of(heads, tree):
    """A network whose numbers are all drawn, so that every part of a score counts; one per kind of cell."""
    config = Cell(heads, False, False, "sum", tree).config
    torch.manual_seed(0)
    encoder = build_encoder(config, DATA.train.texts, DATA.labels.texts)
    texts = encoder.prepare(DATA.train.texts)
    shape = grow_tree(texts, DATA.train.positives, config.tree, 0) if tree else None
    network = build_network(config, encoder, DATA.num_labels, tree=shape)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for table in network.tables().values():
            table.weight += 0.3 * torch.randn_like(table.weight)
    return network


def built(cell):
    """A model of the cell, with labels of its own."""
    network = network_of(cell.heads, cell.tree)
    if network.classifiers is not None:
        # Labels that another test has added have grown the table, and taught ones have changed it.
        if not hasattr(network, "first_classifiers"):
            network.first_classifiers = network.classifiers.weight.clone()
        network.classifiers.weight = network.first_classifiers.clone()
    labels = LabelSet.of(DATA)
    encoder = network.encoder
    train = (encoder.prepare(DATA.train.texts), DATA.train.positives)
    model = Model.build(cell.config, network, labels, encoder.prepare(DATA.labels.texts), {}, train, DATA.train.texts)
    if cell.fusion == "decision-tree":
        model.scorer.fitted = FITTED
    if cell.fusion == "learned":
        model.scorer.lexical = LexicalPart.of(DATA.labels.texts)
        model.scorer.lexical.matches.learn(DATA.train, np.arange(len(DATA.train)))
        model.scorer.fitted = fitted_trees(cell, model)
    return model


TREES = {}


def without_near_values(values, step=1e-5):
    """Values that differ by less than a step as one value, the mean."""
    order = np.argsort(values, kind="stable")
    group = np.append(0, np.cumsum(np.diff(values[order]) > step))
    means = np.bincount(group, weights=values[order]) / np.bincount(group)
    found = np.empty(len(values))
    found[order] = means[group]
    return found


def fitted_trees(cell, model):
    """Trees in which every feature counts: a pair is right where a sum of all features and chance is high.

    They are fitted to the texts that the tests ask about too, with near values as one. So no threshold is near a
    value, and rounding cannot take another branch.
    """
    if cell not in TREES:
        texts = [*TEXTS, *DATA.train.texts]
        every = slow_features(model, cell, texts, np.ones((len(texts), len(model.labels)), dtype=bool))
        features = {name: without_near_values(np.ravel(values)) for name, values in every.items()}
        features["frequency"] = features["frequency"].astype(np.int64)
        rng = np.random.default_rng(0)
        # Features that stand alone count more: the others are there up to three times.
        alone = {"label_length": -4, "text_length": -6, "best_sum": 4, "nearest_text": 4, "num_matches": 4}
        alone |= dict.fromkeys(MATCHES[:-1], 0.2)
        weights = {name: alone.get(name, -1 if name.endswith(("_gap", "_place")) else 1) for name in features}
        total = sum(
            weights[name] * (values - values.mean()) / (values.std() + 1e-9) for name, values in features.items()
        ) + rng.standard_normal(len(features["frequency"]))
        rarity = Rarity.of("rare", 80, DATA.propensity)
        TREES[cell] = BoostedTrees.fit(features, total > np.quantile(total, 0.8), rarity)
    return TREES[cell]


def head_scores(model, vectors):
    """Texts x labels by each head, from the network and the texts of labels alone."""
    network = model.network
    labels = network.label_vectors(network.encoder.prepare(model.labels.texts))
    found = {}
    for head in ("dual", "classifier"):
        of_texts, of_labels = getattr(vectors, head), getattr(labels, head)
        if of_texts is not None and of_labels is not None:
            found[head] = (of_texts.double() @ of_labels.double().T).detach().numpy()
    return found


def tree_scores(model, vectors):
    """Texts x labels by a label tree."""
    network = model.network
    scale = float(network.log_scales[1].detach().exp())
    tables = [table.weight.double() for table in network.tree.tables]
    levels = vectors.levels.double().split([table.shape[1] for table in tables], dim=1)
    clusters = torch.sigmoid(scale * levels[-1] @ tables[-1].T).numpy()
    own = 1 / (1 + np.exp(-scale * head_scores(model, vectors)["classifier"]))
    return own * clusters[:, network.tree.shape.parents[-1]]


def similarities(model, cell, vectors, remembered):
    """Texts x known texts."""
    network = model.network
    known = network.text_vectors(network.encoder.prepare([*DATA.train.texts, *(text for text, _ in remembered)]))
    sides = [
        torch.cat([part for part in (one.dual, one.classifier) if part is not None], dim=1) for one in (vectors, known)
    ]
    stored = sides[1] * (0.5 if cell.heads == "both" else 1.0)
    return (sides[0].double() @ stored.half().double().T).detach().numpy()


def slow_knn(model, cell, vectors, remembered=()):
    """Texts x labels by the kNN part, without its weight."""
    near = similarities(model, cell, vectors, remembered)
    targets = np.zeros((len(near[0]), len(model.labels)))
    targets[: len(DATA.train), : DATA.num_labels] = DATA.train.positives.toarray()
    for place, (_, label) in enumerate(remembered):
        targets[len(DATA.train) + place, label] = 1
    found = np.zeros((len(near), len(model.labels)))
    for row, values in enumerate(near):
        best = np.argsort(-values, kind="stable")[:KNN_TEXTS]
        powers = np.exp((values[best] - values[best].max()) / TEMPERATURE)
        for share, text in zip(powers / powers.sum(), best, strict=True):
            found[row] += share * targets[text]
    found[:, model.labels.removed] = 0
    return found


def slow_features(model, cell, texts, candidates, remembered=()):
    """The ranking features, texts x labels."""
    vectors = model.network.text_vectors(model.network.encoder.prepare(texts))
    parts = {"label_tree": tree_scores(model, vectors)} if cell.tree else head_scores(model, vectors)
    parts["knn"] = slow_knn(model, cell, vectors, remembered)
    lexical = NaiveLexical(DATA.labels.texts)
    lexical.matches.learn(DATA.train.texts, [np.flatnonzero(row) for row in DATA.train.positives.toarray()])
    for label, text in enumerate(model.labels.texts):
        if label >= DATA.num_labels:
            lexical.add(text)
        elif text != DATA.labels.texts[label]:
            lexical.rename(label, text)
    nearest = similarities(model, cell, vectors, remembered).max(axis=1)
    return naive_ranking_features(parts, cell.weights, model.labels.frequencies, lexical, texts, candidates, nearest)


def slow_scores(model, cell, texts, mode="both", remembered=()):
    """The formula of the score, texts x labels, in double precision and without index, layout or ranker."""
    network = model.network
    vectors = network.text_vectors(network.encoder.prepare(texts))
    heads = head_scores(model, vectors)
    if cell.fusion == "learned" and mode == "both":
        # There are fewer labels than candidates: all are candidates.
        candidates = np.tile(~model.labels.removed, (len(texts), 1))
        features = slow_features(model, cell, texts, candidates, remembered)
        return naive_learned_scores(model.scorer.fitted, features, DATA.propensity)
    if cell.tree:
        scores = tree_scores(model, vectors)
    elif cell.fusion == "decision-tree" and mode == "both":
        weights = inverse_propensity(model.labels.frequencies, 80, DATA.propensity)
        columns = (heads["classifier"], heads["dual"], np.broadcast_to(weights, heads["dual"].shape))
        chance = TREE.probability(np.stack([np.ravel(part) for part in columns], axis=1).astype(np.float32))
        scores = heads["classifier"] + 0.7 * (heads["dual"] + chance.reshape(heads["dual"].shape))
    else:
        shares = {"dual": FUSION, "classifier": 1 - FUSION} if cell.heads == "both" else {cell.heads: 1.0}
        scores = sum(share * heads[head] for head, share in shares.items() if mode in ("both", head))
    if mode != "both":
        return scores
    if cell.knn:
        scores = scores + KNN * slow_knn(model, cell, vectors, remembered)
    return scores + (PRIOR * np.log1p(model.labels.frequencies) if cell.prior else 0)


def assert_formula(model, cell, remembered=()):
    """Predictions are the best labels by the formula, and explanations have the same labels and scores."""
    for mode in cell.modes:
        wanted = slow_scores(model, cell, TEXTS, mode, remembered)
        wanted[:, model.labels.removed] = -np.inf
        found = model.predict(TEXTS, 5, mode=mode)
        np.testing.assert_allclose(found.scores, -np.sort(-wanted, axis=1)[:, :5], atol=2e-5)
        np.testing.assert_allclose(found.scores, np.take_along_axis(wanted, found.ids, axis=1), atol=2e-5)
        assert_explained(model, cell, mode)


def assert_explained(model, cell, mode):
    for text in TEXTS[:3]:
        found = model.predict([text], 4, mode=mode)
        reasons = explain(model, text, k=4, mode=mode)
        assert [reason.id for reason in reasons] == found.ids[0].tolist()
        for reason, score in zip(reasons, found.scores[0].tolist(), strict=True):
            assert reason.score == pytest.approx(score, abs=1e-5)
            assert reason.score == pytest.approx(sum(reason.parts.values()), abs=1e-9)
            assert set(reason.parts) == part_names(cell, mode)
            of_words = sum(token.score for token in reason.tokens) + reason.rest
            if cell.tree:
                vectors = model.network.text_vectors(model.network.encoder.prepare([text]))
                scale = float(model.network.log_scales[1].detach().exp())
                assert of_words == pytest.approx(
                    scale * head_scores(model, vectors)["classifier"][0, reason.id], abs=1e-4
                )
            elif cell.fusion == "learned" and mode == "both":
                # Words explain the heads' weighted sum, of which the score is no sum.
                alone = [model.predict([text], len(model.labels), mode=head) for head in cell.modes[1:]]
                assert of_words == pytest.approx(
                    sum(float(found.scores[found.ids == reason.id].sum()) for found in alone), abs=1e-5
                )
            else:
                assert of_words == pytest.approx(
                    sum(reason.parts.get(head, 0.0) for head in ("dual", "classifier")), abs=1e-5
                )


LEARNED = ("knn", "weighted_sum", "words", "frequency", "base")
# The part of an explanation that each feature beside the heads belongs to.
PART_OF = {
    **dict.fromkeys(("knn", "nearest_text"), "knn"),
    **dict.fromkeys(("weighted_sum", "best_sum"), "weighted_sum"),
    **dict.fromkeys(("word_overlap", "char_overlap", "word_coverage", "label_length", "text_length"), "words"),
    "frequency": "frequency",
}


def part_names(cell, mode):
    if cell.tree:
        heads = {"label_tree"}
    elif mode == "both":
        heads = {"dual", "classifier"} if cell.heads == "both" else {cell.heads}
    else:
        heads = {mode}
    if mode != "both":
        return heads
    if cell.fusion == "learned":
        return heads | set(LEARNED)
    more = {"decision_tree": cell.fusion == "decision-tree", "knn": cell.knn, "label_prior": cell.prior}
    return heads | {name for name, has in more.items() if has}


def assert_same_after_saving(model, cell, folder):
    model.save(folder)
    loaded = Model.load(folder)
    for mode in cell.modes:
        first, second = (one.predict(TEXTS, 6, mode=mode) for one in (model, loaded))
        assert first.ids.tolist() == second.ids.tolist()
        np.testing.assert_allclose(first.scores, second.scores, atol=1e-6)
    label = int(np.flatnonzero(~model.labels.removed)[0])
    assert nearest_labels(model, label, 4).ids.tolist() == nearest_labels(loaded, label, 4).ids.tolist()


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_predict_and_explain_follow_the_formula_also_from_a_folder(cell, tmp_path):
    model = built(cell)
    assert_formula(model, cell)
    assert_same_after_saving(model, cell, tmp_path / "model")


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_similar_labels_are_those_of_the_label_vectors(cell):
    model = built(cell)
    model.remove_labels([4])
    vectors = model.network.label_vectors(model.network.encoder.prepare(model.labels.texts))
    shares = {"dual": FUSION, "classifier": 1 - FUSION} if cell.heads == "both" else {cell.heads: 1.0}
    scores = sum(share * (getattr(vectors, head) @ getattr(vectors, head).T).numpy() for head, share in shares.items())
    np.fill_diagonal(scores, -np.inf)
    scores[:, 4] = -np.inf
    for label in (0, 7, 17):
        found = nearest_labels(model, label, 5)
        np.testing.assert_allclose(found.scores[0], -np.sort(-scores[label])[:5], atol=1e-5)
        np.testing.assert_allclose(found.scores[0], scores[label, found.ids[0]], atol=1e-5)


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_changed_labels_are_predicted_by_the_formula(cell, tmp_path):
    model = built(cell)
    # The texts of the labels 15 and 3. With a learned ranker, rounding would decide which of two equal labels is first.
    renamed, added = ("w30e w33h", "w6g w9j") if cell.fusion == "learned" else ("w30e w31f", "w6g w7h")
    model.rename_label(2, renamed)
    model.remove_labels([5, 11])
    if cell.heads == "classifier":
        with pytest.raises(ModelError, match="dual encoder"):
            model.add_labels([added])
    else:
        assert model.add_labels([added, "w33h"]).tolist() == [18, 19]
    assert_formula(model, cell)
    assert_same_after_saving(model, cell, tmp_path / "model")


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_taught_labels_rise_and_all_verbs_agree_on_them(cell, tmp_path):
    model = built(cell)
    text = TEXTS[-2]
    label = int(model.predict([text], 18).ids[0, -1])
    before = {mode: model.predict([text], 18, mode=mode) for mode in cell.modes}
    others = model.scorer.index.vectors(np.delete(np.arange(18), label))
    pair = sparse.csr_array(([1.0], [label], [0, 1]), shape=(1, 18))
    for _ in range(3):
        teach(model, [text], pair)
    assert model.labels.frequencies[label] == DATA.label_frequencies()[label] + 3
    assert np.array_equal(model.scorer.index.vectors(np.delete(np.arange(18), label)), others)
    for mode in cell.modes:
        after = model.predict([text], 18, mode=mode)
        old, new = (dict(zip(one.ids[0], one.scores[0], strict=True))[label] for one in (before[mode], after))
        assert new > old
        assert_explained(model, cell, mode)
    assert_same_after_saving(model, cell, tmp_path / "model")
    if cell.has_knn:
        assert model.scorer.knn.num_texts == len(DATA.train) + 1


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_the_service_answers_as_the_model_does(cell, tmp_path):
    model = built(cell)
    model.save(tmp_path / "model")
    with TestClient(create_app(Settings(folder=tmp_path / "model"))) as client:
        while client.get("/ready").status_code != 200:
            time.sleep(0.01)
        for mode in cell.modes:
            found = model.predict(TEXTS, 3, mode=mode)
            answer = client.post("/v1/predict", json={"texts": TEXTS, "k": 3, "mode": mode}).json()["predictions"]
            assert [[label["id"] for label in row["labels"]] for row in answer] == found.ids.tolist()
            scores = [[label["score"] for label in row["labels"]] for row in answer]
            np.testing.assert_allclose(scores, found.scores, atol=2e-5)
            explained = client.post("/v1/explain", json={"text": TEXTS[0], "k": 3, "mode": mode}).json()["labels"]
            assert [label["id"] for label in explained] == found.ids[0].tolist()
            assert all(set(label["parts"]) == part_names(cell, mode) for label in explained)
        similar = client.get("/v1/labels/3/similar", params={"k": 4}).json()["similar"]
        assert [label["id"] for label in similar] == nearest_labels(model, 3, 4).ids[0].tolist()


@pytest.mark.parametrize("cell", SERVED, ids=str)
def test_remembered_texts_count_in_the_formula_at_once_and_from_a_folder(cell, tmp_path):
    model = built(cell)
    label = int(model.predict(TEXTS[:1], 18).ids[0, -1])
    pair = sparse.csr_array(([1.0], [label], [0, 1]), shape=(1, 18))
    if not cell.has_knn:
        with pytest.raises(ModelError, match="kNN part"):
            model.remember(TEXTS[:1], pair)
        return
    before = model.predict(TEXTS, 18)
    model.remember(TEXTS[:1], pair)
    assert_formula(model, cell, remembered=[(TEXTS[0], label)])
    after = model.predict(TEXTS, 18)
    old, new = (dict(zip(one.ids[0], one.scores[0], strict=True))[label] for one in (before, after))
    assert new > old
    assert_same_after_saving(model, cell, tmp_path / "model")


@pytest.mark.parametrize("cell", [cell for cell in SERVED if cell.fusion == "learned"], ids=str)
def test_every_feature_counts_in_the_trees_of_these_tests(cell):
    """No feature can be wrong unseen: trees split by each of them, or by its distance or its place."""
    model = built(cell)
    booster = lightgbm.Booster(model_str=model.scorer.fitted.trees)
    used = {
        name.removesuffix("_gap").removesuffix("_place")
        for name, count in zip(model.scorer.fitted.names, booster.feature_importance(), strict=True)
        if count
    }
    # Matches of these labels have two words each, so that one of their features tells the others.
    assert used & {*MATCHES}
    used -= {*MATCHES}
    assert used == {*PART_OF, *(part_names(cell, "both") - {*LEARNED})}
    assert {PART_OF.get(name, name) for name in used} | {"base"} == part_names(cell, "both")
