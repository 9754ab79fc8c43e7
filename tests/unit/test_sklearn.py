"""UnidexClassifier as a user of scikit-learn meets it."""

import io
import pickle

import joblib
import numpy as np
import pandas
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from helpers.synthetic import QUICK, topics
from unidex.errors import DataError
from unidex.sklearn import UnidexClassifier

DATA = topics(num_labels=8, num_train=120, num_test=20)
X, X_NEW = list(DATA.train.texts), list(DATA.test.texts)
Y = (DATA.train.positives.toarray() > 0).astype(int)
NAMES = [f"topic {number}" for number in range(8)]
LISTS = [[NAMES[label] for label in np.flatnonzero(row)] for row in Y]
FAST = (*QUICK, "train.epochs=3", "encoder.dim=16")


def quick(**more):
    return UnidexClassifier("unidec", FAST, k=2, **more)


@pytest.fixture(scope="module")
def by_lists():
    return quick().fit(X, LISTS)


@pytest.fixture(scope="module")
def by_matrix():
    return quick().fit(np.array(X), Y)


@pytest.fixture(scope="module")
def calibrated():
    more = ("train.validation=0.2", "augment.method=none", "pool.try_hard_negatives=0", "features.min_df=1")
    return UnidexClassifier("auto", (*more, "encoder.dim=16", "train.epochs=3", "train.batch_size=16")).fit(X, Y)


def test_lists_of_labels_give_lists_of_labels(by_lists):
    assert sorted(by_lists.classes_) == NAMES
    found = by_lists.predict(X_NEW)
    assert all(len(row) == 2 and set(row) <= set(NAMES) for row in found)
    labels, scores = by_lists.predict_topk(X_NEW, 50)
    assert [row[:2] for row in labels] == found
    assert {len(row) for row in labels} == {len(row) for row in scores} == {8}
    assert by_lists.score(X, LISTS) > 0.9


def test_a_matrix_has_a_label_per_column_and_gives_a_matrix(by_matrix):
    assert by_matrix.classes_ == list(range(8))
    found = by_matrix.predict(X_NEW)
    assert found.shape == (20, 8)
    assert found.sum(axis=1).tolist() == [2] * 20
    assert set(np.unique(found)) == {0, 1}
    assert by_matrix.score(X, Y) > 0.9
    best = [row[0] for row in by_matrix.predict_topk(X_NEW, 1)[0]]
    assert found[np.arange(20), best].all()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array])
def test_a_sparse_matrix_is_learned_as_the_dense_one_and_gives_a_sparse_one(kind, by_matrix):
    if kind is sparse.csr_matrix:
        found = quick().fit(X, kind(Y)).predict(X_NEW)
        assert sparse.issparse(found)
        assert np.array_equal(found.toarray(), by_matrix.predict(X_NEW))
    assert by_matrix.score(X, kind(Y)) == by_matrix.score(X, Y)


def test_columns_of_a_frame_are_the_labels():
    frame = pandas.DataFrame(Y, columns=NAMES)
    fitted = quick().fit(pandas.Series(X), frame)
    assert fitted.classes_ == NAMES
    assert fitted.model_.labels.texts == NAMES
    assert fitted.predict(X_NEW).shape == (20, 8)
    assert fitted.score(X, LISTS) == fitted.score(X, frame) > 0.9


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a text", [["x"]], r"texts must be a list of texts, but is one text; write \[text\]"),
        (["a", 3], [["x"], ["y"]], "texts must be strings, but text 1 is 3"),
        (np.array([["a"], ["b"]]), [["x"], ["y"]], r"but have the shape \(2, 1\); choose a column"),
        (["a", "b"], ["x", "y"], r"must be a list, but those of text 0 are 'x'; write \[label\]"),
        (["a", "b"], [["x"], "yes"], r"those of text 1 are 'yes'; write \[label\]"),
        (["a", "b"], "xy", "labels must be a list of labels per text, but are 'xy'"),
        (["a", "b"], np.array([0, 1]), r"those of text 0 are 0; write \[label\]"),
        (["a", "b"], [["x"]], "2 texts and 1 rows"),
        (["a", "b"], [[], []], "no text has one"),
        (["a", "b"], np.array([[0, 2], [1, 0]]), "0 and 1 alone, but has other values"),
        (["a", "b"], sparse.csr_array([[0, 0.5], [1, 0]]), "0 and 1 alone, but has other values"),
        (["a", "b"], [[0, 0, 1], [1, 0, 0]], r"for a matrix of 0 and 1 write numpy.array\(y\)"),
    ],
)
def test_what_could_be_misread_is_refused(texts, labels, message):
    with pytest.raises(DataError, match=message):
        quick().fit(texts, labels)


def test_predict_refuses_one_text_and_an_unfitted_classifier(by_lists):
    with pytest.raises(DataError, match="is one text"):
        by_lists.predict("one text")
    for method in ("predict", "predict_proba", "predict_topk"):
        with pytest.raises(NotFittedError):
            getattr(quick(), method)(["x"])


def test_probabilities(calibrated, by_matrix):
    found = calibrated.predict_proba(X_NEW)
    assert found.shape == (20, 8)
    assert ((found > 0) & (found <= 1)).all()
    best = [row[0] for row in calibrated.predict_topk(X_NEW, 1)[0]]
    # Other labels may be as probable, but none is more so.
    assert np.array_equal(found[np.arange(20), best], found.max(axis=1))
    few = clone(calibrated).set_params(k=8, min_probability=0.5)
    few.model_, few.classes_, few._form = calibrated.model_, calibrated.classes_, "dense"
    assert np.array_equal(few.predict(X_NEW), found >= 0.5)
    with pytest.raises(Exception, match="unidex calibrate"):
        by_matrix.predict_proba(X_NEW)


def test_scikit_learn_selects_and_joins_models():
    pipeline = Pipeline([("lower", FunctionTransformer(lambda texts: [t.lower() for t in texts])), ("topics", quick())])
    assert pipeline.fit(X, LISTS).predict(X_NEW[:1])[0][0] in NAMES
    assert cross_val_score(quick(), X, Y, cv=2).mean() > 0.5
    assert cross_val_score(quick(), X, LISTS, cv=KFold(2)).mean() > 0.5
    search = GridSearchCV(quick(), {"seed": [0, 1]}, cv=KFold(2)).fit(X, LISTS)
    assert search.predict(X_NEW[:1])[0][0] in NAMES
    assert is_classifier(search)


@pytest.mark.parametrize("pickled", ["pickle", "joblib"])
def test_pickles_predict_the_same(pickled, by_lists):
    def through(value):
        if pickled == "pickle":
            return pickle.loads(pickle.dumps(value))
        buffer = io.BytesIO()
        joblib.dump(value, buffer)
        buffer.seek(0)
        return joblib.load(buffer)

    assert through(quick(seed=3)).get_params() == quick(seed=3).get_params()
    again = through(by_lists)
    assert again.predict(X_NEW) == by_lists.predict(X_NEW)
    assert again.predict_topk(X_NEW) == by_lists.predict_topk(X_NEW)


def test_clone_repr_and_parameters(by_lists):
    assert clone(by_lists).get_params() == by_lists.get_params()
    assert not hasattr(clone(by_lists), "model_")
    assert repr(UnidexClassifier(k=7)) == "UnidexClassifier(k=7)"
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        by_lists.set_params(depth=3)


# Checks that need no data. All others fit to matrices of random numbers, of which no text can be made. scikit-learn
# leaves them out for an estimator whose tags say that it takes no matrix, and warns of that.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
]


@pytest.mark.parametrize("name", CHECKS)
def test_checks_of_scikit_learn_that_need_no_data(name):
    getattr(estimator_checks, name)("UnidexClassifier", quick())


def test_scikit_learn_leaves_out_checks_with_matrices():
    assert is_classifier(quick())
    with pytest.warns(UserWarning, match="requires input"):
        done = estimator_checks.check_estimator(quick(), on_fail=None, on_skip=None)
    assert {result["status"] for result in done} == {"passed"}
