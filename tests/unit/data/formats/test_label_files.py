"""Tables of labels with several texts per label: in a cell, in a list, in columns by language, in repeated rows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unidex.data.concepts import Concept, Term, joined_text, joined_texts
from unidex.data.formats.label_files import read_labels
from unidex.data.label_records import LabelRecord, labels_of
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError

ANY = ReadOptions()


def save(folder, name, content):
    (folder / name).write_text(content, encoding="utf-8")
    return folder / name


def texts_of(labels, label=0):
    concept = labels.concepts.get(label, Concept())
    return [(labels.texts[label], concept.language), *((term.text, term.language) for term in concept.texts)]


FISH = [("fish", ""), ("sea food", ""), ("Pisces", "")]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "uid,text,texts\nf,fish,sea food|Pisces\nb,bird,\n", FISH),
        ("a.csv", 'uid,text,synonyms\nf,fish,"[""sea food"", ""Pisces""]"\nb,bird,\n', FISH),
        ("a.tsv", "uid\ttext\tsynonyms\nf\tfish\tsea food ; Pisces\nb\tbird\t\n", FISH),
        ("a.csv", "uid,text\nf,fish\nb,bird\nf,sea food\nf,Pisces\n", FISH),
        (
            "a.jsonl",
            '{"uid": "f", "text": "fish", "texts": ["sea food", "Pisces"]}\n{"uid": "b", "text": "bird"}\n',
            FISH,
        ),
        ("a.jsonl", '{"uid": "f", "texts": ["fish", "sea food", "Pisces"]}\n{"uid": "b", "texts": ["bird"]}\n', FISH),
        (
            "a.csv",
            "uid,language,text\nf,en,fish\nb,en,bird\nf,de,Fisch\nf,en,sea food\n",
            [("fish", "en"), ("Fisch", "de"), ("sea food", "en")],
        ),
        (
            "a.csv",
            "uri,label_de,label_en,notation\nf,Fisch,fish,F1\nb,Vogel,bird,B\n",
            [("fish", "en"), ("Fisch", "de")],
        ),
        (
            "a.jsonl",
            '{"uid": "f", "text": "fish", "language": "en", "texts": [{"text": "Fisch", "language": "de"}, '
            '"sea food"]}\n'
            '{"uid": "b", "text": "bird"}\n',
            [("fish", "en"), ("sea food", "en"), ("Fisch", "de")],
        ),
    ],
)
def test_several_texts_per_label(tmp_path, name, content, expected):
    labels = read_labels(save(tmp_path, name, content), ANY)
    assert list(labels.uids) == ["f", "b"]
    assert texts_of(labels) == expected
    assert labels.texts[1] == "bird"


def test_parquet_lists(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet (pyarrow)")
    table = arrow.table({"uid": ["f", "b"], "text": ["fish", "bird"], "texts": [["sea food", "Pisces"], None]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    assert texts_of(read_labels(tmp_path / "a.parquet", ANY)) == FISH


def test_the_language_asked_for_goes_before_the_most_frequent_one(tmp_path):
    file = save(tmp_path, "a.csv", "uid,text_de,text_en\nf,Fisch,\nb,Vogel,bird\n")
    assert list(read_labels(file, ANY).texts) == ["Fisch", "Vogel"]
    assert list(read_labels(file, ReadOptions(language="en")).texts) == ["Fisch", "bird"]


def test_a_few_names_more_make_no_language_the_one_of_the_labels(tmp_path):
    rows = [f"{number},fisk {number},fish {number},\n" for number in range(99)]
    almost = save(tmp_path, "a.csv", "".join(["uid,text_sv,text_en,text_fi\n", *rows, "x,bara svenska,,\n"]))
    assert list(read_labels(almost, ANY).texts)[-2:] == ["fish 98", "bara svenska"]
    many = save(
        tmp_path, "b.csv", "".join(["uid,text_sv,text_en,text_fi\n", *rows, *(f"x{n},b,,\n" for n in range(5))])
    )
    assert read_labels(many, ANY).texts[0] == "fisk 0"
    # One name without a language does not make names without a language the first ones.
    mixed = '{"uid": "a", "texts": [{"text": "bird"}, {"text": "Vogel", "language": "de", "kind": "preferred"}]}\n'
    german = '{"uid": "%d", "texts": [{"text": "Fisch", "language": "de", "kind": "preferred"}]}\n'
    names = mixed.replace('"bird"', '"bird", "kind": "preferred"') + "".join(german % n for n in range(9))
    assert read_labels(save(tmp_path, "c.jsonl", names), ANY).texts[0] == "Vogel"


def test_notation_relations_and_groups(tmp_path):
    content = "uid,text,notation,broader,related,groups\nf,fish,F1,a,b|zz,fauna;water\na,animals,,,,\nb,bird,,a,,\n"
    labels = read_labels(save(tmp_path, "a.csv", content), ANY)
    # A label that is not there is no relation.
    assert labels.concepts[0] == Concept(notation="F1", broader=("a",), related=("b",), groups=("fauna", "water"))
    assert 1 not in labels.concepts


def test_a_plain_table_has_no_concepts(tmp_path):
    assert read_labels(save(tmp_path, "a.csv", "uid,text,label_id\nf,fish,3\nb,bird,4\n"), ANY).concepts == {}


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.csv", "text,texts\nfish,a\nfish,b\n", "a.csv:3: labels must differ, but 'fish' comes again"),
        ("a.csv", "uid,text,texts\nf,,\n", "a.csv:2: a label must have a text, but 'f' has none"),
        ("a.csv", "uid,text,texts\n,fish,\n", "a.csv:2: a row must have a uid where others have one"),
        ("a.csv", "uid,text,texts\nf,fish,[oops\n", "a.csv:2: "),
        ("a.jsonl", '{"uid": "f", "text": "fish", "texts": [{"test": "x"}]}\n', "a.jsonl:1: .*`test`"),
    ],
)
def test_bad_rows_have_their_line(tmp_path, name, content, match):
    with pytest.raises(DataError, match=match):
        read_labels(save(tmp_path, name, content), ANY)


words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(words, st.sampled_from(["", "en", "de"])), min_size=1, max_size=5))
def test_any_texts_are_written_and_read_again(tmp_path_factory, terms):
    folder = tmp_path_factory.mktemp("labels")
    row = {"uid": "u", "texts": [{"text": text, "language": tag} for text, tag in terms]}
    found = texts_of(read_labels(save(folder, "a.jsonl", json.dumps(row) + "\n"), ANY))
    assert sorted(found) == sorted({(" ".join(text.split()), tag) for text, tag in terms})


def test_all_texts_of_a_label_as_one():
    concepts = {1: Concept(texts=(Term("Fisch", "de"), Term("FISH"), Term("sea food")))}
    assert joined_texts(["bird", "fish"], concepts) == ["bird", "fish; Fisch; sea food"]
    texts = ["bird", "fish"]
    # Without further texts it is the same list: millions of labels are not copied.
    assert joined_texts(texts, {1: Concept(notation="F")}) is texts
    assert joined_text("fish", None) == "fish"


def test_hidden_texts_are_never_the_label_s_own():
    record = LabelRecord("u", [Term("fihs", "en", "hidden"), Term("Fisch", "de", "alternative")])
    assert list(labels_of([record]).texts) == ["Fisch"]
