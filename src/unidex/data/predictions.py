"""Predictions made by any system, read from a file into TopK; what is wrong in one is a DataError with its line.

Formats, by the end of the file's name:

- ``.jsonl``, ``.json``, ``.jsonl.gz``, ``.json.gz``: one JSON object per text, in the order of the split. ``labels``
  lists label ids (numbers) or uids (strings), or objects with ``id`` or ``uid`` and perhaps ``score``; ``scores``
  may list the scores instead. Without scores the order given is the ranking.
- ``.npz``: a scipy CSR matrix of scores, texts x labels. What is stored is predicted, also zeros and negatives.
- ``.npy``: label ids [texts, places], best first, -1 where there is none.
"""

from __future__ import annotations

from array import array
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Dataset, Labels
from unidex.data.files import Fail, lines, read_sparse, whole_number
from unidex.errors import DataError, listed, quoted
from unidex.topk import PADDING, TopK

SplitName = Literal["train", "test"]
_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".npz", ".npy")


class _Item(msgspec.Struct):
    id: int | None = None
    uid: str | None = None
    score: float | None = None


class _Row(msgspec.Struct):
    labels: list[int | str | _Item]
    scores: list[float] | None = None


def read_predictions(path: str | Path, dataset: Dataset, split: SplitName = "test", k: int | None = None) -> TopK:
    """Predictions for the texts of a split.

    Places are ordered by score, ties by the lower label id. The order of the scores in the file is kept even where
    the single precision of TopK could not tell them apart; such a row gets its ranks, negated, as scores.
    The best k places of each text are kept, or all. Leave room for filter pairs, which are still inside.
    """
    file = Path(path)
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
    num_rows = len(dataset.test if split == "test" else dataset.train)
    name = file.name.lower()
    if name.endswith(".npz"):
        return _from_matrix(file, num_rows, dataset.num_labels, k)
    if name.endswith(".npy"):
        return _from_ids(file, num_rows, dataset.num_labels, k)
    if name.endswith(_ENDINGS):
        return _from_json(file, num_rows, dataset.labels, k)
    raise DataError(f"predictions must be a file that ends with {listed(_ENDINGS)}, but this does not", file=file)


def _from_matrix(file: Path, num_rows: int, num_labels: int, k: int | None) -> TopK:
    scores_NL = read_sparse(file)
    if scores_NL.shape != (num_rows, num_labels):
        raise DataError(
            f"the scores must have {num_rows} rows (texts) and {num_labels} columns (labels), "
            f"but have {scores_NL.shape[0]} and {scores_NL.shape[1]}; are they for another data set or split?",
            file=file,
        )
    counts_N = np.diff(scores_NL.indptr)
    ids = scores_NL.indices.astype(np.int64)
    _check_once(ids, counts_N, num_labels, file, has_lines=False)
    return _ranked(ids, scores_NL.data.astype(np.float64), counts_N, k)


def _from_ids(file: Path, num_rows: int, num_labels: int, k: int | None) -> TopK:
    remedy = "write label ids with numpy.save, best first, -1 where there is none"
    if not file.exists():
        raise DataError("the file must exist, but does not", file=file)
    try:
        ids_NK = np.load(file, allow_pickle=False)
    # A damaged file fails in many ways inside the header or the block; all mean the same to the user.
    except Exception as error:
        raise DataError(f"the file must be a numpy array, but cannot be read ({error}); {remedy}", file=file) from None
    if not isinstance(ids_NK, np.ndarray) or ids_NK.ndim != 2 or ids_NK.dtype.kind not in "iu":
        shown = f"{ids_NK.dtype} of {ids_NK.ndim} axes" if isinstance(ids_NK, np.ndarray) else "an archive"
        raise DataError(f"the array must be whole numbers [texts, places], but is {shown}; {remedy}", file=file)
    if len(ids_NK) != num_rows:
        raise DataError(_wrong_number(num_rows, len(ids_NK)), file=file)
    # Compared before the cast: a large unsigned number must not become a small signed one.
    bad_NK = (ids_NK >= num_labels) | ((ids_NK < PADDING) if ids_NK.dtype.kind == "i" else False)
    if bad_NK.any():
        row, place = np.argwhere(bad_NK)[0].tolist()
        raise DataError(_not_a_label(num_labels, int(ids_NK[row, place]), f" in row {row}"), file=file)
    filled_NK = ids_NK != PADDING if ids_NK.dtype.kind == "i" else np.ones(ids_NK.shape, dtype=bool)
    counts_N = filled_NK.sum(axis=1)
    ids = ids_NK[filled_NK].astype(np.int64)
    _check_once(ids, counts_N, num_labels, file, has_lines=False)
    # All -1 at the end of every row still says how many places the system was asked for.
    width = ids_NK.shape[1] if k is None else min(k, ids_NK.shape[1])
    # Scores that keep the order given: 0, -1, -2 ... in each row.
    by_order = (_starts(counts_N) - np.arange(len(ids))).astype(np.float64)
    return _ranked(ids, by_order, counts_N, k).first(width)


def _from_json(file: Path, num_rows: int, labels: Labels, k: int | None) -> TopK:
    decode = msgspec.json.Decoder(_Row).decode
    id_of = _LabelIds(labels)
    ids, scores, counts = array("q"), array("d"), array("q")
    blank = 0
    for number, line in lines(file):
        fail: Fail = partial(DataError, file=file, line=number)
        if not line.strip():
            # A blank line is a text without a row unless it stands at the end.
            blank = blank or number
            continue
        if blank:
            raise DataError('a line must be a JSON object, but is blank; write {"labels": []}', file=file, line=blank)
        if len(counts) == num_rows:
            raise fail(f"there must be {num_rows} rows, one per text of the split, but there are more")
        try:
            row = decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            rule = "a line must be a JSON object with labels and perhaps scores, but cannot be read"
            raise fail(f"{rule} ({error})") from None
        ids.extend([id_of(item, fail) for item in row.labels])
        scores.extend(_scores(row, fail))
        counts.append(len(row.labels))
    if len(counts) != num_rows:
        raise DataError(_wrong_number(num_rows, len(counts)), file=file, line=max(len(counts), 1))
    flat_ids, counts_N = np.array(ids, dtype=np.int64), np.array(counts, dtype=np.int64)
    _check_once(flat_ids, counts_N, len(labels), file, has_lines=True)
    return _ranked(flat_ids, np.array(scores, dtype=np.float64), counts_N, k)


class _LabelIds:
    """The id a predicted label names: by number, by uid, or by an object with either."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._of_uid = {} if labels.uids is None else {uid: label for label, uid in enumerate(labels.uids)}

    def __call__(self, item: int | str | _Item, fail: Fail) -> int:
        if isinstance(item, int):
            return self._number(item, fail)
        if isinstance(item, str):
            return self._uid(item, fail)
        named = [] if item.id is None else [self._number(item.id, fail)]
        named += [] if item.uid is None else [self._uid(item.uid, fail)]
        if not named:
            raise fail("a predicted label must have an id or a uid, but has neither")
        if named[0] != named[-1]:
            raise fail(
                f"id and uid must name one label, but id {item.id} is {quoted(self._labels.uid(named[0]))} and the uid "
                f"is {quoted(item.uid)}; were the labels renumbered since?"
            )
        return named[0]

    def _number(self, label: int, fail: Fail) -> int:
        if not 0 <= label < len(self._labels):
            raise fail(_not_a_label(len(self._labels), label))
        return label

    def _uid(self, uid: str, fail: Fail) -> int:
        if self._labels.uids is None:
            # The uid of a label without one is its number.
            return self._number(whole_number(uid, "a label of a data set without uids", fail), fail)
        if uid not in self._of_uid:
            raise fail(f"a predicted label must be one of the data set, but no label has the uid {quoted(uid)}")
        return self._of_uid[uid]


def _scores(row: _Row, fail: Fail) -> list[float]:
    """The scores of a row: listed, inside the labels, or by the order given."""
    inside = [item.score for item in row.labels if isinstance(item, _Item) and item.score is not None]
    count = len(row.labels)
    if row.scores is not None:
        if inside:
            raise fail("scores must be listed or inside the labels, but are both")
        if len(row.scores) != count:
            raise fail(f"there must be one score per label, but there are {count} labels and {len(row.scores)} scores")
        return row.scores
    if not inside:
        return [-float(place) for place in range(count)]
    if len(inside) != count:
        raise fail(f"all labels of a text must have a score or none, but {len(inside)} of {count} have one")
    return inside


def _wrong_number(expected: int, found: int) -> str:
    return f"there must be {expected} rows, one per text of the split, but there are {found}; is this another split?"


def _not_a_label(num_labels: int, label: int, place: str = "") -> str:
    return f"a label id must be from 0 to {num_labels - 1}, but is {quoted(label)}{place}; is this another data set?"


def _check_once(ids: NDArray[np.int64], counts_N: NDArray[Any], num_labels: int, file: Path, has_lines: bool) -> None:
    """A text's labels must differ; the rows of a file with lines stand one per line."""
    keys = np.sort(np.repeat(np.arange(len(counts_N), dtype=np.int64), counts_N) * num_labels + ids)
    twice = keys[1:] == keys[:-1]
    if twice.any():
        row, label = divmod(int(keys[np.argmax(twice)]), num_labels)
        place = "" if has_lines else f" in row {row}"
        raise DataError(
            f"a label must be predicted at most once for a text, but label {label} comes twice{place}",
            file=file,
            line=row + 1 if has_lines else None,
        )


def _starts(counts_N: NDArray[Any]) -> NDArray[np.int64]:
    """For each entry, where the entries of its row begin."""
    return np.repeat(np.cumsum(counts_N) - counts_N, counts_N)


def _ranked(ids: NDArray[np.int64], scores: NDArray[np.float64], counts_N: NDArray[Any], k: int | None) -> TopK:
    """Entries that stand row after row as TopK. The work is by entries, not by rows times the longest row."""
    num_rows = len(counts_N)
    rows = np.repeat(np.arange(num_rows), counts_N)
    tied = (scores[:-1] == scores[1:]) & (ids[:-1] < ids[1:])
    if not ((rows[:-1] != rows[1:]) | (scores[:-1] > scores[1:]) | tied).all():
        order = np.lexsort((ids, -scores, rows))
        ids, scores = ids[order], scores[order]
    places = np.arange(len(ids)) - _starts(counts_N)
    single = _single(scores, rows, places)
    longest = int(counts_N.max(initial=0))
    width = longest if k is None else min(k, longest)
    kept = places < width
    ids_NK = np.full((num_rows, width), PADDING, dtype=np.int64)
    scores_NK = np.full(ids_NK.shape, -np.inf, dtype=np.float32)
    ids_NK[rows[kept], places[kept]] = ids[kept]
    scores_NK[rows[kept], places[kept]] = single[kept]
    return TopK(ids_NK, scores_NK)


def _single(scores: NDArray[np.float64], rows: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Ranked scores in single precision; rows whose order would be lost get their negated ranks instead.

    Without this, 0.99999999 and 0.999999999 would tie, and -1e300 would become -inf, which is no label at all.
    """
    with np.errstate(over="ignore"):
        single = scores.astype(np.float32)
    falls = np.concatenate([[False], (scores[1:] < scores[:-1]) & (rows[1:] == rows[:-1])])
    merged = np.concatenate([[False], single[1:] == single[:-1]]) & falls
    lost = np.zeros(int(rows[-1]) + 1 if len(rows) else 0, dtype=bool)
    lost[rows[merged | ~np.isfinite(single)]] = True
    if lost.any():
        # Equal scores share a rank, so that they still tie.
        ranks = np.cumsum(falls)
        starts = ranks[np.arange(len(rows)) - places]
        single = np.where(lost[rows], (starts - ranks).astype(np.float32), single)
    return single
