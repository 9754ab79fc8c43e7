"""Weights of the parts of a score: each part is what its formula says, and a choice never makes anything worse."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from unidex.index.exact import ExactIndex
from unidex.nn.network import Vectors
from unidex.scoring.fusion import best_weights
from unidex.scoring.knn import KnnPart
from unidex.scoring.label_counts import LabelFrequencies
from unidex.scoring.layout import EVEN, Layout, Weights
from unidex.scoring.rankers import CandidateCounts, WeightedSum, part_names
from unidex.scoring.scorer import Scorer
from unidex.topk import TopK


def normal(rng, *shape):
    """Random numbers that float16 keeps as they are, as the kNN part stores them."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float16).astype(np.float32))


def toy(seed, num_labels=20, num_texts=9, num_train=30):
    rng = np.random.default_rng(seed)
    queries = Vectors(normal(rng, num_texts, 6), normal(rng, num_texts, 4))
    labels = Vectors(normal(rng, num_labels, 6), normal(rng, num_labels, 4))
    train = normal(rng, num_train, 10)
    positives = sparse.csr_array((rng.random((num_train, num_labels)) < 0.15).astype(np.float32))
    return queries, labels, train, positives


def candidates_of(queries, labels, counts, knn, *, num=64, forbidden=None):
    """The layout of both heads alike, and the candidates of texts with all features of a weighted sum."""
    dims = [0 if part is None else part.shape[1] for part in (queries.dual, queries.classifier)]
    layout = Layout(*dims, Weights(EVEN, knn=0.0 if knn is None else 1.0))
    index = ExactIndex.build(layout.rows(labels, counts))
    scorer = Scorer(layout, index, LabelFrequencies(counts), knn)
    asked = scorer.queries(queries, [""] * len(layout.queries(queries)))
    return layout, scorer.candidates(asked, CandidateCounts(num), part_names(layout), forbidden=forbidden)


def ranked(found, weights, k):
    layout, candidates = found
    return WeightedSum.of(layout, weights).rank(candidates, k)


def slow_score(queries, labels, train, positives, weights, text, label, *, num_nearest, temperature):
    """The formula at the top of the module, for one pair."""
    query = np.concatenate([queries.dual[text], queries.classifier[text]]).astype(float)
    similarity = train.numpy().astype(float) @ query
    nearest = np.argsort(-similarity, kind="stable")[:num_nearest]
    powers = np.exp((similarity[nearest] - similarity[nearest].max()) / temperature)
    knn_score = (powers / powers.sum() * positives.toarray()[nearest, label]).sum()
    return (
        weights.fusion * float(queries.dual[text] @ labels.dual[label])
        + (1 - weights.fusion) * float(queries.classifier[text] @ labels.classifier[label])
        + weights.knn * knn_score
        + weights.label_prior * np.log(1 + positives.toarray()[:, label].sum())
    )


@pytest.mark.parametrize("weights", [Weights(0.3), Weights(0.0, 2.0), Weights(1.0, 0.5, -0.3), Weights(0.6, 1.5, 0.4)])
@pytest.mark.parametrize("forbidden", [None, [0, 3, 19]])
@pytest.mark.parametrize("k", [1, 5, 20])
def test_ranked_candidates_are_those_of_the_formula_over_all_labels(weights, forbidden, k):
    queries, labels, train, positives = toy(seed=k)
    settings = {"num_nearest": 4, "temperature": 0.7}
    near = KnnPart.of(train, positives, **settings)
    counts = np.bincount(positives.indices, minlength=20)
    barred = None if forbidden is None else np.array(forbidden)
    found = ranked(candidates_of(queries, labels, counts, near, forbidden=barred), weights, k)
    allowed = [label for label in range(20) if label not in (forbidden or [])]
    scores = [
        [slow_score(queries, labels, train, positives, weights, text, label, **settings) for label in allowed]
        for text in range(9)
    ]
    wanted = TopK.rank(np.tile(allowed, (9, 1)), scores).first(k)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores == pytest.approx(wanted.scores, abs=1e-4)


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_a_head_alone_counts_whole(head):
    queries, labels, _, positives = toy(seed=0)
    one = {"dual": (queries.dual, None), "classifier": (None, queries.classifier)}[head]
    other = {"dual": (labels.dual, None), "classifier": (None, labels.classifier)}[head]
    counts = np.bincount(positives.indices, minlength=20)
    found = candidates_of(Vectors(*one), Vectors(*other), counts, None)
    ids, features = found[1].ids_NK, found[1].features
    wanted = (getattr(queries, head) @ getattr(labels, head).T).numpy()
    texts, places = np.nonzero(ids >= 0)
    assert len(texts) == wanted.size
    assert features.keys() == {head, "knn", "label_prior"}
    assert features[head][texts, places] == pytest.approx(wanted[texts, ids[texts, places]], abs=1e-5)
    assert not features["knn"].any()
    # Whatever its weight beside the other head would be: as a search scores it.
    best = ranked(found, Weights(0.3), 1)
    assert best.ids[:, 0].tolist() == wanted.argmax(axis=1).tolist()
    assert best.scores[:, 0] == pytest.approx(wanted.max(axis=1), abs=1e-5)


def test_a_label_from_the_knn_part_alone_is_a_candidate_once_and_can_win():
    """300 labels; the heads score the last one lowest, and the nearest training text has it and the first one."""
    labels = Vectors(torch.linspace(1, -1, 300)[:, None], torch.linspace(1, -1, 300)[:, None])
    queries = Vectors(torch.ones(2, 1), torch.ones(2, 1))
    positives = sparse.csr_array(([1.0, 1.0], [0, 299], [0, 2]), shape=(1, 300))
    near = KnnPart.of(np.ones((1, 2), dtype=np.float32), positives)
    found = candidates_of(queries, labels, np.bincount(positives.indices, minlength=300), near)
    for ids in found[1].ids_NK:
        filled = ids[ids >= 0].tolist()
        assert filled == sorted({*range(64), 299})
    assert ranked(found, Weights(0.5, 3.0), 2).ids.tolist() == [[0, 299]] * 2
    assert ranked(found, Weights(0.5, 0.0), 2).ids.tolist() == [[0, 1]] * 2
    # Forbidden labels are no candidates.
    _, less = candidates_of(queries, labels, np.zeros(300, dtype=int), near, forbidden=np.array([0, 299]))
    assert not np.isin(less.ids_NK, [0, 299]).any()
    assert candidates_of(queries, labels, np.zeros(300, dtype=int), None, num=200)[1].ids_NK.shape == (2, 200)


def test_the_likeliest_labels_of_the_knn_part_are_candidates():
    labels = Vectors(torch.linspace(1, -1, 300)[:, None], torch.linspace(1, -1, 300)[:, None])
    queries = Vectors(torch.ones(1, 1), torch.ones(1, 1))
    # The nearer text has the labels from 280 on, the other one those from 200 to 239: 32 of these 60 are taken.
    named = [*range(280, 300), *range(200, 240)]
    positives = sparse.csr_array((np.ones(60), named, [0, 20, 60]), shape=(2, 300))
    near = KnnPart.of(np.array([[1, 1], [0.99, 0.99]], dtype=np.float32), positives)
    _, candidates = candidates_of(queries, labels, np.bincount(named, minlength=300), near)
    found = set(candidates.ids_NK[0].tolist()) - {-1}
    assert found >= {*range(64), *range(280, 300)}
    assert len(found & {*range(200, 240)}) == 12
    assert len(found) == 64 + 32


def test_places_without_a_candidate_stay_empty():
    queries, labels, _, positives = toy(seed=1, num_labels=3, num_train=4)
    counts = np.bincount(positives.indices, minlength=3)
    found = candidates_of(queries, labels, counts, None, forbidden=np.array([1]))
    best = ranked(found, Weights(0.5, label_prior=9.0), 3)
    assert np.sort(best.ids, axis=1).tolist() == [[-1, 0, 2]] * 9
    assert np.isneginf(best.scores[:, 2]).all()


# Choosing among weights.

GRID = {"fusions": (0.1, 0.5, 0.9), "knn_weights": (0.0, 0.2), "priors": (-0.1, 0.0, 0.1)}
POINTS = [Weights(*point) for point in itertools.product(*GRID.values())]


@given(st.sampled_from(POINTS), st.sampled_from(POINTS))
def test_the_best_of_a_grid_is_found_where_weights_do_not_depend_on_each_other(start, best):
    def value(weights):
        return (
            -abs(weights.fusion - best.fusion)
            - abs(weights.knn - best.knn) * 3
            + (weights.label_prior == best.label_prior)
        )

    assert best_weights(value, start, **GRID) == best == max(POINTS, key=value)


@given(st.sampled_from(POINTS), st.lists(st.integers(0, 3), min_size=len(POINTS), max_size=len(POINTS)))
def test_a_choice_is_never_worse_than_the_start_nor_than_one_step_in_the_last_round(start, values):
    value = dict(zip(POINTS, values, strict=True)).__getitem__
    chosen = best_weights(value, start, **GRID)
    assert value(chosen) >= value(start)
    assert value(chosen) >= max(value(Weights(w, start.knn, start.label_prior)) for w in GRID["fusions"])
    # Of equal values that which is there stays.
    assert value(chosen) > value(start) or chosen == start


def test_a_second_round_improves_weights_that_depend_on_each_other():
    """The fusion weight 0.9 pays only where neighbours count, which is tried after it."""
    values = {(0.5, 0.0): 1, (0.5, 0.2): 2, (0.9, 0.2): 3}

    def value(weights):
        return values.get((weights.fusion, weights.knn), 0)

    assert best_weights(value, Weights(0.5), fusions=(0.1, 0.5, 0.9), knn_weights=(0.0, 0.2)) == Weights(0.9, 0.2)


def test_weights_without_choices_do_not_change():
    start = Weights(0.37, 0.21, -0.4)
    asked = []

    def value(weights):
        asked.append(weights)
        return weights.label_prior + weights.fusion + weights.knn

    assert best_weights(value, start) == start
    assert best_weights(value, start, priors=(0.3,)) == Weights(0.37, 0.21, 0.3)
    assert {(weights.fusion, weights.knn) for weights in asked} == {(0.37, 0.21)}
