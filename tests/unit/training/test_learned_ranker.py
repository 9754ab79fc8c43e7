"""A learned ranker from training to the model: its fit, its folder, new labels, few texts, stopped runs."""

import hashlib
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from helpers.stopped_runs import stopped_in_phase
from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.data.dataset import Dataset
from unidex.errors import ModelError
from unidex.model.explanation import explain
from unidex.model.model import Model
from unidex.scoring.boosted_trees import BoostedTrees, feature_names
from unidex.scoring.linear_ranker import LinearWeights
from unidex.scoring.rankers import POWERS
from unidex.training.phases import METRICS, with_metric
from unidex.verbs.train import train

UNSEEN = 199


def without_label(data, label):
    """The data set without the train texts that have the label."""
    kept = np.flatnonzero(data.train.positives.toarray()[:, label] == 0)
    return Dataset("unseen", data.labels, data.train.take(kept), data.test)


# So few texts per label that held-out texts have labels that no other text has, as a label that is added later.
DATA = without_label(topics(num_labels=200, num_train=600, num_test=40), UNSEEN)
LEARNED = [*QUICK, "train.epochs=3", "train.validation=0.4", "predict.rank=learned"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "model"
    train(DATA, "unidec", settings=LEARNED, out=out)
    return out


@pytest.fixture
def model(folder):
    return Model.load(folder)


def test_training_fits_trees_and_probabilities_and_the_folder_holds_both(folder, model):
    assert model.config.predict.rank == "learned"
    assert isinstance(model.scorer.fitted, BoostedTrees)
    assert model.scorer.fitted.names == feature_names(model.scorer.layout)
    assert model.scorer.fitted.rarity.num_train == len(DATA.train)
    assert model.scorer.fitted.rarity.power == POWERS["balanced"]
    stored = json.loads((folder / "ranker.json").read_text(encoding="utf-8"))
    assert stored["kind"] == "boosted-trees"
    names = {file.name for file in (folder / "lexical").iterdir()}
    matches = {f"match_{name}" for name in ("labels", "names", "places", "starts", "texts", "words")}
    numbers = {"columns", "frequencies", "num_counted", "starts"} | matches
    assert names == {"reading.json", *(f"{name}.numbers" for name in numbers)}
    listed = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert {"ranker.json", *(f"lexical/{name}" for name in names)} <= listed.keys()
    assert model.metrics["test"]["P@1"] > 80
    found = model.topk(list(DATA.test.texts), 5)
    chances = model.probabilities(found)
    truth = np.take_along_axis(DATA.test.positives.toarray(), found.ids, axis=1) > 0
    assert chances[truth].mean() > 2 * chances[~truth].mean()


def test_the_same_training_gives_the_same_ranker_and_the_same_predictions(folder, model, tmp_path):
    again = train(DATA, "unidec", settings=LEARNED, out=tmp_path / "again")
    assert (tmp_path / "again" / "ranker.json").read_bytes() == (folder / "ranker.json").read_bytes()
    texts = list(DATA.test.texts)
    one, other = again.topk(texts, 5), model.topk(texts, 5)
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.scores, other.scores)


def test_a_label_without_train_texts_can_be_first(model):
    assert model.labels.frequencies[UNSEEN] == 0
    text = f"{DATA.labels.texts[UNSEEN]}"
    found = model.topk([text], 3)
    assert found.ids[0, 0] == UNSEEN


def test_a_label_that_is_added_later_can_be_first_and_is_gone_when_removed(model, tmp_path):
    (label,) = model.add_labels(["brandnew gizmo"], ["new"])
    texts = ["brandnew gizmo", "a gizmo, brandnew"]
    found = model.topk(texts, 3).ids
    assert (found == label).any(axis=1).all()
    assert label in found[:, 0]
    model.save(tmp_path / "grown")
    loaded = Model.load(tmp_path / "grown")
    assert np.array_equal(loaded.topk(texts, 5).scores, model.topk(texts, 5).scores)
    (reason,) = explain(loaded, texts[0], labels=["new"])
    assert reason.parts["words"] > 0
    loaded.remove_labels([label])
    assert label not in loaded.topk(texts, 30).ids
    # Not even words lead to it.
    rows = loaded.queries(texts)
    assert label not in loaded.scorer.candidates(rows, loaded.scorer.ranker().counts, ["frequency"]).ids_NK


def test_a_renamed_label_is_found_by_its_new_words(model):
    model.rename_label(UNSEEN, "unheard of")
    assert model.topk(["unheard of"], 1).ids.tolist() == [[UNSEEN]]


def test_rare_labels_move_up_with_what_is_favoured(model):
    texts, places = list(DATA.test.texts), {}
    for favour, power in POWERS.items():
        fitted = model.scorer.fitted
        model.scorer.fitted = replace(fitted, rarity=replace(fitted.rarity, power=power))
        found = model.topk(texts, len(model.labels))
        places[favour] = np.argmax(found.ids == UNSEEN, axis=1)
        assert (found.ids == UNSEEN).any(axis=1).all()
    assert (places["rare"] <= places["balanced"]).all()
    assert (places["balanced"] <= places["accuracy"]).all()
    assert places["rare"].sum() < places["accuracy"].sum()


def test_a_long_list_begins_with_the_short_one_and_has_every_label_once(model):
    texts = list(DATA.test.texts)
    every = model.topk(texts, len(model.labels))
    assert np.array_equal(np.sort(every.ids, axis=1), np.tile(np.arange(len(model.labels)), (len(texts), 1)))
    assert (np.diff(every.scores, axis=1) <= 0).all()
    for k in (1, 30, 60):
        short = model.topk(texts, k)
        assert np.array_equal(short.ids, every.ids[:, :k])
        assert np.array_equal(short.scores, every.scores[:, :k])
    few = model.topk(texts, 9, allowed=[3, 5, 8])
    assert np.array_equal(np.sort(few.ids[:, :3], axis=1), np.tile([3, 5, 8], (len(texts), 1)))
    assert (few.ids[:, 3:] == -1).all()


def test_no_texts_and_odd_texts_are_answered(model):
    assert model.topk([], 3).ids.shape == (0, 3)
    odd = ["", "...", "\U0001f600", "w" * 5000, "\x00"]
    found = model.topk(odd, 30)
    assert found.ids.shape == (5, 30)
    assert np.isfinite(found.scores[found.ids >= 0]).all()
    # One text has the answer that it has among others.
    assert np.array_equal(model.topk(odd[2:3], 30).ids, found.ids[2:3])


@pytest.mark.parametrize("favour", POWERS)
def test_the_metric_of_validation_follows_what_is_favoured(favour):
    config = with_metric(load("auto", [f"predict.favour={favour}"]))
    assert config.train.metric == METRICS[favour]
    assert with_metric(load("auto", [f"predict.favour={favour}", "train.metric=P@3"])).train.metric == "P@3"


def test_few_held_out_texts_fit_weights_in_place_of_trees(caplog, tmp_path):
    data = topics(num_test=40)
    with caplog.at_level(logging.INFO, logger="unidex"):
        model = train(data, "unidec", settings=LEARNED, out=tmp_path / "model")
    assert any("weights of 7 features" in record.getMessage() for record in caplog.records)
    assert isinstance(model.scorer.fitted, LinearWeights)
    loaded = Model.load(tmp_path / "model")
    assert loaded.config.predict.rank == "learned"
    assert loaded.scorer.fitted == model.scorer.fitted
    texts = list(data.test.texts)
    one, other = model.topk(texts, 5), loaded.topk(texts, 5)
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.scores, other.scores)
    assert model.metrics["test"]["P@1"] > 80
    # A label is found by its words alone, and the explanation has them.
    (label,) = loaded.add_labels(["brandnew gizmo"], ["new"])
    assert loaded.topk(["a gizmo, brandnew"], 1).ids.tolist() == [[label]]
    (reason,) = explain(loaded, "a gizmo, brandnew", labels=["new"])
    assert reason.parts["words"] == max(reason.parts.values())
    assert sum(reason.parts.values()) == pytest.approx(reason.score, abs=1e-5)


def test_texts_of_which_none_can_be_held_out_are_ranked_by_the_prior():
    """Each text has a label of its own: no held-out text has one of the others."""
    from unidex.data.dataset import Labels, Split
    from unidex.data.texts import Texts

    names = ["red apple", "green pear", "blue plum", "black grape", "white peach", "brown nut"]
    texts = Texts.of([f"a fresh {name} today" for name in names])
    split = Split.of(texts, sparse.csr_array(np.eye(6, dtype=np.float32)), sparse.csr_array((6, 6), dtype=np.float32))
    model = train(Dataset("alone", Labels(Texts.of(names)), split, split), "unidec", settings=LEARNED)
    assert isinstance(model.scorer.fitted, LinearWeights)
    assert model.scorer.fitted == LinearWeights.prior(model.scorer.layout, model.scorer.fitted.rarity)
    assert model.topk(["pear, green", "a plum of blue"], 1).ids.tolist() == [[1], [2]]


def test_without_validation_labels_are_ranked_by_the_sum():
    model = train(topics(), "unidec", settings=[*LEARNED, "train.validation=0.0", "train.epochs=1"])
    assert model.config.predict.rank == "sum"
    assert model.scorer.fitted is None


@pytest.mark.parametrize("content", ['{"kind": "forest"}', '{"kind": "boosted-trees"}', "[]", "{"])
def test_a_damaged_ranker_is_named_when_the_folder_is_read(model, content, tmp_path):
    model.save(tmp_path / "model")
    (tmp_path / "model" / "ranker.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"ranker\.json"):
        Model.load(tmp_path / "model")
    # Also where the manifest has the hash of the damaged file.
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"]["ranker.json"] = hashlib.sha256(content.encode()).hexdigest()
    (tmp_path / "model" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelError, match=r"copy (the model|it) again"):
        Model.load(tmp_path / "model")


# The recipe auto: a ranker for the scores of a simulated decay phase.
AUTO = [
    "encoder.dim=16",
    "features.min_df=1",
    "train.epochs=1",
    "train.decay_epochs=1",
    "train.batch_size=50",
    "train.validation=0.4",
    "train.checkpoint_every=2",
    "augment.method=none",
    "pool.try_hard_negatives=0",
]


@pytest.mark.parametrize("phase", ["training", "simulated-decay", "decay"])
def test_a_stopped_and_resumed_run_has_the_same_ranker(auto_folder, tmp_path, monkeypatch, phase):
    with stopped_in_phase(phase, 4, monkeypatch):
        train(DATA, "auto", settings=AUTO, out=tmp_path / "model")
    train(DATA, "auto", settings=AUTO, out=tmp_path / "model", resume=True)
    files = ["ranker.json", "calibration.json", "config.toml", "index/vectors_int8.numbers"]
    files += [f"lexical/{name}.numbers" for name in ("columns", "frequencies", "num_counted", "starts")]
    for name in files:
        assert (tmp_path / "model" / name).read_bytes() == (auto_folder / name).read_bytes(), name


@pytest.fixture(scope="module")
def auto_folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "auto"
    model = train(DATA, "auto", settings=AUTO, out=out)
    assert model.config.predict.rank == "learned"
    return out
