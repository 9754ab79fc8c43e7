"""Remembering: texts with their labels count at once, in the folder too, and what is wrong with a file is named."""

import gzip
import json

import numpy as np
import pytest
from scipy import sparse

from helpers.command import run
from helpers.synthetic import QUICK, topics
from unidex.errors import DataError, ModelError, UnidexError
from unidex.model.model import Model
from unidex.verbs.remember import remember, remember_texts
from unidex.verbs.text_files import read_pairs
from unidex.verbs.train import train

# Words of no label: what the heads make of them is a guess.
NEW = "w50y w52a w55d w57f"
KEPT = ["predict.knn=1.0", "predict.knn_texts=4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("models") / "topics"
    train(topics(num_test=0), "unidec", settings=[*QUICK, *KEPT, "train.epochs=3"], out=out)
    return out


def written(file, *rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def worst_label(model, text):
    """The label that the model would give this text last."""
    return int(model.predict([text], len(model.labels)).ids[0, -1])


def test_a_remembered_pair_counts_at_once_and_after_loading(folder, tmp_path):
    model = Model.load(folder)
    worst = worst_label(model, NEW)
    before = model.predict([NEW], 24, mode="dual")
    file = written(tmp_path / "pairs.jsonl", *[{"text": NEW, "labels": [f"L{worst}"]}] * 4)
    assert remember_texts(model, file) == {"num_texts": 4, "num_pairs": 4, "num_labels": 1, "total": 244}
    after = model.predict([NEW], 24)
    assert after.ids[0, 0] == worst
    # The heads know nothing of it.
    assert np.array_equal(model.predict([NEW], 24, mode="dual").scores, before.scores)
    model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved").predict([NEW], 24)
    assert np.array_equal(again.ids, after.ids)
    assert np.array_equal(again.scores, after.scores)


def test_remembered_texts_add_the_knn_weight_times_their_share(folder, tmp_path):
    model = Model.load(folder)
    heads = Model.load(folder)
    heads.scorer.knn = None
    labels = [3, 17]
    file = written(tmp_path / "pairs.jsonl", *[{"text": NEW, "labels": [f"L{label}" for label in labels]}] * 4)
    remember_texts(model, file)
    # All four neighbours are the text itself, and both of its labels get the whole weight.
    by_heads, found = (one.predict([NEW], 24) for one in (heads, model))
    gained = dict(zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True))
    for label, score in zip(by_heads.ids[0].tolist(), by_heads.scores[0].tolist(), strict=True):
        assert gained[label] - score == pytest.approx(1.0 if label in labels else 0.0, abs=1e-3)


def test_the_verb_writes_the_folder_itself_or_a_new_one(folder, tmp_path):
    Model.load(folder).save(tmp_path / "model")
    worst = worst_label(Model.load(folder), NEW)
    file = written(
        tmp_path / "pairs.jsonl", *[{"title": "w50y w52a", "content": "w55d w57f", "labels": [f"L{worst}"]}] * 4
    )
    done = remember(tmp_path / "model", file, tmp_path / "copy")
    assert done == {"model": str(tmp_path / "copy"), "num_texts": 4, "num_pairs": 4, "num_labels": 1, "total": 244}
    assert Model.load(tmp_path / "copy").predict([NEW], 1).ids[0, 0] == worst
    assert Model.load(tmp_path / "model").predict([NEW], 1).ids[0, 0] != worst
    with pytest.raises(UnidexError, match="copy: the model folder must be new, but exists"):
        remember(tmp_path / "model", file, tmp_path / "copy")
    packed = tmp_path / "pairs.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    remember(tmp_path / "model", packed)
    assert Model.load(tmp_path / "model").predict([NEW], 1).ids[0, 0] == worst


def test_labels_are_found_by_uid_and_count_once_a_text(folder, tmp_path):
    model = Model.load(folder)
    model.add_labels(["a new thing"], ["77"])
    file = written(
        tmp_path / "pairs.jsonl", {"text": "x", "labels": ["L5", 77, "L2", "L5"]}, {"text": "y", "labels": ["L0"]}
    )
    texts, positives = read_pairs(model, file)
    assert texts == ["x", "y"]
    assert positives.shape == (2, 25)
    assert positives.indices.tolist() == [2, 5, 24, 0]
    assert positives.data.tolist() == [1, 1, 1, 1]


GOOD = {"text": "x", "labels": ["L0"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"text": "x", "labels": ["L1", "L99"]},
            "a label must be one of the model's, but it has no label with uid 'L99'",
        ),
        ({"text": "x", "labels": ["L4"]}, "it has no label with uid 'L4'"),
        ({"text": "x", "labels": []}, "a row must name at least one label, but names none; drop it or name one"),
        ({"text": "x"}, "but: Object missing required field `labels`"),
        ({"labels": ["L0"]}, "but: Object missing required field `text`"),
        ({"text": " ", "labels": ["L0"]}, "a row must have a text, but it is blank; drop the row"),
        ({"text": "x", "labels": {"L0": 1}}, "labels are"),
        ([1], "a line must be a JSON object"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_remembered(folder, tmp_path, line, message):
    model = Model.load(folder)
    model.remove_labels([4])
    file = written(tmp_path / "pairs.jsonl", GOOD, line, GOOD)
    with pytest.raises(DataError) as caught:
        remember_texts(model, file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert message in str(caught.value)
    assert model.scorer.knn.num_texts == 240


def test_a_model_without_a_knn_part_says_how_to_get_one(tmp_path):
    settings = [*QUICK, "train.epochs=1"]
    model = train(topics(num_test=0), "unidec", settings=settings)
    file = written(tmp_path / "pairs.jsonl", GOOD)
    with pytest.raises(ModelError, match="a kNN part, but those of this one have none; train it with --set") as caught:
        remember_texts(model, file)
    remedy = str(caught.value).partition("train it with ")[2].replace("--set ", "").split()
    model = train(topics(num_test=0), "unidec", settings=[*settings, *remedy])
    assert remember_texts(model, file)["total"] == 241


def test_positives_must_fit_the_texts_and_the_labels(folder):
    model = Model.load(folder)
    with pytest.raises(DataError, match="positives must be 1 texts x 24 labels, but are 2 x 24"):
        model.remember([NEW], sparse.csr_array((2, 24)))
    model.remember([], sparse.csr_array((0, 24)))
    assert model.scorer.knn.num_texts == 240


def test_remembering_at_once_equals_remembering_in_parts(folder):
    data = topics(num_train=1100, num_test=0, seed=5)
    together, apart = Model.load(folder), Model.load(folder)
    texts, positives = list(data.train.texts), data.train.positives
    together.remember(texts, positives)
    for start in range(0, 1100, 400):
        apart.remember(texts[start : start + 400], positives[start : start + 400])
    assert together.scorer.knn.num_texts == 1340
    asked = texts[1000:1040]
    np.testing.assert_allclose(together.predict(asked, 5).scores, apart.predict(asked, 5).scores, atol=1e-6)
    # A remembered text is its own nearest.
    assert together.scorer.knn.nearest(together.encode(asked)).ids[:, 0].tolist() == list(range(1240, 1280))


def test_command_line(folder, tmp_path):
    file = written(tmp_path / "pairs.jsonl", GOOD, {"text": "y", "labels": ["L1", "L0"]})
    done = run("remember", folder, file, "--out", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'new'}: 2 texts of 2 labels remembered, 242 texts in all\n"
    done = run("remember", tmp_path / "new", file, "--json")
    assert json.loads(done.stdout) == {
        "model": str(tmp_path / "new"),
        "num_texts": 2,
        "num_pairs": 3,
        "num_labels": 2,
        "total": 244,
    }
    written(file, GOOD, {"text": "y", "labels": ["nobody"]})
    done = run("remember", tmp_path / "new", file)
    assert done.returncode == 1
    assert done.stdout == ""
    rule = "a label must be one of the model's, but it has no label with uid 'nobody'"
    assert done.stderr.splitlines()[-1] == f"unidex: {file}:2: {rule}"
