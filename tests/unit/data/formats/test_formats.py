"""The formats of whole data sets: known files, detection, and a round trip through each that can be written."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.shop_files import BAG, RAW, SHOP_TEST, SHOP_TRAIN, SHOPS, TRAIN, put
from helpers.strategies import assert_equal_datasets, characters, datasets
from unidex.data import formats
from unidex.data.dataset import Dataset, Labels, Propensity, Split
from unidex.data.read_options import ReadOptions
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import DataError

one_line = st.text(characters.filter(lambda mark: mark not in "\n\r"), max_size=12)


def shown(split):
    """Each text with its labels and their relevance."""
    return [
        (text, {int(label): float(row[label]) for label in np.flatnonzero(row)})
        for text, row in zip(split.texts, split.positives.toarray(), strict=True)
    ]


def pairs_of(matrix):
    return [tuple(map(int, pair)) for pair in np.argwhere(matrix.toarray())]


@pytest.mark.parametrize(("name", "files"), [(name, files) for name, shops in SHOPS.items() for files in shops])
def test_the_same_shop_in_every_format(tmp_path, name, files):
    put(tmp_path, files)
    assert formats.detect(tmp_path) == name
    for options in (None, ReadOptions(format=name)):
        data = formats.read(tmp_path, options)
        assert data.name == tmp_path.name
        assert shown(data.train) == SHOP_TRAIN
        assert shown(data.test) == SHOP_TEST
        assert list(data.labels.texts) == ["shoes", "hats", "red things"]
        assert pairs_of(data.train.filter_pairs) == [(0, 1), (2, 2)]
        assert data.test.filter_pairs.nnz == 0


def test_raw_xc_keeps_uids_titles_and_contents(tmp_path):
    data = formats.read(put(tmp_path, RAW))
    assert list(data.train.uids) == ["A1", "A2", "A3"]
    assert list(data.labels.uids) == ["s", "h", "r"]
    assert list(data.train.texts.fields()) == [("red shoe", "of leather"), ("hat", ""), ("", "thing")]
    titles = formats.read(tmp_path, ReadOptions(text="title"))
    assert list(titles.train.texts) == ["red shoe", "hat", ""]
    assert list(titles.labels.texts) == ["shoes", "hats", "red things"]
    assert list(formats.read(tmp_path, ReadOptions(text="content")).train.texts) == ["of leather", "", "thing"]


def test_raw_xc_with_numbers_as_uids_and_without_some(tmp_path):
    train = '{"uid": 7, "title": "a", "target_ind": [0]}\n{"uid": "7b", "title": null, "target_ind": [1]}\n'
    put(tmp_path, {"trn.json": train, "lbl.json": '{"title": "x"}\n{"uid": "only one", "title": "y"}\n'})
    data = formats.read(tmp_path)
    assert list(data.train.uids) == ["7", "7b"]
    assert data.labels.uids is None
    assert shown(data.train) == [("a", {0: 1.0}), ("", {1: 1.0})]
    assert len(data.test) == 0


def test_raw_xc_texts_whose_uids_repeat_are_read_without(tmp_path, caplog):
    data = formats.read(put(tmp_path, RAW | {"trn.json": TRAIN.replace("A3", "A1")}))
    assert shown(data.train) == SHOP_TRAIN
    assert data.train.uids is None
    assert list(data.test.uids) == ["B1"]
    file = tmp_path / "trn.json"
    assert caplog.messages == [f"{file}:3: uids must differ, but 'A1' comes again; the texts are read without uids"]


def test_raw_xc_without_labels_counts_those_of_test_too(tmp_path):
    put(tmp_path, {"trn.json": '{"target_ind": [2]}\n', "tst.json": '{"target_ind": [4]}\n'})
    data = formats.read(tmp_path)
    assert data.num_labels == 5
    assert list(data.labels.texts) == [""] * 5
    assert shown(data.test) == [("", {4: 1.0})]


def test_raw_xc_with_a_huge_label_number_takes_no_memory(tmp_path):
    data = formats.read(put(tmp_path, {"trn.json": '{"target_ind": [2000000000]}\n'}))
    assert data.num_labels == 2_000_000_001


def test_duplicates_and_zeros_in_files(tmp_path):
    rows = '{"title": "a", "target_ind": [1, 0, 1, 0], "target_rel": [0.5, 0, 2, 0]}\n'
    data = formats.read(put(tmp_path / "raw", {"trn.json": rows, "lbl.json": '{"title": "x"}\n{"title": "x"}\n'}))
    assert shown(data.train) == [("a", {1: 2.0})]
    assert data.train.positives.nnz == 1
    xclib = {"trn_X.txt": "a\n", "trn_X_Y.txt": "1 2\n1:0.5 0:0 1:2\n", "filter_labels_train.txt": "0 1\n\n0 1\n"}
    data = formats.read(put(tmp_path / "xclib", xclib))
    assert shown(data.train) == [("a", {1: 2.0})]
    assert pairs_of(data.train.filter_pairs) == [(0, 1)]


@pytest.mark.parametrize(
    "files",
    [
        BAG,
        {f"{name}.gz": content for name, content in BAG.items()},
        {"shop_train.txt": BAG["train.txt"].replace("\n 2:1", "\n2:1"), "shop_test.txt": BAG["test.txt"]},
    ],
)
def test_bag_of_words(tmp_path, files):
    put(tmp_path, files)
    assert formats.detect(tmp_path) == "bag-of-words"
    data = formats.read(tmp_path)
    assert shown(data.train) == [("", {0: 1.0, 2: 1.0}), ("", {1: 1.0}), ("", {})]
    assert shown(data.test) == [("", {1: 1.0})]
    expected = [[0.5, 0, 0, 1], [0, 2, 0, 0], [0, 0, 1, 0]]
    np.testing.assert_array_equal(data.train.features.toarray(), expected)
    np.testing.assert_array_equal(data.test.features.toarray(), [[1, 0, 0, 0]])


def test_bag_of_words_in_one_file_with_a_test_file(tmp_path):
    put(tmp_path, {"a.txt": BAG["train.txt"], "b.txt": BAG["test.txt"]})
    assert formats.detect(tmp_path / "a.txt") == "bag-of-words"
    data = formats.read(tmp_path / "a.txt", ReadOptions(test=tmp_path / "b.txt"))
    assert (data.name, len(data.train), len(data.test)) == ("a", 3, 1)


@pytest.mark.parametrize("name", ["pecos", "dexml", "xclib", "unidex"])
def test_features_survive_where_a_format_has_a_place(tmp_path, name):
    data = formats.read(put(tmp_path / "bag", BAG))
    formats.write(data, tmp_path / name, name)
    assert formats.detect(tmp_path / name) == name
    found = formats.read(tmp_path / name)
    assert_equal_datasets(found, data)
    for split, expected in zip(found.splits, data.splits, strict=True):
        np.testing.assert_array_equal(split.features.toarray(), expected.features.toarray())


@pytest.mark.parametrize("name", ["xc-raw", "jsonl"])
def test_features_without_texts_are_refused_and_features_beside_texts_are_left_out_with_a_warning(
    tmp_path, caplog, name
):
    data = formats.read(put(tmp_path / "bag", BAG))
    with pytest.raises(DataError, match="hold texts, but"):
        formats.write(data, tmp_path / name, name)
    assert not (tmp_path / name).exists()
    named = replace(data.train, texts=Texts.of("abc"))
    formats.write(replace(data, train=named, test=Split.empty(3)), tmp_path / name, name)
    assert f"{name} has no place for sparse features: they are left out" in caplog.text


def round_trip(data, name):
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out"
        formats.write(data, target, name)
        expected = "table" if name == "jsonl" else name
        assert formats.detect(target) == expected
        found = formats.read(target)
        assert [entry.name for entry in Path(folder).iterdir()] == ["out"]
        assert found.name == data.name
        assert found.propensity == data.propensity
        return found  # a mapped file lives on without its name


def numbered(data):
    """Raw XC files have a uid in every row: its number, where there was none."""

    def uids(split):
        return split.uids or Texts.of([str(row) for row in range(len(split))])

    return replace(
        data, train=replace(data.train, uids=uids(data.train)), test=replace(data.test, uids=uids(data.test))
    )


def without_titles(data):
    """Formats of one line a text do not know where a title ends."""

    def plain(texts):
        return Texts.of(list(texts))

    train, test = (replace(split, texts=plain(split.texts)) for split in data.splits)
    return replace(data, labels=Labels(plain(data.labels.texts), data.labels.uids), train=train, test=test)


@settings(max_examples=60)
@given(datasets())
def test_round_trip_through_xc_raw(data):
    found, expected = round_trip(data, "xc-raw"), numbered(data)
    if len(data.test) == 0:
        expected = replace(expected, test=data.test)
    assert_equal_datasets(found, expected)


@settings(max_examples=60)
@given(datasets())
def test_round_trip_through_unidex(data):
    assert_equal_datasets(round_trip(data, "unidex"), data)


@settings(max_examples=60)
@given(datasets())
def test_round_trip_through_jsonl(data):
    assert_equal_datasets(round_trip(data, "jsonl"), data)


@settings(max_examples=60)
@given(datasets(text=one_line, uid_text=one_line), st.sampled_from(["pecos", "dexml", "xclib"]))
def test_round_trip_through_lines(data, name):
    assert_equal_datasets(round_trip(data, name), without_titles(data))


@settings(max_examples=30)
@given(datasets(text=one_line, uid_text=one_line))
def test_a_chain_of_conversions_loses_nothing(data):
    expected = without_titles(data)
    for name in ("pecos", "jsonl", "dexml", "unidex", "xclib"):
        data = round_trip(data, name)
    assert_equal_datasets(data, expected)


def test_titles_and_contents_stay_apart_where_the_format_knows_them(tmp_path):
    packer = Packer()
    packer.add_pairs(["red shoe", ""], ["of leather", "x"])
    data = Dataset("s", Labels(Texts.of(["y"])), Split.of(Texts.packed(packer), sparse.csr_array(np.ones((2, 1)))))
    for name in ("xc-raw", "jsonl", "unidex"):
        formats.write(data, tmp_path / name, name)
        assert list(formats.read(tmp_path / name).train.texts.fields()) == [("red shoe", "of leather"), ("", "x")]


@pytest.mark.parametrize("name", ["pecos", "dexml", "xclib"])
@pytest.mark.parametrize("text", ["a\nb", "a\r", "\r\nb"])
@pytest.mark.parametrize("where", ["train text", "test text", "label", "uid"])
def test_lines_refuse_line_breaks_and_leave_nothing(tmp_path, name, text, where):
    fine = Split.of(Texts.of(["a"]), sparse.csr_array(np.ones((1, 1))))
    bad = replace(fine, texts=Texts.of([text]))
    data = Dataset(
        "s",
        Labels(Texts.of([text if where == "label" else "x"]), Texts.of([text]) if where == "uid" else None),
        bad if where == "train text" else fine,
        bad if where == "test text" else fine,
    )
    with pytest.raises(DataError, match=f"{where} 0 must be one line in this format, .*; convert to xc-raw or jsonl"):
        formats.write(data, tmp_path / "out", name)
    assert list(tmp_path.iterdir()) == []


def test_other_ends_of_lines_are_part_of_a_text(tmp_path):
    text = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    for name, files in {
        "xc-raw": {"trn.json": json.dumps({"title": text, "target_ind": [0]}) + "\n", "lbl.json": '{"title": "x"}\n'},
        "xclib": {"trn_X.txt": f"{text}\n", "trn_X_Y.txt": "1 1\n0:1\n"},
    }.items():
        assert list(formats.read(put(tmp_path / name, files)).train.texts) == [text]


def test_the_same_data_set_gives_the_same_files(tmp_path):
    data = formats.read(put(tmp_path / "shop", RAW))
    for name in formats.WRITE_FORMATS:
        one, other = (tmp_path / f"{name}-{time}" for time in (1, 2))
        for folder in (one, other):
            formats.write(data, folder, name)
        files = sorted(file.relative_to(one) for file in one.rglob("*") if file.is_file())
        assert files == sorted(file.relative_to(other) for file in other.rglob("*") if file.is_file())
        for file in files:
            if file.suffix != ".npz":  # a zip archive holds the time
                assert (one / file).read_bytes() == (other / file).read_bytes()


def test_every_format_is_there_and_named_once():
    read = "unidex xc-raw dexml pecos xclib bag-of-words annif libmultilabel table"
    assert " ".join(formats.READ_FORMATS) == read
    assert " ".join(formats.WRITE_FORMATS) == "xc-raw pecos dexml xclib jsonl unidex"
    for where in formats._READERS.values():
        assert callable(formats._format(where).read)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.txt": "3 4 3\n"}, "bag-of-words"),
        ({"train.txt": "a b\tsome text\n"}, "libmultilabel"),
        ({"train.csv": "text,labels\na,b\n"}, "table"),
        ({"train.json": '{"text": "a", "labels": ["b"]}\n'}, "table"),
        ({"train.jsonl": '{"text": "a", "labels": ["b"]}\n'}, "table"),
        ({"trn.json": ""}, "xc-raw"),
        ({"Y.trn.npz": [[1]], "raw/Y.txt": "a\n"}, "dexml"),
        ({"Y.trn.npz": [[1]]}, "pecos"),
        ({"Y.trn.txt": "1 1\n0:1\n"}, "pecos"),
        ({"trn_X_Y.txt": "1 1\n0:1\n"}, "xclib"),
        ({"trn_X_Y.npz": [[1]]}, "xclib"),
    ],
)
def test_detection(tmp_path, files, expected):
    assert formats.detect(put(tmp_path, files)) == expected


def test_an_unknown_folder_is_refused_with_its_files(tmp_path):
    with pytest.raises(
        DataError, match=r"no known data format fits: this folder holds nothing; name one with --format"
    ):
        formats.read(tmp_path)
    put(tmp_path, {"notes.md": "x", "sub/a": "x"})
    with pytest.raises(DataError, match=r"this folder holds notes.md, sub; name one with --format \(unidex, xc-raw"):
        formats.read(tmp_path)
    with pytest.raises(DataError, match=r"notes.md: no known data format fits: this file is of no known kind"):
        formats.read(tmp_path / "notes.md")
    with pytest.raises(
        DataError, match=r"absent: a data set must be a folder, a file or 'hpo', but this does not exist"
    ):
        formats.read(tmp_path / "absent")
    with pytest.raises(DataError, match=r"^--format must be one of unidex, .*, but is 'pekos'"):
        formats.read(tmp_path, ReadOptions(format="pekos"))


@pytest.mark.parametrize(
    ("name", "option", "match"),
    [
        ("xc-raw", {"separator": "|"}, "--separator has no part in reading the format xc-raw; leave it out"),
        ("xc-raw", {"test_fraction": 0.5}, "--test-fraction has no part in reading the format xc-raw"),
        ("xc-raw", {"columns": {"text": "a"}}, "--column has no part in reading the format xc-raw"),
        ("xclib", {"text": "title"}, "--text has no part in reading the format xclib"),
        ("pecos", {"labels": Path("x")}, "--labels has no part in reading the format pecos"),
        ("dexml", {"split_seed": 1}, "--split-seed has no part in reading the format dexml"),
        ("pecos", {"test": Path("x")}, "--test has no part in reading the format pecos"),
    ],
)
def test_an_option_without_effect_is_refused(tmp_path, name, option, match):
    put(tmp_path, SHOPS[name][0])
    with pytest.raises(DataError, match=f"^{match}"):
        formats.read(tmp_path, ReadOptions(format=name, **option))


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"text": "headline"}, "--text must be one of content, title, title[+]content, but is 'headline'"),
        ({"columns": {"txt": "a"}}, "--column takes ROLE=NAME with a role of .*text.*, but the role is 'txt'"),
        ({"test_fraction": 1.0}, "--test-fraction must be at least 0 and below 1, but is 1.0"),
        ({"test_fraction": float("nan")}, "--test-fraction must be at least 0 and below 1, but is nan"),
    ],
)
def test_an_option_with_a_wrong_value_is_refused(option, match):
    with pytest.raises(DataError, match=match):
        ReadOptions(**option)


def test_dataset_json_gives_name_and_constants_and_options_go_over_them(tmp_path):
    put(tmp_path, RAW | {"dataset.json": '{"name": "my shop", "propensity": {"a": 0.6}, "licence": "CC0"}'})
    data = formats.read(tmp_path)
    assert (data.name, data.propensity) == ("my shop", Propensity(0.6, 1.5))
    data = formats.read(tmp_path, ReadOptions(propensity_a=0.5, propensity_b=0.4))
    assert data.propensity == Propensity(0.5, 0.4)
    formats.write(data, tmp_path / "out", "pecos")
    assert json.loads((tmp_path / "out" / "dataset.json").read_text()) == {
        "name": "my shop",
        "propensity": {"a": 0.5, "b": 0.4},
    }


@pytest.mark.parametrize(
    ("name", "a", "b"),
    [(name, 0.6, 2.6) for name in ("LF-AmazonTitles-1.3M", "amazon-670k", "Amazon-3M", "LF-Amazon-131K-small")]
    + [(name, 0.5, 0.4) for name in ("LF-WikiTitles-500K", "Wikipedia-500K", "LF-Wikipedia-500K", "WikiLSHTC-325K")]
    + [(name, 0.55, 1.5) for name in ("LF-WikiSeeAlsoTitles-320K", "Wiki10-31K", "AmazonCat-13K", "our Amazon-1K")],
)
def test_a_public_data_set_has_the_propensity_constants_of_the_papers(tmp_path, caplog, name, a, b):
    caplog.set_level("INFO")
    put(tmp_path / name, RAW)
    assert formats.read(tmp_path / name).propensity == Propensity(a, b)
    assert ("Propensity constants" in caplog.text) == (a != 0.55)
    assert formats.read(tmp_path / name, ReadOptions(propensity_b=3.0)).propensity == Propensity(a, 3.0)
    # The name of the metadata counts, and its constants go over those of the name.
    put(tmp_path, RAW | {"dataset.json": json.dumps({"name": name})})
    assert formats.read(tmp_path).propensity == Propensity(a, b)
    put(tmp_path, RAW | {"dataset.json": json.dumps({"name": name, "propensity": {"a": 0.7, "b": 2}})})
    assert formats.read(tmp_path).propensity == Propensity(0.7, 2)


def test_a_data_set_is_named_by_its_folder_also_from_inside(tmp_path, monkeypatch):
    for name in ("xc-raw", "pecos", "unidex", "bag"):
        folder = tmp_path / f"{name}.set"
        files = BAG if name == "bag" else SHOPS.get(name, [RAW])[0]
        if name == "unidex":
            formats.write(formats.read(tmp_path / "xc-raw.set"), folder, name)
            (folder / "dataset.json").unlink()
        else:
            put(folder, files)
        monkeypatch.chdir(folder)
        assert formats.read(".").name == f"{name}.set"


def test_only_a_new_or_empty_folder_is_written(tmp_path, monkeypatch):
    data = formats.read(put(tmp_path / "shop", RAW))
    before = {file: file.read_bytes() for file in (tmp_path / "shop").iterdir()}
    for target in (tmp_path / "shop", tmp_path / "shop" / "trn.json"):
        with pytest.raises(DataError, match="the folder to write must be new or empty, but holds something"):
            formats.write(data, target, "pecos")
    with pytest.raises(DataError, match=r"^--to must be one of xc-raw, .*, but is 'csv'"):
        formats.write(data, tmp_path / "new", "csv")
    assert before == {file: file.read_bytes() for file in (tmp_path / "shop").iterdir()}
    (tmp_path / "empty").mkdir()
    formats.write(data, tmp_path / "empty", "pecos")
    formats.write(data, tmp_path / "new" / "deep" / "er", "pecos")
    assert formats.detect(tmp_path / "empty") == formats.detect(tmp_path / "new/deep/er") == "pecos"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(DataError, match="the folder to write must not be the current one"):
        formats.write(data, Path(), "pecos")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), DataError("no")])
def test_a_broken_write_leaves_nothing(tmp_path, monkeypatch, error):
    data = formats.read(put(tmp_path / "shop", RAW))

    def fail(*_):
        raise error

    monkeypatch.setattr("unidex.data.formats.xc_raw._write_lines", fail)
    expected = DataError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as raised:
        formats.write(data, tmp_path / "out", "xc-raw")
    if isinstance(error, OSError):
        assert "out: the data set cannot be written (No space left on device); free space" in str(raised.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["shop"]
