"""The index of short codes. What it shares with every kind is in test_index.py, where few labels are searched exactly;
here the codes are learned from a few hundred."""

import json

import numpy as np
import pytest

from unidex import index as index_layer
from unidex.errors import ConfigError, ModelError
from unidex.index import pq
from unidex.index.faiss_library import threads
from unidex.index.pq import PqIndex


@pytest.fixture(autouse=True)
def codes_from_few_labels(monkeypatch):
    monkeypatch.setattr(pq, "CODED_FROM", 300)


def clustered(number, dim, seed=0):
    """Vectors of norm one around shared centres; the centres do not depend on the seed."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((40, dim))
    vectors = centres[rng.integers(40, size=number)] + rng.standard_normal((number, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def recall(found, wanted):
    return (found.ids[:, :, None] == wanted.ids[:, None, :]).any(axis=1).mean()


def exactly(vectors, queries, k, **narrowed):
    return index_layer.build("exact", vectors).search(queries, k, **narrowed)


# 258 numbers are filled up to whole pieces.
@pytest.mark.parametrize(("dim", "lists"), [(66, 1), (258, 1), (258, 8)])
def test_pq_finds_what_exact_finds_with_exact_scores(dim, lists):
    vectors, queries = clustered(3000, dim), clustered(100, dim, seed=1)
    index = PqIndex.build(vectors, lists=lists, probes=6)
    assert index._codes.ntotal == 3000
    found, wanted = index.search(queries, 10), exactly(vectors, queries, 10)
    assert recall(found, wanted) >= 0.98
    scores = np.einsum("bd,bkd->bk", queries.astype(np.float64), vectors[found.ids].astype(np.float64))
    assert found.scores == pytest.approx(scores, abs=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"candidates": 1}, {"candidates": 60}),
        ({"lists": 16, "probes": 1}, {"lists": 16, "probes": 16}),
        ({"numbers_a_piece": 16}, {"numbers_a_piece": 2}),
    ],
)
def test_each_setting_trades_recall(worse, better):
    vectors, queries = clustered(3000, 64), clustered(200, 64, seed=1)
    wanted = exactly(vectors, queries, 1)
    low, high = (recall(PqIndex.build(vectors, **chosen).search(queries, 1), wanted) for chosen in (worse, better))
    assert low < high


def test_ties_go_to_the_lower_id():
    # Three copies of each label: all three are candidates, because equal vectors have equal codes.
    vectors = np.tile(clustered(400, 64), (3, 1))
    best = PqIndex.build(vectors).search(clustered(50, 64, seed=1), 9)
    assert (np.diff(best.ids.reshape(50, 3, 3), axis=2) == 400).all()
    assert (np.diff(best.scores.reshape(50, 3, 3), axis=2) == 0).all()


def test_a_text_of_zeros_gets_labels():
    best = PqIndex.build(clustered(500, 64)).search(np.zeros((2, 64), dtype=np.float32), 5)
    assert (best.ids >= 0).all()
    assert best.scores.tolist() == [[0] * 5] * 2


@pytest.mark.parametrize("lists", [1, 8])
@pytest.mark.parametrize("share", [0.03, 0.2, 0.8])
def test_hidden_labels_are_not_returned_and_the_others_are_found(share, lists):
    vectors, queries = clustered(3000, 64), clustered(60, 64, seed=1)
    allowed = np.random.default_rng(2).permutation(3000)[: int(3000 * share)]
    forbidden, removed = allowed[:20], allowed[20:40]
    index = PqIndex.build(vectors, lists=lists, probes=6)
    index.remove(removed)
    found = index.search(queries, 10, allowed=allowed, forbidden=forbidden)
    wanted = exactly(vectors, queries, 10, allowed=allowed[40:])
    assert np.isin(found.ids, allowed[40:]).all()
    assert recall(found, wanted) >= 0.97


def test_a_text_whose_best_labels_are_all_hidden_is_searched_exactly():
    vectors, query = clustered(2000, 64), clustered(1, 64, seed=1)
    order = np.argsort(-(vectors @ query[0]))
    found = PqIndex.build(vectors).search(query, 10, forbidden=order[:900])
    assert found.ids.tolist() == [order[900:910].tolist()]


def test_texts_are_searched_block_by_block(monkeypatch):
    vectors, queries = clustered(1000, 64), clustered(50, 64, seed=1)
    index = PqIndex.build(vectors)
    whole = index.search(queries, 5)
    monkeypatch.setattr(pq, "CANDIDATES_AT_ONCE", 7 * 64)
    blocks = index.search(queries, 5)
    assert blocks.ids.tolist() == whole.ids.tolist()
    assert blocks.scores.tolist() == whole.scores.tolist()


def test_codes_are_learned_when_there_are_enough_labels_and_again_when_they_have_doubled():
    vectors, queries = clustered(1000, 64), clustered(60, 64, seed=1)
    index = PqIndex.build(vectors[:299])
    assert index._codes is None
    learned = []
    for start, stop in ((299, 300), (300, 599), (599, 600), (600, 1000)):
        assert index.add(vectors[start:stop]).tolist() == list(range(start, stop))
        assert index._codes.ntotal == stop
        learned.append(index._learned_from)
    assert learned == [300, 300, 600, 600]
    assert recall(index.search(queries, 10), exactly(vectors, queries, 10)) >= 0.98


@pytest.mark.parametrize("lists", [1, 8])
def test_a_saved_index_answers_the_same(tmp_path, lists):
    vectors, queries = clustered(1000, 258), clustered(60, 258, seed=1)
    index = PqIndex.build(vectors[:900], lists=lists, probes=3)
    index.add(vectors[900:])
    index.remove([5, 950])
    index.save(tmp_path / "index")
    again = PqIndex.load(tmp_path / "index")
    wanted, found = index.search(queries, 7), again.search(queries, 7)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores.tolist() == wanted.scores.tolist()
    assert (again.num_labels, again._learned_from) == (998, 900)
    assert (again._codes.qbs == pq.TEXTS_PER_SCAN) == (lists == 1)


def test_codes_of_an_earlier_version_are_scanned_as_todays(tmp_path):
    vectors, queries = clustered(1000, 258), clustered(60, 258, seed=1)
    index = PqIndex.build(vectors)
    wanted = index.search(queries, 7)
    index._codes.qbs = 0x2222
    earlier = index.search(queries, 7)
    index.save(tmp_path / "index")
    again = PqIndex.load(tmp_path / "index")
    assert again._codes.qbs == pq.TEXTS_PER_SCAN
    for found in (earlier, again.search(queries, 7)):
        assert found.ids.tolist() == wanted.ids.tolist()
        assert found.scores.tolist() == wanted.scores.tolist()


@pytest.mark.parametrize("num_threads", [1, 4])
def test_the_same_labels_give_the_same_codes_whatever_the_number_of_threads(tmp_path, num_threads):
    vectors = clustered(2000, 64)
    for name, number in (("first", 2), ("second", num_threads)):
        with threads(number):
            index = PqIndex.build(vectors[:1500], lists=8)
            index.add(vectors[1500:])
            index.save(tmp_path / name)
    assert (tmp_path / "first" / "codes.faiss").read_bytes() == (tmp_path / "second" / "codes.faiss").read_bytes()


def test_damaged_codes_are_refused(tmp_path):
    folder = tmp_path / "index"
    PqIndex.build(clustered(400, 64)).save(folder)
    codes = (folder / "codes.faiss").read_bytes()
    (folder / "codes.faiss").write_bytes(codes[:50])
    with pytest.raises(ModelError, match=r"is not a whole index .* build the index again"):
        PqIndex.load(folder)
    PqIndex.build(clustered(500, 64)).save(tmp_path / "other")
    (folder / "codes.faiss").write_bytes((tmp_path / "other" / "codes.faiss").read_bytes())
    with pytest.raises(ModelError, match=r"must hold codes of 400 vectors of 64 numbers .* but holds 500 of 64"):
        PqIndex.load(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["learned_from"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=r"is not a whole index .'learned_from'"):
        PqIndex.load(folder)


def test_pq_settings_are_checked():
    for bad, match in (
        ({"probes": 0}, "probes must be a whole number >= 1, but is 0"),
        ({"candidates": 0.5}, "candidates must be a whole number >= 0, but is 0.5"),
        ({"lists": True}, "lists must be a whole number >= 0, but is True"),
    ):
        with pytest.raises(ConfigError, match=match):
            index_layer.build("pq", np.eye(3, dtype=np.float32), **bad)
