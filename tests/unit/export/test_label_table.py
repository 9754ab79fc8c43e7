"""Label vectors as Parquet: other tools read the file, and their search gives the model's retrieval."""

import json

import numpy as np
import pytest

from helpers.command import call
from unidex.errors import ConfigError, DataError, ModelError
from unidex.export import label_table
from unidex.export.format_names import FORMATS
from unidex.export.registry import ExportOptions, check_export, export_format
from unidex.verbs import registered_methods  # noqa: F401  # Model.export
from unidex.verbs.export import export
from unidex.verbs.train import train

pytest.importorskip("pyarrow", reason="the parquet extra is not installed")


@pytest.fixture(scope="module")
def model(auto_model):
    return auto_model


def retrieved(model, texts, k, mode):
    """What the model's own index finds, before the kNN part and the ranker."""
    found = model.scorer.index.search(model.encode(texts, mode), k)
    return [[model.labels.uids[label] for label in row] for row in found.ids], found.scores


@pytest.mark.parametrize("mode", ["both", "dual", "classifier"])
def test_a_search_of_the_vectors_by_faiss_is_the_models_retrieval(model, data, tmp_path, mode):
    faiss, polars = pytest.importorskip("faiss"), pytest.importorskip("polars")
    done = model.export("parquet", tmp_path / "vectors", mode=mode)
    table = polars.read_parquet(tmp_path / "vectors" / "labels.parquet")
    assert table.columns == ["uid", "text", "vector", "prior"]
    assert len(table) == done["num_labels"] == 23
    assert "L3" not in table["uid"].to_list()
    texts = list(data.test.texts)[:20]
    vectors = table["vector"].to_numpy()
    assert vectors.shape == (23, done["dim"])
    index = faiss.IndexFlatIP(done["dim"])
    index.add(np.ascontiguousarray(vectors))
    queries = model.encode(texts) if mode == "both" else getattr(model.vectors(texts), mode)
    scores, places = index.search(queries, 5)
    uids, expected = retrieved(model, texts, 5, mode)
    if mode != "both":
        expected = expected / model.scorer.layout.weight(mode)
    assert [[table["uid"][place] for place in row] for row in places.tolist()] == uids
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_priors_are_the_models_and_the_vectors_have_them(model, tmp_path):
    polars = pytest.importorskip("polars")
    done = model.export("parquet", tmp_path / "vectors")
    table = polars.read_parquet(tmp_path / "vectors" / "labels.parquet")
    ids = [model.labels.id_of(uid) for uid in table["uid"]]
    expected = 0.02 * np.log1p(model.labels.frequencies[ids])
    np.testing.assert_allclose(table["prior"].to_numpy(), expected, rtol=1e-6)
    first, end = done["columns"]["prior"]
    assert end == done["dim"]
    np.testing.assert_allclose(table["vector"].to_numpy()[:, first], expected, rtol=1e-6)
    assert done["notes"] == [
        "Inner products find the model's candidates. Not in the export: the kNN part and the ranker of unidex predict."
    ]
    about = json.loads((tmp_path / "vectors" / "export.json").read_text())
    assert (about["format"], about["model"], about["dim"]) == ("parquet", model.version, done["dim"])


def test_labels_are_streamed_in_row_groups(model, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(label_table.label_blocks, "__defaults__", (10,))
    model.export("parquet", tmp_path / "vectors")
    found = parquet.ParquetFile(tmp_path / "vectors" / "labels.parquet").metadata
    assert [found.row_group(group).num_rows for group in range(found.num_row_groups)] == [10, 10, 3]


def test_every_format_can_be_imported_and_says_what_it_is_for():
    for name, (_, about) in FORMATS.items():
        assert about
        assert export_format(name).options <= set(ExportOptions.__dataclass_fields__)


def test_wrong_use_is_refused_before_a_model_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"^--to must be one of sentence-transformers, .*parquet.*, but is 'csv'$"):
        export(tmp_path / "nowhere", "csv", tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(DataError, match="must be new or empty, but holds something"):
        export(tmp_path / "nowhere", "parquet", tmp_path / "taken")
    assert (tmp_path / "taken" / "file").read_text() == "mine"


def test_modes_that_a_model_does_not_have_are_refused_and_nothing_is_left(model, data, tmp_path):
    with pytest.raises(ModelError, match="--mode must be dual, classifier or both, but is 'sum'"):
        model.export("parquet", tmp_path / "out", mode="sum")
    alone = train(data, "renee", settings=["encoder.dim=8", "train.epochs=1", "features.min_df=1"])
    with pytest.raises(ModelError, match=r"one of the model's heads \(classifier\), but is dual"):
        alone.export("parquet", tmp_path / "out", mode="dual")
    assert list(tmp_path.iterdir()) == []
    assert alone.export("parquet", tmp_path / "out")["notes"] == []


def test_a_label_tree_has_no_inner_products(data, tmp_path):
    settings = ["encoder.dim=8", "train.epochs=1", "features.min_df=1", "tree.levels=[4]", "pool.labels=picked"]
    tree = train(data, "renee", settings=[*settings, "pool.hard_negatives=0"])
    with pytest.raises(ModelError, match="searches a label tree"):
        tree.export("parquet", tmp_path / "out")


def test_an_option_of_another_format_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("unidex.export.label_table.FORMAT", label_table.ExportFormat(label_table._write))
    with pytest.raises(ConfigError, match="--mode is an option of --to "):
        check_export("parquet", tmp_path / "out", ExportOptions(mode="dual"))


def test_the_command_prints_files_and_notes_or_one_json_document(auto_folder, tmp_path):
    shown = call("export", auto_folder, "--to", "parquet", "--out", tmp_path / "a").stdout.splitlines()
    assert shown[0].startswith(f"{tmp_path / 'a'}: export.json, labels.parquet (")
    assert shown[1].startswith("# Inner products find")
    done = json.loads(call("export", auto_folder, "--to", "parquet", "--out", tmp_path / "b", "--json").stdout)
    assert (done["format"], done["files"]) == ("parquet", ["export.json", "labels.parquet"])
