"""Files of texts that the verbs read: texts alone, texts with labels, new labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from scipy import sparse

from unidex import progress
from unidex.data.dataset import positives_of
from unidex.data.files import lines
from unidex.errors import DataError
from unidex.model.journal import unknown_label

if TYPE_CHECKING:
    from unidex.model.model import Model


class _TextRow(msgspec.Struct):
    text: str | None = None
    title: str | None = None
    content: str | None = None
    uid: str | int | None = None


class _PairRow(_TextRow):
    labels: list[str | int] = []


class _NewLabel(msgspec.Struct):
    text: str
    uid: str | int | None = None


def read_texts(file: str | Path) -> Iterator[str]:
    """Read texts: one per line, or JSON lines with text, or with title and content; "-" is standard input."""
    if str(file) == "-":
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    file = Path(file)
    if ".jsonl" not in file.suffixes:
        yield from (text for _, text in lines(file))
        return
    for number, row in _json_rows(file, _TextRow):
        yield _text_of(row, file, number)


def read_pairs(model: Model, file: Path) -> tuple[list[str], sparse.csr_array]:
    """Read the texts of a JSON lines file, and which of the model's labels each has: texts x labels.

    A line is {"text": ..., "labels": [uid, ...]}, or has title and content instead of text.
    """
    known = model.labels
    texts: list[str] = []
    rows: list[list[int]] = []
    with progress.task("reading", unit="texts") as advance:
        for number, row in _json_rows(file, _PairRow):
            if not row.labels:
                raise DataError(
                    'a line must name at least one label in "labels", but names none', file=file, line=number
                )
            texts.append(_text_of(row, file, number))
            uids = {str(uid) for uid in row.labels}
            unknown = sorted(uid for uid in uids if uid not in known)
            if unknown:
                raise DataError(unknown_label(unknown[0]), file=file, line=number)
            rows.append(sorted(known.id_of(uid) for uid in uids))
            advance(1)
    return texts, positives_of(rows, len(model.labels))


def read_new_labels(file: Path) -> list[tuple[str, str]]:
    """Read (text, uid) of labels to add: one text per line, or JSON lines. The uid is the text unless one is given."""
    if ".jsonl" in file.suffixes:
        return [(row.text, row.text if row.uid is None else str(row.uid)) for _, row in _json_rows(file, _NewLabel)]
    return [(text, text) for _, text in lines(file) if text.strip()]


def _text_of(row: _TextRow, file: Path, number: int) -> str:
    if row.text is not None:
        return row.text
    if row.title is None:
        raise DataError('a line must have "text" or "title", but has neither', file=file, line=number)
    return " ".join(part for part in (row.title, row.content) if part)


def _json_rows(file: Path, row_type: type[Any]) -> Iterator[tuple[int, Any]]:
    decode = msgspec.json.Decoder(row_type).decode
    for number, line in lines(file):
        try:
            yield number, decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise DataError(f"a line must be a JSON object, but: {error}", file=file, line=number) from None
