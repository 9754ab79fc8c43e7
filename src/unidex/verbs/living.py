"""The verbs on a model's labels, and on files of texts, with labels or without: plain values in, plain values out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import sparse

from unidex import progress
from unidex.data.files import lines
from unidex.errors import DataError
from unidex.model.journal import unknown_label
from unidex.model.label_set import Order
from unidex.model.model import Model
from unidex.scoring.layout import Mode

_BLOCK = 1024


class _TextRow(msgspec.Struct):
    text: str | None = None
    title: str | None = None
    content: str | None = None
    uid: str | int | None = None


class _PairRow(_TextRow):
    labels: list[str | int] = []


def label_row(model: Model, label: int) -> dict[str, Any]:
    """A label as it is listed: with its class by frequency and its number of train texts."""
    return named_row(model, label) | {
        "frequency": model.labels.frequency_class(label),
        "num_texts": int(model.labels.frequencies[label]),
    }


def named_row(model: Model, label: int) -> dict[str, Any]:
    """A label by its names."""
    return {"id": label, "uid": model.labels.uids[label], "text": model.labels.texts[label]}


def predicted_rows(
    model: Model, texts: Iterator[str], k: int, mode: Mode | None, min_probability: str | float | None = None
) -> Iterator[dict[str, Any]]:
    """Predictions a text, in blocks: {"text": ..., "labels": [{"id", "uid", "text", "score", "frequency"}]}.

    Where the model has a calibration for the mode, a label has its "probability" too, and those below
    ``min_probability``, a number or the name of a threshold, are left out.
    """
    least = None if min_probability is None else model.min_probability(min_probability, mode)
    block: list[str] = []

    def predicted() -> Iterator[dict[str, Any]]:
        found = model.predict(block, k, mode=mode)
        likely = model.probabilities(found, mode)
        kept = found.ids >= 0 if likely is None or least is None else (found.ids >= 0) & (likely >= least)
        for row, text in enumerate(block):
            labels = [
                named_row(model, label)
                | {"score": round(float(found.scores[row, place]), 6)}
                | ({} if likely is None else {"probability": round(float(likely[row, place]), 6)})
                | {"frequency": model.labels.frequency_class(label)}
                for place, label in enumerate(found.ids[row].tolist())
                if kept[row, place]
            ]
            yield {"text": text, "labels": labels}

    for text in texts:
        block.append(text)
        if len(block) == _BLOCK:
            yield from predicted()
            block.clear()
    if block:
        yield from predicted()


def texts_in(file: Path) -> Iterator[str]:
    """The texts of a file: one a line, or JSON lines with text, or title and content."""
    if ".jsonl" not in file.suffixes:
        yield from (text for _, text in lines(file))
        return
    for number, row in json_rows(file, _TextRow):
        yield _text_of(row, file, number)


def _text_of(row: _TextRow, file: Path, number: int) -> str:
    if row.text is not None:
        return row.text
    if row.title is None:
        raise DataError('a line must have "text" or "title", but has neither', file=file, line=number)
    return " ".join(part for part in (row.title, row.content) if part)


def pairs_in(model: Model, file: Path) -> tuple[list[str], sparse.csr_array]:
    """Texts of a JSON lines file, and which of the model's labels each has: texts x labels.

    A line is {"text": ..., "labels": [uid, ...]}, or has title and content instead of text.
    """
    known = model.labels
    texts: list[str] = []
    columns: list[int] = []
    starts = [0]
    with progress.task("reading", unit="texts") as advance:
        for number, row in json_rows(file, _PairRow):
            if not row.labels:
                raise DataError(
                    'a line must name at least one label in "labels", but names none', file=file, line=number
                )
            texts.append(_text_of(row, file, number))
            uids = {str(uid) for uid in row.labels}
            unknown = sorted(uid for uid in uids if uid not in known)
            if unknown:
                raise DataError(unknown_label(unknown[0]), file=file, line=number)
            columns += sorted(known.id_of(uid) for uid in uids)
            starts.append(len(columns))
            advance(1)
    ones = np.ones(len(columns), dtype=np.float32)
    return texts, sparse.csr_array((ones, columns, starts), shape=(len(texts), len(model.labels)))


def remember(model: Model, file: Path) -> dict[str, int]:
    """Let the texts of a file and their labels count among the neighbours from now on; the result counts them."""
    texts, positives = pairs_in(model, file)
    model.remember(texts, positives)
    assert model.scorer.knn is not None
    return {
        "num_texts": len(texts),
        "num_pairs": int(positives.nnz),
        "num_labels": len(np.unique(positives.indices)),
        "total": model.scorer.knn.num_texts,
    }


def json_rows(file: Path, row_type: type[Any]) -> Iterator[tuple[int, Any]]:
    """The lines of a JSON lines file with their numbers."""
    decode = msgspec.json.Decoder(row_type).decode
    for number, line in lines(file):
        try:
            yield number, decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"a line must be a JSON object, but: {error}", file=file, line=number) from None


def list_labels(
    model: Model,
    search: str = "",
    limit: int = 20,
    *,
    offset: int = 0,
    order: Order = "frequency",
    frequency: str | None = None,
) -> tuple[list[dict[str, Any]], int]:
    """A page of the labels whose text holds ``search`` or whose uid it is, and how many there are in all.

    Args:
        model: the model.
        search: what to look for, in any case; "" is every label.
        limit: labels of a page.
        offset: labels before it.
        order: "frequency" (most frequent first), "text" or "id"; equals by id.
        frequency: only head, torso or tail labels.
    """
    chosen = model.labels.chosen(search=search, frequency=frequency, order=order)
    return [label_row(model, label) for label in chosen[offset : offset + limit].tolist()], len(chosen)


class _NewLabel(msgspec.Struct):
    text: str
    uid: str | int | None = None


def new_labels(texts: list[str], file: Path | None) -> tuple[list[str], list[str]]:
    """Texts and uids of labels to add, from arguments and a file; the uid is the text unless one is given."""
    found = [(text, text) for text in texts]
    if file is not None and ".jsonl" in file.suffixes:
        found += [(row.text, row.text if row.uid is None else str(row.uid)) for _, row in json_rows(file, _NewLabel)]
    elif file is not None:
        found += [(text, text) for _, text in lines(file) if text.strip()]
    if not found:
        raise DataError("there must be at least one label to add, but none is given; name texts or --file")
    return [text for text, _ in found], [uid for _, uid in found]
