"""Annif's TSV and CSV corpora: a text and the URIs of its subjects, between blanks.

    A history of the tarot<TAB><http://www.yso.fi/onto/yso/p2223> <http://www.yso.fi/onto/yso/p6090>

The TSV form has neither header nor quotes: the first tab ends the text. The CSV form has the columns ``text``,
``subject_uris`` and perhaps ``document_id``; the others are Annif's metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from unidex.data.files import chunks, decoded, lines
from unidex.data.formats.table_csv import CsvTable
from unidex.errors import DataError

_logger = logging.getLogger(__name__)
_LINES = 100
_CSV_COLUMNS = {"text": "text", "labels": "subject_uris"}
_CSV_ID = "document_id"


@dataclass
class Uris:
    """The URIs of subjects as they are met.

    Attributes:
        names: URI -> label, where a corpus has both.
    """

    names: dict[str, str] = field(default_factory=dict)

    def of_cell(self, cell: str | None) -> list[str]:
        """The URIs of a cell, without their brackets.

        >>> Uris().of_cell("<http://a.org/1> http://a.org/2")
        ['http://a.org/1', 'http://a.org/2']
        """
        return list(map(bare_uri, (cell or "").split()))


def bare_uri(token: str) -> str:
    """A URI without its angle brackets, if it has any."""
    return token[1:-1] if token.startswith("<") and token.endswith(">") else token


def are_uris(cell: str) -> bool:
    """Whether a cell is URIs and nothing else.

    >>> are_uris("<http://a.org/1> http://a.org/2"), are_uris("see http://a.org"), are_uris("")
    (True, False, False)
    """
    tokens = cell.split()
    return bool(tokens) and all(_is_uri(token) for token in tokens)


def _is_uri(token: str) -> bool:
    if token.startswith("<") and token.endswith(">"):
        return True
    scheme, colon, rest = token.partition(":")
    return bool(colon) and (rest.startswith("//") or scheme == "urn") and scheme.isalpha()


def is_subject_tsv(file: Path) -> bool:
    """Whether the first lines of a .tsv or .txt file are a text, a tab and URIs."""
    if not file.name.lower().removesuffix(".gz").endswith((".tsv", ".tab", ".txt")):
        return False
    try:
        found = [line.partition("\t") for _, line in islice(lines(file), _LINES)]
    except (OSError, DataError):
        return False
    behind = [uris for _, tab, uris in found if tab and uris.strip()]
    # A vocabulary of Annif has the URI before the tab.
    return bool(behind) and all(map(are_uris, behind)) and not all(are_uris(text) for text, _, _ in found)


def is_subject_table(file: Path) -> bool:
    """Whether a CSV file has Annif's columns."""
    return set(_CSV_COLUMNS.values()) <= set(CsvTable(file, tabs=False).names)


class SubjectTable:
    """A TSV or CSV corpus as a table with the columns text, labels and perhaps uid."""

    def __init__(self, file: Path, *, tabs: bool) -> None:
        self.file = file
        self.uris = Uris()
        self._csv = None if tabs else CsvTable(file, tabs=False)
        has_ids = self._csv is not None and _CSV_ID in self._csv.names
        self.names = ["text", "labels", *(["uid"] if has_ids else [])]

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some thousand rows at a time, as role -> cells; labels are lists of URIs."""
        for block in self._line_blocks() if self._csv is None else self._csv.blocks(self._csv_columns()):
            block["labels"] = list(map(self.uris.of_cell, block["labels"]))
            yield {role: block[name] for role, name in columns.items()}

    def line(self, row: int) -> int:
        """The line of a row."""
        if self._csv is not None:
            return self._csv.line(row)
        return next(islice((number for number, line in lines(self.file) if "\t" in line), row, None))

    def _csv_columns(self) -> dict[str, str]:
        return {**_CSV_COLUMNS, **({"uid": _CSV_ID} if "uid" in self.names else {})}

    def _line_blocks(self) -> Iterator[dict[str, list[Any]]]:
        num_bare = 0
        for first_line, block in chunks(self.file):
            rows = decoded(block, self.file, first_line).replace("\r\n", "\n").split("\n")
            found = [row.partition("\t") for row in rows if row.strip()]
            num_bare += sum(not tab for _, tab, _ in found)
            pairs = [(text, uris) for text, tab, uris in found if tab]
            if pairs:
                yield {"text": [text for text, _ in pairs], "labels": [uris for _, uris in pairs]}
        if num_bare:
            _logger.warning("%s: %s lines have no tab and are left out", self.file, f"{num_bare:,}")
