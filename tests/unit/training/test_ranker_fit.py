"""Which pairs of held-out texts and candidates trees are fitted to, and how many pairs each stands for."""

import numpy as np

from unidex.training.ranker_fit import pair_counts

NUM_TEXTS, NUM_PLACES = 90, 60


def pairs():
    rng = np.random.default_rng(0)
    places = np.argsort(rng.random((NUM_TEXTS, NUM_PLACES)), axis=1).astype(np.float32)
    return rng.random((NUM_TEXTS, NUM_PLACES)) < 0.05, places


def test_right_pairs_and_the_best_ones_count_once():
    hits, places = pairs()
    assert (pair_counts(hits, places)[hits | (places < 10)] == 1).all()


def test_a_third_of_the_others_stands_for_all_of_them():
    hits, places = pairs()
    others = ~hits & (places >= 10)
    counts = pair_counts(hits, places)
    assert set(counts[others].tolist()) == {0.0, 3.0}
    assert abs(counts[others].sum() / others.sum() - 1) < 0.05
    # Of every text and every column some stay: no candidate is left out because of where it stands.
    assert (counts > 0).any(axis=1).all()
    assert (np.where(others, counts, 0) > 0).any(axis=0).all()


def test_a_fit_without_wrong_candidates_keeps_all():
    hits = np.ones((3, 4), dtype=bool)
    assert (pair_counts(hits, np.full((3, 4), 50, dtype=np.float32)) == 1).all()
