"""Exports to sentence-transformers: the library opens them, its vectors are the model's, what is lost is said."""

import json

import numpy as np
import pytest

from helpers.tiny_transformer import TEXTS
from unidex.errors import ModelError
from unidex.export import sentence_folder
from unidex.nn.token_vectors import read_token_vectors
from unidex.verbs.train import train


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")


def opened(library, model, folder, **options):
    done = model.export("sentence-transformers", folder, **options)
    # Without trust in code of the folder, and its own modules alone.
    kinds = [row["type"] for row in json.loads((folder / "modules.json").read_text())]
    assert all(kind.startswith("sentence_transformers.models.") for kind in kinds)
    return library.SentenceTransformer(str(folder), device="cpu"), done, [kind.rpartition(".")[2] for kind in kinds]


@pytest.mark.parametrize("mode", ["dual", "classifier"])
def test_a_static_bag_is_exact(library, static_model, data, tmp_path, mode):
    theirs, done, kinds = opened(library, static_model, tmp_path / "out", mode=mode)
    assert kinds == ["StaticEmbedding", "Normalize"]
    assert done["exact"]
    texts = [*data.test.texts, "", "never seen words here", "W1B  w1b, w1b", "ß ﬁ 東京"]
    expected = getattr(static_model.vectors(texts), mode)
    np.testing.assert_allclose(theirs.encode(texts), expected, atol=2e-6)


def test_search_with_the_exported_model_is_the_models_retrieval(library, static_model, data, tmp_path):
    theirs, done, _ = opened(library, static_model, tmp_path / "out")
    assert done["mode"] == "dual"
    texts, labels = list(data.test.texts), list(static_model.labels.texts)
    from sentence_transformers import util

    found = util.semantic_search(theirs.encode(texts), theirs.encode(labels), top_k=5)
    wanted = static_model.topk(texts, 5, mode="dual")
    scores = np.array([[hit["score"] for hit in hits] for hits in found])
    ids = np.array([[hit["corpus_id"] for hit in hits] for hits in found])
    expected = wanted.scores / static_model.scorer.layout.weight("dual")
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    # Ties may be in another order.
    distinct = np.abs(np.diff(expected, axis=1)).min(axis=1) > 1e-5
    assert distinct.sum() > 20
    assert (ids[distinct] == wanted.ids[distinct]).all()


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("dual", ["StaticEmbedding", "Normalize", "Dense", "Dense", "Normalize"]),
        ("classifier", ["StaticEmbedding", "Normalize", "Dense", "Dense", "Normalize", "Dense"]),
    ],
)
def test_layers_projections_and_biases_are_exact(library, layered_model, data, tmp_path, mode, kinds):
    theirs, done, found = opened(library, layered_model, tmp_path / "out", mode=mode)
    assert (found, done["exact"]) == (kinds, True)
    texts = list(data.test.texts)[:20]
    np.testing.assert_allclose(theirs.encode(texts), getattr(layered_model.vectors(texts), mode), atol=2e-5)


@pytest.mark.parametrize("mode", ["dual", "classifier"])
def test_a_transformer_is_exact(library, transformer_model, tmp_path, mode):
    theirs, _, kinds = opened(library, transformer_model, tmp_path / "out", mode=mode)
    assert kinds == ["Transformer", "Pooling", "Dense", "Normalize"]
    expected = getattr(transformer_model.vectors(TEXTS), mode)
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, atol=2e-5)


def test_words_are_refused_or_approximated_with_a_note(library, auto_model, data, tmp_path):
    with pytest.raises(
        ModelError, match=r"but this one also has words that are not in the vocabulary, .*--approximate"
    ):
        auto_model.export("sentence-transformers", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    theirs, done, kinds = opened(library, auto_model, tmp_path / "out", approximate=True)
    assert kinds == ["StaticEmbedding", "Normalize"]
    assert not done["exact"]
    assert done["notes"][0].startswith(
        "Approximate, without words that are not in the vocabulary, parts of identifiers"
    )
    # These texts have known words, each once: all but the bigrams is there.
    texts = list(data.test.texts)
    cosines = (theirs.encode(texts) * auto_model.vectors(texts).dual).sum(axis=1)
    assert cosines.mean() > 0.8
    said = float(done["notes"][0].partition("mean ")[2].partition(",")[0])
    labels = [text for text, gone in zip(auto_model.labels.texts, auto_model.labels.removed, strict=True) if not gone]
    own = (theirs.encode(labels) * auto_model.vectors(labels).dual).sum(axis=1).mean()
    assert said == pytest.approx(own, abs=1e-3)


def test_an_export_that_would_be_wrong_is_an_error(static_model, tmp_path, monkeypatch):
    wrong = sentence_folder.static_vectors
    monkeypatch.setattr(sentence_folder, "static_vectors", lambda *given: -wrong(*given))
    with pytest.raises(RuntimeError, match="exported vectors of label texts differ"):
        static_model.export("sentence-transformers", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_is_refused(static_model, data, tmp_path):
    with pytest.raises(ModelError, match="holds one head, but --mode is both"):
        static_model.export("sentence-transformers", tmp_path / "out", mode="both")
    quick = ["encoder.dim=8", "train.epochs=1", "features.min_df=1"]
    words = train(data, "inceptionxml", settings=[*quick[1:], "encoder.dim=64", "encoder.max_length=8"])
    with pytest.raises(ModelError, match="is for bags and transformers, but the encoder is inception"):
        words.export("sentence-transformers", tmp_path / "out")
    with pytest.raises(ModelError, match="is for bags and transformers, but the encoder is inception"):
        words.export("onnx", tmp_path / "out")
    spectral = train(data, "renee", settings=[*quick, "encoder.spectral=true"])
    with pytest.raises(ModelError, match="the spectral bag"):
        spectral.export("sentence-transformers", tmp_path / "out", approximate=True)


def test_an_exported_table_gives_a_bag_its_initial_vectors(static_model, tmp_path):
    static_model.export("sentence-transformers", tmp_path / "out")
    found = read_token_vectors(str(tmp_path / "out"))
    token = found.tokenizer.encode("w1b", add_special_tokens=False).ids[0]
    vectors = static_model.network.encoder.table.weight.numpy()
    (feature,) = static_model.network.encoder.features.transform(["w1b"]).indices[:1].tolist()
    assert np.linalg.norm(found.vectors[token]) > 0
    cosine = (
        found.vectors[token]
        @ vectors[feature]
        / np.linalg.norm(found.vectors[token])
        / np.linalg.norm(vectors[feature])
    )
    assert cosine == pytest.approx(1, abs=1e-5)
