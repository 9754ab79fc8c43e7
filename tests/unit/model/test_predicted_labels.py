"""What a model's predictions look like to a user: no padding, names, tables; and methods of the model."""

import pickle
import sys

import numpy as np
import pandas
import polars
import pytest

import unidex
from helpers.synthetic import QUICK, topics
from unidex.errors import DataError, UnidexError
from unidex.topk import TopK

DATA = topics(num_labels=8, num_train=120, num_test=20)
TEXTS = list(DATA.train.texts)
LISTS = [
    [f"L{label}" for label in row] for row in np.split(DATA.train.positives.indices, DATA.train.positives.indptr[1:-1])
]
FAST = (*QUICK, "train.epochs=3", "encoder.dim=16")


@pytest.fixture(scope="module")
def model():
    return unidex.train(DATA, "unidec", settings=FAST)


def test_labels_have_names_and_no_padding(model):
    found = model.predict([TEXTS[0], "qwertz"], k=50)
    assert found.ids.shape == found.scores.shape == (2, 50)
    assert (found.ids[:, 8:] == -1).all()
    assert [len(row) for row in found.labels] == [8, 8]
    for row, ids, scores in zip(found.labels, found.ids.tolist(), found.scores.tolist(), strict=True):
        for label, number, score in zip(row, ids, scores, strict=False):
            assert label == (model.labels.texts[number], model.labels.uids[number], score, None, "")
    assert (len(found), found[0], list(found)) == (2, found.labels[0], found.labels)
    assert found[0][0].text == found[0][0][0]
    assert isinstance(found.topk, TopK)
    assert found.known.tolist() == [1, 0]
    assert len(model.predict([], 3)) == 0
    assert repr(model.predict([], 3)) == "(no texts)"


def test_predictions_print_well(model):
    lines = repr(model.predict([TEXTS[0], "qwertz <xyz>"], k=2)).splitlines()
    assert lines[0] == TEXTS[0]
    assert lines[3] == "qwertz <xyz>  (no known words)"
    assert lines[1].endswith(model.predict(TEXTS[:1], 1)[0][0].text)
    many = model.predict(TEXTS[:12], k=1)
    assert repr(many).splitlines()[-1] == "... and 2 texts more"
    html = model.predict(["qwertz <xyz>"], 1)._repr_html_()
    assert "qwertz &lt;xyz&gt;  (no known words)" in html


def test_texts_may_be_a_column_or_a_generator_and_keep_their_places(model):
    expected = model.predict(TEXTS[:3], k=2)
    # The rows of a data frame that was sorted: column[0] is its last text.
    sorted_column = pandas.Series(TEXTS[:3], index=[2, 1, 0])
    filtered_column = pandas.Series(TEXTS[:3], index=[7, 8, 9])
    for given in (sorted_column, filtered_column, polars.Series(TEXTS[:3]), np.array(TEXTS[:3]), iter(TEXTS[:3])):
        found = model.predict(given, k=2)
        assert (repr(found), found.labels) == (repr(expected), expected.labels)
        assert list(found.to_pandas()["row"]) == list(expected.to_pandas()["row"])
    np.testing.assert_array_equal(model.topk(filtered_column, 2).ids, expected.ids)


def test_a_name_that_is_not_there_points_to_the_one_that_is():
    with pytest.raises(AttributeError, match=r"no attribute 'load'; unidex.Model.load\(folder\) reads a model"):
        unidex.load  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'fit'$"):
        unidex.fit  # noqa: B018


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        ("a text", "texts must be a list of texts, but is one text"),
        (["a", None], "texts must be strings, but text 1 is None"),
        (pandas.Series(["a", float("nan")]), "texts must be strings, but text 1 is nan"),
        (pandas.DataFrame({"a": ["b"], "c": ["d"]}), r"have the shape \(1, 2\); choose a column"),
        (None, "there must be a list, but there is None"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(model, texts, match):
    for verb in (model.predict, model.topk):
        with pytest.raises(DataError, match=match):
            verb(texts)


def test_predictions_become_frames(model):
    found = model.predict(TEXTS[:3], k=2)
    table = found.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == ["row", "text", "place", "label", "uid", "score", "probability", "known"]
    assert len(table) == 6
    assert table["uid"].tolist() == [label.uid for row in found for label in row]
    assert isinstance(found.to_polars(), polars.DataFrame)
    assert found.to_polars()["place"].to_list() == [1, 2] * 3


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_is_named(model, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnidexError, match=f"pip install {name}; to_dict"):
        getattr(model.predict(TEXTS[:1], 1), f"to_{name}")()


@pytest.mark.parametrize("kind", ["pandas", "polars", "dict", "pairs"])
def test_train_takes_tables_in_memory(kind):
    columns = {"headline": TEXTS, "topics": LISTS}
    data = {
        "pandas": lambda: pandas.DataFrame(columns),
        "polars": lambda: polars.DataFrame(columns | {"topics": ["|".join(row) for row in LISTS]}),
        "dict": lambda: columns,
        "pairs": lambda: list(zip(TEXTS, LISTS, strict=True)),
    }[kind]()
    named = {} if kind == "pairs" else {"text": "headline", "labels": "topics"}
    model = unidex.train(data, "unidec", settings=[*FAST, "train.epochs=1"], test_fraction=0.25, **named)
    assert sorted(model.labels.uids) == [f"L{label}" for label in range(8)]
    assert model.metrics["test"]["num_texts"] == 30
    assert model.metrics["data"]["num_train"] == 90
    if kind == "pandas":
        scores = model.evaluate(pandas.DataFrame({"headline": list(DATA.test.texts), "topics": [["L1"]] * 20}))
        assert scores.num_texts == 20


def test_frames_are_read_as_tables_are():
    frame = pandas.DataFrame({"title": ["a", None, "c"], "tags": ["x|y", "y", None], "n": [1, 2, 3]})
    data = unidex.read(frame)
    texts = {*data.train.texts, *data.test.texts}
    assert texts == {"a", "", "c"}
    assert sorted(data.labels.texts) == ["x", "y"]
    with pytest.raises(DataError, match="data frame: no column looks like the labels"):
        unidex.read(frame[["title", "n"]])
    with pytest.raises(DataError, match="a text must be a string, but one is 1; convert the column"):
        unidex.train(frame, text="n")
    with pytest.raises(DataError, match="pairs must be a text and its labels each, but one is 'ab'"):
        unidex.read(["ab"])
    with pytest.raises(DataError, match=r"columns must be of one length, but have \[1, 2\]"):
        unidex.read({"text": ["a"], "labels": ["x", "y"]})


def test_explain_similar_and_labels_are_methods(model):
    again = pickle.loads(pickle.dumps(model))
    before = model.predict(TEXTS, 3)
    assert np.array_equal(again.predict(TEXTS, 3).scores, before.scores)
    assert again.journal is None
    assert again.explain(TEXTS[0], 2)[0].uid == before[0][0].uid
    assert [row.uid for row in again.similar_labels("L0", 2)] == [row.uid for row in again.similar_labels(0, 2)]
    assert again.evaluate(DATA).num_texts == 20
    again.add_labels(["a new thing"], ["new"])
    again.rename_label("new", "another thing")
    assert again.labels.texts[-1] == "another thing"
    assert again.predict(["another thing"], 1).known.tolist() == [1]
    again.remove_labels(["new"])
    assert "new" not in {label.uid for label in again.predict(["another thing"], 50)[0]}
    assert len(model.labels) == 8


def test_progress_and_log_lines_are_switched_by_one_call(capsys, monkeypatch):
    unidex.verbose()
    monkeypatch.setattr("unidex.notebook._EVERY_SECONDS", 0.0)
    try:
        unidex.read(list(zip(TEXTS, LISTS, strict=True)))
        unidex.train(DATA, "unidec", settings=[*FAST, "train.epochs=1"])
        shown = capsys.readouterr().err
        assert "data frame: columns are text=text, labels=labels" in shown
        assert "texts, " in shown
    finally:
        unidex.quiet()
    unidex.train(DATA, "unidec", settings=[*FAST, "train.epochs=1"])
    assert capsys.readouterr().err == ""


def test_a_notebook_shows_progress_from_the_start(monkeypatch):
    from types import SimpleNamespace

    from unidex.notebook import is_notebook

    assert not is_notebook()
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert is_notebook()
