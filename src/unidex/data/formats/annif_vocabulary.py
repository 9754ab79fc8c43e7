"""Annif's vocabularies in TSV: the URI of a subject in angle brackets, its label and perhaps a notation, no header."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from unidex.data.files import chunks, decoded, lines
from unidex.data.formats.annif_subjects import bare_uri
from unidex.errors import DataError

_LINES = 100


def is_vocabulary_tsv(file: Path) -> bool:
    """Whether the first lines of a file begin with a URI in angle brackets and a tab."""
    try:
        found = [line.split("\t")[0].strip() for _, line in islice(lines(file), _LINES) if "\t" in line]
    except (OSError, DataError):
        return False
    return bool(found) and all(cell.startswith("<") and cell.endswith(">") and " " not in cell for cell in found)


class VocabularyTable:
    """A vocabulary as a table with the columns uid, text and notation.

    A subject without a label is one that the vocabulary no longer uses; Annif keeps its place only, and it is left out.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.names = ["uid", "text", "notation"]

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells."""
        for first_line, block in chunks(self.file):
            rows = [row for row in map(_row, decoded(block, self.file, first_line).split("\n")) if row is not None]
            if rows:
                cells = dict(zip(self.names, map(list, zip(*rows, strict=True)), strict=True))
                yield {role: cells[name] for role, name in columns.items()}

    def line(self, row: int) -> int:
        """The line of a row."""
        return next(islice((number for number, line in lines(self.file) if _row(line) is not None), row, None))


def _row(line: str) -> tuple[str, str, str] | None:
    cells = [cell.strip() for cell in line.strip().split("\t", 2)]
    uri, label, notation = (*cells, "", "", "")[:3]
    return (bare_uri(uri), label, notation) if label else None
