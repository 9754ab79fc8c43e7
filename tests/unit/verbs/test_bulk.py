"""Bulk prediction: partitions are predicted in any order and again after a fault, and the files are the same."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pyarrow
import pyarrow.parquet
import pytest

import unidex
from helpers.command import call
from helpers.synthetic import topics
from unidex.errors import DataError, UnidexError
from unidex.verbs import bulk
from unidex.verbs.predict import predict_rows
from unidex.verbs.train import train

DATA = topics(num_test=240)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("bulk")
    settings = ["encoder.dim=16", "features.min_df=1", "train.epochs=2", "train.validation=0.3"]
    train(DATA, settings=settings, out=root / "model")
    texts = list(DATA.test.texts)
    (root / "texts").mkdir()
    for number in range(12):
        own = texts[20 * number : 20 * number + 20]
        table = pyarrow.table({"row": list(range(len(own))), "text": own})
        pyarrow.parquet.write_table(table, root / "texts" / f"{number:02d}.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), root / "all.parquet", row_group_size=50)
    return root


def contents(out):
    return {file.name: file.read_bytes() for file in sorted(out.glob("part-*"))}


@pytest.fixture(scope="module")
def local(folder):
    call("predict", folder / "model", folder / "texts", "--out", folder / "local", "--engine", "local")
    return contents(folder / "local")


def test_a_predictor_gives_what_predict_gives_in_any_form_and_after_pickling(folder):
    predictor = pickle.loads(pickle.dumps(unidex.Predictor(folder / "model", k=3)))
    texts = [*DATA.test.texts[:5], ""]
    wanted = [
        [label["uid"] for label in row["labels"]]
        for row in predict_rows(unidex.Model.load(folder / "model"), texts, k=3)
    ]
    assert predictor({"text": texts})["uids"] == wanted
    assert wanted[-1] == []
    table = predictor(pyarrow.table({"text": texts, "n": range(6)}))
    assert table.column_names[:3] == ["text", "n", "labels"]
    assert table["uids"].to_pylist() == wanted
    pandas = pytest.importorskip("pandas")
    frame = predictor(pandas.DataFrame({"text": texts}))
    assert frame["uids"].tolist() == wanted
    assert frame["scores"].tolist() == table["scores"].to_pylist()
    with pytest.raises(DataError, match="must have the column 'text', but has body"):
        predictor({"body": texts})


def test_row_groups_are_partitions(folder, monkeypatch):
    monkeypatch.setattr(bulk, "ROWS_PER_PARTITION", 100)
    found = bulk.find_partitions([str(folder / "all.parquet")])
    assert [partition.row_groups for partition in found] == [(0, 1), (2, 3), (4,)]
    call("predict", folder / "model", folder / "all.parquet", "--out", folder / "groups", "--engine", "local")
    parts = [pyarrow.parquet.read_table(file) for file in sorted((folder / "groups").glob("part-*"))]
    assert [part.num_rows for part in parts] == [100, 100, 40]
    assert pyarrow.concat_tables(parts)["text"].to_pylist() == list(DATA.test.texts)


def test_an_interrupted_run_predicts_only_what_is_missing(folder, local):
    (folder / "local" / "part-00003.parquet").unlink()
    again = ("predict", folder / "model", folder / "texts", "--out", folder / "local", "--engine", "local")
    assert '"num_predicted": 1' in call(*again, "--json").stdout
    assert contents(folder / "local") == local
    with pytest.raises(UnidexError, match="must be continued with the same model, texts and options"):
        call(*again, "-k", "7")


def test_wrong_engines_and_folders_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match="--engine must be local or ray, but is 'spark'"):
        call("predict", folder / "model", folder / "texts", "--out", tmp_path / "a", "--engine", "spark")
    with pytest.raises(DataError, match="--engine needs a folder"):
        call("predict", folder / "model", folder / "texts", "--engine", "local")
    with pytest.raises(DataError, match="lost: texts must be tables or folders of tables, but nothing is here"):
        call("predict", folder / "model", folder / "lost", "--out", tmp_path / "a", "--engine", "local")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UnidexError, match="has other files"):
        call("predict", folder / "model", folder / "texts", "--out", tmp_path, "--engine", "local")


def test_ray_gives_the_files_of_one_process_also_if_an_actor_is_killed(folder, local):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    psutil = pytest.importorskip("psutil")
    out = folder / "ray"
    command = [sys.executable, "-m", "unidex", "-q", "predict", folder / "model", folder / "texts", "--out", out]
    command += ["--engine", "ray", "--workers", "1"]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen([str(part) for part in command], env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    killed = False
    while process.poll() is None and not killed and time.monotonic() < deadline:
        if len(contents(out)) >= 1:
            for child in psutil.Process(process.pid).children(recursive=True):
                if child.name().startswith("ray::") and "MapWorker" in " ".join(child.cmdline()):
                    os.kill(child.pid, signal.SIGKILL)
                    killed = True
        time.sleep(0.01)
    error = process.communicate(timeout=240)[1]
    assert process.returncode == 0, error
    assert killed
    assert contents(out) == local
