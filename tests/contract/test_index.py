import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from unidex import index as index_layer
from unidex.errors import ConfigError, ModelError
from unidex.index import exact, tensor_search
from unidex.index.exact import ExactIndex, search_exact
from unidex.index.faiss_library import threads
from unidex.index.hnsw import HnswIndex, build_threads
from unidex.index.running_best import RunningTopK

kinds = pytest.mark.parametrize("kind", sorted(index_layer.KINDS))


def brute_force(queries, vectors, k):
    """The k best of each row by (score, lower id), in double precision."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def small_blocks(patch, num_labels, num_scores):
    """Let a search by torch take blocks of so many labels and scores, and a search of arrays so many scores."""
    patch.setattr(tensor_search, "LABELS_AT_ONCE", num_labels)
    patch.setattr(tensor_search, "SCORES_AT_ONCE", num_scores)
    patch.setattr(exact, "SCORES_AT_ONCE", num_scores)


def random_vectors(number, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((number, dim)).astype(np.float32)


def two_halves(number, dim, seed=0):
    """Vectors [a; b] of two unit halves drawn around shared centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(number // 20, 2), dim))
    vectors = centres[rng.integers(len(centres), size=number)] + 0.7 * rng.standard_normal((number, dim))
    halves = [half / np.linalg.norm(half, axis=1, keepdims=True) for half in np.split(vectors, 2, axis=1)]
    return np.concatenate(halves, axis=1).astype(np.float32)


def recall(found, wanted):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), wanted.tolist(), strict=True)])


# What every kind of index promises.


@kinds
def test_known_answer(kind):
    index = index_layer.build(kind, np.eye(4, dtype=np.float32))
    best = index.search(np.array([[0.1, 0.4, 0.3, 0.2], [9, 0, 1, 2]], dtype=np.float32), k=3)
    assert best.ids.tolist() == [[1, 2, 3], [0, 3, 2]]
    assert best.scores == pytest.approx(np.array([[0.4, 0.3, 0.2], [9, 2, 1]]))
    assert (best.ids.dtype, best.scores.dtype) == (np.int64, np.float32)
    assert (index.num_labels, index.num_ids, index.dim) == (4, 4, 4)


@kinds
def test_more_places_than_labels_are_padded(kind):
    best = index_layer.build(kind, np.eye(2, dtype=np.float32)).search(np.array([[-1, -2]], dtype=np.float32), k=4)
    assert best.ids.tolist() == [[0, 1, -1, -1]]
    assert best.scores.tolist() == [[-1, -2, -np.inf, -np.inf]]


@kinds
def test_negative_scores_are_ranked(kind):
    vectors = -np.abs(random_vectors(300, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = np.abs(random_vectors(5, 8, seed=1))
    best = index_layer.build(kind, vectors).search(queries, k=5)
    ids, scores = brute_force(queries, vectors, 5)
    assert (scores < 0).all()
    assert best.ids.tolist() == ids.tolist()
    assert best.scores == pytest.approx(scores, rel=1e-5)


@kinds
def test_no_texts_give_no_rows(kind):
    best = index_layer.build(kind, np.eye(3, dtype=np.float32)).search(np.empty((0, 3), dtype=np.float32), k=2)
    assert best.ids.shape == best.scores.shape == (0, 2)


@kinds
def test_no_labels_give_padding_until_some_are_added(kind):
    index = index_layer.build(kind, np.empty((0, 3), dtype=np.float32))
    query = np.array([[1, 2, 3]], dtype=np.float32)
    assert index.search(query, k=2).ids.tolist() == [[-1, -1]]
    assert index.add(np.eye(3, dtype=np.float32)).tolist() == [0, 1, 2]
    assert index.search(query, k=2).ids.tolist() == [[2, 1]]


@kinds
def test_added_labels_are_found_under_new_ids(kind):
    vectors = random_vectors(500, 16)
    index = index_layer.build(kind, vectors[:300])
    assert index.add(vectors[300:450]).tolist() == list(range(300, 450))
    assert index.add(torch.from_numpy(vectors[450:])).tolist() == list(range(450, 500))
    assert (index.num_labels, index.num_ids) == (500, 500)
    best = index.search(vectors[::7], k=10)
    assert recall(best.ids, brute_force(vectors[::7], vectors, 10)[0]) >= (1 if kind == "exact" else 0.98)


@kinds
def test_removed_labels_are_never_returned_and_the_others_keep_their_ids(kind):
    vectors = random_vectors(400, 16)
    index = index_layer.build(kind, vectors)
    removed = np.arange(0, 400, 3)
    index.remove(removed[:70])
    index.remove(removed[50:])
    assert (index.num_labels, index.num_ids) == (400 - len(removed), 400)
    kept = np.setdiff1d(np.arange(400), removed)
    best = index.search(vectors[:50], k=10)
    wanted = kept[brute_force(vectors[:50], vectors[kept], 10)[0]]
    assert not np.isin(best.ids, removed).any()
    assert recall(best.ids, wanted) >= (1 if kind == "exact" else 0.98)
    assert index.add(vectors[:1]).tolist() == [400]


@kinds
def test_when_few_labels_remain_all_of_them_are_found(kind):
    index = index_layer.build(kind, random_vectors(600, 8))
    index.remove(np.arange(2, 600))
    best = index.search(random_vectors(20, 8, seed=1), k=3)
    assert (np.sort(best.ids, axis=1) == [-1, 0, 1]).all()


@kinds
@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_allowed_and_forbidden_labels(kind, share):
    vectors, queries = random_vectors(1000, 16), random_vectors(30, 16, seed=1)
    allowed = np.random.default_rng(2).permutation(1000)[: int(1000 * share)]
    forbidden = allowed[::2]
    kept = np.sort(np.setdiff1d(allowed, forbidden))
    best = index_layer.build(kind, vectors).search(queries, k=5, allowed=allowed, forbidden=forbidden)
    assert recall(best.ids, kept[brute_force(queries, vectors[kept], 5)[0]]) >= (1 if kind == "exact" else 0.98)
    assert np.isin(best.ids, kept).all()


@kinds
def test_a_saved_index_answers_the_same_whatever_its_kind(kind, tmp_path):
    vectors, queries = random_vectors(300, 16), random_vectors(20, 16, seed=1)
    index = index_layer.build(kind, vectors[:250])
    index.add(vectors[250:])
    index.remove([3, 299])
    index.save(tmp_path / "index")
    again = index_layer.load(tmp_path / "index")
    assert type(again) is type(index)
    assert (again.num_labels, again.num_ids, again.dim) == (298, 300, 16)
    wanted, found = index.search(queries, k=7), again.search(queries, k=7)
    assert found.ids.tolist() == wanted.ids.tolist()
    # Blocks are cut elsewhere after loading, so the last bit of a score may differ.
    assert found.scores == pytest.approx(wanted.scores, rel=1e-5)


@kinds
def test_an_index_can_be_saved_over_the_files_it_was_loaded_from(kind, tmp_path):
    vectors = random_vectors(200, 8)
    index_layer.build(kind, vectors[:100]).save(tmp_path / "index")
    index = index_layer.load(tmp_path / "index")
    index.add(vectors[100:])
    index.save(tmp_path / "index")
    assert [file.name for file in tmp_path.iterdir()] == ["index"]
    again = index_layer.load(tmp_path / "index")
    assert again.search(vectors, k=1).ids.tolist() == index.search(vectors, k=1).ids.tolist()
    assert again.num_ids == 200


@kinds
def test_an_empty_index_is_saved_and_loaded(kind, tmp_path):
    index_layer.build(kind, np.empty((0, 3), dtype=np.float32)).save(tmp_path / "index")
    again = index_layer.load(tmp_path / "index")
    assert (again.num_labels, again.dim) == (0, 3)


@kinds
def test_manifest_tells_kind_size_and_settings(kind, tmp_path):
    chosen = {"disk": {"probes": 8}, "exact": {}, "hnsw": {"m": 8}, "pq": {"probes": 8}}[kind]
    index_layer.build(kind, np.eye(3, dtype=np.float32), **chosen).save(tmp_path / "index")
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["num_ids"], manifest["dim"]) == (kind, 3, 3)
    assert manifest["settings"].items() >= chosen.items()


@kinds
def test_wrong_input_is_refused(kind):
    index = index_layer.build(kind, np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="text vectors must have 3 numbers per row like the index, but have 4"):
        index.search(np.zeros((1, 4), dtype=np.float32), k=1)
    with pytest.raises(
        ValueError, match=r"text vectors must have two dimensions \[number, dim\], but have shape \(3,\)"
    ):
        index.search(np.zeros(3, dtype=np.float32), k=1)
    with pytest.raises(ValueError, match="label vectors must have 3 numbers"):
        index.add(np.zeros((1, 2), dtype=np.float32))
    with pytest.raises(ValueError, match="k must be at least 1, but is 0"):
        index.search(np.zeros((1, 3), dtype=np.float32), k=0)
    with pytest.raises(ValueError, match="removed labels must be label ids below 3, but some are not: -1, 7"):
        index.remove([7, 1, -1])
    with pytest.raises(ValueError, match=r"forbidden labels must be label ids \(whole numbers\), but are float64"):
        index.search(np.zeros((1, 3), dtype=np.float32), k=1, forbidden=[0.5])


@kinds
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(kind, bad):
    vectors = np.eye(3, dtype=np.float32)
    index = index_layer.build(kind, vectors)
    vectors[1, 2] = bad
    for given_vectors in (vectors, torch.from_numpy(vectors)):
        with pytest.raises(ValueError, match="label vectors must be finite numbers, but row 1 is not"):
            index_layer.build(kind, given_vectors)
        with pytest.raises(ValueError, match="label vectors must be finite numbers, but row 1 is not"):
            index.add(given_vectors)
        with pytest.raises(ValueError, match="text vectors must be finite numbers, but row 1 is not"):
            index.search(given_vectors, k=1)
    assert index.num_ids == 3


@kinds
def test_damaged_folders_are_refused(kind, tmp_path):
    folder = tmp_path / "index"
    with pytest.raises(ModelError, match=r"must hold manifest\.json"):
        index_layer.load(folder)
    index_layer.build(kind, np.eye(3, dtype=np.float32)).save(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "num_ids": 4}))
    with pytest.raises(
        ModelError, match=r"must (have shape 4 x 3, but has|hold a graph of 4 vectors of 3 numbers .*, but holds) 3"
    ):
        index_layer.load(folder)
    (folder / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(ModelError, match="must have format 1, but has 99"):
        index_layer.load(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    data = folder / {"hnsw": "graph.faiss"}.get(kind, "vectors.npy")
    data.write_bytes(data.read_bytes()[:50])
    with pytest.raises(ModelError, match=r"build (the index|it) again"):
        index_layer.load(folder)
    with pytest.raises(ModelError, match="must be of an index"):
        (ExactIndex if kind == "hnsw" else HnswIndex).load(folder)


@kinds
def test_a_folder_with_other_files_is_not_replaced(kind, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ModelError, match="holds other files"):
        index_layer.build(kind, np.eye(3, dtype=np.float32)).save(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


@kinds
def test_unknown_settings_are_refused(kind):
    with pytest.raises(ConfigError, match=f"index '{kind}' does not know a setting.*'links'"):
        index_layer.build(kind, np.eye(3, dtype=np.float32), links=3)


def test_unknown_kinds_are_refused():
    with pytest.raises(ConfigError, match="must be one of disk, exact, hnsw, pq, but is 'annoy'"):
        index_layer.build("annoy", np.eye(3, dtype=np.float32))


def test_the_protocol_is_imported_without_torch_or_faiss():
    code = "import sys, unidex.index; print(sorted({'torch', 'faiss'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# The exact index.


# Arrays are searched by NumPy, tensors by torch.
both_forms = pytest.mark.parametrize("form", [np.asarray, torch.from_numpy], ids=["array", "tensor"])


@both_forms
@pytest.mark.parametrize("num_labels", [1, 31, 128, 129, 1000])
@pytest.mark.parametrize("k", [1, 10, 100])
def test_exact_equals_brute_force_over_many_blocks(monkeypatch, num_labels, k, form):
    small_blocks(monkeypatch, 256, 256 * 7)
    vectors, queries = random_vectors(num_labels, 12), random_vectors(40, 12, seed=1)
    best = search_exact(form(queries), form(vectors), k)
    ids, scores = brute_force(queries, vectors, k)
    num_found = min(k, num_labels)
    assert best.ids[:, :num_found].tolist() == ids.tolist()
    assert best.scores[:, :num_found] == pytest.approx(scores, rel=1e-4, abs=1e-5)
    assert (best.ids[:, num_found:] == -1).all()


@given(st.integers(1, 700), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_ties_go_to_the_lower_id_within_and_across_blocks(num_labels, num_values, k, seed):
    # Small whole numbers: every score is exact, and most labels tie.
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-num_values, num_values, size=(num_labels, 2)).astype(np.float32)
    queries = rng.integers(-2, 3, size=(9, 2)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, 128, 128 * 4)
        found = [search_exact(form(queries), form(vectors), k) for form in (np.asarray, torch.from_numpy)]
    ids, scores = brute_force(queries, vectors, k)
    for best in found:
        assert best.ids[:, : len(ids[0])].tolist() == ids.tolist()
        assert best.scores[:, : len(ids[0])].tolist() == scores.tolist()


@given(
    st.integers(1, 9),
    st.integers(1, 700),
    st.integers(1, 90),
    st.sampled_from([None, "most", "some", "all"]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_all_scores_at_once_give_the_places_of_the_running_best(num_texts, num_labels, k, hides, has_ties, seed):
    rng = np.random.default_rng(seed)
    # Some texts of zeros: all their labels tie.
    queries = rng.standard_normal((num_texts, 5)).astype(np.float32) * rng.integers(0, 2, size=(num_texts, 1))
    vectors = rng.standard_normal((num_labels, 5)).astype(np.float32)
    if has_ties:
        queries, vectors = queries.round(), vectors.round()
    share = {None: 0.0, "some": 0.3, "most": 0.9, "all": 1.0}[hides]
    forbidden = None if hides is None else np.flatnonzero(rng.random(num_labels) < share)
    index = ExactIndex.build(vectors[:-1])
    index.add(vectors[-1:])
    at_once = index.search(queries, k, forbidden=forbidden)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_search, "WHOLE_UP_TO", 0)
        running = index.search(torch.from_numpy(queries), k, forbidden=forbidden)
    assert at_once.ids.tolist() == running.ids.tolist()
    # Two libraries may round the last digit of a product differently.
    np.testing.assert_allclose(at_once.scores, running.scores, rtol=1e-5, atol=1e-6)
    assert at_once.scores.dtype == running.scores.dtype


@both_forms
@pytest.mark.parametrize("num_texts", [1, 5, 64])
@pytest.mark.parametrize("dim", [3, 64, 100])
def test_copies_of_a_vector_tie_wherever_they_stand(monkeypatch, num_texts, dim, form):
    # 40 vectors, each copied every 40 rows, also into the odd end: a copy that is rounded differently breaks the order.
    small_blocks(monkeypatch, 512, 512 * 64)
    vectors = random_vectors(40, dim)[np.arange(2011) % 40]
    best = search_exact(form(random_vectors(num_texts, dim, seed=1)), form(vectors), k=50)
    assert (np.diff(best.ids[:, :50]) == 40).all()
    assert (best.scores == best.scores[:, :1]).all()


def test_labels_in_ascending_order_of_score_are_all_seen(monkeypatch):
    small_blocks(monkeypatch, 128, 128 * 16)
    vectors = np.arange(1000, dtype=np.float32)[:, None]
    assert search_exact(np.ones((20, 1), dtype=np.float32), vectors, 3).ids.tolist() == [[999, 998, 997]] * 20


def test_a_text_of_zeros_gets_the_lowest_ids():
    best = search_exact(np.zeros((2, 4), dtype=np.float32), random_vectors(5000, 4), 6)
    assert best.ids.tolist() == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("share_allowed", [None, 0.1, 0.8])
def test_excluded_pairs_make_room_for_the_next(monkeypatch, share_allowed):
    small_blocks(monkeypatch, 256, 256 * 8)
    rng = np.random.default_rng(3)
    vectors, queries = random_vectors(900, 8), random_vectors(30, 8, seed=1)
    allowed = None if share_allowed is None else rng.permutation(900)[: int(900 * share_allowed)]
    scores = queries @ vectors.T
    # The best label of every text is excluded, with a value of zero, and many at random.
    excluded = sparse.lil_array((30, 900))
    excluded[np.arange(30), scores.argmax(axis=1)] = 1
    random_pairs = sparse.random_array((30, 900), density=0.2, rng=rng)
    pairs = sparse.csr_array(excluded.tocsr() + random_pairs)
    stored = pairs.toarray() != 0
    pairs.data[:] = 0
    best = search_exact(queries, vectors, 5, allowed=allowed, excluded=pairs)
    masked = np.where(stored, -np.inf, scores)
    if allowed is not None:
        masked[:, np.setdiff1d(np.arange(900), allowed)] = -np.inf
    assert best.ids.tolist() == np.argsort(-masked, axis=1, kind="stable")[:, :5].tolist()


def test_a_text_with_every_label_excluded_gets_padding():
    best = search_exact(np.ones((2, 2), dtype=np.float32), np.eye(2), 2, excluded=sparse.csr_array([[1, 1], [0, 1]]))
    assert best.ids.tolist() == [[-1, -1], [0, -1]]


def test_excluded_pairs_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"excluded pairs must have shape \(1, 2\), but have \(2, 1\)"):
        search_exact(np.ones((1, 2), dtype=np.float32), np.eye(2), 1, excluded=sparse.csr_array((2, 1)))


def test_exact_searches_a_mapped_file_without_copying_or_warning(tmp_path, recwarn):
    vectors = random_vectors(300, 8)
    np.save(tmp_path / "vectors.npy", vectors)
    mapped = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    index = ExactIndex.build(mapped)
    assert index._parts[0].ctypes.data == mapped.ctypes.data
    assert index.search(vectors, k=3).ids.tolist() == brute_force(vectors, vectors, 3)[0].tolist()
    assert list(recwarn) == []


def test_exact_takes_other_precisions_and_strides():
    vectors = random_vectors(50, 8)
    wanted = brute_force(vectors[::-1], vectors[::-1], 3)[0].tolist()
    assert search_exact(vectors[::-1].astype(np.float64), vectors[::-1], 3).ids.tolist() == wanted
    double = torch.from_numpy(vectors[::-1].copy()).double().requires_grad_()
    assert search_exact(double, double, 3).ids.tolist() == wanted


def test_nan_label_vectors_are_noticed_by_the_function_form():
    vectors = np.eye(3, dtype=np.float32)
    vectors[1, 1] = np.nan
    with pytest.raises(ValueError, match="scores must be numbers, but some are NaN"):
        search_exact(np.ones((1, 3), dtype=np.float32), vectors, 1)


def test_running_best_keeps_memory_to_the_candidates():
    best = RunningTopK(2, 3, torch.device("cpu"))
    # All of 4096 labels tie for both texts; the merge must not be as wide as the block.
    best.offer(slice(0, 2), torch.zeros(2, 4096), torch.arange(4096))
    best.offer(slice(1, 2), torch.ones(1, 128), torch.arange(4096, 4224))
    assert best.result().ids.tolist() == [[0, 1, 2], [4096, 4097, 4098]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_exact_on_a_device_equals_cpu():
    vectors, queries = two_halves(5000, 64), two_halves(100, 64, seed=1)
    wanted = ExactIndex.build(vectors).search(queries, k=10).ids.tolist()
    assert ExactIndex.build(vectors, device="cuda").search(queries, k=10).ids.tolist() == wanted
    assert search_exact(queries, vectors, 10, device="cuda").ids.tolist() == wanted


# The graph.


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_hnsw_finds_what_exact_finds(spread):
    vectors, rng = two_halves(4000, 64), np.random.default_rng(5)
    queries = two_halves(200, 64)
    vectors *= np.exp(spread * rng.standard_normal((4000, 1))).astype(np.float32)
    found = index_layer.build("hnsw", vectors).search(queries, k=10)
    wanted = index_layer.build("exact", vectors).search(queries, k=10)
    assert recall(found.ids, wanted.ids) >= 0.98
    same = found.ids == wanted.ids
    assert found.scores[same] == pytest.approx(wanted.scores[same], rel=1e-5)


@pytest.mark.parametrize("num_threads", [1, 4])
def test_hnsw_is_the_same_graph_whatever_the_number_of_threads(tmp_path, num_threads):
    vectors = two_halves(3000, 32)
    with threads(2):
        index_layer.build("hnsw", vectors, m=8, ef_construction=40).save(tmp_path / "first")
    with threads(num_threads):
        index_layer.build("hnsw", vectors, m=8, ef_construction=40).save(tmp_path / "second")
    assert (tmp_path / "first" / "graph.faiss").read_bytes() == (tmp_path / "second" / "graph.faiss").read_bytes()


def test_an_older_faiss_builds_on_one_thread_unless_told_otherwise():
    assert build_threads("1.12.0", deterministic=True) == 1
    assert build_threads("1.12.0", deterministic=False) is None
    assert build_threads("2.0.0.dev1", deterministic=True) is None


def test_the_number_of_threads_is_put_back():
    import faiss

    before = faiss.omp_get_max_threads()
    with threads(before + 1):
        assert faiss.omp_get_max_threads() == before + 1
    assert faiss.omp_get_max_threads() == before


def test_hnsw_settings_are_checked():
    for bad, match in (
        ({"m": 1}, "m must be a whole number >= 2, but is 1"),
        ({"ef_search": 0.5}, "ef_search must be a whole number >= 1, but is 0.5"),
        ({"deterministic": 1}, "deterministic must be true or false, but is 1"),
    ):
        with pytest.raises(ConfigError, match=match):
            index_layer.build("hnsw", np.eye(3, dtype=np.float32), **bad)
