"""Vocabularies in SKOS as labels: any serialisation, damaged files, and subjects that a vocabulary lacks."""

import gzip
import json
from pathlib import Path

import pytest

from helpers.paths import ROOT
from unidex.data.concepts import Term
from unidex.data.formats import read, write
from unidex.data.formats.label_files import read_labels
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError

rdflib = pytest.importorskip("rdflib", reason="SKOS needs the extra skos (rdflib)")

VOCABULARY = ROOT / "examples/vocabulary/garden.ttl"
GARDEN = "https://example.org/garden/"
TEXTS = [
    {"text": "ripe apples", "labels": [f"{GARDEN}apples"]},
    {"text": "slugs again", "labels": [f"{GARDEN}pests", f"{GARDEN}weather"]},
    {"text": "a dry week", "labels": [f"{GARDEN}watering", f"{GARDEN}weather", f"{GARDEN}spraying"]},
]


def by_name(labels):
    return {labels.uid(label).removeprefix(GARDEN): label for label in range(len(labels))}


@pytest.fixture(scope="module")
def labels():
    return read_labels(VOCABULARY, ReadOptions())


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in TEXTS))
    return file


def test_concepts_become_labels_with_uri_text_notation_and_relations(labels):
    ids = by_name(labels)
    assert sorted(ids) == sorted(
        [
            "plants",
            "trees",
            "apples",
            "vegetables",
            "tomatoes",
            "herbs",
            "animals",
            "bees",
            "hedgehogs",
            "pests",
            "watering",
        ]
    )
    assert list(ids) == sorted(ids)  # by URI
    tomatoes = labels.concepts[ids["tomatoes"]]
    assert labels.texts[ids["tomatoes"]] == "Tomatoes"
    assert tomatoes.language == "en"
    assert tomatoes.notation == "P2.1"
    assert tomatoes.texts == (
        Term("Tomaten", "de", "preferred"),
        Term("Paradeiser", "de"),
        Term("Solanum lycopersicum", "la"),
        Term("Tomatos", "en", "hidden"),
    )
    assert tomatoes.broader == (f"{GARDEN}vegetables",)
    assert tomatoes.groups == (f"{GARDEN}kitchen", f"{GARDEN}scheme")
    # A broader concept by skos:narrower of the other, and a relation in both directions.
    assert labels.concepts[ids["herbs"]].broader == (f"{GARDEN}plants",)
    assert labels.concepts[ids["apples"]].related == (f"{GARDEN}bees",)
    assert labels.concepts[ids["bees"]].related == (f"{GARDEN}apples",)


def test_texts_in_the_language_asked_for(labels):
    german = read_labels(VOCABULARY, ReadOptions(language="DE"))
    assert list(german.uids) == list(labels.uids)
    assert german.texts[by_name(german)["bees"]] == "Bienen"
    assert german.concepts[by_name(german)["bees"]].texts[0] == Term("Bees", "en", "preferred")
    with pytest.raises(
        DataError, match=r"--language must be one that label texts have, but is 'fi'; there is 'de', 'en'"
    ):
        read_labels(VOCABULARY, ReadOptions(language="fi"))


@pytest.mark.parametrize(
    ("ending", "form"), [("rdf", "xml"), ("nt", "nt"), ("ttl.gz", "turtle"), ("jsonld", "json-ld")]
)
def test_every_serialisation_gives_the_same_labels(labels, tmp_path, ending, form):
    written = rdflib.Graph().parse(VOCABULARY).serialize(format=form, encoding="utf-8")
    file = tmp_path / f"garden.{ending}"
    file.write_bytes(gzip.compress(written) if ending.endswith(".gz") else written)
    found = read_labels(file, ReadOptions())
    assert (list(found.texts), list(found.uids), found.concepts) == (
        list(labels.texts),
        list(labels.uids),
        labels.concepts,
    )


def test_skos_xl_labels_and_nested_collections(tmp_path):
    file = tmp_path / "xl.ttl"
    file.write_text(
        """@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix xl: <http://www.w3.org/2008/05/skos-xl#> .
        @prefix : <http://x/> .
        :a a skos:Concept ; xl:prefLabel :a1 ; xl:altLabel [ xl:literalForm "Alpha" ] .
        :a1 xl:literalForm "letter A"@en .
        :all a skos:Collection ; skos:member :part .
        :part a skos:OrderedCollection ; skos:memberList ( :a :all ) ."""
    )
    labels = read_labels(file, ReadOptions())
    assert list(labels.texts) == ["letter A"]
    assert labels.concepts[0].texts == (Term("Alpha"),)
    assert labels.concepts[0].groups == ("http://x/all", "http://x/part")


def test_labels_that_the_vocabulary_lacks_are_counted_listed_and_left_out(texts, caplog):
    data = read(texts, ReadOptions(labels=VOCABULARY, test_fraction=0))
    assert dict(data.unknown_labels) == {f"{GARDEN}weather": 2, f"{GARDEN}spraying": 1}
    assert data.train.positives.sum() == 3
    assert data.num_labels == 11
    assert (
        f"2 labels of the texts are not in {VOCABULARY}: 3 of 6 pairs are left out (--strict refuses them)"
        in caplog.text
    )
    assert f"'{GARDEN}weather' (2)" in caplog.text
    with pytest.raises(DataError, match=rf"texts.jsonl:2: the labels must have every label.*not '{GARDEN}weather'"):
        read(texts, ReadOptions(labels=VOCABULARY, strict=True))


def test_labels_may_be_named_by_their_preferred_text_in_any_language(tmp_path):
    file = tmp_path / "named.csv"
    file.write_text("text,labels\nred,Tomaten\nsting,Bees\nbug,Pollinators\n")
    data = read(file, ReadOptions(labels=VOCABULARY, test_fraction=0))
    found = [data.labels.uid(label) for label in data.train.positives.indices]
    assert found == [f"{GARDEN}tomatoes", f"{GARDEN}bees"]
    assert dict(data.unknown_labels) == {"Pollinators": 1}


def test_texts_of_which_the_vocabulary_has_no_label_are_refused(tmp_path):
    file = tmp_path / "other.csv"
    file.write_text("text,labels\nred,colour\n")
    with pytest.raises(DataError, match=r"the labels of the texts must be among those of .*'colour' \(1\)"):
        read(file, ReadOptions(labels=VOCABULARY))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.ttl", b"this is no Turtle", "the file must be RDF as its name says .turtle., but cannot be read so"),
        ("a.rdf", b"<rdf", "the file must be RDF as its name says .xml."),
        ("a.nt", b"<http://x> <http://y> .\n", "the file must be RDF as its name says .nt."),
        ("a.ttl.gz", gzip.compress(b"@prefix x: <http://x/> . " * 50, mtime=0)[:40], "the vocabulary cannot be read"),
        ("a.ttl.gz", b"plain", "the vocabulary cannot be read"),
        ("a.ttl", b"<http://x> a <http://y> .", "a vocabulary must have concepts"),
    ],
)
def test_damaged_vocabularies(tmp_path, name, content, match):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: {match}"):
        read_labels(tmp_path / name, ReadOptions())
    with pytest.raises(DataError, match=r"none.ttl: the vocabulary cannot be read \(No such file"):
        read_labels(tmp_path / "none.ttl", ReadOptions())


@pytest.mark.parametrize("form", ["jsonl", "unidex", "pecos", "xc-raw"])
def test_every_format_keeps_what_the_vocabulary_says(texts, labels, tmp_path, form):
    data = read(texts, ReadOptions(labels=VOCABULARY, test_fraction=0))
    write(data, tmp_path / form, form)
    found = read(tmp_path / form)
    assert list(found.labels.uids) == list(labels.uids)
    assert list(found.labels.texts) == list(labels.texts)
    assert found.labels.concepts == labels.concepts


def test_a_damaged_file_of_concepts_is_an_error_with_its_name(texts, tmp_path):
    write(read(texts, ReadOptions(labels=VOCABULARY, test_fraction=0)), tmp_path / "data", "pecos")
    file = tmp_path / "data/concepts.jsonl"
    whole = file.read_text()
    for damaged, match in (
        (whole[:-9], "a line must be a concept"),
        (whole.replace('"label":10', '"label":99'), "0 to 10"),
    ):
        file.write_text(damaged)
        with pytest.raises(DataError, match=rf"concepts.jsonl.*{match}"):
            read(Path(tmp_path / "data"))


def test_a_vocabulary_is_neither_data_nor_of_any_other_ending(tmp_path):
    (tmp_path / "stw.ttl").write_text("@prefix a: <b> .\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"stw.ttl: DATA must be texts with labels, but this is a vocabulary .*--labels"
    ):
        read(tmp_path / "stw.ttl")
    with pytest.raises(DataError, match=r"stw.tt: labels must be a table \(.csv, .*\) or a vocabulary \(.ttl, .rdf"):
        read_labels(tmp_path / "stw.tt", ReadOptions())
