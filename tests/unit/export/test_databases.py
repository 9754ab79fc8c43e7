"""A model whose label vectors are in a real database predicts as before, and its labels change there."""

import json

import pytest

from helpers.command import call
from helpers.databases import remote_kinds
from helpers.synthetic import topics
from unidex.errors import IndexUnreachableError
from unidex.model.model import Model
from unidex.verbs.train import train

DATA = topics()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    train(DATA, settings=["encoder.dim=8", "features.min_df=1", "train.epochs=2"], out=folder)
    return folder


@pytest.mark.usefixtures("databases")
@pytest.mark.parametrize("kind", remote_kinds())
def test_predict_add_and_remove(kind, model, tmp_path, monkeypatch):
    folder = tmp_path / "exported"
    done = json.loads(call("export", model, "--to", kind, "--out", folder, "--json").stdout)
    assert done["num_labels"] == DATA.num_labels
    texts = list(DATA.test.texts[:20])
    wanted = Model.load(model).topk(texts, 3)
    assert Model.load(folder).topk(texts, 3).ids.tolist() == wanted.ids.tolist()
    call("labels", "add", folder, "w47v w46u")
    call("labels", "remove", folder, "L3")
    again = Model.load(folder)
    assert again.scorer.index.num_ids == DATA.num_labels + 1
    assert again.labels.uids[again.topk(["w47v w46u"], 1).ids[0, 0]] in ("w47v w46u", "L23")
    assert 3 not in again.topk(texts, 10).ids
    # The database is gone in the middle: an error with the address, and the folder stays as it is.
    monkeypatch.setattr("unidex.index.remote.time.sleep", lambda seconds: None)
    index = again.scorer.index
    index._client = None
    index.url = {"pgvector": "postgresql://me:secret@127.0.0.1:9/gone", "milvus": "http://127.0.0.1:9"}[kind]
    with pytest.raises(IndexUnreachableError, match=r"must be reachable at .*127.0.0.1:9") as error:
        again.topk(texts, 3)
    assert "secret" not in str(error.value)
    assert Model.load(folder).topk(texts, 3).ids.shape == (20, 3)
