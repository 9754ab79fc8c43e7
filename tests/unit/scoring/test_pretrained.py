"""A frozen encoder beside the trained one: its vectors, the choice on held-out texts, and every verb of the model."""

import json
import logging
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import QUICK, topics
from unidex.config.recipes import load
from unidex.distributed import ALONE
from unidex.encoders import pretrained_encoder
from unidex.encoders.pretrained_encoder import PretrainedEncoder
from unidex.errors import ConfigError, ModelError
from unidex.features.frozen_encoder import FrozenEncoder
from unidex.model.explanation import explain
from unidex.model.incremental import teach
from unidex.model.model import Model
from unidex.scoring.knn import KnnPart
from unidex.scoring.pretrained import PRETRAINED, PretrainedPart
from unidex.training import pretrained_vectors, validation
from unidex.verbs.train import train

DATA = topics(num_labels=150, num_train=560, num_test=30)
TEXTS = list(DATA.test.texts)
SETTINGS = [*QUICK, "train.epochs=2", "train.validation=0.4", "predict.rank=learned"]


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A folder of static vectors: one random vector per word, so that texts are near labels whose words they have."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    folder = tmp_path_factory.mktemp("static")
    words = ["[UNK]", *(f"w{number}{chr(97 + number % 26)}" for number in range(340))]
    model = tokenizers.models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    np.save(folder / "vectors.npy", np.random.default_rng(0).standard_normal((len(words), 48)).astype(np.float32))
    return folder


@pytest.fixture(scope="module")
def saved(static, tmp_path_factory):
    """A model that reads the vectors; here they are taken whatever they gain."""
    out = tmp_path_factory.mktemp("models") / "model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "_MIN_GAIN", -1.0)
        model = train(DATA, "unidec", settings=[*SETTINGS, f"predict.pretrained={static}"], out=out)
    return out, model


def test_static_vectors_are_means_of_unit_length(static):
    encoder = PretrainedEncoder(str(static), 32)
    table = np.load(static / "vectors.npy")
    expected = (table - table.mean(axis=0))[[1, 2, 2]].sum(axis=0)
    found = encoder(["w0a w1b w1b", ""])
    np.testing.assert_allclose(found[0], expected / np.linalg.norm(expected), atol=1e-5)
    assert found.dtype == np.float32
    assert encoder([]).shape == (0, 48)


def test_cosines_and_knn_scores_are_those_of_plain_products(static):
    encoder = FrozenEncoder(str(static), 32)
    labels, texts = encoder(list(DATA.labels.texts)), encoder(list(DATA.train.texts))
    knn = KnnPart.of(texts, DATA.train.positives, num_nearest=4, temperature=0.1)
    part = PretrainedPart(encoder, labels, knn)
    queries, ids = part.encode(TEXTS), np.random.default_rng(0).integers(0, 150, (30, 7))
    cosines = queries @ labels.T
    np.testing.assert_allclose(part.cosines(queries, ids), np.take_along_axis(cosines, ids, axis=1), atol=2e-5)
    assert np.array_equal(part.search(queries, 3, None).ids[:, 0], cosines.argmax(axis=1))
    hidden = np.arange(150) == cosines[0].argmax()
    assert part.search(queries, 3, hidden).ids[0, 0] != cosines[0].argmax()
    near = np.argsort(-(queries[0] @ texts.T), kind="stable")[:4]
    shares = np.exp((queries[0] @ texts[near].T) / 0.1)
    expected = (shares / shares.sum()) @ DATA.train.positives[near].toarray()
    np.testing.assert_allclose(
        part.knn_scores(queries, None)[[0]].toarray()[0], expected, atol=1e-3
    )  # stored in few bits


def test_the_model_folder_predicts_as_the_model_in_memory(saved, static):
    folder, model = saved
    loaded = Model.load(folder)
    assert set(PRETRAINED) <= set(loaded.scorer.fitted.names)
    assert loaded.config.predict.pretrained == str(static)
    assert json.loads((folder / "pretrained" / "settings.json").read_text())["source"] == str(static)
    one, two = model.topk(TEXTS, 5), loaded.topk(TEXTS, 5)
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.scores, two.scores)
    alone = np.concatenate([loaded.topk([text], 5).ids for text in TEXTS])
    assert np.array_equal(alone, two.ids)
    # Each head alone reads no frozen vectors.
    assert loaded.queries(TEXTS, "dual").pretrained is None
    assert loaded.topk(TEXTS, 3, mode="dual").k == 3


def test_static_vectors_predict_without_torch(saved):
    program = (
        "import sys, unidex; unidex.Model.load(sys.argv[1]).predict(['w0a w1b'], 2); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(saved[0])], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_explanations_have_the_part_and_sum_to_the_score(saved):
    model = Model.load(saved[0])
    for reason in explain(model, TEXTS[0], k=3):
        assert "pretrained" in reason.parts
        assert sum(reason.parts.values()) == pytest.approx(reason.score, abs=1e-5)
    best = model.topk(TEXTS[:1], 3)
    reasons = explain(model, TEXTS[0], labels=[int(best.ids[0, 0])])
    assert reasons[0].score == pytest.approx(float(best.scores[0, 0]), abs=1e-5)


def test_labels_and_texts_that_join_later_have_vectors(saved, tmp_path):
    model = Model.load(saved[0])
    part = model.scorer.pretrained
    (new,) = model.add_labels(["w300o w301p"])
    np.testing.assert_allclose(part.cosines(part.encode(["w301p w300o"]), np.array([[new]])), 1, atol=1e-4)
    assert new in model.topk(["w300o w301p"], 5).ids
    model.rename_label(int(new), "w310y")
    np.testing.assert_allclose(part.cosines(part.encode(["w310y"]), np.array([[new]])), 1, atol=1e-4)
    row = sparse.csr_array(np.eye(1, len(model.labels), int(new), dtype=np.float32))
    model.remember(["w311z w312a"], row)
    assert part.knn_scores(part.encode(["w311z w312a"]), None)[0, int(new)] > 0.5
    teach(model, ["w313b w314c", "w311z w312a"], sparse.csr_array(sparse.vstack([row, row])))
    assert part.texts.num_texts == model.scorer.knn.num_texts == 562
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert np.array_equal(again.topk(TEXTS, 5).scores, model.topk(TEXTS, 5).scores)


def test_vectors_that_do_not_pay_are_left_out(static, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(validation, "_MIN_GAIN", 10.0)
    with caplog.at_level(logging.INFO):
        model = train(DATA, "unidec", settings=[*SETTINGS, f"predict.pretrained={static}"], out=tmp_path / "model")
    assert f"A ranker that reads vectors of {static} is not kept" in caplog.text
    assert model.config.predict.pretrained == ""
    assert model.scorer.pretrained is None
    assert not (tmp_path / "model" / "pretrained").exists()


def test_only_a_learned_ranker_reads_them(static, caplog):
    train(DATA, "unidec", settings=[*QUICK, "train.epochs=1", f"predict.pretrained={static}"])
    assert "only predict.rank = 'learned' reads it" in caplog.text


def test_a_missing_encoder_is_refused_before_training(tmp_path):
    missing = tmp_path / "missing"
    expected = r"predict\.pretrained = '.*missing' cannot be read: .* but '.*missing' is neither"
    with pytest.raises(ConfigError, match=expected):
        train(DATA, "unidec", settings=[*SETTINGS, f"predict.pretrained={missing}"], out=tmp_path / "model")
    # Not one step was taken.
    assert not list(tmp_path.rglob("train.jsonl"))


def test_another_encoder_of_the_same_name_is_found_out(saved, static, monkeypatch):
    model = Model.load(saved[0])
    vectors = np.load(static / "vectors.npy")
    monkeypatch.setattr(np, "load", lambda *_, **__: -vectors)
    with pytest.raises(ModelError, match="must be the encoder that the model was trained with"):
        model.topk(TEXTS[:1], 1)


def test_a_resumed_run_encodes_nothing_again(static, tmp_path, monkeypatch):
    class Texts(pretrained_encoder.PretrainedEncoder):
        count = 0

        def __call__(self, texts):
            Texts.count += len(texts)
            return super().__call__(texts)

    monkeypatch.setattr(pretrained_encoder, "PretrainedEncoder", Texts)
    config = load("auto", [f"predict.pretrained={static}"])
    first, second = (pretrained_vectors.PretrainedVectors.of(config, DATA, tmp_path, ALONE) for _ in range(2))
    one = first.part(config.predict)
    assert Texts.count == 560 + 150 + 2  # with the probe of each
    two = second.part(config.predict, np.arange(100))
    assert Texts.count == 560 + 150 + 2
    assert np.array_equal(one.texts.vectors(np.arange(100)), two.texts.vectors(np.arange(100)))


@pytest.mark.parametrize(
    ("is_there", "few", "many", "rank", "source"),
    [
        (True, 100, 560, "learned", "wordllama"),
        (False, 100, 560, "learned", None),
        (True, 561, 1000, "learned", None),
        (True, 100, 559, "learned", None),
        (True, 100, 560, "sum", None),
    ],
)
def test_auto_tries_static_vectors_if_they_are_installed_and_the_set_is_small(
    monkeypatch, caplog, is_there, few, many, rank, source
):
    monkeypatch.setattr(pretrained_vectors, "is_installed", lambda name: is_there and name == "wordllama")
    monkeypatch.setattr(pretrained_vectors, "FEW_TEXTS", few)
    monkeypatch.setattr(pretrained_vectors, "MANY_TEXTS", many)
    config = load("auto", ["predict.pretrained=auto", f"predict.rank={rank}"])
    found = pretrained_vectors.PretrainedVectors.of(config, DATA, None, ALONE)
    assert (None if found is None else found.source) == source
    # Nobody asked for them by name: nothing is said.
    assert not caplog.text


@pytest.mark.parametrize("gain", [-1.0, 10.0])
def test_the_model_names_the_vectors_that_auto_chose(static, monkeypatch, gain):
    monkeypatch.setattr(validation, "_MIN_GAIN", gain)
    monkeypatch.setattr(pretrained_vectors, "FEW_TEXTS", 100)
    monkeypatch.setattr(pretrained_vectors, "WORDLLAMA", str(static))
    monkeypatch.setattr(pretrained_vectors, "is_installed", lambda name: True)
    model = train(DATA, "unidec", settings=[*SETTINGS, "predict.pretrained=auto"])
    assert model.config.predict.pretrained == (str(static) if gain < 0 else "")
    assert (model.scorer.pretrained is None) == (gain > 0)
