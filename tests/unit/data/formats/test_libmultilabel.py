"""The text form of LibMultiLabel."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.strategies import datasets
from unidex.data.formats import libmultilabel, table
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError

NO_SPLIT = ReadOptions(test_fraction=0)


def save(folder, name, content):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def test_labels_and_text(tmp_path):
    file = save(tmp_path, "a.txt", "shoes  red\tred shoe\r\n\n\tthing\nhats\that \u2028 ")
    assert libmultilabel.detects(file)
    data = libmultilabel.read(file, NO_SPLIT)
    assert data.name == "a"
    assert list(data.train.texts) == ["red shoe", "thing", "hat \u2028 "]
    assert list(data.labels.texts) == ["shoes", "red", "hats"]
    assert data.train.positives.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert data.train.uids is None


def test_folder_with_ids(tmp_path):
    save(tmp_path, "train.txt", "u1\tE11 C31\tfirst\nu2\tE11\tsecond\n")
    save(tmp_path, "test.txt", "u1\tM14 C31\tthird\n")
    assert libmultilabel.detects(tmp_path)
    data = libmultilabel.read(tmp_path, ReadOptions())
    assert data.name == tmp_path.name
    assert (list(data.train.uids), list(data.test.uids)) == (["u1", "u2"], ["u1"])
    assert list(data.labels.uids) == ["E11", "C31", "M14"]
    assert data.test.positives.toarray().tolist() == [[0, 1, 1]]


def test_without_test_a_share_is_split_off(tmp_path):
    file = save(tmp_path, "a.tsv", "".join(f"x\tt{number}\n" for number in range(10)))
    data = libmultilabel.read(file, ReadOptions())
    assert (len(data.train), len(data.test)) == (8, 2)


def test_label_texts_and_test_file_as_said(tmp_path):
    train, test = save(tmp_path, "a.txt", "C31\tone\n"), save(tmp_path, "b.txt", "E11\ttwo\n")
    labels = save(tmp_path, "names.csv", "uid,text\nE11,exports\nC31,markets\n")
    data = libmultilabel.read(train, ReadOptions(test=test, labels=labels))
    assert list(data.labels.texts) == ["exports", "markets"]
    assert (data.train.positives.indices.tolist(), data.test.positives.indices.tolist()) == ([1], [0])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "text\tlabels\nred\tshoes\n"),
        ("a.tsv", "ID\tfoo\tbar\n"),
        ("a.txt", "3 4 5\n0,1 0:1\n"),
        ("a.txt", "a\tb\tc\td\n"),
        ("a.txt", b"a\t\xff\n"),
        ("a.txt", ""),
        ("a.csv", "a\tb\n"),
    ],
)
def test_other_files_are_not_detected(tmp_path, name, content):
    assert not libmultilabel.detects(save(tmp_path, name, content))
    assert not libmultilabel.detects(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"a.txt: the file must hold at least one line"),
        ("\n\n", r"a.txt:1: a line must be \"labels<TAB>text\""),
        ("shoes red\n", r"a.txt:1: a line must be .*but is 'shoes red'"),
        ("a\tb\n\nc\td\te\n", r"a.txt:3: a line must be .*the first line has 1 tab\(s\), but this has 2"),
        ("a\tb\nc\n", r"a.txt:2: .*but this has 0: 'c'"),
        ("u\ta\tb\n\nu\ta\tc\n", r"a.txt:3: uids must differ, but 'u' comes again"),
        (b"a\tb\na\t\xff\n", r"a.txt:2: the file must be UTF-8"),
        ("\tb\n", r"a.txt: a data set must have at least one label"),
    ],
)
def test_bad_lines_are_named(tmp_path, content, match):
    with pytest.raises(DataError, match=match):
        libmultilabel.read(save(tmp_path, "a.txt", content), NO_SPLIT)


def test_options_of_tables_are_refused(tmp_path):
    file = save(tmp_path, "a.tsv", "foo\tbar\nx\ta text\n")
    options = ReadOptions(columns={"text": "bar", "labels": "foo"}, test_fraction=0)
    with pytest.raises(DataError, match=r"a.tsv: LibMultiLabel files have neither column names.*--format table"):
        libmultilabel.read(file, options)
    assert list(table.read(file, options).train.texts) == ["a text"]


words = st.text("abc é漢\u2028\x85,|", max_size=8)
names = st.text("abcé漢,|", min_size=1, max_size=4)


@given(datasets(graded=False, filters=False, empty_test=False, text=words, uid_text=names), st.booleans())
@settings(deadline=None)
def test_random_data_sets_come_back(data, with_ids):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("train", "test"):
            split = getattr(data, part)
            rows = []
            for number, text in enumerate(split.texts):
                labels = " ".join(map(data.labels.uid, split.positives[[number]].indices.tolist()))
                uid = f"{number if split.uids is None else split.uids[number]}\t" if with_ids else ""
                rows.append(f"{uid}{labels}\t{text}\n")
            save(folder, f"{part}.txt", "".join(rows))
        uids = [*map(data.labels.uid, range(data.num_labels))]
        save(folder, "names.tsv", "uid\ttext\n" + "".join(f"{uid}\tx\n" for uid in uids))
        found = libmultilabel.read(folder, ReadOptions(labels=folder / "names.tsv"))
    for one, other in ((found.train, data.train), (found.test, data.test)):
        assert list(one.texts) == list(other.texts)
        np.testing.assert_array_equal(one.positives.toarray(), other.positives.toarray())
        assert (one.uids is not None) == with_ids


@given(st.binary(max_size=100) | st.text("ab\t\n\r \u2028é", max_size=60).map(str.encode))
@settings(deadline=None, max_examples=200)
def test_noise_is_a_data_error_or_a_data_set(content):
    with tempfile.TemporaryDirectory() as folder:
        file = save(Path(folder), "a.txt", content)
        libmultilabel.detects(file)
        try:
            found = libmultilabel.read(file, ReadOptions()).num_labels
        except DataError as error:
            found = str(error)
    assert found > 0 if isinstance(found, int) else "a.txt" in found
