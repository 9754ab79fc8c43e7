"""Real data sets beside the repository: their README's numbers are those of inspect, and they survive conversion."""

import json
import re

import pytest
from typer.testing import CliRunner

from helpers.fingerprints import fingerprint
from helpers.paths import ROOT
from unidex.cli.main import app
from unidex.data import formats

SHARED = ROOT.parent / "shared" / "data"
SMALL = ["MDNSeeAlso", "GutenbergSubjects", "DebianRelated", "WinAPISeeAlso"]
LARGE = ["YSOTitles", "CommitFiles"]

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the shared data sets are not at {SHARED}")


def statistics(name):
    """The table of a README: what -> value."""
    text = (SHARED / name / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| (.+?) \| (\S+) \|$", text.partition("## Statistics")[2].partition("##")[0], re.M))


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_inspect_agrees_with_the_readme(name):
    result = CliRunner().invoke(app, ["--quiet", "inspect", str(SHARED / name), "--json"], catch_exceptions=False)
    found, told = json.loads(result.stdout), statistics(name)
    assert found["name"] == name
    assert found["num_train"] == int(told["N_train"])
    assert found["num_test"] == int(told["N_test"])
    assert found["num_labels"] == int(told["L"])
    assert found["labels_per_text"] == pytest.approx(float(told["avg labels per point"]), abs=0.0051)
    assert found["texts_per_label"] == pytest.approx(float(told["avg train points per label"]), abs=0.0051)
    assert found["max_texts_per_label"] == int(told["max train points of one label"])
    pairs = f"{found['filter_pairs_train']}/{found['filter_pairs_test']}"
    assert pairs == told["filter pairs train/test"]
    words = float(told["avg words in title"]) + float(told["avg words in content"])
    assert found["words_per_text"] == pytest.approx(words, abs=0.02)
    assert found["words_per_label"] == pytest.approx(float(told["avg words in label title"]), abs=0.0051)


@pytest.mark.parametrize(("name", "to"), [*zip(SMALL, ["dexml", "xc-raw", "pecos", "jsonl"], strict=True)])
def test_a_converted_data_set_is_equal(tmp_path, name, to):
    arguments = ["--quiet", "convert", str(SHARED / name), str(tmp_path / "set"), "--to", to]
    CliRunner().invoke(app, arguments, catch_exceptions=False)
    found, data = formats.read(tmp_path / "set"), formats.read(SHARED / name)
    assert fingerprint(found) == fingerprint(data)
    if data.train.uids is not None:
        assert list(found.train.uids) == list(data.train.uids)
    assert (found.test.filter_pairs != data.test.filter_pairs).nnz == 0
    assert (found.train.filter_pairs != data.train.filter_pairs).nnz == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_large_converted_data_set_is_equal(tmp_path, name):
    data = formats.read(SHARED / name)
    formats.write(data, tmp_path / "set", "unidex")
    assert fingerprint(formats.read(tmp_path / "set")) == fingerprint(data)
