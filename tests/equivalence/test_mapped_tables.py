"""Row tables in memory-mapped files train like tables in memory; tables of float16 train as well, and resume."""

import os

import pytest
import torch

from helpers.stopped_runs import stopped_at_batch
from helpers.synthetic import QUICK, topics
from unidex.verbs.train import train


@pytest.mark.parametrize("settings", [[], ["heads.shared_encoder=false"]], ids=["one encoder", "two encoders"])
def test_tables_in_a_file_train_like_tables_in_memory(settings, tmp_path):
    inside, mapped = (
        train(topics(), "unidec", settings=[*QUICK, *settings, f"train.table_storage={where}"], out=tmp_path / where)
        for where in ("memory", "file")
    )
    tables = mapped.network.tables()
    assert tables.keys() == inside.network.tables().keys()
    for name, table in inside.network.tables().items():
        assert torch.equal(table.weight, tables[name].weight), name


HALF = [*QUICK, "train.classifier_numbers=float16", "train.checkpoint_every=3"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A model whose classifiers were float16 in training, in memory."""
    folder = tmp_path_factory.mktemp("half") / "model"
    return train(topics(), "unidec", settings=HALF, out=folder), folder


def test_classifiers_of_float16_learn_as_much(unbroken):
    model, whole = unbroken[0], train(topics(), "unidec", settings=QUICK)
    assert whole.metrics["test"]["P@1"] > 50
    assert abs(model.metrics["test"]["P@1"] - whole.metrics["test"]["P@1"]) < 3


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole table", "table cut short"])
def test_a_stopped_run_with_float16_in_files_equals_an_unbroken_one_in_memory(unbroken, tmp_path, monkeypatch, is_cut):
    """Rounding is drawn from the seed of a step, so that it does not depend on where a run stopped."""
    settings = [*HALF, "train.table_storage=file"]
    with stopped_at_batch(7, monkeypatch):
        train(topics(), "unidec", settings=settings, out=tmp_path / "model")
    (table,) = (tmp_path / "model.training").rglob("classifiers.0.table")
    assert table.stat().st_size == 2 * topics().num_labels * 32
    if is_cut:
        os.truncate(table, table.stat().st_size // 3)
    train(topics(), "unidec", settings=settings, out=tmp_path / "model", resume=True)
    for name in ("encoder.safetensors", "labels.jsonl", "index/vectors.npy"):
        assert (tmp_path / "model" / name).read_bytes() == (unbroken[1] / name).read_bytes(), name
