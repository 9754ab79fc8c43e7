"""Averages over documents, subjects and pairs: known answers of Annif, and a naive reference on random data."""

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from unidex.metrics.averages import averages
from unidex.topk import TopK


def small():
    """Three texts over six labels: hits and misses, more positives than places, a text without positives."""
    truth = np.array([[1, 0, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]])
    topk = TopK.rank([[2, 1, 0], [5, 0, 3], [4, 0, -1]], [[0.9, 0.5, 0.2], [0.8, 0.4, 0.3], [0.7, 0.1, 0.0]])
    return topk, sparse.csr_array(truth)


# What ``annif.eval.EvaluationBatch`` of Annif 1.4.3 gives for ``small()``.
ANNIF = {
    "Precision (doc avg)": 0.4444444444444444,
    "Recall (doc avg)": 0.5,
    "F1 score (doc avg)": 0.45714285714285713,
    "Precision (subj avg)": 0.4444444444444444,
    "Recall (subj avg)": 0.4166666666666667,
    "F1 score (subj avg)": 0.4111111111111111,
    "Precision (weighted subj avg)": 0.7222222222222222,
    "Recall (weighted subj avg)": 0.6666666666666666,
    "F1 score (weighted subj avg)": 0.6555555555555556,
    "Precision (microavg)": 0.5,
    "Recall (microavg)": 0.6666666666666666,
    "F1 score (microavg)": 0.5714285714285714,
    "NDCG": 0.7870710492134094,
    "True positives": 4,
    "False positives": 4,
    "False negatives": 2,
}
_KINDS = {"doc avg": "document", "subj avg": "subject", "weighted subj avg": "weighted_subject", "microavg": "micro"}
_NAMES = {"Precision": "precision", "Recall": "recall", "F1 score": "F1"}


def ours_by_name(found):
    values = {
        f"{theirs} ({kind})": found[_KINDS[kind]][ours] / 100 for theirs, ours in _NAMES.items() for kind in _KINDS
    }
    counts = {name.replace("_", " ").capitalize(): found[name] for name in found if name.endswith("tives")}
    return values | counts | {"NDCG": found["NDCG"] / 100}


def test_known_answers_of_annif():
    topk, truth = small()
    assert ours_by_name(averages(topk, truth)) == pytest.approx(ANNIF, abs=1e-6)


def random_predictions(seed, limit):
    random = np.random.default_rng(seed)
    num_texts, num_labels = 20, 12
    truth = random.random((num_texts, num_labels)) < 0.2
    ids = np.array([random.permutation(num_labels)[:limit] for _ in range(num_texts)])
    ids[random.random(ids.shape) < 0.1] = -1
    return TopK.rank(ids, 0.9 * random.random(ids.shape) + 0.05), sparse.csr_array(truth)


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_naive_reference(limit):
    topk, truth = random_predictions(limit, 10)
    truth_sets = [set(np.flatnonzero(row).tolist()) for row in truth.toarray()]
    lists = [[int(label) for label in row[:limit] if label >= 0] for row in topk.ids]
    found = averages(topk, truth, limit=limit)

    def ratio(upper, lower):
        return upper / lower if lower else 0.0

    f1 = [ratio(2 * len(own & set(ids)), len(own) + len(ids)) for own, ids in zip(truth_sets, lists, strict=True)]
    assert found["document"]["F1"] == pytest.approx(100 * np.mean(f1))
    precisions, supports = [], []
    for label in range(truth.shape[1]):
        right = sum(label in own and label in ids for own, ids in zip(truth_sets, lists, strict=True))
        precisions.append(ratio(right, sum(label in ids for ids in lists)))
        supports.append(sum(label in own for own in truth_sets))
    assert found["subject"]["precision"] == pytest.approx(100 * np.mean(precisions))
    assert found["weighted_subject"]["precision"] == pytest.approx(100 * np.average(precisions, weights=supports))
    ndcg = []
    for own, ids in zip(truth_sets, lists, strict=True):
        best = sum(1 / np.log2(place + 2) for place in range(len(own)))
        gain = sum(1 / np.log2(place + 2) for place, label in enumerate(ids) if label in own)
        ndcg.append(gain / best if best else 1.0)
    assert found["NDCG"] == pytest.approx(100 * np.mean(ndcg))


def test_filter_pairs_are_taken_out_before_the_cut():
    topk, truth = small()
    filtered = sparse.csr_array(np.array([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0] * 6]))
    found = averages(topk, truth, filtered, limit=2)
    assert found["true_positives"] == 4
    assert found["false_positives"] == 2


def test_no_positives_at_all():
    topk, truth = small()
    found = averages(topk, sparse.csr_array(truth.shape))
    assert found["weighted_subject"] == found["micro"] | {"precision": 0.0}
    assert found["NDCG"] == 100.0


@pytest.mark.skipif(importlib.util.find_spec("annif") is None, reason="needs the package annif")
@pytest.mark.parametrize("seed", range(3))
def test_annif_itself(seed):
    from annif.eval import EvaluationBatch
    from annif.suggestion import SubjectSuggestion

    topk, truth = random_predictions(seed, 10)
    subjects = [SimpleNamespace(uri=str(label), labels={}) for label in range(truth.shape[1])]
    batch = EvaluationBatch(subjects)
    batch.evaluate_many(
        [
            [SubjectSuggestion(int(label), float(score)) for label, score in zip(*row, strict=True) if label >= 0]
            for row in zip(topk.ids, topk.scores, strict=True)
        ],
        [np.flatnonzero(row) for row in truth.toarray()],
    )
    theirs = batch.results()
    ours = ours_by_name(averages(topk, truth))
    assert ours == pytest.approx({name: theirs[name] for name in ours}, abs=1e-6)
