"""Ranking features: each against a plain loop over pairs, with ties, empty places and blocks of texts."""

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.naive_lexical import NaiveLexical
from helpers.naive_ranking import naive_gap, naive_place, naive_ranking_features
from unidex.data.dataset import Split
from unidex.data.texts import Texts
from unidex.index.exact import ExactIndex
from unidex.nn.network import Vectors
from unidex.scoring import ranking_features
from unidex.scoring.boosted_trees import feature_names
from unidex.scoring.knn import KnnPart
from unidex.scoring.label_counts import LabelFrequencies
from unidex.scoring.layout import Layout, Weights
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.rankers import CandidateCounts
from unidex.scoring.ranking_features import FEATURES, KnnFound, Pairs, compute_features
from unidex.scoring.scorer import Scorer

WEIGHTS = Weights(0.25, 0.5, 0.125)
LABELS = [f"label{number} group{number % 4} " + "common " * (number % 2) for number in range(20)]
TEXTS = ["", "label3 group1", "common common", "label7 label9 group2 other", "nothing", "...", "label3 label4 label5"]
NUM_NEAREST, TEMPERATURE = 4, 0.7


def sixteenths(rng, *shape):
    """Numbers of which sums and products are exact, with many ties."""
    return torch.from_numpy(rng.integers(-4, 5, shape).astype(np.float32) / 4)


class Toy:
    """Texts, labels and train texts as drawn vectors, and the dense arrays that features must be made of."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.queries = Vectors(sixteenths(rng, len(TEXTS), 4), sixteenths(rng, len(TEXTS), 3))
        labels = Vectors(sixteenths(rng, 20, 4), sixteenths(rng, 20, 3))
        train = sixteenths(rng, 30, 7)
        positives = sparse.csr_array((rng.random((30, 20)) < 0.1).astype(np.float32))
        self.frequencies = np.bincount(positives.indices, minlength=20)
        layout = Layout(4, 3, WEIGHTS)
        knn = KnnPart.of(train.numpy(), positives, num_nearest=NUM_NEAREST, temperature=TEMPERATURE)
        index = ExactIndex.build(layout.rows(labels, self.frequencies))
        lexical = LexicalPart.of(LABELS)
        self.lexical = NaiveLexical(LABELS)
        seen = Split.of(Texts.of(TEXTS * 2), sparse.csr_array((rng.random((14, 20)) < 0.3).astype(np.float32)))
        lexical.matches.learn(seen, np.arange(14))
        self.lexical.matches.learn(TEXTS * 2, [np.flatnonzero(row) for row in seen.positives.toarray()])
        self.scorer = Scorer(layout, index, LabelFrequencies(self.frequencies), knn, lexical=lexical)
        self.texts = self.scorer.queries(self.queries, TEXTS)
        near = (torch.cat([self.queries.dual, self.queries.classifier], dim=1) @ train.T).double().numpy()
        self.nearest = near.max(axis=1)
        self.parts = {
            "dual": (self.queries.dual @ labels.dual.T).numpy(),
            "classifier": (self.queries.classifier @ labels.classifier.T).numpy(),
            "knn": np.array([self._knn(row, positives.toarray()) for row in near]),
        }

    @staticmethod
    def _knn(near, targets):
        # Equally near texts: those that come first.
        best = np.argsort(-near, kind="stable")[:NUM_NEAREST]
        powers = np.exp((near[best] - near[best].max()) / TEMPERATURE)
        return (powers / powers.sum()) @ targets[best]

    def naive(self, candidates):
        weights = {"dual": 0.25, "classifier": 0.75, "knn": 0.5, "label_prior": 0.125}
        return naive_ranking_features(
            self.parts, weights, self.frequencies, self.lexical, TEXTS, candidates, self.nearest
        )

    def features(self, ids, names):
        knn = KnnFound(sparse.csr_array(self.parts["knn"].astype(np.float32)), np.maximum(self.nearest, 0))
        scorer = self.scorer
        pairs = Pairs(scorer.layout, scorer.index, self.texts, ids, ids >= 0, self.frequencies, knn, scorer.lexical)
        return compute_features(pairs, names)


TOY = Toy()


def some_candidates(seed=1):
    """Ids of candidates with empty places between them; a text without any, and one with all labels."""
    rng = np.random.default_rng(seed)
    ids = np.full((len(TEXTS), 20), -1)
    for text in range(len(TEXTS)):
        chosen = rng.permutation(20)[: rng.integers(1, 12)]
        ids[text, rng.permutation(20)[: len(chosen)]] = chosen
    ids[0], ids[1] = -1, np.arange(20)
    return ids


def mask_of(ids):
    candidates = np.zeros((len(TEXTS), 20), dtype=bool)
    for text, row in enumerate(ids):
        candidates[text, row[row >= 0]] = True
    return candidates


def assert_features(found, ids, naive):
    texts, places = np.nonzero(ids >= 0)
    for name, values in found.items():
        wanted = naive[name][texts, ids[texts, places]]
        np.testing.assert_allclose(values[texts, places], wanted, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("texts_at_once", [1, 3, 256])
def test_every_feature_is_that_of_a_plain_loop(monkeypatch, texts_at_once):
    monkeypatch.setattr(ranking_features, "_TEXTS_AT_ONCE", texts_at_once)
    ids = some_candidates()
    names = feature_names(TOY.scorer.layout)
    found = TOY.features(ids, names)
    assert tuple(found) == names
    assert all(values.shape == ids.shape for values in found.values())
    naive = TOY.naive(mask_of(ids))
    assert set(naive) == set(names)
    assert_features(found, ids, naive)


def test_every_registered_feature_is_compared_in_this_file():
    compared = {name.removesuffix("_gap").removesuffix("_place") for name in feature_names(TOY.scorer.layout)}
    # The label tree is compared in the contract of scores, the label prior below, a pretrained part in its own file.
    assert set(FEATURES) == compared | {"label_tree", "label_prior", "pretrained", "pretrained_knn", "linear", "links"}
    found = TOY.features(some_candidates(), ["label_prior"])["label_prior"]
    np.testing.assert_allclose(found[1], np.log(1 + TOY.frequencies), atol=1e-6)


def test_gap_and_place_with_ties_and_empty_places():
    """Any feature has both: of the frequencies 5, 2, 5, 0 the highest two are at place 0."""
    scorer = Toy().scorer
    scorer.labels = LabelFrequencies(np.array([5, 2, 5, 0, 99] + [0] * 15))
    ids = np.array([[3, -1, 0, 2, 1]] * len(TEXTS))
    pairs = Pairs(
        scorer.layout, scorer.index, TOY.texts, ids, ids >= 0, scorer.labels.frequencies, None, scorer.lexical
    )
    found = compute_features(pairs, ["frequency_gap", "frequency_place"])
    there = [0, 2, 3, 4]
    assert found["frequency_gap"][0, there].tolist() == [5, 0, 0, 3]
    assert found["frequency_place"][0, there].tolist() == [3, 0, 0, 2]
    assert not compute_features(pairs, ["knn"])["knn"].any()


def test_gap_and_place_are_those_of_the_loop_on_drawn_values_with_ties():
    rng = np.random.default_rng(0)
    ids = some_candidates(seed=2)
    frequencies = rng.integers(0, 4, 20)
    scorer = TOY.scorer
    pairs = Pairs(scorer.layout, scorer.index, TOY.texts, ids, ids >= 0, frequencies, None, scorer.lexical)
    found = compute_features(pairs, ["frequency_gap", "frequency_place"])
    values, candidates = np.tile(frequencies, (len(TEXTS), 1)), mask_of(ids)
    wanted = {"frequency_gap": naive_gap(values, candidates), "frequency_place": naive_place(values, candidates)}
    assert_features(found, ids, wanted)
    assert np.unique(found["frequency_place"][ids >= 0]).size > 3


def test_candidates_are_the_best_of_index_knn_and_rare_words():
    scorer = TOY.scorer
    names = feature_names(scorer.layout)
    hidden = [3, 11]
    known = [label for label in range(20) if label not in hidden]
    # The index searches by the heads and the label prior.
    searched = 0.25 * TOY.parts["dual"] + 0.75 * TOY.parts["classifier"] + 0.125 * np.log1p(TOY.frequencies)
    for counts in (
        CandidateCounts(4, 2, 3),
        CandidateCounts(15, 2, 1),
        CandidateCounts(1, 1, 0),
        CandidateCounts(2, 0, 2),
    ):
        found = scorer.candidates(TOY.texts, counts, names, forbidden=hidden)
        for text, row in enumerate(found.ids_NK):
            ids = row[row >= 0].tolist()
            assert ids == sorted(set(ids))
            rare = [TOY.lexical.rare_overlap(TEXTS[text], label, 100) for label in range(20)]
            found_by = (
                (searched[text], counts.index, -np.inf),
                (TOY.parts["knn"][text], counts.knn, 0),
                (rare, counts.lexical, 0),
            )
            wanted = set()
            for scores, count, least in found_by:
                order = sorted(known, key=lambda label, scores=scores: (-round(float(scores[label]), 6), label))
                wanted |= {label for label in order[:count] if scores[label] > least}
            assert set(ids) == wanted
        assert_features(found.features, found.ids_NK, TOY.naive(mask_of(found.ids_NK)))
    # Without the feature "knn", the kNN part finds nothing.
    less = scorer.candidates(TOY.texts, CandidateCounts(1, 5, 0), ["dual"])
    assert ((less.ids_NK >= 0).sum(axis=1) == 1).all()


def test_only_allowed_labels_are_candidates():
    scorer = TOY.scorer
    found = scorer.candidates(TOY.texts, CandidateCounts(9, 9, 9), feature_names(scorer.layout), allowed=[5, 7, 9])
    assert {label for label in found.ids_NK.ravel().tolist() if label >= 0} == {5, 7, 9}
