"""A label's vector can be replaced in every kind of index. Codes are learned from a few dozen labels here."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unidex import index as index_layer
from unidex import native
from unidex.errors import ModelError
from unidex.index import disk, hnsw, pq
from unidex.index.exact import ExactIndex

kinds = pytest.mark.parametrize("kind", sorted(index_layer.KINDS))
SETTINGS = {"disk": {}, "exact": {}, "hnsw": {"m": 8, "ef_construction": 40}, "pq": {}}
DIM = 8


@pytest.fixture(autouse=True)
def codes_from_few_labels(monkeypatch):
    monkeypatch.setattr(pq, "CODED_FROM", 60)
    monkeypatch.setattr(disk, "CODED_FROM", 300)  # a codebook of 256 pieces needs as many labels
    monkeypatch.setattr(disk, "MAX_UNCODED", 50)


def unit_vectors(number, seed=0, dim=DIM):
    vectors = np.random.default_rng(seed).standard_normal((number, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def build(kind, vectors):
    return index_layer.build(kind, vectors, **SETTINGS[kind])


def best_of(queries, vectors, removed, k):
    """The k best labels of each text by (score, lower id), in double precision; -1 for want of labels."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    scores[:, sorted(removed)] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isneginf(np.take_along_axis(scores, order, axis=1)), -1, order)


def recall(found, wanted):
    return (found.ids[:, :, None] == np.asarray(wanted)[:, None, :]).any(axis=1).mean()


@kinds
@pytest.mark.parametrize("is_native", [True, False])
def test_inner_products_are_those_of_the_new_vectors(kind, is_native, monkeypatch):
    if not is_native:
        monkeypatch.setattr(native, "kernels", None)
    vectors, queries = unit_vectors(320), unit_vectors(3, seed=1)
    index = build(kind, vectors.copy())
    moved = np.array([7, 0, 319])
    index.replace(moved, unit_vectors(3, seed=3))
    vectors[moved] = unit_vectors(3, seed=3)
    ids = np.array([[0, 7, -1, 5], [319, 318, 0, -1], [1, 1, 7, 7]])
    for first, end in ((0, DIM), (3, 6)):
        found = index.inner_products(queries[:, first:end], ids, first)
        wanted = np.einsum("nkd,nd->nk", vectors[ids][:, :, first:end], queries[:, first:end])
        np.testing.assert_allclose(found, np.where(ids < 0, -np.inf, wanted), atol=1e-6)


def test_an_exact_index_answers_bit_for_bit_as_one_built_so():
    vectors, queries = unit_vectors(500), unit_vectors(40, seed=1)
    moved = np.random.default_rng(2).permutation(500)[:90]
    index = ExactIndex.build(vectors.copy())
    index.replace(moved, unit_vectors(90, seed=3))
    vectors[moved] = unit_vectors(90, seed=3)
    found, wanted = index.search(queries, 9), ExactIndex.build(vectors).search(queries, 9)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores.tolist() == wanted.scores.tolist()
    assert index.vectors(np.arange(500)).tolist() == vectors.tolist()


def test_the_vectors_an_index_was_built_from_stay_as_they_are():
    vectors = unit_vectors(10)
    before = vectors.copy()
    index = ExactIndex.build(vectors)
    index.replace([3], unit_vectors(1, seed=1))
    assert vectors.tolist() == before.tolist()
    assert index.vectors(np.array([3])).tolist() == unit_vectors(1, seed=1).tolist()


def test_a_saved_exact_index_is_not_written_to_until_it_is_saved(tmp_path):
    ExactIndex.build(unit_vectors(10)).save(tmp_path / "index")
    before = (tmp_path / "index" / "vectors.npy").read_bytes()
    index = ExactIndex.load(tmp_path / "index")
    index.replace([3], unit_vectors(1, seed=1))
    assert (tmp_path / "index" / "vectors.npy").read_bytes() == before
    index.save(tmp_path / "index")
    again = ExactIndex.load(tmp_path / "index")
    assert again.vectors(np.arange(10)).tolist() == index.vectors(np.arange(10)).tolist()


@kinds
@pytest.mark.parametrize("num_labels", [20, 300])
def test_a_label_is_found_by_its_new_vector_and_no_longer_by_its_old_one(kind, num_labels):
    vectors = unit_vectors(num_labels)
    moved = np.random.default_rng(2).permutation(num_labels)[: num_labels // 3]
    new = unit_vectors(len(moved), seed=3)
    index = build(kind, vectors)
    index.replace(moved, torch.from_numpy(new))
    best = index.search(new, 1)
    assert best.ids[:, 0].tolist() == moved.tolist()
    assert best.scores == pytest.approx(1, abs=1e-5)
    assert (index.search(vectors[moved], 1).ids[:, 0] != moved).all()
    assert index.vectors(moved).tolist() == new.tolist()
    assert (index.num_labels, index.num_ids) == (num_labels, num_labels)


@kinds
def test_removed_labels_stay_removed_and_added_ones_get_the_next_ids(kind):
    vectors, new = unit_vectors(200), unit_vectors(3, seed=1)
    index = build(kind, vectors)
    index.remove([5])
    index.replace([5, 6], new[:2])
    assert index.search(new[:2], 1).ids[1, 0] == 6
    assert not (index.search(np.concatenate([new, vectors[:20]]), 10).ids == 5).any()
    assert index.add(new[2:]).tolist() == [200]
    index.replace([200], -new[2:])
    assert index.search(np.stack([new[2], -new[2]]), 1).ids[1].tolist() == [200]
    index.remove([6])
    assert not (index.search(new, 10).ids == 6).any()
    assert (index.num_labels, index.num_ids) == (199, 201)


@kinds
@pytest.mark.parametrize("share", [0.03, 0.4])
def test_allowed_and_forbidden_labels_are_labels_not_points(kind, share):
    vectors, queries = unit_vectors(400), unit_vectors(30, seed=1)
    moved = np.arange(0, 400, 3)
    index = build(kind, vectors)
    index.replace(moved, unit_vectors(len(moved), seed=3))
    vectors[moved] = unit_vectors(len(moved), seed=3)
    allowed = np.random.default_rng(4).permutation(400)[: int(400 * share)]
    best = index.search(queries, 4, allowed=allowed, forbidden=allowed[:3])
    wanted = best_of(queries, vectors, set(range(400)) - set(allowed[3:].tolist()), 4)
    assert np.isin(best.ids, allowed[3:]).all()
    assert recall(best, wanted) >= (1 if kind == "exact" else 0.97)


@kinds
def test_a_saved_index_answers_the_same_after_replacing(kind, tmp_path):
    vectors, queries = unit_vectors(200), unit_vectors(30, seed=1)
    index = build(kind, vectors)
    index.replace([7, 3, 150], unit_vectors(3, seed=2))
    index.remove([3])
    index.add(unit_vectors(5, seed=5))
    index.replace([7, 202], unit_vectors(2, seed=6))
    index.save(tmp_path / "index")
    again = index_layer.load(tmp_path / "index")
    assert again.vectors(np.arange(205)).tolist() == index.vectors(np.arange(205)).tolist()
    wanted, found = index.search(queries, 6), again.search(queries, 6)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores == pytest.approx(wanted.scores, rel=1e-5)
    assert json.loads((tmp_path / "index" / "manifest.json").read_text())["num_ids"] == 205
    again.replace([7], queries[:1])
    assert again.search(queries[:1], 1).ids.tolist() == [[7]]


@pytest.mark.parametrize("kind", ["hnsw", "pq"])
def test_stale_points_do_not_pile_up(kind):
    vectors, rng = unit_vectors(100), np.random.default_rng(1)
    index = build(kind, vectors)
    most = 0
    for step in range(12):
        moved = rng.permutation(100)[:30]
        vectors[moved] = unit_vectors(30, seed=10 + step)
        index.replace(moved, vectors[moved])
        most = max(most, len(index._points.labels_P))
    assert 100 < most < hnsw.STALE_FROM * 100
    assert recall(index.search(vectors, 1), np.arange(100)[:, None]) == 1


@pytest.mark.parametrize("kind", ["hnsw", "pq"])
def test_an_index_whose_points_do_not_name_its_labels_is_refused(kind, tmp_path):
    index = build(kind, unit_vectors(100))
    index.replace([4], unit_vectors(1, seed=1))
    index.save(tmp_path / "index")
    file = tmp_path / "index" / "points.npy"
    good = np.load(file)
    for bad in (np.where(good == 4, 5, good), np.where(good < 0, 4, good), good.astype(np.float64), good[:-1]):
        np.save(file, bad)
        with pytest.raises(ModelError, match=r"points\.npy must name each of 100 labels once"):
            index_layer.load(tmp_path / "index")
    file.unlink()
    with pytest.raises(ModelError, match="build the index again"):
        index_layer.load(tmp_path / "index")


@kinds
def test_replacing_nothing_changes_nothing(kind):
    index = build(kind, unit_vectors(80))
    index.replace([], np.empty((0, DIM), dtype=np.float32))
    assert index.vectors(np.arange(80)).tolist() == unit_vectors(80).tolist()


@kinds
@pytest.mark.parametrize(
    ("ids", "vectors", "said"),
    [
        ([80], np.ones((1, DIM)), "replaced labels must be label ids below 80"),
        ([-1], np.ones((1, DIM)), "replaced labels must be label ids below 80"),
        ([1.5], np.ones((1, DIM)), "replaced labels must be label ids .whole numbers."),
        ([[1]], np.ones((1, DIM)), "replaced labels must be a list of ids"),
        ([2, 2], np.ones((2, DIM)), "replaced labels must differ, but some come more than once: 2"),
        ([1, 2], np.ones((1, DIM)), "one vector per replaced label, but there are 1 vectors and 2 labels"),
        ([1], np.ones((1, DIM + 1)), f"must have {DIM} numbers per row"),
        ([1], np.ones(DIM), "must have two dimensions"),
        ([1, 2], np.array([[1.0] * DIM, [np.nan] * DIM]), "must be finite numbers, but row 1 is not"),
    ],
)
def test_an_invalid_replacement_is_refused_and_changes_nothing(kind, ids, vectors, said):
    index = build(kind, unit_vectors(80))
    with pytest.raises(ValueError, match=said):
        index.replace(ids, vectors)
    assert index.vectors(np.arange(80)).tolist() == unit_vectors(80).tolist()


# What is done to an index: (what, how many labels, seed).
doings = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "replace", "reload"]), st.integers(1, 12), st.integers(0, 99)),
    max_size=8,
)


@kinds
@settings(max_examples=25, deadline=None)
@given(doings=doings, num_labels=st.sampled_from([0, 5, 70]))
def test_any_order_of_changes_gives_the_index_of_a_plain_table(tmp_path_factory, kind, doings, num_labels):
    vectors, removed = unit_vectors(num_labels), set()
    index = build(kind, vectors)
    for what, number, seed in doings:
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(len(vectors))[:number]
        if what == "add":
            new = unit_vectors(number, seed=100 + seed)
            assert index.add(new).tolist() == list(range(len(vectors), len(vectors) + number))
            vectors = np.concatenate([vectors, new])
        elif what == "remove":
            index.remove(chosen)
            removed |= set(chosen.tolist())
        elif what == "replace":
            vectors = vectors.copy()
            vectors[chosen] = unit_vectors(len(chosen), seed=200 + seed)
            index.replace(chosen, vectors[chosen])
        else:
            folder = tmp_path_factory.mktemp("again") / "index"
            index.save(folder)
            index = index_layer.load(folder)
    queries = unit_vectors(20, seed=300)
    best = index.search(queries, 3)
    wanted = best_of(
        queries, np.concatenate([vectors, unit_vectors(3)]), removed | {len(vectors) + n for n in range(3)}, 3
    )
    assert (index.num_ids, index.num_labels) == (len(vectors), len(vectors) - len(removed))
    assert index.vectors(np.arange(len(vectors))).tolist() == vectors.tolist()
    assert not np.isin(best.ids, sorted(removed)).any()
    assert ((best.ids >= 0).sum(axis=1) == (wanted >= 0).sum(axis=1)).all()
    # By scores: vectors of one seed differ by their rounding alone, and of equal ones either may be found where one was
    # missed.
    rows = np.arange(20)[:, None]
    scores = (queries @ np.concatenate([vectors, unit_vectors(3)]).T)[rows, wanted]
    if kind == "exact":
        np.testing.assert_allclose(best.scores[wanted >= 0], scores[wanted >= 0], atol=1e-6)
    else:
        as_good = np.isclose(best.scores, scores, atol=1e-5) | (best.scores > scores)
        assert as_good[wanted >= 0].mean() >= 0.9 if (wanted >= 0).any() else (best.ids == -1).all()
