"""The trained model: the same after saving and loading, labels that come and go, damage that is named."""

import json

import numpy as np
import pytest

from helpers.command import run
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.errors import DataError, ModelError
from unidex.model.label_set import LabelRow
from unidex.model.model import Model
from unidex.verbs.evaluate import evaluate
from unidex.verbs.labels import add_labels, remove_labels
from unidex.verbs.train import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    train(topics(), "unidec", settings=QUICK, out=out)
    return out


@pytest.fixture
def model(folder):
    return Model.load(folder)


TEXTS = list(topics().test.texts)


def test_loading_gives_the_same_predictions(folder, model, tmp_path):
    before = model.predict(TEXTS, 5)
    model.save(tmp_path / "again")
    after = Model.load(tmp_path / "again").predict(TEXTS, 5)
    assert np.array_equal(before.ids, after.ids)
    assert np.array_equal(before.scores, after.scores)
    assert json.loads((folder / "metrics.json").read_text())["test"]["P@1"] > 90


def test_one_text_is_predicted_like_many(model):
    many = model.predict(TEXTS, 3)
    for row in (0, 7, 31):
        one = model.predict([TEXTS[row]], 3)
        assert np.array_equal(one.ids[0], many.ids[row])
        np.testing.assert_allclose(one.scores[0], many.scores[row], atol=1e-6)


def test_predictions_for_no_text_an_empty_text_and_more_places_than_labels(model):
    assert model.predict([], 3).ids.shape == (0, 3)
    assert model.predict([""], 3).ids.shape == (1, 3)
    more = model.predict(TEXTS[:2], 100)
    assert (more.ids >= 0).sum(axis=1).tolist() == [24, 24]
    with pytest.raises(DataError, match="k must be at least 1"):
        model.predict(TEXTS, 0)
    with pytest.raises(DataError, match=r"write \[text\]"):
        model.predict("a plain string", 1)
    allowed = model.predict(TEXTS, 2, allowed=[3, 5])
    assert set(np.unique(allowed.ids)) == {3, 5}


def test_both_is_the_weighted_sum_of_the_heads(model):
    dual = model.encode(TEXTS, "dual")
    classifier = model.encode(TEXTS, "classifier")
    np.testing.assert_allclose(dual + classifier, model.encode(TEXTS), atol=1e-6)
    scores = {mode: model.predict(TEXTS, 24, mode=mode) for mode in ("dual", "classifier", "both")}
    by_label = {mode: np.take_along_axis(found.scores, np.argsort(found.ids), 1) for mode, found in scores.items()}
    np.testing.assert_allclose(by_label["dual"] + by_label["classifier"], by_label["both"], atol=1e-5)
    # Each head gives cosines, weighted by one half here.
    assert np.abs(by_label["dual"]).max() <= 0.5 + 1e-5


def test_an_added_label_is_found_by_its_text_and_survives_saving(model, tmp_path):
    ids = model.add_labels(["w0a w60i"], ["new"])
    assert ids.tolist() == [24]
    model.save(tmp_path / "grown")
    grown = Model.load(tmp_path / "grown")
    assert grown.labels.uids[24] == "new"
    assert 24 in grown.predict(["w0a w60i"], 2).ids[0]
    with pytest.raises(DataError, match="there is already new"):
        grown.add_labels(["other"], ["new"])


def test_a_removed_label_is_never_predicted_again(model, tmp_path):
    best = int(model.predict([TEXTS[0]], 1).ids[0, 0])
    model.remove_labels([best])
    assert best not in model.predict(TEXTS, 24).ids
    model.save(tmp_path / "less")
    less = Model.load(tmp_path / "less")
    assert best not in less.predict(TEXTS, 24).ids
    with pytest.raises(DataError, match=f"labels to remove must name .* no label with id {best}"):
        less.remove_labels([best])


def test_labels_hidden_in_training_can_be_added_and_found():
    data = topics(num_train=480)
    hidden = np.arange(0, 24, 6)
    kept = np.setdiff1d(np.arange(24), hidden)
    from unidex.data.dataset import Dataset, Labels, Split

    def without(split):
        return Split.of(split.texts, split.positives[:, kept], split.filter_pairs[:, kept])

    uids = [data.labels.uid(label) for label in kept]
    part = Dataset("part", Labels(data.labels.texts.take(kept), formats_uids(uids)), without(data.train))
    model = train(part, "unidec", settings=QUICK)
    model.add_labels([data.labels.texts[int(label)] for label in hidden], [f"L{label}" for label in hidden])
    scores = evaluate(model, data).metrics
    rows = np.flatnonzero(data.test.positives[:, hidden].sum(axis=1))
    found = model.predict([data.test.texts[int(row)] for row in rows], 5)
    names = [{model.labels.uids[label] for label in ids if label >= 0} for ids in found.ids.tolist()]
    truth = data.test.positives.toarray()
    hits = [f"L{label}" in names[place] for place, row in enumerate(rows) for label in hidden if truth[row, label] > 0]
    # A guess finds one of 24 in five places one time in five.
    assert np.mean(hits) > 0.5
    assert scores["P@1"] > 60


def formats_uids(uids):
    from unidex.data.texts import Texts

    return Texts.of_uids(uids)


@pytest.mark.parametrize("name", ["encoder.safetensors", "labels.jsonl", "config.toml", "index/manifest.json"])
@pytest.mark.parametrize("harm", ["changed", "is missing"])
def test_damage_is_named_and_nothing_is_loaded(model, tmp_path, name, harm):
    model.save(tmp_path / "m")
    file = tmp_path / "m" / name
    if harm == "changed":
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    else:
        file.unlink()
    with pytest.raises(ModelError, match=rf"{file.name}: the file {harm}"):
        Model.load(tmp_path / "m")


def test_a_crash_between_renames_leaves_the_old_model(folder, tmp_path):
    model = Model.load(folder)
    model.save(tmp_path / "m")
    (tmp_path / "m").rename(tmp_path / ".m-before")
    assert len(Model.load(tmp_path / "m").labels) == 24


def test_evaluate_matches_labels_by_uid(folder, tmp_path):
    model = Model.load(folder)
    data = topics()
    order = np.random.default_rng(0).permutation(24)
    from unidex.data.dataset import Dataset, Labels, Split

    def permuted(split):
        return Split.of(split.texts, split.positives[:, order], split.filter_pairs[:, order])

    assert data.labels.uids is not None
    labels = Labels(data.labels.texts.take(order), data.labels.uids.take(order))
    other = Dataset("permuted", labels, permuted(data.train), permuted(data.test))
    assert evaluate(model, other).metrics["P@1"] == evaluate(model, data).metrics["P@1"]
    foreign = topics(num_labels=5)
    foreign = Dataset("foreign", Labels(foreign.labels.texts, formats_uids(list("abcde"))), foreign.train, foreign.test)
    with pytest.raises(DataError, match="none is"):
        evaluate(model, foreign)


def test_labels_verbs_change_the_folder(folder, tmp_path):
    Model.load(folder).save(tmp_path / "m")
    added = add_labels(tmp_path / "m", ["w2c w3d"], None)
    assert added == [LabelRow(id=24, uid="w2c w3d", text="w2c w3d", frequency="tail", num_texts=0)]
    assert remove_labels(tmp_path / "m", ["L3"])[0].id == 3
    model = Model.load(tmp_path / "m")
    assert bool(model.labels.removed[3])
    with pytest.raises(DataError, match="no label with uid 'L3'"):
        remove_labels(tmp_path / "m", ["L3"])


def test_command_line_from_training_to_predictions(tmp_path):
    data = topics()
    formats.write(data, tmp_path / "data", "jsonl")
    settings = [word for setting in QUICK for word in ("--set", setting)]
    out = tmp_path / "model"
    done = run("train", tmp_path / "data", "--out", out, "--recipe", "unidec", *settings, "--json")
    assert done.returncode == 0, done.stderr
    trained = json.loads(done.stdout)
    assert trained["test"]["P@1"] > 90
    scores = json.loads(run("evaluate", out, tmp_path / "data", "--json").stdout)
    assert scores["P@1"] == trained["test"]["P@1"]
    assert {"P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5", "R@10", "coverage@5"} <= scores.keys()
    done = run("predict", out, "-", "-k", 2, "--json", text=f"{TEXTS[0]}\n{TEXTS[1]}\n")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["text"] for row in rows] == TEXTS[:2]
    assert rows[0]["labels"][0].keys() == {"id", "uid", "text", "score", "frequency"}
    # What predict prints, score reads.
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "predictions.jsonl").write_text(run("predict", out, tmp_path / "texts.txt", "--json").stdout)
    again = json.loads(run("score", tmp_path / "predictions.jsonl", tmp_path / "data", "--json").stdout)
    assert again["P@1"] == scores["P@1"]
    listed = json.loads(run("labels", "list", out, "--search", "w0a", "--json").stdout)
    assert listed["labels"][0]["uid"] == "L0"
    assert run("predict", tmp_path / "nothing", "-", text="a\n").returncode == 1
