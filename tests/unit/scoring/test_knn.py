import json
import mmap
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from unidex.errors import ModelError
from unidex.scoring import knn_pairs
from unidex.scoring import nearest_texts as nearest
from unidex.scoring.knn import KnnPart, softmax_shares
from unidex.scoring.knn_join import join_scores
from unidex.scoring.nearest_texts import NearestTexts
from unidex.storage import small_numbers
from unidex.storage.small_numbers import load_numbers, save_numbers
from unidex.topk import TopK

EYE = np.eye(3, dtype=np.float32)


def unit_vectors(number, dim, seed=0, num_centres=60):
    """Unit vectors around shared centres, as texts of shared topics are."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(9).standard_normal((num_centres, dim))
    vectors = centres[rng.integers(num_centres, size=number)] + 0.6 * rng.standard_normal((number, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def random_positives(num_texts, num_labels, seed=0, graded=False):
    rng = np.random.default_rng(seed)
    pairs = sparse.random_array((num_texts, num_labels), density=0.1, rng=rng, dtype=np.float32).tocsr()
    pairs.data[:] = rng.choice([0.25, 0.5, 1.0], size=pairs.nnz) if graded else 1
    return sparse.csr_array(pairs)


def slow_label_scores(queries, vectors, positives, num_neighbours, temperature, excluded):
    """The formula, text by text, in double precision; vectors are of halves, so that float16 keeps them as they are."""
    scores = np.zeros((len(queries), positives.shape[1]))
    for row, query in enumerate(queries.astype(np.float64)):
        similarity = vectors.astype(np.float64) @ query
        order = [n for n in np.argsort(-similarity, kind="stable") if n != excluded[row]][:num_neighbours]
        powers = np.exp((similarity[order] - similarity[order].max(initial=0)) / temperature)
        for n, power in zip(order, powers, strict=True):
            scores[row] += power / powers.sum() * positives[n]
    return scores


halves = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])


@st.composite
def problems(draw):
    """Vectors of halves (ties are frequent and sums exact), targets, and the texts left out."""
    num_texts, num_queries, dim, num_labels = (draw(st.integers(low, 6)) for low in (0, 0, 1, 1))

    def table(rows, columns, values):
        numbers = draw(st.lists(values, min_size=rows * columns, max_size=rows * columns))
        return np.array(numbers, dtype=np.float32).reshape(rows, columns)

    positives = table(num_texts, num_labels, st.sampled_from([0.0, 0.0, 0.5, 1.0]))
    excluded = draw(st.lists(st.integers(-1, num_texts - 1), min_size=num_queries, max_size=num_queries))
    return table(num_queries, dim, halves), table(num_texts, dim, halves), positives, np.array(excluded, dtype=int)


# What the nearest texts say.


@given(problems(), st.integers(1, 8), st.sampled_from([0.05, 0.5]))
def test_knn_scores_equal_the_formula(problem, num_neighbours, temperature):
    queries, vectors, positives, excluded = problem
    part = KnnPart.of(vectors, sparse.csr_array(positives), num_nearest=num_neighbours, temperature=temperature)
    found = part.label_scores(queries, excluded=excluded)
    wanted = slow_label_scores(queries, vectors, positives, num_neighbours, temperature, excluded)
    assert found.shape == wanted.shape
    assert found.toarray() == pytest.approx(wanted, abs=1e-5)
    assert found.has_sorted_indices
    assert found.dtype == np.float32


def test_a_train_text_is_its_own_neighbour_unless_excluded():
    part = KnnPart.of(EYE, sparse.csr_array(np.eye(3)), num_nearest=2)
    assert part.nearest(EYE).ids[:, 0].tolist() == [0, 1, 2]
    assert part.nearest(EYE, excluded=[0, 1, -1]).ids.tolist() == [[1, 2], [0, 2], [2, 0]]
    assert part.label_scores(EYE[:1], excluded=[0]).toarray().tolist() == [[0, 0.5, 0.5]]


def test_ties_go_to_the_lower_text():
    part = KnnPart.of(np.ones((5, 2), dtype=np.float32), sparse.csr_array(np.eye(5)), num_nearest=2)
    assert part.nearest(np.ones((1, 2), dtype=np.float32)).ids.tolist() == [[0, 1]]


def test_a_text_without_labels_takes_its_share_of_the_softmax():
    positives = sparse.csr_array(np.array([[1.0, 0.0], [0.0, 0.0]]))
    part = KnnPart.of(np.ones((2, 2), dtype=np.float32), positives)
    assert part.label_scores(np.ones((1, 2), dtype=np.float32)).toarray().tolist() == [[0.5, 0.0]]


def test_without_train_texts_there_are_no_scores_until_some_are_added():
    part = KnnPart.of(np.empty((0, 3), dtype=np.float32), sparse.csr_array((0, 2)))
    assert part.label_scores(EYE[:2]).nnz == 0
    assert part.nearest(EYE[:1], excluded=[-1]).ids.tolist() == [[-1] * 32]
    assert part.add(EYE[:1], sparse.csr_array(np.array([[0, 1]]))).tolist() == [0]
    assert part.label_scores(EYE[:1]).toarray().tolist() == [[0, 1]]


def test_hidden_labels_get_no_score():
    part = KnnPart.of(EYE, sparse.csr_array(np.ones((3, 4))))
    found = part.label_scores(EYE[:2], hidden_L=np.array([True, False, False, True]))
    assert [found.indices.tolist(), found.indptr.tolist()] == [[1, 2, 1, 2], [0, 2, 4]]
    assert found.data == pytest.approx(1)
    with pytest.raises(ValueError, match=r"one mark per label \(4\), but have \(3,\)"):
        part.label_scores(EYE, hidden_L=np.zeros(3, dtype=bool))


def test_new_texts_and_labels_need_no_training():
    part = KnnPart.of(EYE[:2], sparse.csr_array(np.eye(2)), num_nearest=1)
    with pytest.raises(ValueError, match=r"one column per label \(2\), but have 3; grow the part first"):
        part.add(EYE[2:], sparse.csr_array(np.array([[0, 0, 1]])))
    part.grow(3)
    assert part.add(torch.from_numpy(EYE[2:]), sparse.csr_array(np.array([[0, 0.5, 1]]))).tolist() == [2]
    assert (part.num_texts, part.num_labels, part.dim) == (3, 3, 3)
    assert part.label_scores(EYE).toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0.5, 1]]
    with pytest.raises(ValueError, match="at least 3, but is 2"):
        part.grow(2)


def test_what_does_not_fit_changes_nothing():
    part = KnnPart.of(EYE, sparse.csr_array(np.eye(3)))
    with pytest.raises(ValueError, match=r"one row per training text \(1\), but have 2"):
        part.add(EYE[:1], sparse.csr_array(np.eye(3))[:2])
    with pytest.raises(ValueError, match="must have 3 numbers"):
        part.add(np.ones((1, 2), dtype=np.float32), sparse.csr_array(np.ones((1, 3))))
    assert part.num_texts == 3
    assert part.label_scores(EYE).shape == (3, 3)
    with pytest.raises(ValueError, match=r"one id per text \(3\), but has shape \(2,\)"):
        part.nearest(EYE, excluded=[0, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_nearest": 0}, "num_nearest must be at least 1, but is 0"),
        ({"temperature": 0.0}, "temperature must be > 0, but is 0.0"),
        ({"temperature": np.nan}, "temperature must be > 0, but is nan"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        KnnPart.of(EYE, sparse.csr_array(np.eye(3)), **settings)


def test_numbers_beyond_float16_are_refused():
    with pytest.raises(ValueError, match="as float16 must be finite numbers, but row 1"):
        KnnPart.of(np.array([[1.0], [1e6]], dtype=np.float32), sparse.csr_array(np.ones((2, 1))))


def test_shares_are_a_softmax_however_large_the_scores():
    shares = softmax_shares(np.array([[900.0, 899.9, -np.inf], [-3.0, -np.inf, -np.inf]], dtype=np.float32), 0.05)
    assert shares == pytest.approx(np.array([[0.8808, 0.1192, 0], [1, 0, 0]]), abs=1e-3)
    assert softmax_shares(np.empty((2, 0), dtype=np.float32), 0.05).shape == (2, 0)


# Many texts: lists.


@pytest.mark.parametrize("dim", [64, 7])
def test_many_texts_are_found_in_lists(dim):
    vectors, queries = unit_vectors(9000, dim), unit_vectors(80, dim, seed=1)
    texts = NearestTexts.of(torch.from_numpy(vectors))
    assert texts._lists is not None
    found = texts.search(queries, 32)
    similarity = queries @ vectors.T
    wanted = np.argsort(-similarity, axis=1, kind="stable")[:, :32]
    recall = np.mean([np.isin(a, b).mean() for a, b in zip(wanted, found.ids, strict=True)])
    assert recall >= 0.9
    assert found.scores == pytest.approx(np.take_along_axis(similarity, found.ids, axis=1), abs=0.02)
    again = NearestTexts.of(vectors).search(queries, 32)
    assert (again.ids == found.ids).all()
    assert (again.scores == found.scores).all()


def test_few_texts_become_many_and_keep_their_ids():
    vectors = unit_vectors(9000, 16)
    texts = NearestTexts.of(vectors[:100])
    assert texts._lists is None
    assert texts.add(vectors[100:]).tolist() == list(range(100, 9000))
    assert texts.add(vectors[:3]).tolist() == [9000, 9001, 9002]
    assert (texts._lists is not None, len(texts)) == (True, 9003)
    found = texts.search(vectors[[7, 99, 100, 8999]], 1).ids[:, 0]
    assert found.tolist() == [7, 99, 100, 8999]
    # Equal texts are equally near, and the lower id comes first.
    assert texts.search(vectors[:3], 2).ids.tolist() == [[0, 9000], [1, 9001], [2, 9002]]


def test_places_in_lists_stay_empty_only_for_want_of_texts(monkeypatch):
    monkeypatch.setattr(nearest, "EXACT_UP_TO", 50)
    monkeypatch.setattr(nearest, "PROBED_LISTS", 1)
    texts = NearestTexts.of(unit_vectors(60, 8))
    found = texts.search(unit_vectors(5, 8, seed=1), 64).ids
    assert (np.sort(found, axis=1)[:, 4:] == np.arange(60)).all()
    assert (found[:, 60:] == -1).all()
    assert texts.search(np.empty((0, 8), dtype=np.float32), 4).ids.shape == (0, 4)


def test_vectors_without_a_difference_have_neighbours_too():
    zeros, same = np.zeros((9000, 8), dtype=np.float32), np.full((9000, 8), 0.5, dtype=np.float32)
    for vectors in (zeros, same, unit_vectors(9000, 8)):
        found = NearestTexts.of(vectors).search(np.stack([zeros[0], same[0]]), 40)
        assert found.ids[0].tolist() == list(range(40))
        assert (found.scores[0] == 0).all()
        assert len(set(found.ids[1].tolist()) - {-1}) == 40
        assert found.scores[1] == pytest.approx(vectors[found.ids[1]] @ same[0], abs=0.05)


def test_a_number_beyond_the_sample_of_k_means_is_not_cut():
    vectors = unit_vectors(9000, 8)
    for row in range(0, 9000, 997):
        vectors[row, 3] = 2
    queries = np.eye(8, dtype=np.float32)[3:4]
    found = NearestTexts.of(vectors).search(queries, 9000)
    assert sorted(found.ids[0, :10].tolist()) == list(range(0, 9000, 997))
    assert found.scores[0, :10] == pytest.approx(2, abs=0.02)


# In a folder.


@pytest.mark.parametrize("num_texts", [0, 40, 9000])
@pytest.mark.parametrize("graded", [False, True])
def test_a_saved_part_answers_the_same(num_texts, graded, tmp_path):
    positives = random_positives(num_texts, 20, graded=graded)
    part = KnnPart.of(unit_vectors(num_texts, 8), positives, num_nearest=5, temperature=0.1)
    part.save(tmp_path / "part")
    assert (tmp_path / "part" / "targets.npy").exists() == (graded and num_texts > 0)
    loaded = KnnPart.load(tmp_path / "part")
    assert (loaded.num_texts, loaded.num_labels, loaded.dim) == (num_texts, 20, 8)
    assert (loaded.num_nearest, loaded.temperature) == (5, 0.1)
    queries = unit_vectors(9, 8, seed=1)
    assert (loaded.label_scores(queries).toarray() == part.label_scores(queries).toarray()).all()
    for one in (part, loaded):
        one.grow(21)
        one.add(queries[:1], sparse.csr_array(([0.5], [20], [0, 1]), shape=(1, 21)))
    loaded.save(tmp_path / "part")
    after = KnnPart.load(tmp_path / "part").label_scores(queries).toarray()
    assert (after == part.label_scores(queries).toarray()).all()
    assert after[0, 20] > 0


def is_mapped(array):
    """Whether an array is a view of a file, through whatever other views."""
    while array is not None and not isinstance(array, (np.memmap, mmap.mmap)):
        array = getattr(array, "base", None)
    return array is not None


def test_many_pairs_are_mapped_and_can_be_saved_over_themselves(tmp_path, monkeypatch):
    monkeypatch.setattr(knn_pairs, "MAPPED_ABOVE", 1)
    monkeypatch.setattr(small_numbers, "MAPPED_FROM", 1)
    part = KnnPart.of(unit_vectors(40, 8), random_positives(40, 20, graded=True))
    part.save(tmp_path / "part")
    loaded = KnnPart.load(tmp_path / "part")
    assert all(is_mapped(array) for array in (loaded._positives.indices, loaded._positives.data))
    loaded.save(tmp_path / "part")
    queries = unit_vectors(3, 8, seed=1)
    again = KnnPart.load(tmp_path / "part").label_scores(queries).toarray()
    assert (again == part.label_scores(queries).toarray()).all()


def saved(folder, num_texts):
    KnnPart.of(unit_vectors(num_texts, 8), random_positives(num_texts, 20, graded=True)).save(folder)
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("num_texts", [40, 9000])
def test_a_damaged_part_is_refused(num_texts, tmp_path):
    for name in saved(tmp_path / "whole", num_texts):
        for damage in ("missing", "cut"):
            folder = tmp_path / f"{name}-{damage}"
            shutil.copytree(tmp_path / "whole", folder)
            content = (folder / name).read_bytes()
            (folder / name).unlink()
            if damage == "cut":
                (folder / name).write_bytes(content[: len(content) // 2])
            with pytest.raises(ModelError, match="again"):
                KnnPart.load(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("labels", lambda labels: labels + 20, "pairs of texts and labels below 20"),
        ("labels", lambda labels: labels - 1000, "pairs of texts and labels below 20"),
        ("labels", lambda labels: labels.astype(float), "of type float64, not int32"),
        ("starts", lambda starts: starts[::-1].copy(), "pairs of texts and labels below 20"),
        ("targets.npy", lambda targets: targets * np.nan, "finite float32"),
        ("vectors.npy", lambda vectors: vectors.astype(int), "must hold float16, but holds int64"),
        ("vectors.npy", lambda vectors: vectors * np.float16(np.inf), "finite"),
    ],
)
def test_numbers_that_cannot_be_are_refused(name, change, message, tmp_path):
    saved(tmp_path / "part", 40)
    file = tmp_path / "part" / name
    if file.suffix:
        np.save(file, change(np.load(file)))
    else:
        save_numbers(file, change(load_numbers(file, (None,), np.int32)))
    with pytest.raises(ModelError, match=message):
        KnnPart.load(tmp_path / "part")


def test_a_manifest_without_its_settings_is_refused(tmp_path):
    saved(tmp_path / "part", 40)
    file = tmp_path / "part" / "manifest.json"
    whole = json.loads(file.read_text())
    for name, value in [("num_labels", None), ("temperature", -1), ("num_neighbours", "many")]:
        file.write_text(json.dumps({**whole, "settings": {**whole["settings"], name: value}}))
        with pytest.raises(ModelError, match="not a whole kNN part"):
            KnnPart.load(tmp_path / "part")


# Both scores together.


def slow_join(dense, found, said, weight, k):
    rows = []
    for row in range(len(found)):
        labels = {label for label in found.ids[row].tolist() if label >= 0} | set(said[[row]].indices.tolist())
        values = said[[row]].toarray()[0]
        scores = {label: np.float32(dense[row, label]) + np.float32(weight) * values[label] for label in labels}
        best = sorted(labels, key=lambda label, scores=scores: (-scores[label], label))[:k]
        rows.append([(label, scores[label]) for label in best] + [(-1, -np.inf)] * (k - len(best)))
    return np.array(rows, dtype=float).reshape(len(found), k, 2)


@st.composite
def joins(draw):
    """Scores of quarters, of which ties are frequent and sums exact."""
    num_texts, num_labels, num_found = draw(st.integers(0, 4)), draw(st.integers(1, 7)), draw(st.integers(1, 9))

    def table(values):
        size = num_texts * num_labels
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=np.float32).reshape(-1, num_labels)

    dense = table(st.sampled_from([-0.75, -0.25, 0.0, 0.25, 0.5, 1.0]))
    said = sparse.csr_array(table(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])))
    found = TopK.rank(np.tile(np.arange(num_labels), (num_texts, 1)), dense).first(num_found)
    return dense, said, found


@given(joins(), st.sampled_from([0.0, 0.5, 2.0]), st.integers(1, 9) | st.none(), st.booleans())
def test_joined_scores_are_those_of_the_union(join, weight, k, found_is_best):
    dense, said, found = join
    joined = join_scores(found, said, weight, lambda x, y: dense[x, y], k=k, found_is_best=found_is_best)
    wanted = slow_join(dense, found, said, weight, found.k if k is None else k)
    assert joined.ids.tolist() == wanted[..., 0].tolist()
    assert joined.scores.tolist() == wanted[..., 1].tolist()


@given(joins(), st.data())
def test_labels_that_the_index_missed_come_from_the_knn_part(join, data):
    dense, said, found = join
    hidden = np.array(data.draw(st.lists(st.booleans(), min_size=found.ids.size, max_size=found.ids.size)), dtype=bool)
    found = TopK.rank(found.ids, np.where(hidden.reshape(found.ids.shape), -np.inf, found.scores))
    joined = join_scores(found, said, 0.5, lambda x, y: dense[x, y])
    wanted = slow_join(dense, found, said, 0.5, found.k)
    assert joined.ids.tolist() == wanted[..., 0].tolist()
    assert joined.scores.tolist() == wanted[..., 1].tolist()


def test_only_labels_that_may_enter_are_asked_for():
    found = TopK.rank([[0, 1]], [[0.9, 0.5]])
    said = sparse.csr_array(np.array([[0.0, 0.1, 0.6, 0.3, 0.05]]))
    asked = []

    def score_of(texts, labels):
        asked.append((texts.tolist(), labels.tolist()))
        return np.full(len(texts), 0.5)

    join_scores(found, said, 1.0, score_of)
    join_scores(found, said, 1.0, score_of, found_is_best=True)
    join_scores(found, said, 1.0, score_of, k=1, found_is_best=True)
    # The second place has 0.6 already; label 4 could have 0.55 at most. The first has 0.9: only label 2 may pass it.
    assert asked == [([0, 0, 0], [2, 3, 4]), ([0, 0], [2, 3]), ([0], [2])]


def test_invalid_joins_are_refused():
    found, said = TopK.rank([[0]], [[0.5]]), sparse.csr_array(np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"one row per text \(1\), but have 2"):
        join_scores(found, said, 1.0, lambda texts, labels: np.zeros(len(texts)))
    with pytest.raises(ValueError, match="weight of kNN scores must be a number >= 0, but is -1"):
        join_scores(found, said[:1], -1.0, lambda texts, labels: np.zeros(len(texts)))
