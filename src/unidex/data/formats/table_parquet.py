"""Parquet tables, by pyarrow. A Parquet file has no lines: a message gives the number of the row, from 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unidex import progress
from unidex.data.read_options import ROLES
from unidex.errors import DataError, MissingExtraError, quoted

_ROWS = 16384


class ParquetTable:
    """A Parquet file, or some of its row groups."""

    def __init__(self, file: Path, row_groups: Sequence[int] | None = None) -> None:
        self.file, self._row_groups = file, None if row_groups is None else list(row_groups)
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise MissingExtraError("Parquet files", "parquet") from None
        self._arrow = pyarrow
        if not file.exists():
            raise DataError("the file must exist, but does not", file=file)
        try:
            with pyarrow.parquet.ParquetFile(file) as parquet:
                self.schema: Any = parquet.schema_arrow
                self.names: list[str] = list(self.schema.names)
        except Exception as error:
            raise self._damaged(error) from None

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        for role, name in columns.items():
            if role in ROLES:
                self._check_type(role, name)
        try:
            with (
                self._arrow.parquet.ParquetFile(self.file) as parquet,
                progress.task(f"reading {self.file.name}", parquet.metadata.num_rows, unit="rows") as advance,
            ):
                for batch in parquet.iter_batches(
                    _ROWS, row_groups=self._row_groups, columns=list(dict.fromkeys(columns.values()))
                ):
                    yield {
                        role: self._cells(batch.column(name)) if role in ROLES else batch.column(name).to_pylist()
                        for role, name in columns.items()
                    }
                    advance(batch.num_rows)
        # Damage shows as one of many errors of the decoder; all mean the same to the user.
        except Exception as error:
            raise self._damaged(error) from None

    def row_group_sizes(self) -> list[int]:
        """The number of rows of each row group."""
        with self._arrow.parquet.ParquetFile(self.file) as parquet:
            return [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]

    def line(self, row: int) -> int:
        """The number of a row, from 1."""
        return row + 1

    def _cells(self, column: Any) -> list[Any]:
        types = self._arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_list(column.type) or types.is_large_list(column.type):
            # One conversion for all values and then slices: far faster than a list made row by row.
            values = self._cells(column.flatten())
            lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            ends = lengths.cumsum().tolist()
            lists: list[Any] = [values[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
            if column.null_count:
                lists = [cell if valid else None for cell, valid in zip(lists, column.is_valid(), strict=True)]
            return lists
        if column.null_count and not _is_text(types, column.type):
            found: list[Any] = column.to_pylist()
        else:
            found = column.to_numpy(zero_copy_only=False).tolist()
        return found

    def _check_type(self, role: str, name: str) -> None:
        types = self._arrow.types
        kind = self.schema.field(name).type
        inner = kind
        if role in ("labels", "relevance") and (types.is_list(kind) or types.is_large_list(kind)):
            inner = kind.value_type
        if types.is_dictionary(inner):
            inner = inner.value_type
        number = types.is_integer(inner) or types.is_floating(inner)
        fits = {
            "labels": ("strings, numbers or lists of them", _is_text(types, inner) or number),
            "relevance": ("numbers or lists of them", _is_text(types, inner) or number),
            "uid": ("strings or whole numbers", _is_text(types, inner) or types.is_integer(inner)),
        }
        must, holds = fits.get(role, ("strings", _is_text(types, inner)))
        if not holds and not types.is_null(inner):
            raise DataError(f"the column {quoted(name)} ({role}) must hold {must}, but holds {kind}", file=self.file)

    def _damaged(self, error: Exception) -> DataError:
        return DataError(
            f"the file must be a Parquet table, but cannot be read ({error}); write or copy it again", file=self.file
        )


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))
