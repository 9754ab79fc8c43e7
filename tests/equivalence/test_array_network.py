"""A network by arrays gives the vectors of the torch network, and a model is the same in memory and on disk."""

import json

import numpy as np
import pytest
import torch

from helpers.synthetic import QUICK, topics
from unidex.model.model import Model
from unidex.verbs.train import train

DATA = topics()
TEXTS = [*DATA.test.texts, "", "unknown words"]
CASES = [
    ("unidec",),
    ("auto",),
    ("renee", "heads.classifier_bias=zero"),
    ("dexml", "heads.projection=true", "encoder.residual=false"),
    ("depsl", "predict.index=pq", "predict.precision=int8"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case[0])
def model(request):
    settings = [*QUICK, "train.epochs=1", *request.param[1:]]
    return train(DATA, request.param[0], settings=settings)


def test_vectors_are_those_of_torch(model):
    network = model.network
    found = model.vectors(TEXTS)
    precision = model.config.predict.precision
    wanted = network.text_vectors(network.encoder.prepare(TEXTS))
    for head in ("dual", "classifier"):
        by_arrays, by_torch = getattr(found, head), getattr(wanted, head)
        assert (by_arrays is None) == (by_torch is None)
        if by_torch is not None:
            tolerance = 1e-5 if precision == "float32" else 0.03
            torch.testing.assert_close(torch.from_numpy(by_arrays), by_torch, atol=tolerance, rtol=1e-4)


def test_a_text_has_the_same_vector_alone_and_in_a_batch(model):
    many = model.vectors(TEXTS * 20).classifier
    if many is not None and not model.config.encoder.residual and not model.config.heads.projection:
        assert np.array_equal(model.vectors(TEXTS[:1]).classifier, many[:1])


def test_a_loaded_model_is_the_model_in_memory_bit_for_bit(model, tmp_path):
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "classifier.safetensors").exists()
    is_coded = model.config.predict.precision != "float32"
    assert (tmp_path / "model" / "index" / "vectors_int8.numbers").exists() == is_coded
    loaded = Model.load(tmp_path / "model")
    found, wanted = loaded.topk(TEXTS, 7), model.topk(TEXTS, 7)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert np.array_equal(found.scores, wanted.scores)
    # The torch network of a loaded model gives the same vectors up to rounding.
    network = loaded.network
    of_torch = network.text_vectors(network.encoder.prepare(TEXTS)).arrays()
    for head in loaded.scorer.layout.heads:
        np.testing.assert_allclose(getattr(of_torch, head), getattr(loaded.vectors(TEXTS), head), atol=1e-5)
    # Labels that are added or taught keep the precision of the rest.
    if "dual" in loaded.scorer.layout.heads:
        loaded.add_labels(["a new label"])
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again" / "index" / "vectors_int8.numbers").exists() == is_coded


def test_saved_weights_that_are_not_those_of_the_recipe_are_refused(model, tmp_path):
    from safetensors.numpy import load_file, save_file

    from unidex.errors import ModelError
    from unidex.model.folder import _hashes

    model.save(tmp_path / "model")
    file = tmp_path / "model" / "encoder.safetensors"
    weights = load_file(file)
    name = next(iter(sorted(weights)))
    save_file({key: values for key, values in weights.items() if key != name} | {"other": weights[name]}, file)
    manifest = {"format": 4, "files": _hashes(tmp_path / "model")}
    (tmp_path / "model" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelError, match="the files must be those of one model"):
        Model.load(tmp_path / "model")
