"""Tables: CSV, TSV, JSON lines and Parquet, with known answers, bad input and random data sets."""

import csv
import gzip
import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.strategies import assert_equal_datasets, characters, datasets
from unidex.data.dataset import Dataset, Labels, Split, split_rows
from unidex.data.formats import jsonl, table
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError, MissingExtraError

NO_SPLIT = ReadOptions(test_fraction=0)


def save(folder, name, content):
    file = folder / name
    content = content if isinstance(content, bytes) else content.encode()
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return file


def save_parquet(folder, name="a.parquet", **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / name)
    return folder / name


def shown(split, labels):
    """Texts with their labels and relevance, as a person would write them."""
    rows = split.positives.toarray()
    return [
        (text, {labels.uid(int(label)): float(row[label]) for label in np.flatnonzero(row)})
        for text, row in zip(split.texts, rows, strict=True)
    ]


def known(path, **options):
    data = table.read(path, ReadOptions(test_fraction=0, **options))
    return shown(data.train, data.labels), list(data.labels.texts)


SHOP = ([("red shoe", {"shoes": 1, "red": 1}), ("hat", {"hats": 1}), ("thing", {})], ["shoes", "red", "hats"])
SHOP_CSV = "text,labels\nred shoe,shoes|red\nhat,hats\nthing,\n"
SHOP_JSON = (
    '{"text": "red shoe", "labels": ["shoes", "red"]}\n{"text": "hat", "labels": ["hats"]}\n'
    '{"text": "thing", "labels": []}\n'
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("shop.csv", SHOP_CSV),
        ("shop.CSV", SHOP_CSV),
        ("shop.csv.gz", SHOP_CSV),
        ("shop.csv", "\ufeff" + SHOP_CSV),
        ("shop.csv", SHOP_CSV.replace("\n", "\r\n")),
        ("shop.csv", SHOP_CSV.replace("\n", "\n\n")),
        ("shop.csv", SHOP_CSV.replace(",", ";")),
        ("shop.csv", SHOP_CSV.replace(",", "\t")),
        ("shop.tsv", SHOP_CSV.replace(",", "\t")),
        ("shop.csv", SHOP_CSV.replace("|", ";")),
        ("shop.csv", SHOP_CSV.replace("shoes|red", ' "shoes, red,"').replace("e, ", "e,")),
        ("shop.csv", SHOP_CSV.replace("shoes|red", "| shoes || red |")),
        ("shop.csv", 'text,labels\nred shoe,"[""shoes"", ""red""]"\nhat,[\'hats\']\nthing,[]\n'),
        ("shop.csv", "text,labels\nred shoe,\"['shoes', 'red']\"\nhat,\"['hats']\"\nthing,\n"),
        ("shop.csv", "Labels,ignored, TEXT \nshoes|red,1,red shoe\nhats,2,hat\n,3,thing\n"),
        ("shop.jsonl", SHOP_JSON),
        ("shop.jsonl", SHOP_JSON.rstrip("\n")),
        ("shop.ndjson.gz", SHOP_JSON),
        ("shop.json", "\ufeff" + SHOP_JSON.replace("\n", "\r\n")),
        ("shop.jsonl", "\n" + SHOP_JSON.replace("\n", "\n\n")),
        ("shop.jsonl", SHOP_JSON.replace('["shoes", "red"]', '"shoes|red"').replace("[]", "null")),
        ("shop.jsonl", SHOP_JSON.replace('["shoes", "red"]', '[" shoes", "", "red", "shoes"]')),
    ],
)
def test_every_way_of_writing_the_same_table(tmp_path, name, content):
    file = save(tmp_path, name, content)
    assert table.detects(file)
    assert known(file) == SHOP


@pytest.mark.parametrize(
    "labels",
    [
        pyarrow.array([["shoes", "red"], ["hats"], []]),
        pyarrow.array([["shoes", "red"], ["hats"], None], pyarrow.large_list(pyarrow.string())),
        pyarrow.array(["shoes|red", "hats", None]),
        pyarrow.array(["shoes|red", "hats", ""]).dictionary_encode(),
    ],
)
def test_parquet(tmp_path, labels):
    file = save_parquet(tmp_path, text=["red shoe", "hat", "thing"], labels=labels)
    assert table.detects(file)
    assert known(file) == SHOP


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    file = save_parquet(tmp_path, text=["a"], labels=["b"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"unidex\[parquet\]"):
        table.read(file, NO_SPLIT)


def test_parquet_rows_beyond_one_batch_keep_their_labels(tmp_path):
    numbers = list(range(40_000))
    lists = [[number % 7, 10 + number % 3] if number % 5 else None for number in numbers]
    data = table.read(save_parquet(tmp_path, id=numbers, text=[f"t{n}" for n in numbers], tags=lists), NO_SPLIT)
    uids = list(data.labels.uids)
    for row in (0, 1, 16_384, 16_385, 39_999):
        found = {uids[label] for label in data.train.positives[[row]].indices}
        assert found == {str(label) for label in lists[row] or []}
    assert data.train.uids[39_999] == "39999"


def test_numbers_are_labels_by_their_digits(tmp_path):
    content = '{"text": "a", "labels": [3, 4.0, "3"]}\n{"text": "b", "labels": 0.5}\n'
    assert known(save(tmp_path, "a.jsonl", content)) == (
        [("a", {"3": 1, "4": 1}), ("b", {"0.5": 1})],
        ["3", "4", "0.5"],
    )
    floats = save_parquet(tmp_path, text=["a", "b", "c"], label=pyarrow.array([2.0, None, np.nan]))
    assert known(floats) == ([("a", {"2": 1}), ("b", {}), ("c", {})], ["2"])


def test_one_label_a_cell_when_no_separator_is_seen(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = save(tmp_path, "a.csv", "text,category\na,fine arts\nb,sport\n")
    assert known(file)[1] == ["fine arts", "sport"]
    assert "a cell is one label" in caplog.text
    assert known(save(tmp_path, "b.csv", "text,category\na,x|y;z\nb,s\n"))[1] == ["x", "y;z", "s"]
    assert "labels are separated by '|'" in caplog.text


def test_a_given_separator_is_used(tmp_path):
    file = save(tmp_path, "a.csv", "text,labels\na,x::y|z\nb,['v']\n")
    assert known(file, separator="::")[1] == ["x", "y|z", "['v']"]
    assert known(file, separator="")[1] == ["x::y|z", "['v']"]


def test_numpy_list_is_not_one_label(tmp_path):
    file = save(tmp_path, "a.csv", "text,labels\na,\"['x', \"\"it's\"\"]\"\nb,['x' 'y']\n")
    with pytest.raises(DataError, match=r"a.csv:3: labels must be lists.*\['x' 'y'\].*--separator"):
        table.read(file, NO_SPLIT)


def test_graded_relevance(tmp_path):
    expected = ([("a", {"x": 0.5, "y": 2}), ("b", {"y": 1})], ["x", "y"])
    lines = '{"text":"a","labels":["x","y"],"relevance":[0.5,2]}\n{"text":"b","labels":["y"]}\n'
    assert known(save(tmp_path, "a.jsonl", lines)) == expected
    assert known(save(tmp_path, "a.csv", "text,tags,weights\na,x|y,0.5|2\nb,y,\n")) == expected
    assert (
        known(save(tmp_path, "b.csv", 'text,tags,target_rel\na,"[""x"",""y""]","[0.5, 2]"\nb,[\'y\'],\n')) == expected
    )
    assert (
        known(save_parquet(tmp_path, text=["a", "b"], tags=[["x", "y"], ["y"]], relevance=[[0.5, 2], None])) == expected
    )
    # A blank label takes its relevance with it, and relevance 0 is no positive.
    assert known(save(tmp_path, "c.csv", "text,tags,weights\na,x||y|z,0.5||2|0\nb,y,1\n"))[0] == expected[0]


def test_columns_are_found_by_name_or_as_given(tmp_path):
    content = "headline,Abstract,query,topic,code\nT,C,Q,x,y\n,C2,Q2,x,y\n"
    file = save(tmp_path, "a.csv", content)
    data = table.read(file, NO_SPLIT)
    assert list(data.train.texts.fields()) == [("T", "C"), ("", "C2")]
    assert list(data.train.texts) == ["T C", "C2"]
    assert list(data.labels.texts) == ["y"]
    assert list(table.read(file, ReadOptions(test_fraction=0, text="title")).train.texts) == ["T", ""]
    assert list(table.read(file, ReadOptions(test_fraction=0, text="content")).train.texts) == ["C", "C2"]
    said = table.read(file, ReadOptions(test_fraction=0, columns={"text": "query", "labels": "topic"}))
    assert (list(said.train.texts), list(said.labels.texts)) == (["Q", "Q2"], ["x"])


@pytest.mark.parametrize(
    ("header", "texts", "labels"),
    [
        ("id,name,description,price,category", "b c", "e"),
        ("id,subject,body,price,tags", "b c", "e"),
        # Beside an abstract, a subject is a label.
        ("id,name,abstract,price,subject", "b c", "e"),
        ("id,price,abstract,note,subject", "c", "e"),
        ("id,title,description,name,category", "b c", "e"),
    ],
)
def test_a_name_or_a_subject_beside_a_content_is_the_title(tmp_path, caplog, header, texts, labels):
    caplog.set_level("INFO")
    data = table.read(save(tmp_path, "a.csv", f"{header}\na,b,c,d,e\n"), NO_SPLIT)
    assert (list(data.train.texts), list(data.labels.texts)) == ([texts], [labels])
    unread = "price, note" if "note" in header else "name" if "title" in header else "price"
    assert caplog.messages[0].endswith(f"; not read: {', '.join(sorted(unread.split(', ')))}")


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ("Der Fisch und sein Teich\nEin Vogel im Baum", ["Fisch", "Vogel", "Teich"]),
        ("The fish and its pond\nA bird in a tree", ["fish", "bird", "pond"]),
        # One word is too little to know a language.
        ("Fisch, o\nja", ["fish", "bird", "pond"]),
        ("fish and bird: Fisch, Vogel, Teich\nx", ["fish", "bird", "pond"]),
    ],
)
def test_labels_with_as_many_names_in_two_languages_are_named_in_that_of_the_texts(tmp_path, texts, names):
    labels = save(tmp_path, "labels.csv", "uid,text_en,text_de\nf,fish,Fisch\nb,bird,Vogel\np,pond,Teich\n")
    first, second = texts.split("\n")
    file = save(tmp_path, "a.csv", f'text,labels\n"{first}",f\n"{second}",b\n')
    data = table.read(file, ReadOptions(test_fraction=0, labels=labels))
    assert list(data.labels.texts) == names
    asked = ReadOptions(test_fraction=0, labels=labels, language="de")
    assert list(table.read(file, asked).labels.texts) == ["Fisch", "Vogel", "Teich"]


def test_the_subject_of_a_letter_is_not_taken_for_its_label(tmp_path):
    with pytest.raises(DataError, match="no column looks like the labels; the columns are 'body', 'queue', 'subject'"):
        table.read(save(tmp_path, "a.csv", "subject,body,queue\na,b,c\n"), NO_SPLIT)


def test_uids_are_kept_and_may_be_left_out(tmp_path):
    file = save(tmp_path, "a.csv", "id,text,labels\n007,a,x\n007b,b,x\n")
    assert list(table.read(file, NO_SPLIT).train.uids) == ["007", "007b"]
    twice = save(tmp_path, "b.csv", "id,text,labels\n1,a,x\n1,b,x\n")
    assert table.read(twice, ReadOptions(test_fraction=0, columns={"uid": ""})).train.uids is None


def test_cells_with_line_ends_and_large_cells(tmp_path):
    text = 'a\nb\r\nc\u2028d "quoted"\t,' + "x" * 10_000_000
    file = tmp_path / "a.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([["text", "labels"], [text, "x"], ["plain", "y"]])
    limit = csv.field_size_limit()
    assert list(table.read(file, NO_SPLIT).train.texts) == [text, "plain"]
    assert csv.field_size_limit() == limit


def test_rows_and_lines_beyond_one_block(tmp_path):
    rows = [f'"t{number}\n",{number % 3}\n' for number in range(20_000)]
    data = table.read(save(tmp_path, "a.csv", "text,labels\n" + "".join(rows)), NO_SPLIT)
    assert data.train.texts[19_999] == "t19999\n"
    assert data.train.positives.indices.tolist() == [number % 3 for number in range(20_000)]
    rows[15_000] = "one,two,three\n"
    with pytest.raises(DataError, match=r"a.csv:30002: a row must have 2 cells.*but has 3"):
        table.read(save(tmp_path, "a.csv", "text,labels\n" + "".join(rows)), NO_SPLIT)


def test_folder_with_labels_test_and_filter_pairs(tmp_path):
    save(tmp_path, "trn.csv", "text,labels\na,l2|l1\nb,\n")
    save(tmp_path, "Test.jsonl", '{"text": "c", "labels": ["l3"]}\n')
    save(tmp_path, "lbl.tsv", "name\tcode\nfirst\tl1\nsecond\tl2\nsecond\tl3\n")
    save(tmp_path, "filter_labels_train.txt", "1 0\n")
    save(tmp_path, "filter_labels_test.txt", "0 2\n")
    assert table.detects(tmp_path)
    data = table.read(tmp_path, ReadOptions())
    assert data.name == tmp_path.name
    assert (list(data.labels.texts), list(data.labels.uids)) == (["first", "second", "second"], ["l1", "l2", "l3"])
    assert shown(data.train, data.labels) == [("a", {"l1": 1, "l2": 1}), ("b", {})]
    assert shown(data.test, data.labels) == [("c", {"l3": 1})]
    assert data.train.filter_pairs.toarray().tolist() == [[False] * 3, [True, False, False]]
    assert data.test.filter_pairs.toarray().tolist() == [[False, False, True]]


def test_labels_of_test_come_after_those_of_train(tmp_path):
    train = save(tmp_path, "a.csv", "text,labels\na,y|x\n")
    test = save(tmp_path, "b.csv", "text,labels\nb,w|x\n")
    data = table.read(train, ReadOptions(test=test))
    assert (data.name, list(data.labels.texts)) == ("a", ["y", "x", "w"])
    assert data.label_frequencies().tolist() == [1, 1, 0]
    assert shown(data.test, data.labels) == [("b", {"w": 1, "x": 1})]


def test_label_table_of_texts_alone(tmp_path):
    file = save(tmp_path, "a.csv", "text,labels\na,y\n")
    labels = save(tmp_path, "names.csv", "label\nx\ny\n")
    data = table.read(file, ReadOptions(labels=labels, test_fraction=0))
    assert (list(data.labels.texts), list(data.labels.uids)) == (["x", "y"], ["x", "y"])
    assert data.train.positives.indices.tolist() == [1]


def test_label_uids_with_blanks_around(tmp_path):
    labels = save(tmp_path, "l.csv", "id,text\n a ,first\na,second\n b,third\n")
    lists = save(tmp_path, "a.jsonl", '{"text":"t","labels":[" a ","b"]}\n')
    separated = save(tmp_path, "a.csv", "text,labels\nt, a | b \n")
    assert table.read(lists, ReadOptions(labels=labels)).train.positives.indices.tolist() == [0, 2]
    assert table.read(separated, ReadOptions(labels=labels)).train.positives.indices.tolist() == [1, 2]


def test_split_by_seed_keeps_rows_whole(tmp_path):
    rows = "".join(f"u{number},text {number},l{number}\n" for number in range(10))
    file = save(tmp_path, "a.csv", "uid,text,labels\n" + rows)
    data = table.read(file, ReadOptions(test_fraction=0.3, split_seed=5))
    kept, held_out = split_rows(10, 0.3, 5)
    for split, numbers in ((data.train, kept), (data.test, held_out)):
        assert list(split.uids) == [f"u{number}" for number in numbers]
        assert shown(split, data.labels) == [(f"text {number}", {f"l{number}": 1}) for number in numbers]


def test_folder_split_by_seed_takes_filter_pairs_along(tmp_path):
    save(tmp_path, "train.csv", "text,labels\n" + "".join(f"t{number},x|y\n" for number in range(10)))
    save(tmp_path, "filter_labels_train.txt", "".join(f"{number} {number % 2}\n" for number in range(10)))
    data = table.read(tmp_path, ReadOptions())
    assert (len(data.train), len(data.test)) == (8, 2)
    for split in (data.train, data.test):
        assert split.filter_pairs.indices.tolist() == [int(text[1:]) % 2 for text in split.texts]
    save(tmp_path, "filter_labels_test.txt", "0 0\n")
    with pytest.raises(DataError, match=r"filter_labels_test.txt: filter pairs of test need a table of test texts"):
        table.read(tmp_path, ReadOptions())


BAD_TABLES = [
    ("a.csv", "", r"a.csv: the file must hold at least one line"),
    ("a.jsonl", "", r"a.jsonl: the file must hold at least one line"),
    ("a.csv", "\n\n", r"a.csv:1: the first line must name the columns"),
    ("a.csv", "text,labels\n", r"a.csv: there must be at least one train text"),
    ("a.csv", "text,labels\na,\n", r"a.csv: a data set must have at least one label.*--column labels=NAME"),
    (
        "a.csv",
        "red shoe,shoes\nhat,hats\n",
        r"a.csv: no column.*'red shoe', 'shoes'; the first line must name.*text=NAME",
    ),
    ("a.csv", "text,foo\na,b\n", r"no column looks like the labels; the columns are 'foo', 'text'; name.*labels=NAME"),
    ("a.jsonl", '{"foo": 1}\n', r"a.jsonl: no column looks like the text.*'foo'.*--column text=NAME"),
    ("a.csv", "text,text,labels\na,b,c\n", r"a.csv:1: column names must differ, but 'text' comes twice"),
    ("a.csv", "text,labels\na,b\nc\n", r"a.csv:3: a row must have 2 cells.*but has 1"),
    ("a.csv", 'text,labels\n"a\nb",x\n\nc,d,e\n', r"a.csv:5: a row must have 2 cells.*but has 3"),
    ("a.csv", 'text,labels\na,b\n"c,d\ne,f\n', r"a.csv:3: the row breaks the rules of CSV"),
    ("a.csv", 'text,labels\na,b\n"c"x,d\n', r"a.csv:3: the row breaks the rules of CSV"),
    ("a.csv", b"text,labels\na,b\n\xff,d\n", r"a.csv:3: the file must be UTF-8, but has the byte 0xff"),
    ("a.csv", "uid,text,labels\n1,a,x\n2,b,x\n1,c,x\n", r"a.csv:4: uids must differ, but '1' comes again.*uid="),
    (
        "a.csv",
        "text,labels,relevance\na,x|y,1\n",
        r"a.csv:2: relevance must have one number per label \(2\), but",
    ),
    ("a.csv", "text,labels,relevance\na,x,1\nb,x|y,1|one\n", r"a.csv:3: relevance must be numbers.*'1\|one'"),
    ("a.csv", "text,labels,relevance\na,x,1\nb,x,nan\n", r"a.csv:3: relevance must be a number >= 0, but is nan"),
    ("a.csv", "text,labels,relevance\na,x,1\nb,x|y,1|\n", r"a.csv:3: relevance must be a number >= 0, but is nan"),
    ("a.csv", "text,labels,relevance\na,x,1\nb,x,-1\n", r"a.csv:3: relevance must be a number >= 0, but is -1"),
    ("a.csv", "text,labels,relevance\na,x,1e60\n", r"a.csv:2: relevance must be a number >= 0, but is inf"),
    ("a.csv", "text,labels\na,[1]\n\nb,x\n", r"a.csv:4: labels must be lists, as those before are, but 'x' is none"),
    ("a.csv", "text,labels\na,\"['\\ud800']\"\n", r"a.csv:2: labels must be lists"),
    ("a.csv", "text,labels\na,[true]\n", r"a.csv:2: labels must be lists"),
    ("a.jsonl", '{"text":"a","labels":[]}\n\n{"text":\n', r"a.jsonl:3: a line must be a JSON object"),
    (
        "a.jsonl",
        '[{"text":"a","labels":[]}]\n',
        r"a.jsonl:1: .*the line is a list; write one object per line.*lines=True",
    ),
    ("a.jsonl", '{"text":"a","labels":[]} {"text":"b","labels":[]}\n', r"a.jsonl:1: a line must be a JSON object"),
    ("a.jsonl", '{"text":"a",\n"labels":[]}\n', r"a.jsonl:1: a line must be a JSON object"),
    ("a.jsonl", '{"text":"a","labels":[]}\n{"text":1,"labels":[]}\n', r"a.jsonl:2: .*\$\.text.*a text is a string"),
    ("a.jsonl", '{"text":"a","labels":[]}\n{"labels":[]}\n', r"a.jsonl:2: .*missing required field `text`"),
    (
        "a.jsonl",
        '{"text":"a","labels":[]}\n{"text":"a"}\n',
        r"a.jsonl:2: .*missing required field `labels`.*\[\] for none",
    ),
    ("a.jsonl", '{"text":"a","labels":[true]}\n', r"a.jsonl:1: .*\$\.labels"),
    ("a.jsonl", '{"text":"a","labels":[null]}\n', r"a.jsonl:1: .*\$\.labels"),
    ("a.jsonl", '{"text":"\\ud800","labels":["a"]}\n', r"a.jsonl:1: a line must be a JSON object"),
    ("a.jsonl", '{"text":"a","labels":["b"],"relevance":[NaN]}\n', r"a.jsonl:1: a line must be a JSON object"),
    ("a.jsonl", '{"text":"a","labels":["b"],"relevance":[-1]}\n', r"a.jsonl:1: relevance must be a number >= 0"),
    (
        "a.jsonl",
        '{"text":"a","labels":["b"],"relevance":[1,1]}\n',
        r"a.jsonl:1: relevance must have one number per label",
    ),
    ("a.jsonl", '{"id":1,"text":"a","labels":[]}\n{"text":"b","labels":["x"]}\n', r"a.jsonl:2: a row must have a uid"),
    (
        "a.jsonl",
        '{"id":1,"text":"a","labels":[]}\n\n{"id":"1","text":"b","labels":["x"]}\n',
        r"a.jsonl:3: uids must differ",
    ),
    ("a.jsonl", b'{"text":"a","labels":[]}\n{"text":"\xff","labels":[]}\n', r"a.jsonl:2: the file must be UTF-8"),
    ("a.jsonl", b'{"text":"a","labels":' + b"[" * 100_000, r"a.jsonl:1: a line must be a JSON object"),
    ("a.parquet", "text,labels\na,b\n", r"a.parquet: the file must be a Parquet table, but cannot be read"),
    ("a.txt", SHOP_CSV, r"a.txt: a table must end in .csv"),
]


@pytest.mark.parametrize(("name", "content", "match"), BAD_TABLES)
def test_bad_tables_are_named_with_their_line(tmp_path, name, content, match):
    with pytest.raises(DataError, match=match):
        table.read(save(tmp_path, name, content), NO_SPLIT)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (
            {"text": [1, 2], "labels": ["a", "b"]},
            r"a.parquet: the column 'text' \(text\) must hold strings, but holds int64",
        ),
        ({"text": ["a", "b"], "labels": [True, False]}, r"'labels' \(labels\) must hold strings, numbers or lists"),
        ({"text": ["a", "b"], "labels": [["x"], ["y", None]]}, r"a.parquet:2: a label must be a string or a number"),
        ({"text": ["a", "b"], "labels": ["x", "y"], "id": ["u", None]}, r"a.parquet:2: a row must have a uid"),
        (
            {"text": ["a", "b"], "labels": [["x"], ["y"]], "relevance": [[1.0], [None]]},
            r"a.parquet:2: relevance must be a number >= 0, but is nan",
        ),
    ],
)
def test_bad_parquet(tmp_path, columns, match):
    with pytest.raises(DataError, match=match):
        table.read(save_parquet(tmp_path, **columns), NO_SPLIT)


def test_cut_files(tmp_path):
    zipped = gzip.compress(SHOP_CSV.encode() * 100)
    (tmp_path / "a.csv.gz").write_bytes(zipped[: len(zipped) // 2])
    with pytest.raises(DataError, match=r"a.csv.gz: the gzip stream is cut off"):
        table.read(tmp_path / "a.csv.gz", NO_SPLIT)
    whole = save_parquet(tmp_path, text=["a"] * 100, labels=["b"] * 100).read_bytes()
    save(tmp_path, "b.parquet", whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"b.parquet: the file must be a Parquet table"):
        table.read(tmp_path / "b.parquet", NO_SPLIT)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("uid,text\nx,ex\n", r"a.csv:3: the labels must have every label of the texts, but not 'y'; add it there"),
        ("text\nx\nx\n", r"labels.csv:3: uids must differ"),
        ("foo,bar\nx,y\n", r"labels.csv: a table of labels must have a column text.*'bar', 'foo'"),
        ("uid,text\n", r"labels.csv: a table of labels must have at least one row"),
        ("uid,text\nx\n", r"labels.csv:2: a row must have 2 cells"),
    ],
)
def test_bad_label_tables(tmp_path, content, match):
    file = save(tmp_path, "a.csv", "text,labels\na,x\nb,x|y\n")
    with pytest.raises(DataError, match=match):
        table.read(file, ReadOptions(labels=save(tmp_path, "labels.csv", content), strict=True))


def test_bad_options(tmp_path):
    file = save(tmp_path, "a.csv", SHOP_CSV)
    with pytest.raises(
        DataError, match=r"--column text=foo needs a column 'foo', but the columns are 'labels', 'text'"
    ):
        table.read(file, ReadOptions(columns={"text": "foo"}))
    with pytest.raises(DataError, match=r"every role must have a column of its own, but 'labels'"):
        table.read(file, ReadOptions(columns={"text": "labels", "labels": "labels"}))
    with pytest.raises(DataError, match=r"--text title needs a column title.*--column title=NAME"):
        table.read(file, ReadOptions(text="title"))
    for path in (tmp_path / "none.csv", tmp_path / "none.jsonl", tmp_path / "none.parquet", tmp_path / "none"):
        assert not table.detects(path)
        with pytest.raises(DataError, match=rf"{path}: the file or folder must exist"):
            table.read(path, NO_SPLIT)
        if path.suffix:
            with pytest.raises(DataError, match=rf"{path}: the file must exist"):
                table.read(file, ReadOptions(test=path))


def test_folders_that_are_not_tables(tmp_path):
    assert not table.detects(tmp_path)
    with pytest.raises(DataError, match=r"a folder of tables must hold train.csv"):
        table.read(tmp_path, NO_SPLIT)
    save(tmp_path, "train.txt", "x")
    assert not table.detects(tmp_path)
    save(tmp_path, "train.csv", SHOP_CSV)
    save(tmp_path, "trn.jsonl", SHOP_JSON)
    assert table.detects(tmp_path)
    with pytest.raises(DataError, match=r"must hold one table train, but has train.csv, trn.jsonl"):
        table.read(tmp_path, NO_SPLIT)


def test_written_json_lines_are_as_documented(tmp_path):
    positives = sparse.csr_array(np.array([[0.1, 0, 1], [0, 0, 0]], dtype=np.float32))
    train = Split.of(Texts.of(["a\u2028\n", "b"]), positives, uids=Texts.of(["u", "v"]))
    jsonl.write(Dataset("x", Labels(Texts.of(["zero", "one", "two"])), train), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["labels.jsonl", "test.jsonl", "train.jsonl"]
    lines = (tmp_path / "train.jsonl").read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"uid": "u", "text": "a\u2028\n", "labels": ["0", "2"], "relevance": [0.1, 1.0]},
        {"uid": "v", "text": "b", "labels": [], "relevance": []},
    ]
    assert (tmp_path / "labels.jsonl").read_text().split("\n")[0] == '{"uid":"0","text":"zero"}'
    assert (tmp_path / "test.jsonl").read_bytes() == b""
    assert table.detects(tmp_path)


def test_a_folder_without_a_test_file_is_split_and_one_with_an_empty_file_is_not(tmp_path):
    save(tmp_path, "train.jsonl", "".join(SHOP_JSON.replace('", "l', f' {n}", "l') for n in range(10)))
    assert len(table.read(tmp_path, ReadOptions()).test) == 6
    save(tmp_path, "test.jsonl", "")
    assert len(table.read(tmp_path, ReadOptions()).test) == 0
    save(tmp_path, "train.jsonl", "")
    with pytest.raises(DataError, match=r"train.jsonl: the file must hold at least one line"):
        table.read(tmp_path, ReadOptions())


def test_rows_that_repeat_a_train_text_are_never_drawn_as_test(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    file = save(tmp_path, "a.csv", "text,labels\n" + "a,x\n" * 5 + "".join(f"b{n},y\n" for n in range(15)))
    found = table.read(file, ReadOptions(test_fraction=0.5))
    assert set(found.train.texts).isdisjoint(found.test.texts)
    assert len(found.train) + len(found.test) == 20
    assert "drawn as test texts repeat a train text; they are train texts too" in caplog.text


def test_features_without_texts_are_not_json_lines(tmp_path):
    positives = sparse.csr_array(np.ones((1, 1), dtype=np.float32))
    train = Split.of(Texts.of([""]), positives, features=positives)
    with pytest.raises(DataError, match=r"JSON lines hold texts, but train has features and no texts"):
        jsonl.write(Dataset("x", Labels(Texts.of(["a"])), train), tmp_path)


@given(datasets())
@settings(deadline=None)
def test_json_lines_give_every_data_set_back(data):
    with tempfile.TemporaryDirectory() as folder:
        jsonl.write(data, Path(folder))
        assert_equal_datasets(table.read(Path(folder), ReadOptions()), data)


def table_rows(split, labels, *, as_list):
    """Rows of any table: text, labels, relevance, uid."""
    rows = []
    for number, text in enumerate(split.texts):
        pairs = split.positives[[number]]
        names = [labels.uid(int(label)) for label in pairs.indices]
        uid = str(number) if split.uids is None else split.uids[number]
        rows.append((text, as_list(names), as_list([float(value) for value in pairs.data]), uid))
    return rows


def write_csv(file, header, rows, delimiter):
    with file.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out, delimiter=delimiter).writerows([header, *rows])


def write_parquet(file, header, rows):
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
    types = {"labels": pyarrow.list_(pyarrow.string()), "relevance": pyarrow.list_(pyarrow.float64())}
    arrays = {name: pyarrow.array(values, types.get(name, pyarrow.string())) for name, values in columns.items()}
    pyarrow.parquet.write_table(pyarrow.table(arrays), file)


HEADER = ("text", "labels", "relevance", "uid")


@given(
    datasets(filters=False, empty_test=False),
    st.sampled_from(["json.csv", "python.csv", "json.tsv", "lists.parquet"]),
)
@settings(deadline=None)
def test_tables_of_lists_give_every_data_set_back(data, shape):
    form, _, ending = shape.partition(".")
    as_list = {"json": json.dumps, "python": repr, "lists": list}[form]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jsonl.write(data, folder)
        for part in ("train", "test"):
            (folder / f"{part}.jsonl").unlink()
            rows = table_rows(getattr(data, part), data.labels, as_list=as_list)
            if ending == "parquet":
                write_parquet(folder / f"{part}.parquet", HEADER, rows)
            else:
                write_csv(folder / f"{part}.{ending}", HEADER, rows, "," if ending == "csv" else "\t")
        found = table.read(folder, ReadOptions())
    assert_equal_tables(found, data)


@given(
    datasets(
        filters=False,
        empty_test=False,
        uid_text=st.text("ab é漢", min_size=1).map(str.strip).filter(bool),
    ),
    st.sampled_from(["|", ";", ",", "::"]),
)
@settings(deadline=None)
def test_tables_of_separated_labels_give_every_data_set_back(data, separator):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jsonl.write(data, folder)
        for part in ("train", "test"):
            (folder / f"{part}.jsonl").unlink()
            rows = table_rows(
                getattr(data, part), data.labels, as_list=lambda entries: separator.join(map(str, entries))
            )
            write_csv(folder / f"{part}.csv", HEADER, rows, ",")
        found = table.read(folder, ReadOptions(separator=separator))
    assert_equal_tables(found, data)


def assert_equal_tables(found, expected):
    """Equal but for titles, which these tables do not keep apart, and uids, which these tables always have."""
    assert list(found.labels.texts) == list(expected.labels.texts)
    for one, other in ((found.train, expected.train), (found.test, expected.test)):
        assert list(one.texts) == list(other.texts)
        np.testing.assert_array_equal(one.positives.toarray(), other.positives.toarray())
        assert list(one.uids) == (list(map(str, range(len(other)))) if other.uids is None else list(other.uids))


def assert_labels_or_error(file, options):
    try:
        found = table.read(file, options).num_labels
    except DataError as error:
        found = str(error)
    assert found > 0 if isinstance(found, int) else file.name in found


noise = st.one_of(
    st.binary(max_size=200),
    st.text(characters, max_size=200).map(lambda text: f"text,labels,relevance,uid\n{text}".encode()),
    st.text(characters, max_size=200).map(lambda text: f'{{"text":"a","labels":["b"]}}\n{{"text":{text}'.encode()),
    st.tuples(st.binary(min_size=1, max_size=3), st.integers(0, 200)).map(
        lambda change: SHOP_JSON.encode()[: change[1]] + change[0] + SHOP_JSON.encode()[change[1] + 1 :]
    ),
)


@given(noise, st.sampled_from(["a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.csv.gz"]))
@settings(deadline=None, max_examples=300)
def test_noise_is_a_data_error_or_a_data_set(content, name):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        table.detects(file)
        for options in (ReadOptions(), ReadOptions(test=file), ReadOptions(labels=file, separator="|")):
            assert_labels_or_error(file, options)


PARQUET = pyarrow.BufferOutputStream()
pyarrow.parquet.write_table(pyarrow.table({"text": ["a", "b"], "labels": [["x"], ["y", "z"]]}), PARQUET)
PARQUET_BYTES = PARQUET.getvalue().to_pybytes()


@given(st.integers(0, len(PARQUET_BYTES) - 1), st.binary(min_size=1, max_size=4))
@settings(deadline=None, max_examples=200)
def test_damaged_parquet_is_a_data_error_or_a_data_set(place, change):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "a.parquet"
        file.write_bytes(PARQUET_BYTES[:place] + change + PARQUET_BYTES[place + len(change) :])
        assert_labels_or_error(file, NO_SPLIT)
