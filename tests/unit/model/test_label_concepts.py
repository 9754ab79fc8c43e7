"""What a vocabulary says of labels, in a model: found by any of its texts, kept in folder and journal."""

import json

import pytest

from helpers.command import call
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
    assert set(json.loads((folder / "labels.jsonl").read_text().splitlines()[0])) == {"uid", "text", "frequency"}
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


# Rules, hierarchy and language in predictions.


def texts_of_labels(*labels):
    return [" ".join(PLAIN.labels.texts[label] for label in labels)]


def test_rules_choose_labels_by_uid_pattern_and_group(model):
    text = texts_of_labels(UNSEEN, 2)
    assert {label.uid for label in model.predict(text, 2)[0]} == {"L2", "L23"}
    assert [label.uid for label in model.predict(text, 5, allowed=["group=things"])[0]] == ["L23"]
    found = model.predict(text, 24, allowed=["uid=L2*"], forbidden=["L22", 20])[0]
    assert sorted(label.uid for label in found) == ["L2", "L21", "L23"]
    with pytest.raises(DataError, match="allowed must name labels of the model, but it has no label with rule"):
        model.predict(text, allowed=["group=nothing"])


def test_stored_rules_hold_for_every_prediction_and_are_saved(model, tmp_path):
    text = texts_of_labels(UNSEEN, 2)
    model.set_rules(allowed=["uid=L2*"], forbidden=["group=things"])
    assert [label.uid for label in model.predict(text, 1)[0]] == ["L2"]
    # What is asked for counts beside them.
    assert model.predict(text, allowed=["L23", "L5"])[0] == []
    model.save(tmp_path / "ruled")
    again = Model.load(tmp_path / "ruled")
    assert sorted(label.uid for label in again.predict(text, 24)[0]) == ["L2", "L20", "L21", "L22"]
    assert [reason.uid for reason in again.explain(text[0], 1)] == ["L2"]
    # A label that is added later falls under them too.
    again.add_labels(["w46u w47v"], ["L2x"])
    assert "L2x" in [label.uid for label in again.predict(text, 24)[0]]
    again.set_rules(allowed=[], forbidden=[])
    assert len(again.predict(text, 24)[0]) == 24


def test_a_label_is_dropped_if_a_narrower_one_is_predicted(model):
    text = texts_of_labels(UNSEEN, 2)
    assert model.labels.broader(UNSEEN) == {2}
    assert [label.uid for label in model.predict(text, 2, most_specific=True)[0]] == ["L23"]
    # Not where the narrower one is left out by the minimum probability or the number of labels.
    best = model.predict(texts_of_labels(2), 1, most_specific=True)[0]
    assert [label.uid for label in best] == ["L2"]


def test_a_cycle_of_broader_labels_ends(model):
    model.labels.concepts[2] = Concept(broader=("L23", "L4", "gone"))
    assert model.labels.broader(2) == {UNSEEN, 4}
    assert model.labels.broader(UNSEEN) == {2, 4}


def test_predictions_show_notation_and_the_text_of_the_language(model):
    (best,) = model.predict(["Apparatur"], 1, language="de")[0]
    assert (best.text, best.notation) == ("Apparatur", "X.23")
    assert model.predict(["Apparatur"], 1).to_dict()["notation"] == ["X.23"]
    assert "X.23  Apparatur" in repr(model.predict(["Apparatur"], 1, language="de"))
    found = model.labels.select(search="gizmo").tolist()
    assert found == [UNSEEN] == model.labels.select(search="x.23").tolist()


def test_the_command_line_predicts_with_rules_language_and_tables(folder, tmp_path):
    rules = tmp_path / "allowed.txt"
    rules.write_text("uid=L2\n\ngroup=things\n")
    text = tmp_path / "texts.txt"
    text.write_text(f"{texts_of_labels(UNSEEN, 2)[0]}\n")
    asked = ("predict", folder, text, "-k", 3, "--allowed", rules, "--language", "de")
    row = json.loads(call(*asked, "--json").stdout)
    assert sorted((label["text"], label.get("notation")) for label in row["labels"]) == [
        ("Apparatur", "X.23"),
        (PLAIN.labels.texts[2], None),
    ]
    assert "X.23  Apparatur" in call(*asked, "--most-specific").stdout
    call(*asked, "--most-specific", "--out", tmp_path / "wide.csv")
    assert (tmp_path / "wide.csv").read_text().startswith("text,label_1,uid_1,notation_1,probability_1,label_2")
    call(*asked, "--out", tmp_path / "long.jsonl", "--long")
    assert json.loads((tmp_path / "long.jsonl").read_text().splitlines()[0])["label"]
    with pytest.raises(DataError, match="the language must be one that labels have names in, but is 'fi'"):
        call("predict", folder, text, "--language", "fi")


def test_the_command_line_stores_rules(folder, tmp_path):
    Model.load(folder).save(tmp_path / "ruled")
    shown = json.loads(call("labels", "rules", tmp_path / "ruled", "--json").stdout)
    assert shown == {"allowed": [], "forbidden": [], "most_specific": False, "num_labels": 24}
    call("labels", "rules", tmp_path / "ruled", "--forbidden", "group=things", "--most-specific")
    shown = json.loads(call("labels", "rules", tmp_path / "ruled", "--json").stdout)
    assert shown == {"allowed": [], "forbidden": ["group=things"], "most_specific": True, "num_labels": 23}
    assert "there are no rules" in call("labels", "rules", tmp_path / "ruled", "--clear").stdout


def test_evaluation_credits_broader_labels_where_asked(model):
    scores = model.evaluate(PLAIN, hierarchy=True).metrics
    assert scores["hP@1"] == pytest.approx(scores["P@1"], abs=8)
    assert {"hP@1", "hR@5", "hF1@3"} <= scores.keys()
    assert not any(name.startswith("h") and "hits" not in name for name in model.evaluate(PLAIN).metrics)
    model.labels.concepts.clear()
    with pytest.raises(DataError, match="--hierarchy needs labels with broader ones"):
        model.evaluate(PLAIN, hierarchy=True)
