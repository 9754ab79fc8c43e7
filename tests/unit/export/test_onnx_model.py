"""ONNX graphs: onnxruntime opens them, and scores and labels are those of model.predict by the weighted sum."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers.tiny_transformer import TEXTS
from unidex.features.extractor import FeatureExtractor, padded_rows
from unidex.model.model import Model
from unidex.verbs.train import train

pytest.importorskip("onnx", reason="the onnx extra is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def by_features(folder, texts):
    ids, weights = padded_rows(FeatureExtractor.load(folder / "features").transform(texts))
    return {"feature_ids": ids, "feature_weights": weights}


def by_tokens(folder, texts):
    from tokenizers import Tokenizer

    encodings = Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(texts)
    ids = np.array([encoding.ids for encoding in encodings])
    return {"input_ids": ids, "attention_mask": np.array([encoding.attention_mask for encoding in encodings])}


def summed(model, texts, k):
    """What the model predicts by the weighted sum of its heads and the label prior, without kNN part and ranker."""
    scorer = model.scorer
    plain = replace(scorer.layout, weights=replace(scorer.layout.weights, knn=0.0))
    bare = replace(scorer, layout=plain, knn=None, fitted=None, calibration=None, lexical=None)
    alone = Model(model.config, model.network, model.labels, bare, {})
    try:
        return alone.predict(texts, k)
    finally:
        model.labels = model.labels


def compare(model, folder, texts, inputs, k=5):
    done = model.export("onnx", folder)
    session = runtime.InferenceSession(str(folder / "model.onnx"))
    given = inputs(folder, texts) | {"k": np.array([k])}
    assert done["inputs"] == [entry.name for entry in session.get_inputs()]
    query, scores, labels = session.run(None, given)
    np.testing.assert_allclose(query, model.encode(texts), atol=2e-5)
    wanted = summed(model, texts, k)
    np.testing.assert_allclose(scores, wanted.scores, atol=2e-5)
    uids = [json.loads(line)["uid"] for line in (folder / "labels.jsonl").read_text().splitlines()]
    distinct = np.abs(np.diff(wanted.scores, axis=1)).min(axis=1) > 1e-5
    assert distinct.any()
    for row in np.flatnonzero(distinct).tolist():
        assert [uids[label] for label in labels[row]] == [label.uid for label in wanted[row]]
    return done


def test_a_model_of_words_takes_features(auto_model, data, tmp_path):
    texts = ["", *data.test.texts]
    done = compare(auto_model, tmp_path / "out", texts, by_features)
    assert done["outputs"] == ["query", "scores", "labels"]
    assert done["num_labels"] == 23
    assert "the kNN part and the ranker" in done["notes"][0]


@pytest.mark.parametrize("name", ["static_model", "layered_model"])
def test_a_model_of_subwords_takes_tokens(name, data, tmp_path, request):
    compare(request.getfixturevalue(name), tmp_path / "out", list(data.test.texts), by_tokens)


def test_a_transformer_takes_tokens(transformer_model, tmp_path):
    compare(transformer_model, tmp_path / "out", TEXTS, by_tokens, k=2)
    # Other numbers of texts and tokens than the traced ones.
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    given = by_tokens(tmp_path / "out", TEXTS[:1]) | {"k": np.array([1])}
    np.testing.assert_allclose(session.run(["query"], given)[0], transformer_model.encode(TEXTS[:1]), atol=2e-5)


@pytest.mark.parametrize("pooling", ["max", "last", "cls"])
def test_every_pooling_is_traced(pooling, transformer_model, tmp_path, monkeypatch):
    monkeypatch.setattr(transformer_model.network.encoder, "pooling", pooling)
    transformer_model.export("onnx", tmp_path / "out", mode="dual", encoder_only=True)
    session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    found = session.run(None, by_tokens(tmp_path / "out", TEXTS))
    assert len(found) == 1
    np.testing.assert_allclose(found[0], transformer_model.vectors(TEXTS).dual, atol=2e-5)


def test_a_spectral_bag_takes_features(data, tmp_path):
    quick = ["encoder.dim=8", "train.epochs=1", "features.min_df=1", "encoder.spectral=true", "heads.projection=false"]
    compare(train(data, "renee", settings=quick), tmp_path / "out", list(data.test.texts), by_features)
