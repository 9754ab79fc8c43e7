"""Bad input: one line that names the file, its line, the rule and the remedy; random damage never is a crash."""

import gzip
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from helpers.shop_files import BAG, LABELS, RAW, SHOPS, TEST, TRAIN, put
from unidex.data import formats
from unidex.data.files import chunks
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError

XCLIB, XCLIB_NPZ = SHOPS["xclib"]
PECOS, DEXML = SHOPS["pecos"][0], SHOPS["dexml"][0]
FIRST, SECOND, THIRD = TRAIN.splitlines(keepends=True)


def line_two(row):
    return {"trn.json": FIRST + row + "\n" + THIRD}


@pytest.mark.parametrize(
    ("base", "change", "match"),
    [
        # raw XC: JSON
        (RAW, line_two('{"title": "x", "target_ind": [1]'), r"trn.json:2: a line must be a JSON object .*truncated"),
        (RAW, line_two("nonsense"), r"trn.json:2: a line must be a JSON object of this format, but: .*; mend or drop"),
        (RAW, line_two(""), r"trn.json:2: a line must be a JSON object of this format, but: the line is blank"),
        (RAW, {"trn.json": TRAIN + "\n"}, r"trn.json:4: a line must be .*, but: the line is blank"),
        (RAW, line_two("[1, 2]"), r"trn.json:2: .*Expected `object`, got `array`"),
        (RAW, line_two(SECOND.strip() * 2), r"trn.json:2: .*JSON is malformed"),
        (RAW, {"trn.json": FIRST + "{\n" + SECOND[1:]}, r"trn.json:2: .*truncated"),
        (RAW, line_two('{"title": "x"}'), r"trn.json:2: .*missing required field `target_ind`"),
        (
            RAW,
            line_two('{"title": 5, "target_ind": []}'),
            r"trn.json:2: .*Expected `str \| null`, got `int` - at `\$.title`",
        ),
        (RAW, line_two('{"target_ind": ["1"]}'), r"trn.json:2: .*Expected `int`, got `str` - at `\$.target_ind"),
        (RAW, line_two('{"target_ind": [1.5]}'), r"trn.json:2: .*Expected `int`, got `float`"),
        (RAW, line_two('{"target_ind": null}'), r"trn.json:2: .*Expected `array`, got `null`"),
        (RAW, line_two('{"target_ind": [1], "target_rel": "1"}'), r"trn.json:2: .*target_rel"),
        (RAW, line_two('{"target_ind": [1], "target_rel": [NaN]}'), r"trn.json:2: .*malformed"),
        (RAW, line_two('{"target_ind": [], "deep": ' + "[" * 100_000 + "}"), r"trn.json:2: .*recursion"),
        (RAW, line_two('{"target_ind": [], "title": "\\ud800"}'), r"trn.json:2: a line must be a JSON object"),
        (RAW, {"trn.json": FIRST.encode() + b'{"title": "\xff", "target_ind": []}\n'}, r"trn.json:2: .*UTF-8, .* 0xff"),
        (RAW, {"trn.json": TRAIN.encode("utf-16")}, r"trn.json:1: the file must be UTF-8, but has the byte 0xff"),
        (RAW, {"lbl.json": LABELS + "{}]\n"}, r"lbl.json:4: a line must be a JSON object"),
        (RAW, {"trn.json": ""}, r"trn.json: the file must hold at least one line, but is empty; write it again"),
        (RAW, {"lbl.json": ""}, r"lbl.json: the file must hold at least one line, but is empty"),
        (RAW, {"tst.json": ""}, r"tst.json: the file must hold at least one line, but is empty"),
        # raw XC: labels, relevance, uids, filter pairs
        (
            RAW,
            line_two('{"target_ind": [1, 3]}'),
            r"trn.json:2: target_ind must be from 0 to 2 \(the labels\), .* is 3; mend",
        ),
        (RAW, line_two('{"target_ind": [-1]}'), r"trn.json:2: target_ind must be from 0 to 2 .*, but one is -1"),
        (RAW, line_two('{"target_ind": [99999999999999999999]}'), r"trn.json:2: target_ind must be from 0 to 2"),
        (RAW, line_two('{"target_ind": [-99999999999999999999]}'), r"trn.json:2: target_ind must be from 0 to 2"),
        (RAW, {"tst.json": TEST.replace("[1]", "[7]")}, r"tst.json:1: target_ind must be from 0 to 2"),
        (
            RAW,
            line_two('{"target_ind": [1], "target_rel": [-0.5]}'),
            r"trn.json:2: target_rel must be a number >= 0, .* -0.5",
        ),
        (
            RAW,
            line_two('{"target_ind": [1], "target_rel": [1e300]}'),
            r"trn.json:2: target_rel must be a number >= 0, .* inf",
        ),
        (
            RAW,
            line_two('{"target_ind": [1], "target_rel": []}'),
            r"trn.json:2: target_rel must have one number per target_ind \(1\), but has 0",
        ),
        (
            RAW,
            {"lbl.json": LABELS.replace('"h"', '"s"')},
            r"lbl.json:2: uids must differ, but 's' comes again; rename it",
        ),
        (
            RAW,
            {"filter_labels_train.txt": "0 1\n3 0\n"},
            r"train.txt:2: a filter pair must have a row below 3 and a label below 3, but is 3 0; is this",
        ),
        (RAW, {"filter_labels_train.txt": "0 3\n"}, r"train.txt:1: a filter pair must have a row below 3"),
        (
            RAW,
            {"filter_labels_train.txt": "0 1 2\n"},
            r"train.txt:1: a filter pair must be 'row label', but is '0 1 2'",
        ),
        (
            RAW,
            {"filter_labels_train.txt": "0 -1\n"},
            r"train.txt:1: the label of a filter pair must be a whole number >= 0, but is '-1'",
        ),
        (
            RAW,
            {"filter_labels_train.txt": "\u0663 1\n"},
            r"train.txt:1: the row of a filter pair must be a whole number",
        ),
        (RAW, {"filter_labels_test.txt": b"\xff\n"}, r"test.txt:1: the file must be UTF-8, but has the byte 0xff"),
        # a byte-order mark and nothing else
        (XCLIB, {"trn_X_Y.txt": b"\xef\xbb\xbf"}, r"trn_X_Y.txt:1: the first line must be 'rows columns', but is ''"),
        (
            RAW,
            {"trn.json": b"\xef\xbb\xbf"},
            r"trn.json:1: a line must be a JSON object of this format, but: the line is blank",
        ),
        ({"trn.json": '{"target_ind": []}\n'}, {}, r"must have at least one label, but has none"),
        # xclib text
        (XCLIB, {"trn_X.txt": "a\nb\n"}, r"trn_X.txt:2: the texts must have 3 rows, as trn_X_Y.txt has, but has 2"),
        (
            XCLIB,
            {"trn_X.txt": "a\nb\nc\nd\ne\n"},
            r"trn_X.txt:4: the texts must have 3 rows, as trn_X_Y.txt has, but has 5",
        ),
        (
            XCLIB,
            {"trn_X.txt": b"a\nb\xe9\nc\n"},
            r"trn_X.txt:2: the file must be UTF-8, but has the byte 0xe9; save it as UTF-8 \(in Excel: CSV UTF-8\), or",
        ),
        (XCLIB, {"trn_X.txt": ""}, r"trn_X.txt: the file must hold at least one line, but is empty"),
        (XCLIB, {"trn_X.txt": None}, r"a folder of format xclib must hold the texts in trn_X.txt, but does not"),
        (
            XCLIB,
            {"Y.txt": "a\nb\n"},
            r"Y.txt:2: there must be one label per line for the 3 columns .* are 2",
        ),
        (
            XCLIB,
            {"Y.txt": "a\nb\nc\nd\n"},
            r"Y.txt:4: there must be one label per line for the 3 columns .*, but there are 4",
        ),
        (XCLIB, {"trn_X_Y.txt": "3\n"}, r"trn_X_Y.txt:1: the first line must be 'rows columns', but is '3'"),
        (
            XCLIB,
            {"trn_X_Y.txt": "3 x\n"},
            r"trn_X_Y.txt:1: the number of columns must be a whole number >= 0, but is 'x'",
        ),
        (XCLIB, {"trn_X_Y.txt": "3 99999999999\n"}, r"trn_X_Y.txt:1: the number of columns must be at most 2147483647"),
        (XCLIB, {"trn_X_Y.txt": "3 3\n0:1\n1:1\n"}, r"trn_X_Y.txt:3: the header names 3 rows, but the file has 2"),
        (XCLIB, {"trn_X_Y.txt": "1 3\n0:1\n1:1\n"}, r"trn_X_Y.txt:3: the header names 1 rows, but there are more"),
        (XCLIB, {"trn_X_Y.txt": "3 3\n0:1\n3:1\n\n"}, r"trn_X_Y.txt:3: a column must be below 3, but is 3"),
        (
            XCLIB,
            {"trn_X_Y.txt": "3 3\n0:1\n-1:1\n\n"},
            r"trn_X_Y.txt:3: a column must be a whole number >= 0, but is '-1'",
        ),
        (XCLIB, {"trn_X_Y.txt": "3 3\n0:1\n1\n\n"}, r"trn_X_Y.txt:3: an entry must be 'column:value', but is '1'"),
        (XCLIB, {"trn_X_Y.txt": "3 3\n0:1\n1:x\n\n"}, r"trn_X_Y.txt:3: a value must be a number, but is 'x'"),
        (XCLIB, {"trn_X_Y.txt": "3 3\n0:1\n1:1_0\n\n"}, r"trn_X_Y.txt:3: a value must be a number, but is '1_0'"),
        (
            XCLIB,
            {"trn_X_Y.txt": "3 3\n0:1\n1:nan\n\n"},
            r"trn_X_Y.txt:3: values must be finite numbers, but one in row 1 is nan",
        ),
        (
            XCLIB,
            {"trn_X_Y.txt": "3 3\n0:1\n1:1e300\n\n"},
            r"trn_X_Y.txt:3: values must be finite numbers, .* inf; drop the pair",
        ),
        (
            XCLIB,
            {"trn_X_Y.txt": "3 3\n0:1\n1:-2\n\n"},
            r"trn_X_Y.txt:3: relevance must be >= 0, but one in row 1 is -2",
        ),
        (XCLIB, {"trn_X_Y.txt": ""}, r"trn_X_Y.txt: the file must hold at least one line, but is empty"),
        (
            XCLIB,
            {"tst_X_Y.txt": "1 4\n1:1\n"},
            r"tst_X_Y.txt: test positives must have 3 columns, as train positives have, but have 4",
        ),
        (
            XCLIB,
            {"trn_X_Xf.txt": "2 9\n\n\n"},
            r"trn_X_Xf.txt:2: features must have 3 rows, as trn_X_Y.txt has, but has 2",
        ),
        (XCLIB, {"uids.trn.txt": "a\nb\na\n"}, r"uids.trn.txt:3: uids must differ, but 'a' comes again; rename it"),
        (XCLIB, {"uids.trn.txt": "a\n"}, r"uids.trn.txt:1: there must be 3 uids, one per row, but there are 1"),
        (XCLIB, {"uids.lbl.txt": "a\nb\na\n"}, r"uids.lbl.txt:3: uids must differ"),
        # .npz
        (
            XCLIB_NPZ,
            {"trn_X_Y.npz": b""},
            r"trn_X_Y.npz: the file must be a sparse matrix, but cannot be read .*; write it with",
        ),
        (XCLIB_NPZ, {"trn_X_Y.npz": b"PK\x03\x04 no archive"}, r"trn_X_Y.npz: the file must be a sparse matrix"),
        (
            PECOS,
            {"Y.trn.npz": np.array([[0, np.nan, 0]] * 3)},
            r"Y.trn.npz: values must be finite numbers, but one in row 0 is nan",
        ),
        (
            PECOS,
            {"Y.trn.npz": np.array([[0, 1, 0], [0, -1, 0], [0, 0, 1]])},
            r"Y.trn.npz: relevance must be >= 0, but one in row 1 is -1",
        ),
        (
            PECOS,
            {"Y.trn.npz": np.array([[1j, 0, 0]] * 3)},
            r"Y.trn.npz: the matrix must be a table of numbers, but is complex128",
        ),
        (
            PECOS,
            {"Y.trn.npz": np.full((3, 3), 1e300)},
            r"Y.trn.npz: values must be finite numbers, but one in row 0 is inf",
        ),
        (PECOS, {"X.trn.txt": "a\nb\n"}, r"X.trn.txt:2: the texts must have 3 rows, as Y.trn.npz has, but has 2"),
        (
            PECOS,
            {"Y.tst.npz": [[0, 1]]},
            r"Y.tst.npz: test positives must have 3 columns, as train positives have, but have 2",
        ),
        (PECOS, {"X.trn.npz": [[0, 1]]}, r"X.trn.npz: features must have 3 rows, as Y.trn.npz has, but has 1"),
        (PECOS, {"output-items.txt": "a\n"}, r"output-items.txt:1: there must be one label per line for the 3 columns"),
        (DEXML, {"raw/trn_X.txt": "a\n"}, r"trn_X.txt:1: the texts must have 3 rows, as Y.trn.npz has, but has 1"),
        (DEXML, {"raw/Y.txt": "a\nb\nc\nd\n"}, r"Y.txt:4: there must be one label per line"),
        # bag of words
        (BAG, {"train.txt": "3 4 3\n0 0:1\n"}, r"train.txt:2: the header names 3 rows, but the file has 1"),
        (BAG, {"train.txt": "1 4 3\n0 0:1\n1 0:1\n"}, r"train.txt:3: the header names 1 rows, but there are more"),
        (BAG, {"train.txt": "1 4 3\n3 0:1\n"}, r"train.txt:2: a label must be below 3, but is 3"),
        (BAG, {"train.txt": "1 4 3\nx 0:1\n"}, r"train.txt:2: a label must be a whole number >= 0, but is 'x'"),
        (BAG, {"train.txt": "1 4 3\n1,,2 0:1\n"}, r"train.txt:2: a label must be a whole number >= 0, but is ''"),
        (BAG, {"train.txt": "1 4 3\n0 4:1\n"}, r"train.txt:2: a column must be below 4, but is 4"),
        (
            BAG,
            {"train.txt": "1 4 3\n0 1:nan\n"},
            r"train.txt:2: values must be finite numbers, but one in row 0 is nan",
        ),
        (
            BAG,
            {"train.txt": "1 4 3\n0 1:1e99\n"},
            r"train.txt:2: values must be finite numbers, but one in row 0 is inf",
        ),
        (
            BAG,
            {"train.txt": "1 4 99999999999\n0 1:1\n"},
            r"train.txt:1: the number of labels must be at most 2147483647",
        ),
        (
            BAG,
            {"test.txt": "1 5 3\n0 1:1\n"},
            r"test.txt:1: the header must name 4 features, as train does, but names 5",
        ),
        (BAG, {"test.txt": "1 4 2\n0 1:1\n"}, r"test.txt:1: the header must name 3 labels, as train does, but names 2"),
        (BAG, {"test.txt": "x\n"}, r"test.txt:1: the first line must be 'rows features labels', but is 'x'"),
        # dataset.json
        (
            RAW,
            {"dataset.json": "{"},
            r'dataset.json: the file must be JSON such as {"name": "shop", .*, but: Expecting',
        ),
        (RAW, {"dataset.json": "[]"}, r"dataset.json: the file must be JSON such as .*, but is not"),
        (RAW, {"dataset.json": '{"name": 5}'}, r"dataset.json: the file must be JSON such as .*, but is not"),
        (RAW, {"dataset.json": '{"name": "\\ud800"}'}, r"dataset.json: .*, but the name has half a surrogate pair"),
        (RAW, {"dataset.json": '{"propensity": {"A": 0.5}}'}, r"dataset.json: .*, but the propensity is {'A': 0.5}"),
        (RAW, {"dataset.json": '{"propensity": {"a": NaN}}'}, r"dataset.json: .*, but the propensity is {'a': nan}"),
        (
            RAW,
            {"dataset.json": '{"propensity": {"a": 1' + "0" * 400 + "}}"},
            r"dataset.json: .*, but the propensity is",
        ),
        (RAW, {"dataset.json": '{"propensity": 3}'}, r"dataset.json: .*, but the propensity is 3"),
        (RAW, {"dataset.json": "[" * 100_000}, r"dataset.json: .*, but is nested without end"),
        (RAW, {"dataset.json": b"\xff"}, r"dataset.json: .*, but: 'utf-8' codec"),
    ],
)
def test_the_place_the_rule_and_the_remedy(tmp_path, base, change, match):
    put(tmp_path, {name: content for name, content in (base | change).items() if content is not None})
    with pytest.raises(DataError, match=match) as raised:
        formats.read(tmp_path)
    assert_one_line(raised.value, tmp_path)


def assert_one_line(error, folder):
    assert str(error).splitlines() == [str(error)]
    assert str(error).startswith(str(folder))


@pytest.mark.parametrize(("name", "wanted"), [("xc-raw", "trn.json"), ("pecos", "Y.trn.npz"), ("dexml", "Y.trn.npz")])
def test_a_forced_format_says_what_is_missing(tmp_path, name, wanted):
    put(tmp_path, {"notes.txt": "x"})
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(DataError, match=f"must hold {wanted}.*, but"):
            formats.read(path, ReadOptions(format=name))
    with pytest.raises(DataError, match=r"a bag-of-words folder must hold train.txt, but does not"):
        formats.read(tmp_path, ReadOptions(format="bag-of-words"))
    with pytest.raises(DataError, match="a saved array cannot be read"):
        formats.read(tmp_path, ReadOptions(format="unidex"))


@pytest.mark.parametrize("cut", [1, 5, 12, 40, 0.3, 0.6, -9, -4, -1])
def test_a_cut_gzip_stream_names_the_line(tmp_path, cut):
    rows = "".join(f'{{"title": "text {row}", "target_ind": [0]}}\n' for row in range(30_000))
    whole = gzip.compress(rows.encode())
    size = int(len(whole) * cut) if isinstance(cut, float) else cut % len(whole)
    put(tmp_path, {"lbl.json": '{"title": "x"}\n'})
    (tmp_path / "trn.json.gz").write_bytes(whole[:size])
    with pytest.raises(DataError) as raised:
        formats.read(tmp_path)
    assert_one_line(raised.value, tmp_path)
    if size > 1:
        reached = len(zlib.decompressobj(wbits=31).decompress(whole[:size]).split(b"\n"))
        assert f"trn.json.gz: the gzip stream is cut off or damaged in line {reached}; copy" in str(raised.value)


def test_a_cut_anywhere_in_a_dense_gzip_stream_names_the_line(tmp_path):
    """Where a few bytes stand for many lines, text waits inside the decompressor when the stream ends."""
    whole = gzip.compress(b"ab\n" * 100_000)
    file = tmp_path / "dense.gz"
    for cut in range(11, len(whole)):
        file.write_bytes(whole[:cut])
        reached = len(zlib.decompressobj(wbits=31).decompress(whole[:cut]).split(b"\n"))
        with pytest.raises(DataError, match=f"cut off or damaged in line {reached};"):
            list(chunks(file))


def test_a_damaged_gzip_stream_and_one_of_several_members(tmp_path):
    rows = [f'{{"title": "text {row}", "target_ind": [0]}}\n'.encode() for row in range(3000)]
    whole = bytearray(gzip.compress(b"".join(rows)))
    whole[-6] ^= 1  # the checksum
    put(tmp_path, {"lbl.json": '{"title": "x"}\n'})
    file = tmp_path / "trn.json.gz"
    file.write_bytes(whole)
    with pytest.raises(DataError, match="the gzip stream is cut off or damaged in line"):
        formats.read(tmp_path)
    file.write_bytes(gzip.compress(b"".join(rows[:100])) + gzip.compress(b"".join(rows[100:])) + b"\0" * 300_000)
    assert list(formats.read(tmp_path).train.texts) == [f"text {row}" for row in range(3000)]
    file.write_bytes(gzip.compress(b"".join(rows)) + b"garbage")
    with pytest.raises(DataError, match="the gzip stream is cut off or damaged in line 3001"):
        formats.read(tmp_path)


def test_lines_are_numbered_across_pieces(tmp_path):
    rows = [f'{{"title": "{"x" * (row % 700)}", "target_ind": [0]}}\n' for row in range(2000)]
    rows[1500] = '{"title": "bad", "target_ind": [9]}\n'
    put(tmp_path, {"lbl.json": '{"title": "x"}\n', "trn.json": "".join(rows)})
    with pytest.raises(DataError, match=r"trn.json:1501: target_ind must be from 0 to 0"):
        formats.read(tmp_path)
    rows[1500] = '{"title": "' + "y" * 500_000 + '", "target_ind": [0]}\n'
    rows[1700] = "\n"
    put(tmp_path, {"trn.json": "".join(rows)})
    with pytest.raises(DataError, match=r"trn.json:1701: .* the line is blank"):
        formats.read(tmp_path)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
def test_matrices_that_lie_about_their_indices(tmp_path, kind):
    put(tmp_path, PECOS)
    sparse.save_npz(tmp_path / "Y.trn.npz", sparse.eye_array(3, format=kind))
    assert formats.read(tmp_path).train.positives.toarray().tolist() == np.eye(3).tolist()
    with np.load(tmp_path / "Y.trn.npz") as archive:
        arrays = dict(archive)
    name = "coords" if "coords" in arrays else "row" if "row" in arrays else "indices"
    arrays[name] = arrays[name] + 2**20
    np.savez(tmp_path / "Y.trn.npz", **arrays)
    with pytest.raises(DataError, match=r"Y.trn.npz: the (file must be a sparse matrix|matrix breaks the CSR form)"):
        formats.read(tmp_path)


@pytest.mark.parametrize("indptr", [[0, 1, 2, -3], [0, 2, 1, 3], [1, 1, 2, 3], [0, 1, 2, 9], [0, 1, 3]])
def test_tables_that_lie_about_their_rows(tmp_path, indptr):
    put(tmp_path / "pecos", PECOS)
    eye = np.ones(3, dtype=np.float32), np.arange(3, dtype=np.int32), np.array(indptr, dtype=np.int32)
    arrays = dict(zip(("data", "indices", "indptr"), eye, strict=True))
    np.savez(tmp_path / "pecos" / "Y.trn.npz", format=b"csr", shape=(3, 3), **arrays)
    with pytest.raises(DataError, match=r"Y.trn.npz: the (file must be a sparse matrix|matrix breaks the CSR form)"):
        formats.read(tmp_path / "pecos")
    formats.write(formats.read(put(tmp_path / "raw", RAW)), tmp_path / "unidex", "unidex")
    for part, array in arrays.items():
        np.save(tmp_path / "unidex" / f"train.positives.{part}.npy", array)
    with pytest.raises(DataError, match=r"train.positives: a saved table is damaged .*; convert the data set again"):
        formats.read(tmp_path / "unidex")


def test_folders_in_the_place_of_files_and_files_without_permission(tmp_path, monkeypatch):
    put(tmp_path, XCLIB)
    (tmp_path / "filter_labels_train.txt").unlink()
    (tmp_path / "filter_labels_train.txt").mkdir()
    assert formats.read(tmp_path).train.filter_pairs.nnz == 0
    put(tmp_path / "raw", RAW)
    (tmp_path / "raw" / "filter_labels_train.txt").unlink()
    (tmp_path / "raw" / "filter_labels_train.txt").mkdir()
    with pytest.raises(DataError, match=r"filter_labels_train.txt: a file is needed here, but this is a folder"):
        formats.read(tmp_path / "raw")
    for error, match in (
        (PermissionError(13, "Permission denied"), "the file cannot be opened: permission denied"),
        (OSError(5, "Input/output error"), r"the data set cannot be read \(Input/output error\)"),
    ):

        def refuse(*_, error=error, **__):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", refuse)
            with pytest.raises(DataError, match=match):
                formats.read(tmp_path, ReadOptions(format="xclib"))


def test_a_path_that_no_file_system_takes():
    with pytest.raises(DataError, match=r"cannot be read \(File name too long\)"):
        formats.read("x" * 5000)


GOOD = {
    "xc-raw": RAW | {"dataset.json": '{"name": "shop", "propensity": {"a": 0.5, "b": 0.4}}'},
    "xclib": XCLIB | {"uids.trn.txt": "a\nb\nc\n", "trn_X_Xf.txt": "3 2\n0:1\n\n1:0.5\n"},
    "pecos": PECOS | {"X.trn.npz": np.eye(3)},
    "dexml": DEXML,
    "bag-of-words": BAG,
    "unidex": {},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A good data set in each format, to be damaged."""
    folder = tmp_path_factory.mktemp("good")
    for name, files in GOOD.items():
        put(folder / name, files)
    formats.write(formats.read(folder / "xc-raw"), folder / "unidex", "unidex")
    return folder


damages = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 400)),
    st.tuples(st.just("flip"), st.integers(0, 400), st.integers(1, 255)),
    st.tuples(st.just("insert"), st.integers(0, 400), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("double"), st.integers(0, 400), st.integers(1, 60)),
    st.tuples(
        st.just("swap"),
        st.sampled_from([b"0", b"1", b"3", b":", b'"', b"[", b"\n", b" ", b"title", b"<i4", b"(3,)", b"False"]),
        st.sampled_from(
            [b"", b"-", b"9", b"99999999999999999999", b"nan", b"1e99", b"\n\n", b"{", b"\xe2\x80\xa8", b"\xff"]
        ),
    ),
    st.tuples(st.just("replace"), st.binary(max_size=60)),
    st.tuples(st.just("zip")),
)


def damaged(content, damage):
    kind, *how = damage
    at = min(how[0], len(content)) if how and isinstance(how[0], int) else 0
    if kind == "cut":
        return content[:at]
    if kind == "flip" and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ how[1]]) + content[at + 1 :]
    if kind == "insert":
        return content[:at] + how[1] + content[at:]
    if kind == "double":
        return content[: at + how[1]] + content[at:]
    if kind == "swap":
        return content.replace(how[0], how[1], 2)
    if kind == "replace":
        return how[0]
    return gzip.compress(content)[: len(content)]


def read_all(path, options=None):
    """Read, and look at every text: what is mapped is only found damaged then."""
    data = formats.read(path, options)
    for split in data.splits:
        list(split.texts.fields())
        list(split.uids or ())
        split.positives.toarray()
    list(data.labels.texts)
    list(data.labels.uids or ())


def assert_read_or_refused(path, name):
    """Only DataError may come out, as one line, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read_all(path, ReadOptions(format=name))
            said = "fine"
        except DataError as error:
            said = str(error)
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("name", GOOD)
@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(good, name, data):
    files = sorted(file for file in (good / name).rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    whole = content = file.read_bytes()
    for damage in data.draw(st.lists(damages, max_size=3)):
        content = damaged(content, damage)
    # A new file in the place of the old one: what is still mapped must not change.
    file.unlink()
    try:
        if content != whole:
            file.write_bytes(content)
        assert_read_or_refused(good / name, data.draw(st.sampled_from([None, name])))
    finally:
        file.unlink(missing_ok=True)
        file.write_bytes(whole)


names = sorted({name for files in GOOD.values() for name in files} | {"train.csv", "train.jsonl", "train.tsv", "a.txt"})


@settings(max_examples=300)
@given(
    st.dictionaries(st.sampled_from(names), st.binary(max_size=80) | st.text(max_size=40), min_size=1, max_size=4),
    st.sampled_from([None, *formats.READ_FORMATS]),
)
def test_random_files_are_read_or_refused(files, name):
    with tempfile.TemporaryDirectory() as scratch:
        folder = put(Path(scratch) / "set", files)
        for path in (folder, folder / min(files)):
            assert_read_or_refused(path, name)
