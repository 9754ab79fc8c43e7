"""What a vocabulary says of labels, in a model: found by any of its texts, kept in folder and journal."""

import json

import pytest

from helpers.synthetic import QUICK, topics
from unidex.data.concepts import Concept, Term
from unidex.data.dataset import Dataset, Labels
from unidex.errors import DataError
from unidex.model.model import Model
from unidex.verbs.labels import add_labels, rename_label
from unidex.verbs.train import train

UNSEEN = 23
PLAIN = topics(num_labels=24, num_train=200, num_test=20)
CONCEPTS = {
    UNSEEN: Concept(
        language="en",
        texts=(Term("gadget gizmo", "en"), Term("Apparatur", "de", "preferred")),
        notation="X.23",
        broader=("L2",),
        groups=("things",),
    ),
    2: Concept(texts=(Term("w4e thingamajig"),)),
}


def without_texts(data, label):
    """The data set without the train texts of a label, and with what a vocabulary says of two labels."""
    kept = [row for row in range(len(data.train)) if data.train.positives[[row], [label]].sum() == 0]
    return Dataset("terms", Labels(data.labels.texts, data.labels.uids, CONCEPTS), data.train.take(kept), data.test)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    settings = [*QUICK, "train.epochs=3", "train.validation=0.3", "predict.rank=learned", "augment.method=gandalf"]
    train(without_texts(PLAIN, UNSEEN), "unidec", settings=settings, out=out)
    return out


@pytest.fixture
def model(folder):
    return Model.load(folder)


def test_a_label_without_train_texts_is_found_by_an_alternative_text_in_any_language(model):
    assert model.labels.frequencies[UNSEEN] == 0
    for text in ("a gadget gizmo", "Apparatur"):
        assert model.topk([text], 1).ids.tolist() == [[UNSEEN]]
        # It is the words that lead to it, not the index alone.
        assert model.scorer.lexical.search(model.scorer.lexical.rows([text]), 3).ids[0, 0] == UNSEEN
    assert model.known_shares(["gadget gizmo"]).known_N.tolist() == [1.0]


def test_the_folder_keeps_what_is_known_of_labels(model, folder, tmp_path):
    assert model.labels.concepts == CONCEPTS
    line = json.loads((folder / "labels.jsonl").read_text().splitlines()[UNSEEN])
    assert line["notation"] == "X.23"
    assert line["texts"][0] == {"text": "gadget gizmo", "language": "en"}
    # Labels of which nothing else is known have no further keys.
    assert set(json.loads((folder / "labels.jsonl").read_text().splitlines()[0])) == {
        "uid",
        "text",
        "frequency",
        "removed",
    }
    model.save(tmp_path / "again")
    again = Model.load(tmp_path / "again")
    assert again.labels.concepts == CONCEPTS
    assert (again.topk(["Apparatur"], 5).scores == model.topk(["Apparatur"], 5).scores).all()


def test_labels_with_several_texts_are_added_from_a_table_and_renamed(folder, tmp_path):
    model = Model.load(folder)
    model.save(tmp_path / "grown")
    file = tmp_path / "new.csv"
    file.write_text("uid,language,text,texts\nn1,en,frobnicator,blue frob|frobber\nn1,de,Frobnikator,\nn2,en,quux,\n")
    rows = add_labels(tmp_path / "grown", [], file)
    assert [(row.uid, row.text) for row in rows] == [("n1", "frobnicator"), ("n2", "quux")]
    assert [term.text for term in rows[0].texts] == ["Frobnikator", "blue frob", "frobber"]
    rename_label(tmp_path / "grown", "n1", "frobnication")
    changed = Model.load(tmp_path / "grown")
    label = changed.labels.id_of("n1")
    assert changed.labels.texts[label] == "frobnication"
    for text in ("Frobnikator", "blue frob", "frobnication"):
        assert changed.topk([text], 1).ids.tolist() == [[label]]
    # The same from the journal as from the saved folder.
    changed.save(tmp_path / "saved")
    saved = Model.load(tmp_path / "saved")
    assert saved.labels.concepts == changed.labels.concepts
    assert (saved.topk(["blue frob"], 3).scores == changed.topk(["blue frob"], 3).scores).all()


def test_a_blank_further_text_is_refused_and_nothing_is_written(folder, tmp_path):
    model = Model.load(folder)
    model.save(tmp_path / "grown")
    model = Model.load(tmp_path / "grown")
    with pytest.raises(DataError, match="a further text of a label must not be blank"):
        model.change({"add": [{"uid": "n", "text": "new", "texts": [{"text": " "}]}]})
    with pytest.raises(DataError, match="a change of labels must have the form of one"):
        model.change({"add": [{"uid": "n", "text": "new", "notations": "x"}]})
    assert not (tmp_path / "grown" / "changes.jsonl").exists()


def test_the_text_in_a_language_and_its_own_elsewhere(model):
    assert model.labels.text_in(UNSEEN, "de") == "Apparatur"
    assert model.labels.text_in(UNSEEN, "en") == PLAIN.labels.texts[UNSEEN]
    assert model.labels.text_in(UNSEEN, "fi") == PLAIN.labels.texts[UNSEEN]
    assert model.labels.row(UNSEEN, "de").text == "Apparatur"
