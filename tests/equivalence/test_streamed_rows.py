"""Rows of labels and texts that are computed where they are read give the model of rows in memory, bit for bit."""

import numpy as np
import pytest

from helpers.synthetic import topics
from unidex.scoring import column_weights, computed_rows, label_index
from unidex.training import chosen_rows, network_state
from unidex.verbs.train import train

DATA = topics(num_labels=40, num_train=400, num_test=40)
SETTINGS = ["encoder.dim=16", "features.min_df=1", "train.epochs=2", "train.validation=0.5"]


@pytest.fixture(scope="module")
def in_memory():
    return train(DATA, settings=SETTINGS)


def test_the_model_is_the_same(in_memory, monkeypatch):
    monkeypatch.setattr(computed_rows, "STREAMED_ABOVE", 0)
    monkeypatch.setattr(computed_rows, "BLOCK", 7)
    monkeypatch.setattr(column_weights, "_ROWS_AT_ONCE", 9)
    monkeypatch.setattr(chosen_rows, "MAX_COPY", 0)
    streamed = train(DATA, settings=SETTINGS)
    found, wanted = streamed.topk(DATA.test.texts, 5), in_memory.topk(DATA.test.texts, 5)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores == pytest.approx(wanted.scores, rel=1e-5)
    assert streamed.metrics["choice"] == in_memory.metrics["choice"]
    ids = np.arange(40)
    assert streamed.scorer.index.vectors(ids) == pytest.approx(in_memory.scorer.index.vectors(ids), abs=1e-6)


def test_an_index_on_disk_is_chosen_by_size_and_saved(in_memory, monkeypatch, tmp_path):
    monkeypatch.setattr(label_index, "MAX_IN_MEMORY", 0)
    monkeypatch.setattr(network_state, "MAX_COPY", 0)
    model = train(DATA, settings=SETTINGS, out=tmp_path / "model")
    assert model.scorer.index.kind == "disk"
    again = type(model).load(tmp_path / "model")
    assert again.scorer.index.kind == "disk"
    assert again.topk(DATA.test.texts, 5).ids.tolist() == in_memory.topk(DATA.test.texts, 5).ids.tolist()
    added = again.add_labels(["w80c w81d"], ["new"])
    assert again.topk(["w80c w81d"], 1).ids[0].tolist() == added.tolist()
    assert not list(tmp_path.glob("*.training"))
