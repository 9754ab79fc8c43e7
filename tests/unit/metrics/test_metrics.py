import doctest
import io
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.paths import DOCS
from unidex.data.dataset import Propensity
from unidex.errors import DataError
from unidex.metrics import evaluation as evaluation_module
from unidex.metrics.bins import contributions, frequency_bins, frequency_classes
from unidex.metrics.evaluation import DEFAULT_KS, METRICS, Evaluation
from unidex.metrics.propensity import inverse_propensity
from unidex.metrics.ranked_lists import LabelWeights, best_gains, hits, ndcg, precision, reciprocal_rank
from unidex.topk import TopK


def naive(lists, truths, removed, frequencies, num_train, a, b, ks, drop=False):
    """Every metric in percent, a text at a time, from the formulas. A list is of (label, score) in any order."""
    c = max(math.log(max(num_train, 1)) - 1, 0) * (b + 1) ** a
    weight = [1 + c / (n + b) ** a for n in frequencies]
    ranked = []
    for row, pairs in enumerate(lists):
        left = [(label, score) for label, score in pairs if label not in removed[row]]
        ranked.append([label for label, _ in sorted(left, key=lambda pair: (-pair[1], pair[0]))])
    counted = [row for row in range(len(truths)) if truths[row] or not drop]
    found = {}
    for k in ks:
        sums = dict.fromkeys(METRICS, 0.0)
        best = dict.fromkeys(("PSP", "PSnDCG", "PSR"), 0.0)
        covered = set()
        for row in counted:
            truth, top = truths[row], ranked[row][:k]
            if not truth:
                continue
            right = [(place, label) for place, label in enumerate(top, 1) if label in truth]
            covered |= {label for _, label in right}
            norm = sum(1 / math.log2(j + 1) for j in range(1, min(k, len(truth)) + 1))
            ideal = list(enumerate(sorted((weight[label] for label in truth), reverse=True)[:k], 1))
            sums["P"] += len(right) / k
            sums["R"] += len(right) / len(truth)
            sums["F1"] += 2 * len(right) / (k + len(truth))
            sums["nDCG"] += sum(1 / math.log2(place + 1) for place, _ in right) / norm
            sums["hits"] += bool(right)
            sums["MRR"] += 1 / right[0][0] if right else 0
            sums["PSP"] += sum(weight[label] for _, label in right) / k
            sums["PSR"] += sum(weight[label] for _, label in right) / len(truth)
            sums["PSnDCG"] += sum(weight[label] / math.log2(place + 1) for place, label in right) / norm
            best["PSP"] += sum(w for _, w in ideal) / k
            best["PSR"] += sum(w for _, w in ideal) / len(truth)
            best["PSnDCG"] += sum(w / math.log2(place + 1) for place, w in ideal) / norm
        distinct = set().union(*truths)
        for metric in ("P", "nDCG", "R", "F1", "hits", "MRR"):
            found[f"{metric}@{k}"] = 100 * sums[metric] / len(counted)
        for metric in best:
            found[f"{metric}@{k}"] = 100 * sums[metric] / best[metric] if best[metric] else 0.0
        found[f"coverage@{k}"] = 100 * len(covered) / len(distinct) if distinct else 0.0
    return found


def matrix(rows, num_labels, values=None):
    dense = np.zeros((len(rows), num_labels))
    for row, labels in enumerate(rows):
        for label in labels:
            dense[row, label] = 1.0 if values is None else values[row, label]
    return sparse.csr_array(dense)


def topk_of(lists):
    width = max((len(pairs) for pairs in lists), default=0)
    ids = np.full((len(lists), width), -1)
    scores = np.full((len(lists), width), -np.inf)
    for row, pairs in enumerate(lists):
        for place, (label, score) in enumerate(pairs):
            ids[row, place], scores[row, place] = label, score
    return TopK.rank(ids, scores)


@st.composite
def problems(draw):
    num_labels = draw(st.integers(1, 8))
    num_rows = draw(st.integers(1, 7))
    label = st.integers(0, num_labels - 1)
    # Few different scores, so that ties are common; below zero as cosines are.
    score = st.sampled_from([-1.0, -0.25, 0.0, 0.5])
    lists = [
        [(one, draw(score)) for one in draw(st.lists(label, unique=True, max_size=num_labels))] for _ in range(num_rows)
    ]
    truths = [draw(st.sets(label)) for _ in range(num_rows)]
    removed = [draw(st.sets(label, max_size=2)) for _ in range(num_rows)]
    frequencies = draw(st.lists(st.integers(0, 300), min_size=num_labels, max_size=num_labels))
    return lists, truths, removed, frequencies, draw(st.integers(0, 5000))


def close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


@given(problems(), st.sampled_from([(0.55, 1.5), (0.6, 2.6), (0.5, 0.4)]), st.booleans())
def test_every_metric_agrees_with_the_formulas(problem, constants, drop):
    lists, truths, removed, frequencies, num_train = problem
    if drop and not any(truths):
        truths[0] = {0}
    ks = [1, 2, 3, 5, 20]
    evaluation = Evaluation(
        frequencies, num_train, Propensity(*constants), ks, rows_without_truth="drop" if drop else "zero"
    )
    num_labels = len(frequencies)
    evaluation.add(topk_of(lists), matrix(truths, num_labels), matrix(removed, num_labels))
    close(evaluation.results(), naive(lists, truths, removed, frequencies, num_train, *constants, ks, drop))


@given(problems(), st.data())
def test_any_cut_into_batches_and_parts_gives_the_same(problem, data):
    lists, truths, removed, frequencies, num_train = problem
    whole, truth, filtered = topk_of(lists), matrix(truths, len(frequencies)), matrix(removed, len(frequencies))
    one = Evaluation(frequencies, num_train, ks=[1, 3, 5])
    one.add(whole, truth, filtered)
    cuts = sorted({0, len(lists), *data.draw(st.lists(st.integers(0, len(lists)), max_size=4))})
    parts = [Evaluation(frequencies, num_train, ks=[1, 3, 5]) for _ in range(2)]
    for start, stop in pairwise(cuts):
        part = data.draw(st.sampled_from(parts))
        part.add(whole.rows(start, stop), truth[start:stop], filtered[start:stop])
    merged = Evaluation.from_state(parts[0].state())
    merged.merge(Evaluation.from_state(parts[1].state()))
    close(merged.results(), one.results())
    assert merged.bins(5) == one.bins(5)
    assert merged.num_places == one.num_places


def test_blocks_inside_a_batch_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    ids = np.argsort(rng.random((200, 30)), axis=1)[:, :6]
    topk = TopK.rank(ids, rng.normal(size=ids.shape))
    truth = sparse.csr_array((rng.random((200, 30)) < 0.1).astype(float))
    filtered = sparse.csr_array(rng.random((200, 30)) < 0.05)

    def run():
        evaluation = Evaluation(rng_frequencies, 500, ks=[1, 5])
        evaluation.add(topk, truth, filtered)
        return evaluation.results()

    rng_frequencies = rng.integers(0, 50, 30)
    whole = run()
    monkeypatch.setattr(evaluation_module, "_BLOCK_PLACES", 50)
    close(run(), whole)
    assert whole["P@5"] > 0


def test_state_is_plain_arrays_of_numbers_that_survive_a_file():
    evaluation = Evaluation([3, 0], 10, Propensity(0.6, 2.6), rows_without_truth="drop")
    evaluation.add(TopK.rank([[0], [1]], [[1.0], [1.0]]), sparse.csr_array(np.array([[1, 0], [0, 0]])))
    state = evaluation.state()
    assert all(array.dtype.kind in "bif" for array in state.values())
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        again = Evaluation.from_state(dict(saved))
    assert again.results() == evaluation.results()
    assert again.state().keys() == state.keys()
    # A state is a copy: what is added later does not reach it.
    evaluation.add(TopK.rank([[0]], [[1.0]]), sparse.csr_array(np.array([[1, 0]])))
    assert (state["num_rows"], state["num_rows_with_truth"]) == (2, 1)
    assert int(state["label_truth"].sum()) == 1


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Evaluation([1, 2], 6), "num_train"),
        (Evaluation([1, 3], 5), "label_frequencies"),
        (Evaluation([1, 2, 3], 5), "label_frequencies"),
        (Evaluation([1, 2], 5, Propensity(0.6, 2.6)), "propensity"),
        (Evaluation([1, 2], 5, ks=[1]), "ks"),
        (Evaluation([1, 2], 5, ks=DEFAULT_KS), "asked"),
        (Evaluation([1, 2], 5, rows_without_truth="drop"), "drop_rows_without_truth"),
    ],
)
def test_only_evaluations_of_one_kind_merge(other, named):
    with pytest.raises(ValueError, match=f"same settings, but differ in .*{named}"):
        Evaluation([1, 2], 5).merge(other)


def test_default_metrics_are_those_the_lists_are_long_enough_for():
    num_labels = 200
    truth = matrix([{0}], num_labels)

    def names(num_places, **more):
        evaluation = Evaluation(np.ones(num_labels, dtype=int), 10, **more)
        ids = np.arange(num_places)[None, :]
        evaluation.add(TopK.rank(ids, -ids.astype(float)), truth)
        return set(evaluation.results())

    everything = {f"{metric}@{k}" for metric, ks in DEFAULT_KS.items() for k in ks}
    assert names(100) == everything
    assert names(10) == everything - {"R@100"}
    assert names(5) == everything - {"R@100", "R@10", "MRR@10"}
    assert names(5, ks={"R": [100]}) == {"R@100"}
    assert names(1, ks=[1, 2]) == {f"{metric}@{k}" for metric in METRICS for k in (1, 2)}


def test_a_list_of_all_labels_is_long_enough_for_any_k():
    evaluation = Evaluation([1, 1], 10)
    evaluation.add(TopK.rank([[0, 1]], [[0.2, 0.1]]), sparse.csr_array(np.array([[0, 1]])))
    found = evaluation.results()
    assert found["R@100"] == 100
    assert found["P@5"] == pytest.approx(20)


def test_the_shortest_batch_decides_what_is_reported():
    evaluation = Evaluation(np.ones(9, dtype=int), 10)
    evaluation.add(TopK.rank(np.arange(5)[None], -np.arange(5.0)[None]), matrix([{0}], 9))
    evaluation.add(TopK.rank([[1, 2, 3]], [[3.0, 2.0, 1.0]]), matrix([{1}], 9))
    # A batch without texts says nothing about the length of lists.
    evaluation.add(TopK.rank(np.empty((0, 1), int), np.empty((0, 1))), sparse.csr_array((0, 9)))
    assert evaluation.num_places == 3
    assert "P@3" in evaluation.results()
    assert "P@5" not in evaluation.results()


def test_values_are_binary_and_stored_zeros_are_not_positives():
    graded = sparse.csr_array((np.array([0.3, 0.0, -1.0]), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    evaluation = Evaluation([1, 1, 1], 3, ks=[3])
    evaluation.add(TopK.rank([[0, 1, 2]], [[3.0, 2.0, 1.0]]), graded)
    found = evaluation.results()
    assert found["R@3"] == 100
    assert found["P@3"] == pytest.approx(100 / 3)
    assert found["MRR@3"] == pytest.approx(100 / 3)


def test_unsorted_and_repeated_columns_of_the_truth_count_once():
    truth = sparse.csr_array((np.ones(3), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    evaluation = Evaluation([1, 1, 1], 3, ks=[2])
    evaluation.add(TopK.rank([[2, 1]], [[2.0, 1.0]]), truth)
    assert evaluation.results()["R@2"] == 50
    assert truth.indices.tolist() == [2, 0, 2]


def test_filter_pairs_leave_predictions_but_not_the_truth():
    truth = sparse.csr_array(np.array([[1, 1, 0]]))
    pairs = sparse.csr_array(np.array([[True, False, False]]))
    evaluation = Evaluation([1, 1, 1], 3, ks={"P": [1], "R": [2]})
    evaluation.add(TopK.rank([[0, 1]], [[-1.0, -2.0]]), truth, pairs)
    assert evaluation.results() == {"P@1": 100.0, "R@2": 50.0}


def test_ties_of_lists_made_elsewhere_go_to_the_lower_id():
    tied = TopK(np.array([[2, 0]]), np.array([[0.5, 0.5]], dtype=np.float32))
    evaluation = Evaluation([1, 1, 1], 3, ks={"P": [1]})
    evaluation.add(tied, sparse.csr_array(np.array([[1, 0, 0]])))
    assert evaluation.results() == {"P@1": 100.0}


def test_rows_without_truth_count_as_zero_or_not_at_all():
    truth = sparse.csr_array(np.array([[1, 0], [0, 0]]))
    found = {}
    for rule in ("zero", "drop"):
        evaluation = Evaluation([1, 1], 5, ks=[1], rows_without_truth=rule)
        evaluation.add(TopK.rank([[0], [0]], [[1.0], [1.0]]), truth)
        found[rule] = evaluation.results()
        assert sum(part.contribution for part in evaluation.classes(1)) == found[rule]["P@1"]
    assert (found["zero"]["P@1"], found["drop"]["P@1"]) == (50, 100)
    assert found["zero"]["PSP@1"] == found["drop"]["PSP@1"] == 100
    with pytest.raises(ValueError, match="must be zero or drop, but is 'skip'"):
        Evaluation([1], 1, rows_without_truth="skip")


def test_no_text_has_a_positive():
    evaluation = Evaluation([1, 1], 5, ks=[1, 2])
    evaluation.add(TopK.rank([[0]], [[1.0]]), sparse.csr_array((1, 2)))
    assert set(evaluation.results().values()) == {0.0}
    dropping = Evaluation([1, 1], 5, rows_without_truth="drop")
    dropping.add(TopK.rank([[0]], [[1.0]]), sparse.csr_array((1, 2)))
    with pytest.raises(DataError, match="at least one text with positives"):
        dropping.results()


def test_an_empty_split_is_refused_only_when_results_are_asked_for():
    evaluation = Evaluation([1, 1], 5)
    evaluation.add(TopK.rank(np.empty((0, 5), int), np.empty((0, 5))), sparse.csr_array((0, 2)))
    with pytest.raises(DataError, match="at least one text, but none was added; is the split empty"):
        evaluation.results()


def test_lists_without_places_miss_everything():
    evaluation = Evaluation([1, 1], 5, ks=[1])
    evaluation.add(TopK.rank(np.empty((1, 0), int), np.empty((1, 0))), sparse.csr_array(np.array([[1, 0]])))
    assert set(evaluation.results().values()) == {0.0}


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        ([[0, 1], [1, 3]], [[2.0, 1.0], [2.0, 1.0]], "below 3, but is 3 in row 5; are these"),
        ([[0, 1], [1, 1]], [[2.0, 1.0], [2.0, 1.0]], "label 1 comes twice in row 5"),
        ([[0, 1], [1, 0]], [[2.0, 1.0], [2.0, np.nan]], "one in row 5 is NaN"),
    ],
)
def test_bad_predictions_are_refused_and_not_counted(ids, scores, message):
    evaluation = Evaluation([1, 1, 1], 3, ks=[1])
    good = TopK.rank([[0], [0], [0], [0]], np.ones((4, 1)))
    evaluation.add(good, matrix([{0}] * 4, 3))
    with pytest.raises(DataError, match=message):
        evaluation.add(TopK(np.array(ids), np.array(scores, dtype=np.float32)), matrix([{0}, {1}], 3))
    assert evaluation.num_rows == 4
    assert evaluation.results()["P@1"] == 100


def test_padding_may_repeat():
    evaluation = Evaluation([1, 1, 1], 3, ks={"P": [3]})
    evaluation.add(TopK.rank([[1, -1, -1]], [[1.0, 0.0, 0.0]]), matrix([{1}], 3))
    assert evaluation.results()["P@3"] == pytest.approx(100 / 3)


def test_shapes_must_agree():
    evaluation = Evaluation([1, 1], 5)
    topk = TopK.rank([[0]], [[1.0]])
    with pytest.raises(ValueError, match=r"truth must have 1 rows .* 2 columns \(labels\), but have 2 and 2"):
        evaluation.add(topk, sparse.csr_array((2, 2)))
    with pytest.raises(ValueError, match="filter pairs must have 1 rows"):
        evaluation.add(topk, sparse.csr_array((1, 2)), sparse.csr_array((1, 3)))


def test_asked_metrics_must_exist_and_have_a_place():
    with pytest.raises(ValueError, match="but F2 was asked for"):
        Evaluation([1], 1, ks={"F2": [1]})
    with pytest.raises(ValueError, match="k must be at least 1, but is 0"):
        Evaluation([1], 1, ks=[0, 1])
    for function in (lambda: precision(np.zeros((1, 1)), 0), lambda: reciprocal_rank(np.zeros((1, 1), bool), -1)):
        with pytest.raises(ValueError, match="k must be at least 1"):
            function()


def test_a_huge_k_needs_no_memory_of_that_size():
    evaluation = Evaluation([1, 1], 5, ks=[10**12])
    evaluation.add(TopK.rank([[1, 0]], [[1.0, 0.5]]), sparse.csr_array(np.array([[1, 1]])))
    found = evaluation.results()
    assert found[f"nDCG@{10**12}"] == pytest.approx(100)
    assert found[f"PSR@{10**12}"] == pytest.approx(100)
    assert found[f"P@{10**12}"] == pytest.approx(2e-10)


def test_propensity_scored_metrics_are_a_ratio_of_means():
    # Weights 1 + C/(n + 1) with C = 2 (ln 20 - 1): label 0 of 0 texts weighs 4.9915, label 1 of 9 texts 1.3991.
    weights = inverse_propensity([0, 9], 20, Propensity(1.0, 1.0))
    assert weights.round(4).tolist() == [4.9915, 1.3991]
    evaluation = Evaluation([0, 9], 20, Propensity(1.0, 1.0), ks={"PSP": [1]})
    evaluation.add(TopK.rank([[1], [1]], [[1.0], [1.0]]), sparse.csr_array(np.array([[1, 0], [0, 1]])))
    # (0 + 1.3991) / (4.9915 + 1.3991); a mean of ratios would be 50.
    assert evaluation.results()["PSP@1"] == pytest.approx(100 * 1.3991 / (4.9915 + 1.3991), abs=1e-2)


def test_weights_fall_with_frequency_and_are_never_below_one():
    falling = inverse_propensity(np.arange(1000), 5000)
    assert np.all(np.diff(falling) < 0)
    for num_train in (0, 1, 2):
        assert inverse_propensity([0, 1], num_train).tolist() == [1.0, 1.0]
    assert inverse_propensity([1], 3)[0] > 1


def test_propensity_of_an_unseen_label_needs_b():
    with pytest.raises(DataError, match=r"B must be > 0 .* but is 0 and label 1 has none"):
        inverse_propensity([1, 0], 10, Propensity(0.5, 0.0))
    assert np.isfinite(inverse_propensity([1, 2], 10, Propensity(0.5, 0.0))).all()


@pytest.mark.parametrize("bad", [[0.5], [[1]], [-1]])
def test_frequencies_are_counts(bad):
    with pytest.raises(ValueError, match="whole numbers >= 0"):
        inverse_propensity(bad, 10)


@given(
    st.lists(st.one_of(st.integers(0, 5), st.integers(0, 10000)), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_bins_have_about_equal_volume(frequencies, num_bins):
    frequencies = np.array(frequencies)
    bins = frequency_bins(frequencies, num_bins)
    total = frequencies.sum()
    # In order of falling frequency, bins never go back, and a bin passes its share by less than its last label.
    order = np.argsort(-frequencies, kind="stable")
    assert np.all(np.diff(bins[order]) >= 0)
    assert bins.max() < num_bins
    for number in range(num_bins):
        inside = frequencies[bins == number]
        if len(inside):
            assert inside.sum() < total / num_bins + inside.max() + 1e-9
    assert np.all(bins[frequencies == 0] == num_bins - 1)


def test_bins_by_hand():
    # 20 in all, 4 a bin: 6 begins at 0, 4 at 6, 3 at 10, 3 at 13, 2 at 16, 1 at 18, 1 at 19.
    assert frequency_bins(np.array([6, 4, 3, 3, 2, 1, 1])).tolist() == [0, 1, 2, 3, 4, 4, 4]
    assert frequency_bins(np.zeros(3, dtype=int)).tolist() == [4, 4, 4]
    with pytest.raises(ValueError, match="at least one bin"):
        frequency_bins(np.ones(3, dtype=int), 0)


@given(problems())
def test_contributions_add_up_to_precision(problem):
    lists, truths, removed, frequencies, num_train = problem
    evaluation = Evaluation(frequencies, num_train, ks=[1, 5])
    num_labels = len(frequencies)
    evaluation.add(topk_of(lists), matrix(truths, num_labels), matrix(removed, num_labels))
    for k in (1, 5):
        for parts in (evaluation.bins(k), evaluation.bins(k, num_bins=3), evaluation.classes(k)):
            whole = evaluation.results()[f"P@{k}"]
            assert sum(part.contribution for part in parts) == pytest.approx(whole, rel=1e-12, abs=1e-12)
            assert sum(part.num_hits for part in parts) == round(whole / 100 * k * len(lists))
            assert sum(part.num_labels for part in parts) == num_labels
            assert sum(part.mean_frequency * part.num_labels for part in parts) == pytest.approx(sum(frequencies))


def test_classes_by_hand():
    frequencies = np.array([500, 100, 10, 9, 0])
    evaluation = Evaluation(frequencies, 1000, ks={"P": [2]})
    truth = sparse.csr_array(np.array([[1, 0, 0, 1, 0], [0, 1, 0, 0, 1]]))
    evaluation.add(TopK.rank([[0, 3], [4, 0]], [[2.0, 1.0], [2.0, 1.0]]), truth)
    head, torso, tail = evaluation.classes(2)
    assert (head.name, head.num_labels, head.mean_frequency, head.contribution) == ("head", 1, 500.0, 25.0)
    assert (torso.name, torso.num_labels, torso.mean_frequency, torso.contribution) == ("torso", 2, 55.0, 0.0)
    assert (tail.name, tail.num_labels, tail.mean_frequency, tail.contribution) == ("tail", 2, 4.5, 50.0)
    with pytest.raises(ValueError, match=r"k is 5 and counted were \[2\]"):
        evaluation.bins(5)


def test_a_group_without_labels_is_shown_as_empty():
    groups = frequency_classes(np.array([500]))
    parts = contributions(groups, ["head", "torso", "tail"], np.array([500]), np.array([2]), 1, 2)
    assert [(part.num_labels, part.mean_frequency, part.contribution) for part in parts] == [
        (1, 500.0, 100.0),
        (0, 0.0, 0.0),
        (0, 0.0, 0.0),
    ]


def test_unseen_labels_can_be_hit():
    evaluation = Evaluation([0, 4], 100, ks=[1])
    evaluation.add(TopK.rank([[0]], [[-3.0]]), sparse.csr_array(np.array([[1, 0]])))
    assert set(evaluation.results().values()) == {100.0}
    assert evaluation.classes(1)[2].contribution == 100


@settings(deadline=None)
@given(problems())
def test_functions_alone_agree_with_the_evaluation(problem):
    lists, truths, _, frequencies, num_train = problem
    topk, truth = topk_of(lists), matrix(truths, len(frequencies))
    evaluation = Evaluation(frequencies, num_train, ks=[3])
    evaluation.add(topk, truth)
    expected = evaluation.results()
    found = hits(topk, truth)
    counts = np.diff(truth.indptr)
    assert 100 * precision(found, 3).mean() == pytest.approx(expected["P@3"])
    assert 100 * ndcg(found, counts, 3).mean() == pytest.approx(expected["nDCG@3"])
    weights = inverse_propensity(frequencies, num_train)
    best = best_gains(truth, LabelWeights.of(weights), 3)
    gained = np.where(found, weights[topk.ids], 0.0)
    if best.sum():
        assert 100 * gained[:, :3].sum() / best.sum() == pytest.approx(expected["PSP@3"])


def test_the_examples_of_the_metrics_page_run():
    document = DOCS / "reference" / "metrics.md"
    failed, tried = doctest.testfile(str(document), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 5
    assert failed == 0
