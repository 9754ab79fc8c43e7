"""A table that a client uploads: predicted block by block between other requests, and answered as a table."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from unidex.data.formats.table_writers import check_target
from unidex.data.formats.text_source import open_texts
from unidex.data.read_options import ReadOptions
from unidex.errors import IndexUnreachableError, UnidexError
from unidex.model.model import Model
from unidex.scoring.layout import Mode
from unidex.server.problems import ProblemError, refusal
from unidex.server.settings import Limits
from unidex.verbs.predict import LabelOptions
from unidex.verbs.predict_table import predict_table

T = TypeVar("T")
TableKind = Literal["csv", "tsv", "jsonl", "xlsx"]
# Texts per call of the model: other requests are answered in between.
_ROWS = 64
# An XLSX file is a ZIP archive; it may hold this many times the bytes of the largest body.
_UNPACKED = 16


class TableOptions(msgspec.Struct, kw_only=True):
    """How to read an uploaded table, and what to write."""

    source: TableKind
    target: TableKind
    column: str | None
    k: int
    mode: Mode | None
    min_probability: float
    most_specific: bool | None
    language: str


def answer_table(
    model: Model, body: bytes, options: TableOptions, limits: Limits, run: Callable[[Callable[[], Any]], Any]
) -> bytes:
    """Predict the texts of a table; ``run`` calls a function where the model may be used."""
    if options.source == "xlsx":
        _check_archive(body, limits)
    columns = {} if options.column is None else {"text": options.column}
    minimum = options.min_probability or None
    with tempfile.TemporaryDirectory(prefix="unidex-") as folder:
        read, written = Path(folder) / f"table.{options.source}", Path(folder) / f"labels.{options.target}"
        read.write_bytes(body)
        try:
            check_target(written)
            with open_texts([read], ReadOptions(columns=columns, trained=model.table_form)) as source:
                shown = LabelOptions(language=options.language, most_specific=options.most_specific)
                how = (options.k, options.mode, minimum)
                predict_table(model, source, written, *how, options=shown, run=run, texts_at_once=_ROWS)
        except IndexUnreachableError as error:
            raise refusal(error) from None
        except UnidexError as error:
            raise ProblemError(422, str(error).replace(f"{folder}/", ""), field="body") from None
        return written.read_bytes()


def _check_archive(body: bytes, limits: Limits) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        raise ProblemError(
            422, "a table of XLSX must be a ZIP archive, but is not; save it again", field="body"
        ) from None
    if size > _UNPACKED * limits.body:
        rule = f"a table of XLSX must have at most {_UNPACKED * limits.body:,} bytes when unpacked, but has {size:,}"
        raise ProblemError(422, rule, field="body")
