"""Linear classifiers of labels: the descent, its negatives, and a model whose ranker reads them."""

import json
import logging
import re
import shutil
from contextlib import suppress

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.optimize import minimize

from helpers.synthetic import QUICK, topics
from unidex import native
from unidex.errors import ModelError
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.scoring.linear_part import LINEAR, NO_CLASSIFIER, unit_length
from unidex.scoring.rankers import Candidates
from unidex.training import linear_fit
from unidex.verbs.train import train

needs_kernels = pytest.mark.skipif(native.kernels is None, reason="the kernels are not compiled")
TEXTS, FEATURES = 60, 25


def problem(seed=0, labels=3):
    rng = np.random.default_rng(seed)
    rows = sparse.random_array((TEXTS, FEATURES), density=0.3, rng=rng, dtype=np.float32).tocsr()
    rows.sort_indices()
    sides = np.sign(rng.normal(size=(labels, TEXTS))).astype(np.float32)
    return unit_length(sparse.csr_array(rows)), sparse.csr_array(sides)


def fitted(rows, examples, *, cost=0.5, tolerance=0.0, least=0.0, passes=5):
    biases = np.empty(examples.shape[0], dtype=np.float32)
    arrays = (*native.arrays_of(rows), *native.arrays_of(examples))
    descent = np.array([cost, tolerance, least], dtype=np.float32)
    found = native.kernels.fit_classifiers(*arrays, descent, biases, rows.shape[1], passes)
    values, columns, starts = map(np.frombuffer, found, (np.float32, np.int32, np.int32))
    return sparse.csr_array((values, columns, starts), shape=(len(biases), rows.shape[1])).toarray(), biases


def slow_descent(rows, sides, label, cost, passes):
    """The same steps one by one, by plain numbers."""
    state, mask = (0x9E3779B97F4A7C15 * (label + 1)) % 2**64, 2**64 - 1
    dense, weights, alphas = rows.toarray().astype(np.float64), np.zeros(rows.shape[1] + 1), np.zeros(len(sides))
    order = list(range(len(sides)))
    for _ in range(passes):
        for last in range(len(order) - 1, 0, -1):
            state ^= (state << 13) & mask
            state ^= state >> 7
            state ^= (state << 17) & mask
            other = state % (last + 1)
            order[last], order[other] = order[other], order[last]
        for text in order:
            row = np.append(dense[text], 1.0)
            slope = sides[text] * (weights @ row) - 1 + alphas[text] / (2 * cost)
            following = max(0.0, alphas[text] - slope / (row @ row + 1 / (2 * cost)))
            weights += (following - alphas[text]) * sides[text] * row
            alphas[text] = following
    return weights


@needs_kernels
def test_compiled_steps_are_those_of_the_formula():
    rows, examples = problem()
    weights, biases = fitted(rows, examples)
    for label in range(3):
        expected = slow_descent(rows, examples.toarray()[label], label, 0.5, 5)
        assert np.allclose(weights[label], expected[:-1], atol=1e-4)
        assert np.isclose(biases[label], expected[-1], atol=1e-4)


@needs_kernels
def test_texts_that_are_read_where_they_are_give_the_same_classifiers():
    rng = np.random.default_rng(3)
    columns = np.sort(rng.permuted(np.tile(np.arange(FEATURES), (TEXTS, 1)), axis=1)[:, :8], axis=1)
    values = rng.random((TEXTS, 8), dtype=np.float32)
    sides = sparse.csr_array(np.sign(rng.normal(size=(3, TEXTS))).astype(np.float32))

    def rows(num_zeros):
        # Numbers that change no sum: with many of them, the texts of a label are too large to be gathered.
        zeros = np.tile(np.arange(FEATURES, FEATURES + num_zeros), (TEXTS, 1))
        every = np.hstack([columns, zeros]).astype(np.int32), np.hstack([values, np.zeros(zeros.shape, np.float32)])
        starts = np.arange(TEXTS + 1, dtype=np.int32) * (8 + num_zeros)
        return sparse.csr_array((every[1].ravel(), every[0].ravel(), starts), shape=(TEXTS, FEATURES + num_zeros))

    weights, biases = fitted(rows(0), sides)
    for num_zeros in (4, 2200):
        more, same = fitted(rows(num_zeros), sides)
        assert np.array_equal(more[:, :FEATURES], weights)
        assert not more[:, FEATURES:].any()
        assert np.array_equal(same, biases)


@needs_kernels
def test_the_loss_is_near_its_minimum():
    rows, examples = problem(seed=1)
    cost = 0.5
    weights, biases = fitted(rows, examples, cost=cost, passes=300)
    dense = np.hstack([rows.toarray(), np.ones((TEXTS, 1))]).astype(np.float64)
    for label, sides in enumerate(examples.toarray()):
        found = np.append(weights[label], biases[label]).astype(np.float64)

        def loss(at, sides=sides):
            return 0.5 * at @ at + cost * (np.maximum(0, 1 - sides * (dense @ at)) ** 2).sum()

        least = minimize(loss, np.zeros(len(found)), method="BFGS").fun
        assert 0.9999 * least < loss(found) < 1.0001 * least
        assert loss(found) < 0.9 * loss(np.zeros(len(found)))


@needs_kernels
def test_small_weights_are_left_out_and_a_tolerance_ends_the_passes():
    rows, examples = problem(seed=2)
    whole, _ = fitted(rows, examples)
    cut, _ = fitted(rows, examples, least=0.1)
    assert np.array_equal(cut, np.where(np.abs(whole) >= np.float32(0.1), whole, 0))
    assert 0 < np.count_nonzero(cut) < np.count_nonzero(whole)
    one, _ = fitted(rows, examples, passes=1)
    stopped, _ = fitted(rows, examples, tolerance=1e6)
    assert np.array_equal(one, stopped)


@needs_kernels
def test_numbers_outside_the_arrays_are_refused():
    rows, examples = problem()
    descent, biases = np.ones(3, dtype=np.float32), np.empty(3, dtype=np.float32)
    arrays = (*native.arrays_of(rows), *native.arrays_of(examples))
    with pytest.raises(ValueError, match="within another"):
        native.kernels.fit_classifiers(*arrays, descent, biases, FEATURES - 5, 1)
    long = sparse.csr_array(np.ones((TEXTS, 2300), dtype=np.float32))
    with pytest.raises(ValueError, match="within another"):
        native.kernels.fit_classifiers(*native.arrays_of(long), *arrays[3:], descent, biases, 2299, 1)
    wrong = sparse.csr_array(examples)
    wrong.indices = np.where(examples.indices == TEXTS - 1, TEXTS, examples.indices).astype(np.int32)
    with pytest.raises(ValueError, match="within another"):
        native.kernels.fit_classifiers(*arrays[:3], *native.arrays_of(wrong), descent, biases, FEATURES, 1)
    with pytest.raises(ValueError, match="fit each other"):
        native.kernels.fit_classifiers(*arrays, descent, biases[:2], FEATURES, 1)


def test_examples_are_the_texts_of_a_label_hard_ones_and_random_ones_each_once():
    own = sparse.csr_array(np.array([[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]], dtype=np.float32))
    hard = sparse.csr_array(np.array([[1, 0, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 0, 1]], dtype=np.float32))
    (found,) = linear_fit._examples(own, hard, 20, np.random.default_rng(0))
    found = found.toarray()
    assert (found[0, :3] == [1, 1, -1]).all()
    assert (found[1] == 0).all(), "a label without texts has no classifier"
    assert found[2, 5] == 1
    assert found[2, 3] == -1
    # Forty and twenty draws of six texts.
    assert (found[[0, 2]] != 0).all()


COMMON = topics(num_labels=12, num_train=700, num_test=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    settings = [*QUICK, "train.validation=0.4", "predict.rank=learned", "predict.linear=true"]
    train(COMMON, "unidec", settings=settings, out=out)
    return out


@needs_kernels
def test_a_ranker_that_reads_it_is_stored_with_its_classifiers(folder):
    model = Model.load(folder)
    assert model.config.predict.linear
    assert model.scorer.fitted.names[-3:] == LINEAR
    part = model.scorer.linear
    assert part.weights_FL.shape == (model.encoder.features.num_features, COMMON.num_labels)
    # Each label has two words of its own: they weigh most.
    vocabulary = model.encoder.prepare(list(COMMON.labels.texts))
    scores = part.scores(vocabulary, np.tile(np.arange(12), (12, 1)))
    assert (scores.argmax(axis=1) == np.arange(12)).all()
    assert model.metrics["test"]["P@1"] > 90
    for reason in explain(model, COMMON.test.texts[0], k=3):
        assert "linear" in reason.parts
        assert np.isclose(sum(reason.parts.values()), reason.score, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("removed", ["linear/*", "lexical/match_*", "lexical/*"])
def test_a_folder_without_a_part_that_the_ranker_reads_is_refused(folder, tmp_path, removed):
    shutil.copytree(folder, tmp_path / "model")
    for file in list((tmp_path / "model").glob(removed)):
        file.unlink()
    for part in ("linear", "lexical"):
        with suppress(OSError):
            (tmp_path / "model" / part).rmdir()
    file = tmp_path / "model" / "manifest.json"
    manifest = json.loads(file.read_text())
    kept = {name: value for name, value in manifest["files"].items() if (tmp_path / "model" / name).exists()}
    assert len(kept) < len(manifest["files"])
    file.write_text(json.dumps(manifest | {"files": kept}))
    with pytest.raises(ModelError, match=rf"{removed.split('/')[0]}: the folder must have all files of the part"):
        Model.load(tmp_path / "model")


@needs_kernels
def test_features_at_once_are_those_one_by_one(folder, monkeypatch):
    model = Model.load(folder)
    texts = list(COMMON.test.texts)
    compiled = model.topk(texts, 5)
    one_by_one = [model.topk([text], 5) for text in texts]
    assert np.array_equal(compiled.ids, np.concatenate([found.ids for found in one_by_one]))
    monkeypatch.setattr(native, "kernels", None)
    plain = Model.load(folder).topk(texts, 5)
    assert np.array_equal(compiled.ids, plain.ids)
    assert np.allclose(compiled.scores, plain.scores, atol=1e-6)


@needs_kernels
def test_a_new_label_is_found_by_its_words_though_it_has_no_classifier(folder):
    model = Model.load(folder)
    model.add_labels(["quartz clocks"], ["new"])
    found = model.topk(["quartz clocks"], 3)
    assert COMMON.num_labels in found.ids[0]
    assert isinstance(model.scorer.describe(model.queries(["a"]), np.array([[12]])), Candidates)


@needs_kernels
def test_threads_change_no_number(monkeypatch):
    monkeypatch.setattr(linear_fit, "_LABELS_AT_ONCE", 5)
    model = train(COMMON, "unidec", settings=[*QUICK, "train.epochs=1", "predict.rank=sum"])
    texts, positives = model.encoder.prepare(list(COMMON.train.texts)), COMMON.train.positives
    before = torch.get_num_threads()
    parts = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        parts.append(linear_fit.fit_linear(model.scorer, model.vectoriser.text_vectors, texts, positives, 0))
    torch.set_num_threads(before)
    one, two = parts
    assert np.array_equal(one.weights_FL.toarray(), two.weights_FL.toarray())
    assert np.array_equal(one.biases_L, two.biases_L)


def test_what_stands_against_a_linear_part_is_said(monkeypatch, caplog):
    rows = sparse.csr_array(np.ones((300, 3), dtype=np.float32))
    assert linear_fit.obstacle("learned", rows, 200, 2) == "they are fitted by one process"
    assert "predict.rank" in linear_fit.obstacle("decision-tree", rows, 200, 1)
    assert linear_fit.obstacle("learned", [[1]], 200, 1) == "they need a bag encoder"
    monkeypatch.setattr(linear_fit, "MAX_ENTRIES", rows.nnz - 1)
    assert "above 899" in linear_fit.obstacle("learned", rows, 200, 1)
    monkeypatch.undo()
    monkeypatch.setattr(native, "kernels", None)
    assert linear_fit.obstacle("learned", rows, 200, 1) == "they need the compiled kernels"
    for settings, said in (([], "held-out texts are few"), (["predict.rank=sum"], "only a learned ranker reads them")):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            asked = ["predict.rank=learned", "predict.linear=true", "train.validation=0.2", *settings]
            model = train(topics(), "unidec", settings=[*QUICK, "train.epochs=1", *asked])
        assert f"No linear classifiers of labels: {said}" in re.sub(r": \d+ held", ": held", caplog.text)
        assert not model.config.predict.linear
        assert model.scorer.linear is None


@needs_kernels
def test_very_many_labels_are_searched_among_those_with_texts(monkeypatch):
    model = train(COMMON, "unidec", settings=[*QUICK, "train.epochs=1", "predict.rank=sum"])
    texts, positives = model.encoder.prepare(list(COMMON.train.texts)), COMMON.train.positives
    arguments = model.scorer, model.vectoriser.text_vectors, texts
    every = linear_fit.fit_linear(*arguments, positives, 0)
    monkeypatch.setattr(linear_fit, "ALONE_ABOVE", 0)
    alone = linear_fit.fit_linear(*arguments, positives, 0)
    assert np.array_equal(alone.weights_FL.toarray(), every.weights_FL.toarray())
    assert np.array_equal(alone.biases_L, every.biases_L)
    # Labels without texts: the others are fitted as if these were not there.
    with_texts = np.setdiff1d(np.arange(12), [0, 7])
    columns = sparse.csr_array(np.eye(12, dtype=np.float32)[:, with_texts] @ np.eye(12, dtype=np.float32)[with_texts])
    some = linear_fit.fit_linear(*arguments, sparse.csr_array(positives @ columns), 0)
    assert (some.biases_L[[0, 7]] == NO_CLASSIFIER).all()
    assert some.weights_FL[:, [0, 7]].nnz == 0
    assert (some.biases_L[with_texts] != NO_CLASSIFIER).all()
    own = some.weights_FL.toarray()[:, with_texts]
    assert (np.abs(own).sum(axis=0) > 0).all()
