"""The labels nearest to a label: known answers, in data sets and models, printed, drawn, and errors that help."""

import json
import re
import shlex
import struct
import warnings
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import sparse

from helpers.command import assert_one_line, call, run
from helpers.paths import ROOT
from helpers.shop_files import RAW, put
from helpers.synthetic import QUICK, topics
from unidex.data import formats
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError
from unidex.model.label_set import LabelSet
from unidex.model.model import Model
from unidex.model.similar_labels import correlations, find_label, similar_in_data, similar_in_model
from unidex.report.label_picture import draw_similar
from unidex.verbs.labels import find_similar, remove_labels
from unidex.verbs.train import train


def shop(rows, names, uids=None):
    pairs = sparse.csr_array(np.array(rows, dtype=np.float32))
    labels = Labels(Texts.of(names), None if uids is None else Texts.of(uids))
    return Dataset("shop", labels, Split.of(Texts.of([f"text {n}" for n in range(len(rows))]), pairs))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models of both heads and of each alone."""
    base = tmp_path_factory.mktemp("models")
    for name, settings in (("both", []), ("dual", ["heads.classifier=false"]), ("classifier", ["heads.dual=false"])):
        train(topics(), "unidec", settings=[*QUICK, "predict.fusion=0.3", *settings], out=base / name)
    return base


def with_prior(model, prior):
    """The same network with another label prior."""
    predict = model.config.predict.model_copy(update={"label_prior": prior})
    config = model.config.model_copy(update={"predict": predict})
    return Model.build(config, model.network, model.labels, model.network.encoder.prepare(model.labels.texts))


def test_correlations_are_a_row_of_the_product_over_its_diagonal():
    rng = np.random.default_rng(0)
    dense = rng.random((40, 12)) < 0.25
    dense[:, 7] = False
    # Relevance does not count, only that a pair is there.
    positives = sparse.csr_array(dense * rng.uniform(0.1, 2, dense.shape))
    product = dense.T.astype(int) @ dense.astype(int)
    for label in range(12):
        expected = product[label] / max(product[label, label], 1)
        expected[label] = 0
        np.testing.assert_array_equal(correlations(positives, label), expected)
    assert not correlations(positives, 7).any()


def test_similar_labels_in_data_are_sorted_and_ties_go_to_the_lower_id():
    data = shop([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0]], ["shoe", "red", "hat", "blue"])
    found = similar_in_data(data, "shoe", k=2)
    assert found == {
        "name": "shop",
        "by": "texts",
        "label": {"id": 0, "uid": "0", "text": "shoe", "frequency": "tail", "num_texts": 4},
        "similar": [
            {"id": 1, "uid": "1", "text": "red", "frequency": "tail", "num_texts": 2, "score": 0.5},
            {"id": 2, "uid": "2", "text": "hat", "frequency": "tail", "num_texts": 1, "score": 0.25},
        ],
    }
    # The other way round a rare label always comes with the frequent one, and no place is filled with nothing.
    assert [(row["text"], row["score"]) for row in similar_in_data(data, "hat")["similar"]] == [
        ("shoe", 1.0),
        ("red", 1.0),
    ]


@pytest.mark.parametrize("prior", [0.0, 0.05])
@pytest.mark.parametrize(("heads", "fusion"), [("both", 0.3), ("dual", 1.0), ("classifier", 0.0)])
def test_similar_labels_in_a_model_are_by_the_cosines_of_its_heads(folders, heads, fusion, prior):
    model = with_prior(Model.load(folders / heads), prior)
    vectors = model.network.label_vectors(model.network.encoder.prepare(model.labels.texts))
    scores = 0
    for part, weight in ((vectors.dual, fusion), (vectors.classifier, 1 - fusion)):
        scores = scores + (0 if part is None else weight * (part @ part.T).numpy())
    for label in (0, 5, 23):
        found = similar_in_model("m", model, f"L{label}", k=4)
        others = np.delete(np.arange(24), label)
        order = others[np.argsort(-scores[label, others])]
        assert [row["id"] for row in found["similar"]] == order[:4].tolist()
        np.testing.assert_allclose(
            [row["score"] for row in found["similar"]], scores[label, order[:4]], atol=2e-6, rtol=0
        )
    assert found["by"] == "vectors"
    assert len(similar_in_model("m", model, "L0", k=100)["similar"]) == 23


def test_the_mode_decides_which_head_is_searched(folders):
    model = Model.load(folders / "both")
    model.config = model.config.model_copy(
        update={"predict": model.config.predict.model_copy(update={"mode": "classifier"})}
    )
    vectors = model.network.label_vectors(model.network.encoder.prepare(model.labels.texts)).classifier
    scores = 0.7 * (vectors @ vectors[3]).numpy()
    best = similar_in_model("m", model, "L3", k=1)["similar"][0]
    scores[3] = -1
    assert best["id"] == int(scores.argmax())
    assert best["score"] == pytest.approx(scores.max(), abs=2e-6)


def test_a_removed_label_is_similar_to_none(folders, tmp_path):
    Model.load(folders / "both").save(tmp_path / "m")
    first = find_similar(tmp_path / "m", "L2", 1)["similar"][0]
    remove_labels(tmp_path / "m", [first["uid"]])
    assert first["id"] not in [row["id"] for row in find_similar(tmp_path / "m", "L2", 23)["similar"]]
    with pytest.raises(DataError, match=f"but '{first['text']}' is not; "):
        find_similar(tmp_path / "m", first["text"])


NAMES = ["Seizure", "Febrile seizure", "hat", "HAT", "Straw hat", "twin", "twin", "", "U1"]
UIDS = ["U0", "U1", "U2", "U3", "U4", "U5", "U6", "U7", "U8"]
COUNTS = np.array([1, 9, 2, 3, 5, 1, 2, 4, 0])
LABELS = LabelSet(NAMES, UIDS, COUNTS, np.zeros(9, dtype=bool))


@pytest.mark.parametrize(
    ("wanted", "label"),
    [("U4", 4), ("seizure", 0), ("Febrile", 1), ("hat", 2), ("HAT", 3), ("straw", 4), ("U7", 7), ("U1", 1)],
)
def test_a_label_is_found_by_uid_then_text_then_part(wanted, label):
    assert find_label(wanted, LABELS) == label


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("twin", "'twin' fits 2: 'twin' (U6), 'twin' (U5); take its uid"),
        ("Hat", "'Hat' fits 2: 'HAT' (U3), 'hat' (U2); take its uid"),
        ("e", "'e' fits 2: 'Febrile seizure' (U1), 'Seizure' (U0); take its uid"),
        ("seezure", "'seezure' is not; near it: 'Seizure' (U0), 'Febrile seizure' (U1)"),
        ("xyzzy", "'xyzzy' is not; look for another word of it"),
    ],
)
def test_a_label_that_is_not_clear_is_an_error_with_candidates(wanted, message):
    with pytest.raises(DataError, match=re.escape(message)):
        find_label(wanted, LABELS)


def test_an_empty_name_is_refused_and_at_most_five_candidates_are_listed():
    with pytest.raises(DataError, match="but nothing is given"):
        find_label("", LabelSet(["a"], ["x"], np.array([1]), np.array([False])))
    names = [f"hat {number}" for number in range(8)]
    with pytest.raises(DataError) as caught:
        find_label("hat", LabelSet(names, names, np.arange(8), np.zeros(8, dtype=bool)))
    assert str(caught.value).count("(hat ") == 5
    assert "fits 8: 'hat 7' (hat 7), 'hat 6' (hat 6)" in str(caught.value)
    assert "and 3 more; take its uid" in str(caught.value)


def test_the_page_shows_what_the_command_prints():
    text = (ROOT / "docs" / "how-to" / "change-labels.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^```console\n\$ (unidex labels similar .*?)\n(.*?)^```$", text, re.M | re.S)
    assert len(sessions) == 1
    for command, expected in sessions:
        done = run("--quiet", *shlex.split(command)[1:])
        assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)


def test_json_and_a_picture_of_a_data_set(tmp_path):
    found = json.loads(call("labels", "similar", "hpo", "HP:0001250", "-k", 12, "--json").stdout)
    assert found["label"]["text"] == "Seizure"
    scores = [row["score"] for row in found["similar"]]
    assert len(scores) == 12
    assert scores == sorted(scores, reverse=True)
    data = formats.read("hpo")
    together = data.train.positives[:, [found["label"]["id"], found["similar"][0]["id"]]].toarray() > 0
    assert scores[0] == pytest.approx(together.all(axis=1).sum() / together[:, 0].sum(), abs=1e-6)
    done = call("labels", "similar", "hpo", "seizure", "-k", 12, "--plot", tmp_path / "seizure.svg", "--json")
    assert json.loads(done.stdout) == found | {"plot": str(tmp_path / "seizure.svg")}
    words = " ".join(ElementTree.parse(tmp_path / "seizure.svg").getroot().itertext())
    for row in found["similar"]:
        # Long texts are on two lines.
        assert row["text"].split()[0] in words
        assert f"{row['score']:.0%}  ({row['num_texts']:,} texts)" in words
    assert f"share of its {found['label']['num_texts']:,} train texts" in words


def pixels(file):
    """Width, height and the unpacked bytes of a PNG; what is no whole PNG does not come through here."""
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    packed, place = b"", 8
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[place + 8 : place + 16])
        elif kind == b"IDAT":
            packed += data[place + 8 : place + 8 + size]
        place += size + 12
    return width, height, np.frombuffer(zlib.decompress(packed), dtype=np.uint8)


def test_a_picture_of_a_model_has_content(folders, tmp_path):
    done = call("labels", "similar", folders / "both", "L3", "-k", 5, "--plot", tmp_path / "five.png")
    lines = done.stdout.splitlines()
    assert lines[0] == "# w6g w7h (L3), torso: by the model's vectors"
    assert lines[1] == "label\tuid\tid\ttrain texts\tscore"
    assert len(lines) == 8
    assert lines[-1] == f"picture: {tmp_path / 'five.png'}"
    width, height, five = pixels(tmp_path / "five.png")
    assert width == 1600
    assert height > 500
    # A row is stored as its difference from its neighbours: on an empty sheet nearly all bytes are 0.
    call("labels", "similar", folders / "both", "L3", "-k", 1, "--plot", tmp_path / "one.png")
    one = pixels(tmp_path / "one.png")[2]
    assert (five != 0).sum() > (one != 0).sum() > 5000


def test_a_picture_of_odd_labels(tmp_path):
    """Formulas, line ends and letters without a glyph are texts like others; too many neighbours are counted."""
    names = ["$x_1$ \\frac", "two\nlines", "日本語", "", *(f"label {n}" for n in range(40))]
    found = similar_in_data(shop([[1] * 44], names), "$x", k=43)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_similar(found, tmp_path / "odd.svg")
    words = list(ElementTree.parse(tmp_path / "odd.svg").getroot().itertext())
    assert "$x_1$ \\frac" in words
    assert "two lines" in words
    assert "日本語" in words
    assert "they are on its one train text; 19 more are not drawn" in words
    assert sum(word.startswith("label ") for word in words) == 21


def test_a_label_without_similar_labels_is_printed_and_drawn(tmp_path):
    formats.write(shop([[1, 0], [1, 0]], ["red shoe", "blue hat"]), tmp_path / "data", "xc-raw")
    done = call("labels", "similar", tmp_path / "data", "hat", "--plot", tmp_path / "hat.svg")
    lines = done.stdout.splitlines()
    assert lines[2:] == ["note: no train text has this label", f"picture: {tmp_path / 'hat.svg'}"]
    assert "no train text has it" in (tmp_path / "hat.svg").read_text()
    done = call("labels", "similar", tmp_path / "data", "shoe")
    assert done.stdout.splitlines()[2:] == ["note: no other label is similar"]


def test_errors_are_one_line(folders, tmp_path):
    data = put(tmp_path / "shop", RAW)
    assert_one_line(run("--quiet", "labels", "similar", data, "nothing like it"))
    done = run("labels", "similar", tmp_path / "absent", "x")
    assert_one_line(done)
    assert "a data set must be a folder, a file or 'hpo', but this does not exist" in done.stderr
    assert call("labels", "similar", data, "shoes", "-k", 0).exit_code == 2
    with pytest.raises(DataError, match="--text has no part in reading a model folder"):
        call("labels", "similar", folders / "both", "L1", "--text", "title")
    with pytest.raises(Exception, match=r"the picture cannot be written"):
        call("labels", "similar", data, "shoes", "--plot", tmp_path / "hat.xyz")
    Model.load(folders / "both").save(tmp_path / "m")
    (tmp_path / "m" / "manifest.json").unlink()
    with pytest.raises(ModelError, match=r"must hold manifest\.json"):
        call("labels", "similar", tmp_path / "m", "L1")
