"""Annif's documents: a folder of full texts with their subjects in files beside them, and JSON documents.

``a.txt`` is a text; ``a.tsv`` has a subject per line, its URI in angle brackets, a tab and its label; ``a.key`` has a
label per line. A JSON document is {"text": ..., "subjects": [{"uri": ...} or {"label": ...}], "document_id": ...,
"metadata": {...}}, in a file of its own (.json) or one per line (.jsonl).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from unidex.data.files import chunks
from unidex.data.formats.annif_subjects import Uris, bare_uri
from unidex.errors import DataError

_logger = logging.getLogger(__name__)
_BLOCK_CHARACTERS = 4_000_000
_BOM = b"\xef\xbb\xbf"


class Subject(msgspec.Struct):
    """A subject of a JSON document: its URI or its label, or both."""

    uri: str | None = None
    label: str | None = None


class Document(msgspec.Struct):
    """A JSON document."""

    subjects: list[Subject]
    text: str | None = None
    metadata: dict[str, str] = {}
    document_id: str | None = None


_decode = msgspec.json.Decoder(Document).decode


def has_documents(folder: Path) -> bool:
    """Whether a folder holds texts with subjects beside them, or JSON documents."""
    names = {file.name for file in folder.iterdir()}
    if any(_beside(folder / name, names) for name in names if name.endswith(".txt")):
        return True
    first = min((name for name in names if name.endswith(".json")), default=None)
    return first is not None and _is_document((folder / first).read_bytes())


def is_document_lines(file: Path) -> bool:
    """Whether the first line of a file is a JSON document with subjects."""
    _, block = next(chunks(file))
    return _is_document(block.split(b"\n", 1)[0])


def _is_document(data: bytes) -> bool:
    try:
        _decode(data.removeprefix(_BOM))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _beside(text: Path, names: set[str]) -> Path | None:
    """The file of the subjects of a text, as Annif looks for it: .tsv before .key."""
    beside = (f"{text.name.removesuffix('.txt')}{ending}" for ending in (".tsv", ".key"))
    found = next((name for name in beside if name in names), None)
    if found is None:
        return None
    file = text.with_name(found)
    # A table of texts that lies beside a text file is no list of subjects: such a list has short lines.
    with file.open("rb") as opened:
        first = opened.readline(2000)
    return file if found.endswith(".key") or first.removeprefix(_BOM).lstrip()[:1] in (b"<", b"") else None


class Documents:
    """A folder of documents as a table; the name of a file is the uid of its text."""

    def __init__(self, folder: Path) -> None:
        self.file = folder
        self.uris = Uris()
        self.names = ["text", "labels", "uid"]
        names = {file.name for file in folder.iterdir()}
        texts = {folder / name: _beside(folder / name, names) for name in sorted(names) if name.endswith(".txt")}
        self._files: list[tuple[Path, Path | None]] = [
            (text, subjects) for text, subjects in texts.items() if subjects is not None
        ]
        self._files += [(folder / name, None) for name in sorted(names) if name.endswith(".json")]
        if missing := len(texts) - sum(subjects is not None for subjects in texts.values()):
            message = "%s: %s texts have no .tsv or .key file beside them and are left out"
            _logger.warning(message, folder, f"{missing:,}")

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some megabytes of documents at a time, as role -> cells; labels are lists of URIs and labels."""
        num_damaged = 0
        rows = map(self._row, self._files)
        while block := list(_up_to(rows, _BLOCK_CHARACTERS)):
            num_damaged += sum("\ufffd" in text for text, _, _ in block)
            cells = dict(zip(("text", "labels", "uid"), map(list, zip(*block, strict=True)), strict=True))
            yield {role: cells[name] for role, name in columns.items()}
        if num_damaged:
            message = "%s: %s texts have bytes that are not UTF-8; they are read as U+FFFD"
            _logger.warning(message, self.file, f"{num_damaged:,}")

    def line(self, row: int) -> int:
        """The place of a row: a folder has no lines, so that it is the number of the file."""
        return row + 1

    def _row(self, files: tuple[Path, Path | None]) -> tuple[str, list[str], str]:
        text, subjects = files
        data = text.read_bytes().removeprefix(_BOM)
        if subjects is None:
            return _cells(_document(data, text, None), self.uris, text.stem)
        return data.decode(errors="replace"), _subjects(subjects, self.uris), text.stem


class DocumentLines:
    """JSON lines of documents as a table."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.uris = Uris()
        first = next(self._documents())[1]
        self.names = ["text", "labels", *(["uid"] if first.document_id else [])]

    def blocks(self, columns: Mapping[str, str]) -> Iterator[dict[str, list[Any]]]:
        """Some megabytes of documents at a time, as role -> cells; labels are lists of URIs and labels."""
        rows = (_cells(document, self.uris, "") for _, document in self._documents())
        while block := list(_up_to(rows, _BLOCK_CHARACTERS)):
            cells = dict(zip(("text", "labels", "uid"), map(list, zip(*block, strict=True)), strict=True))
            yield {role: cells[name] for role, name in columns.items()}

    def line(self, row: int) -> int:
        """The line of a row."""
        return next(islice(self._documents(), row, None))[0]

    def _documents(self) -> Iterator[tuple[int, Document]]:
        for first_line, block in chunks(self.file):
            for line, row in enumerate(block.split(b"\n"), first_line):
                if row.strip():
                    yield line, _document(row.removeprefix(_BOM) if line == 1 else row, self.file, line)


def _document(data: bytes, file: Path, line: int | None) -> Document:
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        rule = 'a document must be {"text": "...", "subjects": [{"uri": "..."}]}'
        raise DataError(f"{rule}, but: {error}; write [] where it has no subjects", file=file, line=line) from None


def _cells(document: Document, uris: Uris, name: str) -> tuple[str, list[str], str]:
    # Annif reads metadata only where a project selects it; a document without a text has nothing else to read.
    text = "\n".join(document.metadata.values()) if document.text is None else document.text
    subjects = []
    for subject in document.subjects:
        if subject.uri and subject.label:
            uris.names.setdefault(subject.uri, subject.label)
        subjects.append(subject.uri or subject.label or "")
    return text, subjects, document.document_id or name


def _subjects(file: Path, uris: Uris) -> list[str]:
    """The subjects of a .tsv or .key file: a URI in angle brackets goes before a label."""
    found = []
    for line in file.read_bytes().decode("utf-8-sig", errors="replace").splitlines():
        cells = [cell.strip() for cell in line.split("\t") if cell.strip()]
        if not cells:
            continue
        if cells[0].startswith("<") and cells[0].endswith(">"):
            if len(cells) > 1:
                uris.names.setdefault(bare_uri(cells[0]), cells[1])
            cells[0] = bare_uri(cells[0])
        found.append(cells[0])
    return found


def _up_to(rows: Iterator[tuple[str, list[str], str]], characters: int) -> Iterator[tuple[str, list[str], str]]:
    for row in rows:
        yield row
        characters -= len(row[0])
        if characters <= 0:
            return
