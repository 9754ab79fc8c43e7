"""MTEB runs a retrieval task with an exported model, and measures what unidex measures."""

import pytest

from helpers.synthetic import QUICK, topics
from unidex.verbs.train import train


def test_mteb_measures_what_unidex_measures(tmp_path):
    pytest.importorskip("mteb", reason="mteb is not installed")
    mteb_export = pytest.importorskip("mteb_export")
    data = topics(filters=True)
    model = train(data, "static", settings=[*QUICK, "train.epochs=1", "encoder.dim=4"])
    model.export("sentence-transformers", tmp_path / "export")
    theirs = mteb_export.scores_of_mteb(str(tmp_path / "export"), data)
    ours = mteb_export.scores_of_unidex(model, data)
    assert 0.1 < ours["P@1"] < 1
    assert theirs["precision_at_1"] == pytest.approx(ours["P@1"], abs=1e-5)
    assert theirs["ndcg_at_5"] == pytest.approx(ours["nDCG@5"], abs=1e-5)
