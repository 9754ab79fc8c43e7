"""Pools and batches against the rules they follow, written out slowly."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from unidex.pools.batches import clustered_batches, num_batches, random_batches
from unidex.pools.pool import (
    choose_labels,
    draw_labels,
    draw_negatives,
    label_batch,
    log_inclusion,
    make_batch,
    make_targets,
    mine_negatives,
)


def random_pairs(rng, num_texts, num_labels, density=0.3):
    dense = (rng.random((num_texts, num_labels)) < density) * rng.uniform(0.1, 1, (num_texts, num_labels))
    return sparse.csr_array(dense.astype(np.float32))


def test_drawn_labels_are_positives_of_their_texts_and_every_one_can_be_drawn():
    positives = sparse.csr_array(np.array([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32))
    rng = np.random.default_rng(0)
    drawn = draw_labels(positives, np.array([0, 1, 2]), 2, rng)
    assert len(drawn) == 4
    assert set(drawn[:2]) <= {0, 2, 3}
    assert set(drawn[2:]) == {1}
    many = draw_labels(positives, np.zeros(300, dtype=np.int64), 1, rng)
    assert set(many) == {0, 2, 3}


def test_drawn_negatives_are_of_the_text_and_do_not_repeat():
    shortlist = np.array([[5, 6, 7], [8, -1, -1]])
    for seed in range(20):
        drawn = draw_negatives(shortlist, np.array([1, 0]), 2, np.random.default_rng(seed))
        assert drawn.shape == (2, 2)
        assert sorted(drawn[0]) in ([-1, -1], [-1, 8])
        assert len(set(drawn[1]) & {5, 6, 7}) == 2


def slow_pools(drawn, negatives, further, size):
    """The rule in words, group after group: the labels that must be in, and those of which some fill the room left."""
    pool = set()
    for group in (drawn.tolist(), negatives.tolist(), further.tolist()):
        for count in range(len(group), 0, -1):
            equals = {label for label in group if group.count(label) == count} - pool
            if len(pool) + len(equals) > size:
                return pool, equals
            pool |= equals
    return pool, set()


labels = st.lists(st.integers(0, 12), max_size=20).map(lambda ids: np.array(ids, dtype=np.int64))


@given(labels, labels, labels, st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_pool_is_filled_in_the_order_of_the_paper(drawn, negatives, further, size, seed):
    certain, equals = slow_pools(drawn, negatives, further, size)
    found, again = (
        choose_labels(drawn, negatives, further, size, np.random.default_rng(seed)).tolist() for _ in range(2)
    )
    assert found == sorted(set(found)) == again
    assert certain <= set(found) <= certain | equals
    assert len(found) == (size if equals else len(certain))


def test_every_one_of_equally_frequent_labels_can_enter_the_pool():
    none, rng = np.empty(0, dtype=np.int64), np.random.default_rng(0)
    pools = [choose_labels(np.array([9, 9, 2, 5, 7, 0]), none, none, 3, rng).tolist() for _ in range(400)]
    entered = np.bincount(np.concatenate(pools), minlength=10)
    assert entered[9] == 400
    np.testing.assert_allclose(entered[[0, 2, 5, 7]] / 400, 0.5, atol=0.1)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_targets_are_all_positives_in_the_pool_and_filter_pairs_are_neither(seed):
    rng = np.random.default_rng(seed)
    positives, filters = random_pairs(rng, 6, 9), random_pairs(rng, 6, 9, 0.2).astype(bool)
    texts = rng.permutation(6)[:4]
    pool = np.sort(rng.permutation(9)[:5])
    targets = make_targets(positives, filters, texts, pool)
    truth, filtered = positives.toarray(), filters.toarray()
    expected = {(i, j): truth[t, p] for i, t in enumerate(texts) for j, p in enumerate(pool) if truth[t, p] > 0}
    found = dict(
        zip(zip(targets.rows.tolist(), targets.columns.tolist(), strict=True), targets.weights.tolist(), strict=True)
    )
    assert found == pytest.approx(expected)
    ignored = {(i, j) for i, t in enumerate(texts) for j, p in enumerate(pool) if filtered[t, p]} - set(expected)
    assert set(zip(targets.ignored_rows.tolist(), targets.ignored_columns.tolist(), strict=True)) == ignored


def test_a_positive_brought_in_as_anothers_negative_counts():
    positives = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 1]], dtype=np.float32))
    none = sparse.csr_array((2, 3), dtype=bool)
    shortlist = np.array([[2], [0]])  # label 2 is a hard negative of text 0 and a positive of text 1
    batch = make_batch(
        positives, none, np.array([0, 1]), num_positives=1, num_negatives=1, size=10, shortlist=shortlist,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    pairs = set(zip(batch.targets.rows.tolist(), batch.labels[batch.targets.columns].tolist(), strict=True))
    assert (1, 2) in pairs
    assert (1, 1) in pairs


def test_a_batch_says_which_labels_were_mined_for_which_text():
    positives = sparse.csr_array(np.eye(4, 6, dtype=np.float32))
    none = sparse.csr_array((4, 6), dtype=bool)
    options = {"num_positives": 1, "num_negatives": 2, "size": 10, "is_shared": False}
    shortlist = np.array([[4, 5], [5, 4], [0, 1], [4, -1]])
    batch = make_batch(
        positives, none, np.array([3, 0, 2]), shortlist=shortlist, rng=np.random.default_rng(0), **options
    )
    assert batch.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert [sorted(row) for row in batch.mined.tolist()] == [[-1, 4], [4, 5], [0, 1]]
    # Before anything is mined, texts share the pool.
    batch = make_batch(positives, none, np.arange(4), shortlist=None, rng=np.random.default_rng(0), **options)
    assert batch.mined is None


def test_mined_labels_that_a_full_pool_leaves_out_are_no_candidates():
    positives = sparse.csr_array(np.eye(3, 9, dtype=np.float32))
    none = sparse.csr_array((3, 9), dtype=bool)
    shortlist = np.array([[3, 4], [5, 4], [6, 4]])
    batch = make_batch(
        positives, none, np.arange(3), num_positives=1, num_negatives=2, size=4, shortlist=shortlist,
        rng=np.random.default_rng(0), is_shared=False,
    )  # fmt: skip
    # Label 4 was drawn most often; it stands at the last place.
    assert batch.labels.tolist() == [0, 1, 2, 4]
    assert [sorted(row) for row in batch.mined.tolist()] == [[-1, 3]] * 3


def test_texts_left_without_a_positive_are_dropped():
    positives = sparse.csr_array(np.eye(4, dtype=np.float32))
    none = sparse.csr_array((4, 4), dtype=bool)
    batch = make_batch(
        positives, none, np.arange(4), num_positives=1, num_negatives=0, size=2, shortlist=None,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert batch.labels.tolist() == batch.texts.tolist()
    assert batch.targets.shape == (2, 2)


def test_log_inclusion_is_the_share_of_pools_a_label_is_in():
    rng = np.random.default_rng(0)
    positives = random_pairs(rng, 40, 12, 0.2)
    none = sparse.csr_array(positives.shape, dtype=bool)
    rows = np.flatnonzero(np.diff(positives.indptr))
    seen = np.zeros(12)
    trials = 4000
    for _ in range(trials):
        texts = rng.permutation(40)[:8]
        drawn = draw_labels(positives, texts, 2, rng)
        seen[np.unique(drawn)] += 1
    assert len(rows)
    assert none.nnz == 0
    np.testing.assert_allclose(np.exp(log_inclusion(positives, 8, 2)), seen / trials, atol=0.05)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_batches_hold_every_text_once_and_are_as_large_as_asked(count, size, seed):
    rng = np.random.default_rng(seed)
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((count, 4))), dim=1)
    for batches in (random_batches(count, size, rng), clustered_batches(vectors, size, rng)):
        assert sorted(np.concatenate(batches).tolist()) == list(range(count))
        sizes = [len(batch) for batch in batches]
        assert len(batches) == num_batches(count, size) == -(-count // size)
        assert max(sizes) <= size
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("num_kinds", [3, 4])
def test_clustered_batches_keep_similar_texts_together(num_kinds):
    generator = torch.Generator().manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(num_kinds, 16, generator=generator), dim=1)
    kinds = torch.arange(16 * num_kinds) % num_kinds
    noise = 0.05 * torch.randn(len(kinds), 16, generator=generator)
    vectors = torch.nn.functional.normalize(centres[kinds] + noise, dim=1)
    batches = clustered_batches(vectors, 16, np.random.default_rng(0))
    assert all(len(set(kinds[batch].tolist())) == 1 for batch in batches)


def test_mined_negatives_are_the_best_that_are_not_own():
    rng = np.random.default_rng(0)
    texts, label_vectors = torch.randn(7, 5), torch.randn(11, 5)
    positives, filters = random_pairs(rng, 7, 11), random_pairs(rng, 7, 11, 0.2).astype(bool)
    mined = mine_negatives(texts, label_vectors, positives, filters, 4)
    scores = (texts @ label_vectors.T).numpy()
    scores[(positives.toarray() > 0) | filters.toarray()] = -np.inf
    for row in range(7):
        allowed = np.flatnonzero(np.isfinite(scores[row]))
        best = allowed[np.argsort(-scores[row][allowed])][:4]
        assert mined[row][mined[row] >= 0].tolist() == best.tolist()


def test_a_batch_of_labels_has_one_text_of_each_and_all_their_pairs():
    rng = np.random.default_rng(0)
    positives = random_pairs(rng, 30, 12)
    filter_pairs = sparse.csr_array((30, 12), dtype=bool)
    turned = sparse.csr_array(positives.T)
    labels = np.array([7, 2, 9])
    seen = set()
    for _ in range(200):
        batch = label_batch(positives, filter_pairs, turned, labels, rng)
        assert batch.labels.tolist() == [2, 7, 9]
        dense = positives[batch.texts][:, [2, 7, 9]].toarray()
        assert dense.any(axis=0).all()  # each label has a text
        assert dense.any(axis=1).all()  # no text is there for nothing
        found = np.zeros_like(dense)
        found[batch.targets.rows.numpy(), batch.targets.columns.numpy()] = batch.targets.weights.numpy()
        np.testing.assert_array_equal(found, dense)
        seen |= set(batch.texts.tolist())
    # Every text of these labels is drawn some time.
    assert seen == set(np.flatnonzero(positives[:, labels].toarray().any(axis=1)).tolist())
