"""Annif's corpora and vocabularies, in every form that it reads."""

import gzip
import json
import logging

import pytest

from unidex.data import formats
from unidex.data.formats import libmultilabel
from unidex.data.formats.text_source import open_texts
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError

WHOLE = ReadOptions(test_fraction=0)
SHOE, HAT = "http://example.org/shoe", "http://example.org/hat"
ROWS = [("red shoes", [SHOE]), ("a hat\u2028 and a shoe", [HAT, SHOE]), ("nothing", [])]
TSV = "".join(f"{text}\t{' '.join(f'<{uri}>' for uri in uris)}\n" for text, uris in ROWS)
VOCABULARY = f"<{HAT}>\tHeadgear\t7.1\n<http://example.org/old>\n<{SHOE}>\tFootwear\n<http://example.org/sock>\tSocks\n"


def csv_of(rows):
    lines = [f'{number},"{text}",{" ".join(uris)},x' for number, (text, uris) in enumerate(rows)]
    return "document_id,text,subject_uris,note\n" + "\n".join(lines) + "\n"


def jsonl_of(rows):
    return "".join(
        json.dumps({"document_id": str(number), "text": text, "subjects": [{"uri": uri} for uri in uris]}) + "\n"
        for number, (text, uris) in enumerate(rows)
    )


def save(folder, name, content):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode()
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return file


def write_folder(folder):
    for number, (text, uris) in enumerate(ROWS):
        save(folder, f"{number}.txt", text)
        lines = [f"<{uri}>\t{uri.rpartition('/')[2].title()}" for uri in uris]
        save(folder, f"{number}.tsv", "".join(f"{line}\n" for line in lines))


def pairs_of(split, labels):
    positives = split.positives
    found = (positives.indices[start:end] for start, end in zip(positives.indptr, positives.indptr[1:], strict=False))
    return [(text, sorted(labels.uids[label] for label in ids)) for text, ids in zip(split.texts, found, strict=True)]


SORTED_ROWS = [(text, sorted(uris)) for text, uris in ROWS]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", TSV),
        ("a.tsv.gz", TSV),
        ("a.txt", TSV.replace("<", "").replace(">", "")),
        ("a.tsv", "\ufeff" + TSV.replace("\n", "\r\n")),
        ("a.csv", csv_of(ROWS)),
        ("a.csv.gz", csv_of(ROWS)),
        ("a.jsonl", jsonl_of(ROWS)),
        ("a.jsonl.gz", jsonl_of(ROWS)),
    ],
)
def test_the_same_texts_and_subjects_in_every_file(tmp_path, caplog, name, content):
    caplog.set_level(logging.INFO)
    file = save(tmp_path, name, content)
    data = formats.read(file, WHOLE)
    assert pairs_of(data.train, data.labels) == SORTED_ROWS
    assert f"{file}: format annif (detected" in caplog.text
    assert "2 of 2 subjects have a URI and no label" in caplog.text
    if "tsv" not in name and "txt" not in name:
        assert list(data.train.uids) == ["0", "1", "2"]


def test_a_folder_of_full_texts(tmp_path, caplog):
    write_folder(tmp_path)
    save(tmp_path, "bare.txt", "no subjects beside")
    (tmp_path / "4.txt").write_bytes(b"\xef\xbb\xbfcaf\xe9")
    save(tmp_path, "4.key", "Footwear\n")
    save(tmp_path, "5.json", json.dumps({"metadata": {"title": "sock"}, "subjects": [{"uri": SHOE, "label": "Shoe"}]}))
    data = formats.read(tmp_path, WHOLE)
    assert pairs_of(data.train, data.labels) == [*SORTED_ROWS, ("caf\ufffd", ["Footwear"]), ("sock", [SHOE])]
    # A label beside a URI is the text of the label; a .key file has labels alone.
    assert dict(zip(data.labels.uids, data.labels.texts, strict=True)) == {
        SHOE: "Shoe",
        HAT: "Hat",
        "Footwear": "Footwear",
    }
    assert list(data.train.uids) == ["0", "1", "2", "4", "5"]
    assert "1 texts have no .tsv or .key file beside them" in caplog.text
    assert "1 texts have bytes that are not UTF-8" in caplog.text


@pytest.mark.parametrize("ending", ["", ".tsv", ".tsv.gz", ".csv", ".jsonl.gz"])
def test_train_and_test_in_a_folder(tmp_path, caplog, ending):
    caplog.set_level(logging.INFO)
    for name in ("train", "validate", "test"):
        if ending:
            form = {"tsv": TSV, "csv": csv_of(ROWS), "jsonl": jsonl_of(ROWS)}[ending.split(".")[1]]
            save(tmp_path, name + ending, form)
        else:
            write_folder(tmp_path / name)
    data = formats.read(tmp_path)
    assert formats.detect(tmp_path) == "annif"
    assert pairs_of(data.train, data.labels) == pairs_of(data.test, data.labels) == SORTED_ROWS
    assert "the corpus validate is left out" in caplog.text


def test_a_vocabulary_gives_the_labels_and_finds_subjects_by_label(tmp_path):
    vocabulary = save(tmp_path, "vocabulary.tsv", VOCABULARY)
    corpus = tmp_path / "corpus"
    save(corpus, "a.txt", "boots")
    save(corpus, "a.key", "Footwear\nHeadgear\n")
    data = formats.read(corpus, ReadOptions(labels=vocabulary, test_fraction=0))
    assert list(data.labels.uids) == [HAT, SHOE, "http://example.org/sock"]
    assert list(data.labels.texts) == ["Headgear", "Footwear", "Socks"]
    assert pairs_of(data.train, data.labels) == [("boots", [HAT, SHOE])]
    of_tsv = formats.read(save(tmp_path, "a.tsv", TSV), ReadOptions(labels=vocabulary, test_fraction=0))
    assert pairs_of(of_tsv.train, of_tsv.labels) == SORTED_ROWS


def test_lines_without_a_tab_are_left_out_with_a_warning(tmp_path, caplog):
    file = save(tmp_path, "a.tsv", TSV + "no tab here\n")
    assert len(formats.read(file, WHOLE).train) == 3
    assert "1 lines have no tab" in caplog.text


def test_texts_and_subjects_are_never_swapped_without_a_word(tmp_path, caplog):
    file = save(tmp_path, "a.tsv", TSV)
    assert formats.detect(file) == "annif"
    with pytest.raises(DataError, match=r"the labels first .* the last column has URIs; .*--format annif"):
        formats.read(file, ReadOptions(format="libmultilabel"))
    swapped = save(tmp_path, "b.tsv", "a long text of words\tshoes\nanother text\that\n")
    libmultilabel.read(swapped, WHOLE)
    assert "the last has fewer words" in caplog.text
    caplog.clear()
    libmultilabel.read(save(tmp_path, "c.tsv", "shoes\ta long text of words\n"), WHOLE)
    assert "fewer words" not in caplog.text


def test_texts_to_predict_are_the_texts_of_a_corpus(tmp_path):
    with open_texts([save(tmp_path, "a.tsv", TSV)], ReadOptions()) as source:
        assert list(source.texts()) == [text for text, _ in ROWS]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", f"<{SHOE}>\tFootwear\n"),  # a vocabulary
        ("a.tsv", "red shoes\tshoe http://example.org\n"),
        ("a.csv", "text,labels\nred shoes,shoe\n"),
        ("a.jsonl", '{"text": "red shoes", "subjects": ["shoe"]}\n'),
        ("a.md", TSV),
    ],
)
def test_other_files_are_no_corpora(tmp_path, name, content):
    assert not formats.annif.detects(save(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.jsonl", jsonl_of(ROWS) + '{"text": "x"}\n', r"a.jsonl:4: a document must be .*subjects"),
        ("a.csv", "text,subject_uris\na,b,c\n", "a row must have 2 cells"),
        ("a.csv", "text,labels\na,b\n", "an Annif corpus must be .* but this is neither"),
        ("a.tsv", f"text\t<{SHOE}>\n" + "\xff\n", None),
    ],
)
def test_bad_corpora_are_refused(tmp_path, name, content, match):
    file = save(tmp_path, name, content)
    if match is None:
        file.write_bytes(content.encode("latin-1"))
        match = r"a.tsv(:2)?: (an Annif corpus|the file must be UTF-8)"
    with pytest.raises(DataError, match=match):
        formats.read(file, ReadOptions(format="annif"))
