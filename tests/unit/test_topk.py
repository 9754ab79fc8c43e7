import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from unidex.sparse_rows import contains
from unidex.topk import TopK


def test_ties_go_to_the_lower_id_and_padding_to_the_end():
    best = TopK.rank([[5, -1, 3, 4]], [[0.5, 9.0, 0.5, -np.inf]])
    assert best.ids.tolist() == [[3, 5, -1, -1]]
    assert best.scores.tolist() == [[0.5, 0.5, -np.inf, -np.inf]]


def test_negative_scores_are_scores():
    assert TopK.rank([[0, 1, 2]], [[-3.0, -1.0, -2.0]]).ids.tolist() == [[1, 2, 0]]


@given(
    st.integers(0, 4),
    st.integers(0, 6),
    st.sampled_from([5, 2**31 - 1, 2**40]),
    st.data(),
)
def test_rank_is_by_score_then_by_id_then_padding(num_texts, k, highest, data):
    some = [0.0, -0.0, 1.5, -1.5, 1e-45, -1e-45, 3e38, -3e38, np.inf, -np.inf]
    scores = data.draw(st.lists(st.lists(st.sampled_from(some), min_size=k, max_size=k), min_size=num_texts))
    near = st.sampled_from([-1, -7, 0, 1, 2, highest - 1, highest])
    ids = [data.draw(st.lists(near, min_size=k, max_size=k)) for _ in scores]
    shape = (len(scores), k)
    best = TopK.rank(np.array(ids, dtype=np.int64).reshape(shape), np.array(scores, dtype=np.float32).reshape(shape))
    for row, (own_ids, own_scores) in enumerate(zip(ids, np.array(scores, dtype=np.float32).tolist(), strict=True)):
        there = [(-score, label) for label, score in zip(own_ids, own_scores, strict=True)]
        there = sorted((score, label) for score, label in there if label >= 0 and score != np.inf)
        there += [(np.inf, -1)] * (k - len(there))
        assert best.ids[row].tolist() == [label for _, label in there]
        assert best.scores[row].tolist() == [-score for score, _ in there]


def test_rank_refuses_nan_and_other_shapes():
    with pytest.raises(ValueError, match="some are NaN"):
        TopK.rank([[0]], [[np.nan]])
    with pytest.raises(ValueError, match=r"must have one shape, but have \(1, 1\) and \(1, 2\)"):
        TopK.rank([[0]], [[1.0, 2.0]])


def test_from_csr_keeps_stored_zeros_and_negatives():
    scores = sparse.csr_array((np.array([0.0, -1.0, 2.0]), np.array([1, 0, 2]), np.array([0, 2, 3])), shape=(2, 3))
    best = TopK.from_csr(scores)
    assert best.ids.tolist() == [[1, 0], [2, -1]]
    assert best.scores.tolist() == [[0.0, -1.0], [2.0, -np.inf]]
    assert TopK.from_csr(scores, k=1).ids.tolist() == [[1], [2]]
    assert TopK.from_csr(scores, k=3).ids.tolist() == [[1, 0, -1], [2, -1, -1]]


def test_from_csr_of_an_empty_matrix_has_no_places():
    best = TopK.from_csr(sparse.csr_array((2, 3)))
    assert (len(best), best.k) == (2, 0)


def test_first_cuts_or_pads():
    best = TopK.rank([[4, 2]], [[0.1, 0.2]])
    assert best.first(1).ids.tolist() == [[2]]
    longer = best.first(4)
    assert longer.ids.tolist() == [[2, 4, -1, -1]]
    assert np.isneginf(longer.scores[0, 2:]).all()
    assert longer.scores.dtype == np.float32


def test_without_moves_what_follows_up():
    pairs = sparse.csr_array(np.array([[0, 1, 0], [0, 0, 0]], dtype=bool))
    best = TopK.rank([[1, 2], [1, 0]], [[0.9, 0.1], [0.9, 0.1]])
    kept = best.without(pairs)
    assert kept.ids.tolist() == [[2, -1], [1, 0]]
    assert best.ids.tolist() == [[1, 2], [1, 0]]


def test_rows_are_views():
    best = TopK.rank([[1], [2], [3]], [[0.0], [0.0], [0.0]])
    part = best.rows(1, 3)
    assert part.ids.tolist() == [[2], [3]]
    assert part.ids.base is not None


def test_contains_refuses_another_number_of_rows():
    with pytest.raises(ValueError, match=r"one row of columns per matrix row \(2\), but are 1"):
        contains(sparse.csr_array((2, 3)), np.array([[0]]))


@given(
    st.integers(0, 6).flatmap(
        lambda rows: st.tuples(
            st.just(rows),
            st.integers(1, 5),
            st.lists(st.tuples(st.integers(0, max(rows - 1, 0)), st.integers(0, 4)), max_size=20 if rows else 0),
            st.lists(st.lists(st.integers(-2, 7), min_size=3, max_size=3), min_size=rows, max_size=rows),
        )
    )
)
def test_contains_agrees_with_a_set_of_pairs(case):
    num_rows, num_labels, pairs, ids = case
    pairs = {(row, label) for row, label in pairs if label < num_labels}
    dense = np.zeros((num_rows, num_labels), dtype=bool)
    for row, label in pairs:
        dense[row, label] = True
    found = contains(sparse.csr_array(dense), np.array(ids, dtype=np.int64).reshape(num_rows, 3))
    expected = [[(row, label) in pairs for label in ids[row]] for row in range(num_rows)]
    assert found.tolist() == expected
    assert found.shape == (num_rows, 3)
