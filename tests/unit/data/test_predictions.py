import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.predictions import read_predictions
from unidex.data.texts import Texts
from unidex.errors import DataError


def shop(num_test=2, uids=("B07", "A12", "C99")):
    """A data set of three labels with uids, three train texts and some test texts."""
    train = Split.of(Texts.of(["a", "b", "c"]), sparse.csr_array(np.eye(3)))
    test = Split.of(Texts.of([f"t{row}" for row in range(num_test)]), sparse.csr_array((num_test, 3)))
    labels = Labels(Texts.of(["shoes", "hats", "bags"]), None if uids is None else Texts.of(uids))
    return Dataset("shop", labels, train, test)


def written(folder, *rows, name="p.jsonl"):
    file = folder / name
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def read(folder, *rows, **more):
    return read_predictions(written(folder, *rows), shop(len(rows)), **more)


def test_ids_and_uids_without_scores_keep_the_order_given(tmp_path):
    best = read(tmp_path, {"labels": [2, 0, 1]}, {"labels": ["A12", "B07"]}, {"labels": []})
    assert best.ids.tolist() == [[2, 0, 1], [1, 0, -1], [-1, -1, -1]]
    # The order must also survive what ranks anew, such as taking out a filter pair.
    assert best.without(sparse.csr_array(np.array([[1, 0, 0]] * 3))).ids[0].tolist() == [2, 1, -1]


def test_scores_decide_and_ties_go_to_the_lower_id(tmp_path):
    best = read(tmp_path, {"labels": [2, 1, 0], "scores": [-0.5, -0.25, -0.5]})
    assert best.ids.tolist() == [[1, 0, 2]]
    assert best.scores.tolist() == [[-0.25, -0.5, -0.5]]


def test_own_output_is_read_back(tmp_path):
    row = {
        "text": "red shoe",
        "labels": [
            {"id": 1, "uid": "A12", "text": "hats", "score": 0.25},
            {"uid": "C99", "text": "bags", "score": 0.75},
            {"id": 0, "score": 0.5},
        ],
    }
    best = read(tmp_path, row)
    assert best.ids.tolist() == [[2, 0, 1]]
    assert best.scores.tolist() == [[0.75, 0.5, 0.25]]


def test_objects_without_scores_are_in_order(tmp_path):
    assert read(tmp_path, {"labels": [{"id": 2}, {"uid": "B07"}]}).ids.tolist() == [[2, 0]]


def test_without_uids_a_number_in_quotes_is_an_id(tmp_path):
    file = written(tmp_path, {"labels": ["2", {"uid": "0"}]})
    assert read_predictions(file, shop(1, uids=None)).ids.tolist() == [[2, 0]]
    with pytest.raises(DataError, match="must be a whole number >= 0, but is 'x'"):
        read_predictions(written(tmp_path, {"labels": ["x"]}), shop(1, uids=None))


def test_k_keeps_the_best_places(tmp_path):
    best = read(tmp_path, {"labels": [2, 1, 0], "scores": [1, 2, 3]}, {"labels": [1]}, k=2)
    assert best.ids.tolist() == [[0, 1], [1, -1]]
    with pytest.raises(ValueError, match="k must be at least 1"):
        read(tmp_path, {"labels": []}, k=0)


def test_order_survives_single_precision(tmp_path):
    best = read(
        tmp_path,
        {"labels": [0, 1, 2], "scores": [0.999999999, 0.9999999999, 0.5]},
        {"labels": [0, 1, 2], "scores": [-1e300, -1e301, -1e300]},
        {"labels": [0, 1], "scores": [0.25, 0.5]},
    )
    assert best.ids.tolist() == [[1, 0, 2], [0, 2, 1], [1, 0, -1]]
    assert best.scores.tolist() == [[0, -1, -2], [0, 0, -1], [0.5, 0.25, -np.inf]]


def test_train_can_be_scored(tmp_path):
    file = written(tmp_path, {"labels": [0]}, {"labels": [1]}, {"labels": [2]})
    assert read_predictions(file, shop(), split="train").ids.tolist() == [[0], [1], [2]]


def test_gzip_byte_order_mark_carriage_returns_and_blank_end(tmp_path):
    file = tmp_path / "p.jsonl.gz"
    file.write_bytes(gzip.compress(b'\xef\xbb\xbf{"labels": [1]}\r\n{"labels": [0]}\r\n\r\n\n'))
    assert read_predictions(file, shop()).ids.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("rows", "line", "message"),
    [
        (['{"labels": [0]}'], 1, "must be 2 rows, one per text of the split, but there are 1; is this another split"),
        (['{"labels": [0]}'] * 3, 3, "must be 2 rows, one per text of the split, but there are more"),
        (['{"labels": [0]}', '{"labels": [3]}'], 2, "a label id must be from 0 to 2, but is 3; is this another"),
        (['{"labels": [-1]}'], 1, "from 0 to 2, but is -1"),
        (['{"labels": [123456789012345678901234567890]}'], 1, "from 0 to 2, but is 1234567890"),
        (['{"labels": [0]}', '{"labels": ["Z"]}'], 2, "no label has the uid 'Z'"),
        (['{"labels": [{"text": "hats"}]}'], 1, "must have an id or a uid, but has neither"),
        (['{"labels": [{"id": 0, "uid": "A12"}]}'], 1, "id 0 is 'B07' and the uid is 'A12'"),
        (['{"labels": [0], "scores": [1, 2]}'], 1, "one score per label, but there are 1 labels and 2 scores"),
        (['{"labels": [{"id": 0, "score": 1}], "scores": [1]}'], 1, "but are both"),
        (['{"labels": [{"id": 0, "score": 1}, 1]}'], 1, "a score or none, but 1 of 2 have one"),
        (['{"labels": [0], "scores": [NaN]}'], 1, "cannot be read .*malformed"),
        (['{"labels": [0], "scores": [1e999]}'], 1, "out of range"),
        (['{"labels": [0], "scores": [null]}'], 1, "Expected `float`, got `null`"),
        (['{"labels": [0, 1.5]}'], 1, "got `float`"),
        (['{"labels": [true]}'], 1, "got `bool`"),
        (['{"scores": [0]}'], 1, "missing required field `labels`"),
        (["[0]"], 1, "Expected `object`, got `array`"),
        (['{"labels": [0]}', '{"labels": [1, 2, 1]}'], 2, "label 1 comes twice"),
        (['{"labels": [0]}', "", " ", '{"labels": [0]}'], 2, 'is blank; write {"labels": \\[\\]}'),
        (['{"labels": [0], "x": ' + "[" * 5000 + "}"], 1, "cannot be read"),
    ],
)
def test_bad_lines_are_named(tmp_path, rows, line, message):
    file = written(tmp_path, *rows)
    with pytest.raises(DataError, match=message) as caught:
        read_predictions(file, shop())
    assert (caught.value.file, caught.value.line) == (str(file), line)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"labels": [0]}\n{"labels": ["\xff"]}\n')
    with pytest.raises(DataError, match=r"p\.jsonl:2: the file must be UTF-8, but has the byte 0xff"):
        read_predictions(file, shop())


def test_a_cut_off_gzip_is_refused(tmp_path):
    file = tmp_path / "p.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"labels": [0]}\n{"labels": [1]}\n')[:-10])
    with pytest.raises(DataError, match="gzip stream is cut off or damaged"):
        read_predictions(file, shop())


@pytest.mark.parametrize("name", ["p.jsonl", "p.npz", "p.npy"])
def test_a_file_that_is_not_there_and_one_that_is_a_folder(tmp_path, name):
    with pytest.raises(DataError, match="must exist, but does not"):
        read_predictions(tmp_path / name, shop())
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=name):
        read_predictions(tmp_path / name, shop())


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"must be a file that ends with \.json, .*\.npz, but this does not"):
        read_predictions(written(tmp_path, name="p.pkl"), shop())


def test_score_matrix_keeps_stored_zeros_and_negatives(tmp_path):
    file = tmp_path / "p.npz"
    values, columns = np.array([0.0, -1.0, -0.5]), np.array([0, 1, 2])
    sparse.save_npz(file, sparse.csr_array((values, columns, np.array([0, 2, 3])), shape=(2, 3)))
    best = read_predictions(file, shop())
    assert best.ids.tolist() == [[0, 1], [2, -1]]
    assert best.scores.tolist() == [[0.0, -1.0], [-0.5, -np.inf]]
    assert read_predictions(file, shop(), k=1).ids.tolist() == [[0], [2]]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (sparse.csr_array((3, 3)), r"2 rows \(texts\) and 3 columns \(labels\), but have 3 and 3"),
        (sparse.csr_array((2, 4)), "but have 2 and 4"),
        (sparse.csr_array(np.array([[np.nan, 0, 0], [0, 0, 0]])), "must be finite numbers, but one in row 0"),
        (sparse.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 0, 2])), shape=(2, 3)), "twice in row 1"),
    ],
)
def test_bad_score_matrices(tmp_path, matrix, message):
    file = tmp_path / "p.npz"
    sparse.save_npz(file, matrix)
    with pytest.raises(DataError, match=message):
        read_predictions(file, shop())


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_id_array(tmp_path, dtype):
    file = tmp_path / "p.npy"
    np.save(file, np.array([[2, -1, 0, -1], [-1, -1, -1, -1]], dtype=dtype))
    best = read_predictions(file, shop())
    # A hole is closed, and padding at the end still counts as places.
    assert best.ids.tolist() == [[2, 0, -1, -1], [-1, -1, -1, -1]]
    assert best.without(sparse.csr_array(np.array([[0, 0, 1], [0, 0, 0]]))).ids[0].tolist() == [0, -1, -1, -1]
    assert read_predictions(file, shop(), k=1).ids.tolist() == [[2], [-1]]


def test_unsigned_ids_have_no_padding(tmp_path):
    file = tmp_path / "p.npy"
    np.save(file, np.array([[2], [0]], dtype=np.uint64))
    assert read_predictions(file, shop()).ids.tolist() == [[2], [0]]
    np.save(file, np.array([[2], [2**64 - 1]], dtype=np.uint64))
    with pytest.raises(DataError, match="but is 18446744073709551615 in row 1"):
        read_predictions(file, shop())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([[0]]), "must be 2 rows, one per text of the split, but there are 1"),
        (np.array([[0], [3]]), "from 0 to 2, but is 3 in row 1"),
        (np.array([[0], [-2]]), "from 0 to 2, but is -2 in row 1"),
        (np.array([[0, 1], [2, 2]]), "label 2 comes twice in row 1"),
        (np.array([[0.0], [1.0]]), r"whole numbers \[texts, places\], but is float64 of 2 axes"),
        (np.array([0, 1]), "but is int64 of 1 axes"),
        (np.array([["a"], ["b"]]), "but is <U1"),
        (np.array([[{}], [{}]]), "cannot be read"),
    ],
)
def test_bad_id_arrays(tmp_path, ids, message):
    file = tmp_path / "p.npy"
    np.save(file, ids, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        read_predictions(file, shop())


def test_an_archive_is_not_an_id_array(tmp_path):
    np.savez(tmp_path / "p.npz", ids=np.array([[0]]))
    file = (tmp_path / "p.npz").rename(tmp_path / "p.npy")
    with pytest.raises(DataError, match="but is an archive"):
        read_predictions(file, shop())


PIECES = st.sampled_from(
    [b'{"labels":', b"[", b"]", b"}", b",", b'"scores":', b"1", b"0.5", b'"A12"', b"\n", b'{"id":', b"\xff", b"-", b'"']
)
NPY_START = b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }"


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([".jsonl", ".jsonl.gz", ".npz", ".npy"]),
    st.one_of(
        st.binary(max_size=200),
        st.lists(PIECES, max_size=30).map(b"".join),
        st.binary(max_size=60).map(lambda tail: b"\x1f\x8b\x08\x00" + tail),
        st.binary(max_size=60).map(lambda tail: b"PK\x03\x04" + tail),
        st.binary(max_size=120).map(lambda tail: NPY_START + tail),
        st.lists(PIECES, max_size=30).map(lambda pieces: gzip.compress(b"".join(pieces))),
    ),
)
def test_any_bytes_give_predictions_or_a_data_error(tmp_path_factory, ending, content):
    file = tmp_path_factory.getbasetemp() / f"random{ending}"
    file.write_bytes(content)
    message = None
    try:
        best = read_predictions(file, shop())
    except DataError as error:
        message = str(error)
    if message is None:
        assert len(best) == 2
        assert best.ids.max(initial=-1) < 3
    else:
        assert message.startswith(str(file))
        assert "\n" not in message


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.floats(-1e6, 1e6)), max_size=3, unique_by=lambda pair: pair[0]),
        min_size=1,
        max_size=6,
    )
)
def test_written_predictions_are_read_back(tmp_path_factory, rows):
    file = tmp_path_factory.getbasetemp() / "round.jsonl"
    lines = [{"labels": [pair[0] for pair in row], "scores": [pair[1] for pair in row]} for row in rows]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    best = read_predictions(file, shop(len(rows)))
    for row, pairs in enumerate(rows):
        expected = [label for label, _ in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))]
        assert best.ids[row].tolist() == expected + [-1] * (best.k - len(expected))
        assert np.all(np.diff(best.scores[row][: len(pairs)]) <= 0)
