"""JSON lines as we write them: train.jsonl, test.jsonl and labels.jsonl, read as tables are.

Where there are no test texts, test.jsonl is an empty file: nothing is to be split off from train.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.concepts import FIELDS, NOTHING
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.files import write_filter_pairs, write_json_lines
from unidex.data.texts import Texts
from unidex.errors import DataError

_ROWS = 8192


def write(dataset: Dataset, folder: Path) -> None:
    """Write train.jsonl, test.jsonl, labels.jsonl and, where there are pairs, the filter files."""
    uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
    labels = (
        {"uid": uid} | parts | more
        for uid, parts, more in zip(uids, _parts(dataset.labels.texts), _details(dataset.labels), strict=True)
    )
    with (folder / "labels.jsonl").open("wb") as out:
        write_json_lines(out, labels)
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        if split.features is not None and len(split) and split.texts.num_bytes == 0:
            raise DataError(
                f"JSON lines hold texts, but {name} has features and no texts; convert it to a format with features"
            )
        with (folder / f"{name}.jsonl").open("wb") as out:
            write_json_lines(out, _text_rows(split, uids))
        if split.filter_pairs.nnz:
            write_filter_pairs(folder / f"filter_labels_{name}.txt", split.filter_pairs)


def _text_rows(split: Split, label_uids: list[str]) -> Iterator[dict[str, Any]]:
    parts = _parts(split.texts)
    if split.uids is not None:
        parts = ({"uid": uid} | part for uid, part in zip(split.uids, parts, strict=True))
    graded = bool(np.any(split.positives.data != 1))
    ends = split.positives.indptr
    for first in range(0, len(split), _ROWS):
        # Pairs become Python numbers a block at a time: one by one is slow, all at once takes much memory.
        block = ends[first : first + _ROWS + 1]
        pairs = slice(block[0], block[-1])
        uids = [label_uids[label] for label in split.positives.indices[pairs].tolist()]
        relevance = short_numbers(split.positives.data[pairs]) if graded else []
        places = (block - block[0]).tolist()
        for start, end in pairwise(places):
            line: dict[str, Any] = next(parts) | {"labels": uids[start:end]}
            if graded:
                line["relevance"] = relevance[start:end]
            yield line


def _details(labels: Labels) -> Iterator[dict[str, Any]]:
    """The concept of each label, with the keys that any label has: columns are those of the first rows."""
    used = [name for name in FIELDS if any(getattr(concept, name) for concept in labels.concepts.values())]
    for label in range(len(labels)):
        concept = labels.concepts.get(label, NOTHING)
        yield {name: getattr(concept, name) for name in used}


def _parts(texts: Texts) -> Iterator[dict[str, str]]:
    """Each text as ``text``; as ``title`` and ``content`` where one text at least has a content of its own."""
    if any(content for _, content in texts.fields()):
        return ({"title": title, "content": content} for title, content in texts.fields())
    return ({"text": text} for text in texts)


def short_numbers(values: NDArray[np.float32]) -> list[float]:
    """Numbers that are written short and read back as the same float32.

    >>> short_numbers(np.array([0.1, 1], dtype=np.float32))
    [0.1, 1.0]
    """
    short = values.astype(str).astype(np.float64)
    exact: list[float] = np.where(short.astype(np.float32) == values, short, values.astype(np.float64)).tolist()
    return exact
