"""The corpora of Annif as they are: TSV, CSV, JSON lines and folders of full texts, each also gzipped where Annif does.

A subject is a URI, or a label where a corpus has no URIs (.key files); a vocabulary (--labels) then finds it by its
label. Without a vocabulary the labels that stand beside the URIs are the label texts.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from unidex.data.dataset import Dataset, Labels
from unidex.data.formats.annif_documents import DocumentLines, Documents, has_documents, is_document_lines
from unidex.data.formats.annif_subjects import SubjectTable, Uris, is_subject_table, is_subject_tsv
from unidex.data.formats.cells import Cell
from unidex.data.formats.merge import Source, Sources, assemble
from unidex.data.formats.table_files import Table, kind_of, stem_of
from unidex.data.read_options import ReadOptions
from unidex.data.texts import Texts
from unidex.errors import DataError

_logger = logging.getLogger(__name__)
_RULE = (
    "an Annif corpus must be a TSV file (text, tab, <uri>s), a CSV file with the columns text and subject_uris, JSON "
    "lines with subjects, or a folder of .txt files with .tsv or .key files beside them"
)
_Corpus = SubjectTable | DocumentLines | Documents
_FILES = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".jsonl", ".jsonl.gz")


def detects(path: Path) -> bool:
    """A corpus of Annif, or a folder that holds one under the name train."""
    try:
        return _form_of(path) is not None or (path.is_dir() and _part(path, "train") is not None)
    except (OSError, DataError):
        return False


def read(path: Path, options: ReadOptions) -> Dataset:
    """Read a corpus, or a folder with train and, where there is one, test."""
    train, test = path, options.test
    if _form_of(path) is None and path.is_dir():
        found = _part(path, "train")
        train, test = found or path, test or _part(path, "test")
        if _part(path, "validate") is not None:
            _logger.info("%s: the corpus validate is left out; unidex holds out validation texts of its own", path)
    tables = [_table(file) for file in (train, test) if file is not None]
    sources = Sources(
        train=_source(tables[0]),
        test=_source(tables[1]) if test is not None else None,
        labels=options.labels,
        has_test=test is not None,
        as_lists=True,
    )
    name = path.resolve().name if path.is_dir() else stem_of(path)
    dataset = assemble(name, path, sources, Cell(as_list=True), options)
    return dataset if options.labels is not None else _named(dataset, [table.uris for table in tables])


def _form_of(path: Path) -> str | None:
    if path.is_dir():
        return "folder" if has_documents(path) else None
    if not path.is_file():
        return None
    kind = kind_of(path)
    if is_subject_tsv(path):
        return "tsv"
    if kind == "csv" and is_subject_table(path):
        return "csv"
    return "jsonl" if kind == "json" and is_document_lines(path) else None


def _table(path: Path) -> _Corpus:
    form = _form_of(path)
    if form is None:
        what = "is neither" if path.exists() else "does not exist"
        raise DataError(f"{_RULE}, but this {what}", file=path)
    if form == "folder":
        return Documents(path)
    return DocumentLines(path) if form == "jsonl" else SubjectTable(path, tabs=form == "tsv")


def _source(table: Table) -> Source:
    return Source(table, {name: name for name in table.names if name in ("text", "labels", "uid")})


def _part(folder: Path, name: str) -> Path | None:
    places = [folder / name, *(folder / f"{name}{ending}" for ending in _FILES)]
    found = [place for place in places if place.exists() and _form_of(place) is not None]
    if len(found) > 1:
        raise DataError(
            f"a folder must hold one corpus {name}, but has {', '.join(place.name for place in found)}; "
            "take all but one away",
            file=folder,
        )
    return found[0] if found else None


def _named(dataset: Dataset, seen: list[Uris]) -> Dataset:
    """The data set with the labels that stood beside the URIs as label texts."""
    names = {uri: name for uris in seen for uri, name in uris.names.items()}
    uids = list(dataset.labels.uids or ())
    texts = [names.get(uid, uid) for uid in uids]
    bare = sum(uid not in names and "://" in uid for uid in uids)
    if bare:
        message = "%s of %s subjects have a URI and no label. Name the vocabulary with --labels: labels are read too."
        _logger.warning(message, f"{bare:,}", f"{len(uids):,}")
    return replace(dataset, labels=Labels(Texts.of(texts), dataset.labels.uids))
