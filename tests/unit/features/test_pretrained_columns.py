"""The vector of a frozen encoder beside the words of a text: rows, the model of both heads, and every verb of it."""

import json

import numpy as np
import pytest
from scipy import sparse

from helpers.synthetic import QUICK, topics
from unidex.cli.explain import _Page
from unidex.config.recipes import load
from unidex.encoders.bag import BagEncoder
from unidex.encoders.pretrained_encoder import PretrainedEncoder
from unidex.encoders.registry import build_encoder
from unidex.errors import ConfigError, ModelError
from unidex.export.registry import ExportOptions, export_model
from unidex.features.extractor import FeatureExtractor
from unidex.features.feature_weights import Rows
from unidex.features.frozen_encoder import FrozenEncoder
from unidex.features.pretrained_columns import PretrainedColumns
from unidex.model.explanation import explain
from unidex.model.incremental import teach
from unidex.model.model import Model
from unidex.training import pretrained_vectors, validation
from unidex.training.run_sizes import Sizes
from unidex.verbs.train import train

DATA = topics(num_labels=150, num_train=560, num_test=30)
TEXTS = list(DATA.test.texts)
AUTO = [*QUICK, "train.epochs=2", "train.validation=0.4", "pool.try_hard_negatives=0", "augment.method=none"]


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A folder of static vectors, one random vector per word; "far" and "near" have the same one."""
    tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    folder = tmp_path_factory.mktemp("static")
    words = ["[UNK]", "far", "near", *(f"w{number}{chr(97 + number % 26)}" for number in range(340))]
    model = tokenizers.models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = np.random.default_rng(0).standard_normal((len(words), 24)).astype(np.float32)
    vectors[2] = vectors[1]
    np.save(folder / "vectors.npy", vectors)
    return folder


@pytest.fixture(scope="module")
def bag(static):
    """A bag before training, whose words are those of a few texts."""
    settings = [
        f"features.pretrained={static}",
        "features.pretrained_weight=0.7",
        "features.min_df=1",
        "encoder.dim=32",
    ]
    return BagEncoder.build(load("auto", settings), ["w1b far", "w2c far", "w3d w4e"], ["w4e"])


@pytest.fixture(scope="module")
def saved(static, tmp_path_factory):
    """A model of `auto` with the vectors in both heads, and its folder."""
    out = tmp_path_factory.mktemp("models") / "model"
    return out, train(DATA, "auto", settings=[*AUTO, f"features.pretrained={static}"], out=out)


def test_a_row_is_that_of_the_words_and_the_weighted_vector(bag, static):
    features, texts = bag.features, ["w1b far", "", "nothing known", "w3d w4e w1b"]
    rows, num_words = features.transform(texts), features.vocabulary.num_features
    plain = FeatureExtractor(
        features.settings, features.vocabulary, features.idf, features.names, analyser=features.analyser
    )
    assert np.array_equal(rows[:, :num_words].toarray(), plain.transform(texts).toarray())
    vectors = 0.7 * PretrainedEncoder(str(static), load("auto").encoder.max_length)(texts)
    vectors[1] = 0
    np.testing.assert_allclose(rows[:, num_words:].toarray(), vectors, atol=1e-5)
    assert features.num_features == num_words + 24
    assert np.diff(rows.indptr)[1] == 0
    assert all(np.all(np.diff(row.indices) > 0) for row in (rows[[at]] for at in range(4)))
    assert features.name(num_words) == "(frozen encoder)"


def test_a_blank_text_has_no_vector_even_of_an_encoder_that_makes_one_of_nothing():
    encoder = FrozenEncoder("stub", 1, np.array([0.6, 0.8], dtype=np.float32))
    encoder._encode = lambda texts: np.tile(np.array([0.6, 0.8], dtype=np.float32), (len(texts), 1))
    columns = PretrainedColumns(encoder, 2.0)
    rows = columns.append(
        Rows(np.zeros(3, dtype=np.int64), np.empty(0, np.int32), np.empty(0, np.float32)), ["", " \n", "a"], 5
    )
    assert rows.counts.tolist() == [0, 0, 2]
    matrix = sparse.csr_array((rows.weights, rows.ids, [0, 0, 0, 2]), shape=(3, 7))
    np.testing.assert_allclose(columns.vectors(matrix), [[0, 0], [0, 0], [0.6, 0.8]], atol=1e-6)


def test_one_text_few_texts_and_many_texts_have_the_same_rows(bag, tmp_path):
    texts = [*TEXTS, "", "far", "w1b"]
    many = bag.features.transform(texts)
    few = bag.features.transform_few(texts)
    assert (many != few).nnz == 0
    for at, text in enumerate(texts):
        ids, weights = bag.features.transform_one(text)
        assert np.array_equal(ids, many[[at]].indices)
        assert np.array_equal(weights, many[[at]].data)
    bag.cache = tmp_path
    try:
        assert (bag.prepare(texts) != many).nnz == 0
        # The second time from the file.
        assert (bag.prepare(texts) != many).nnz == 0
    finally:
        bag.cache = None


def test_saved_features_make_the_same_rows_and_another_weight_another_cache(bag, tmp_path):
    bag.features.save(tmp_path)
    loaded = FeatureExtractor.load(tmp_path)
    assert (loaded.transform(TEXTS) != bag.features.transform(TEXTS)).nnz == 0
    assert loaded.fingerprint == bag.features.fingerprint
    about = json.loads((tmp_path / "pretrained.json").read_text())
    (tmp_path / "pretrained.json").write_text(json.dumps(about | {"weight": 0.5}))
    assert FeatureExtractor.load(tmp_path).fingerprint != bag.features.fingerprint
    (tmp_path / "pretrained.json").write_text("{}")
    with pytest.raises(ModelError, match=r"pretrained\.json: the columns of a frozen encoder cannot be read"):
        FeatureExtractor.load(tmp_path)


def test_before_training_inner_products_of_the_frozen_vectors_are_kept(bag):
    # 24 numbers fit into 32 dimensions: the map is orthogonal, for the encoder of each head.
    for encoder in (bag, bag.twin(load("auto", ["encoder.dim=32"]))):
        rows_DD = encoder.table.weight[-24:].numpy()
        np.testing.assert_allclose(rows_DD @ rows_DD.T, np.eye(24), atol=1e-5)
    assert not np.allclose(bag.table.weight[-24:], bag.twin(load("auto", ["encoder.dim=32"])).table.weight[-24:])


def test_words_that_no_train_text_has_are_read_by_their_vectors(static):
    """In both heads: "near" has the frozen vector of "far", and in the text of a label nothing else."""
    settings = [f"features.pretrained={static}", "features.min_df=1", "features.num_buckets=0", "encoder.dim=32"]
    bag = BagEncoder.build(load("auto", settings), ["far w1b"], ["far"])
    rows = bag.prepare(["far", "near", "w9j"])
    vectors = bag(rows).detach().numpy()
    assert vectors[0] @ vectors[1] > 0.6
    assert abs(vectors[0] @ vectors[2]) < 0.6


def test_the_model_folder_predicts_as_the_model_in_memory(saved, static):
    folder, model = saved
    loaded = Model.load(folder)
    assert loaded.config.features.pretrained == str(static)
    assert loaded.encoder.features.columns.dim == 24
    one, two = model.topk(TEXTS, 5), loaded.topk(TEXTS, 5)
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.scores, two.scores)
    alone = np.concatenate([loaded.topk([text], 5).ids for text in TEXTS])
    assert np.array_equal(alone, two.ids)
    for mode in ("dual", "classifier"):
        assert loaded.topk(TEXTS, 3, mode=mode).k == 3


def test_both_heads_read_the_vector(saved):
    model = Model.load(saved[0])
    vectors = {}
    for factor in (1.0, 0.0):
        frozen = model.encoder.features.columns.encoder
        plain = frozen.load()
        frozen._encode = lambda texts, by=factor, encode=plain: by * encode(texts)
        vectors[factor] = model.vectors(TEXTS)
        frozen._encode = plain
    for head in ("dual", "classifier"):
        assert np.abs(getattr(vectors[1.0], head) - getattr(vectors[0.0], head)).max() > 0.05


def test_explanations_show_the_vector_as_one_entry_and_sum_to_the_heads(saved, capsys):
    model = Model.load(saved[0])
    reasons = explain(model, TEXTS[0], k=3, mode="dual")
    for reason in reasons:
        assert sum(token.score for token in reason.tokens) + reason.rest == pytest.approx(reason.score, abs=1e-5)
    # All that belongs to no word is of the frozen encoder: without it there is none.
    assert max(abs(reason.rest) for reason in reasons) > 0.01
    page = _Page(1.0, is_terminal=False)
    page.label(1, reasons[0].as_dict(), TEXTS[0])
    assert f"no word       {reasons[0].rest:8.4f}" in capsys.readouterr().out
    page.label(1, reasons[0].as_dict() | {"rest": 0.0}, TEXTS[0])
    assert "no word" not in capsys.readouterr().out


def test_a_plan_counts_the_numbers_of_the_vector(static):
    plain, beside = (load("auto", ["features.min_df=1", *more]) for more in ((), (f"features.pretrained={static}",)))
    for sizes_of in (Sizes.of, Sizes.upper_bound):
        without, found = sizes_of(DATA, plain), sizes_of(DATA, beside)
        assert found.num_features == without.num_features + 24
        assert found.text_entries == pytest.approx(without.text_entries + 24)
        assert found.label_entries == pytest.approx(without.label_entries + 24)


def test_labels_and_texts_that_join_later_are_read_with_their_vectors(saved, tmp_path):
    model = Model.load(saved[0])
    (new,) = model.add_labels(["far"])
    # "near" shares no word with the label; in their rows are equal frozen vectors.
    assert new in model.topk(["near"], 3, mode="dual").ids
    model.rename_label(int(new), "w310y")
    assert new in model.topk(["w310y"], 3, mode="dual").ids
    row = sparse.csr_array(np.eye(1, len(model.labels), int(new), dtype=np.float32))
    model.remember(["w311z w312a"], row)
    teach(model, ["w313b w314c", "w311z w312a"], sparse.csr_array(sparse.vstack([row, row])))
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert np.array_equal(again.topk(TEXTS, 5).scores, model.topk(TEXTS, 5).scores)


@pytest.mark.parametrize("is_beside_ranker", [False, True])
def test_the_frozen_encoder_runs_once_per_text(static, tmp_path, monkeypatch, is_beside_ranker):
    seen = []
    encode = PretrainedEncoder.__call__
    monkeypatch.setattr(PretrainedEncoder, "__call__", lambda own, texts: seen.extend(texts) or encode(own, texts))
    monkeypatch.setattr(validation, "_MIN_GAIN", -1.0)
    settings = [*AUTO, f"features.pretrained={static}"]
    settings += [f"predict.pretrained={static}"] if is_beside_ranker else []
    out = tmp_path / "model"
    model = train(DATA, "auto", settings=settings, out=out)
    assert (model.scorer.pretrained is not None) == is_beside_ranker
    train_texts = set(DATA.train.texts)
    assert len([text for text in seen if text in train_texts]) == len(DATA.train.texts)
    for model_of in (lambda: model, lambda: Model.load(out)):
        asked = model_of()
        seen.clear()
        asked.topk(["w1b w2c w5f", "w7h"], 3)
        assert [text for text in seen if text.startswith("w")] == ["w1b w2c w5f", "w7h"]


def test_a_missing_encoder_is_refused_before_training(tmp_path):
    missing = tmp_path / "missing"
    expected = r"features\.pretrained = '.*missing' cannot be read: .* but '.*missing' is neither"
    with pytest.raises(ConfigError, match=expected):
        train(DATA, "auto", settings=[*AUTO, f"features.pretrained={missing}"], out=tmp_path / "model")
    assert not list(tmp_path.rglob("train.jsonl"))


def test_another_encoder_of_the_same_name_is_found_out(saved, static, monkeypatch):
    model = Model.load(saved[0])
    vectors = np.load(static / "vectors.npy")
    monkeypatch.setattr(np, "load", lambda *_, **__: -vectors)
    with pytest.raises(ModelError, match="must be the encoder that the model was trained with"):
        model.topk(TEXTS[:1], 1)


def test_what_has_no_place_for_the_vector_is_refused(saved, static, tmp_path):
    with pytest.raises(ConfigError, match=r"encoder\.kind = 'inception'; set encoder\.kind='bag'"):
        build_encoder(load("auto", [f"features.pretrained={static}", "encoder.kind=inception"]), TEXTS, ["w1b"])
    with pytest.raises(ConfigError, match="must name a frozen encoder"):
        load("auto", ["features.pretrained=auto"])
    model = Model.load(saved[0])
    for name, options in (("onnx", {}), ("sentence-transformers", {"approximate": True})):
        with pytest.raises(
            ModelError, match=r"a bag beside a frozen encoder \(features\.pretrained\) cannot be exported"
        ):
            export_model(model, name, tmp_path / name, ExportOptions(mode="dual", **options))


def test_a_resumed_run_encodes_nothing_again(static, tmp_path, monkeypatch):
    settings = [*AUTO, f"features.pretrained={static}"]
    seen = []
    encode = PretrainedEncoder.__call__
    monkeypatch.setattr(PretrainedEncoder, "__call__", lambda own, texts: seen.extend(texts) or encode(own, texts))
    config = load("auto", settings)
    for _ in range(2):
        encoder = build_encoder(config, DATA.train.texts, DATA.labels.texts)
        encoder.cache = tmp_path
        encoder.prepare(DATA.train.texts)
    assert len([text for text in seen if text in set(DATA.train.texts)]) == len(DATA.train.texts)
    assert pretrained_vectors.BesideWords(encoder.features.columns, {}).rows == {}
