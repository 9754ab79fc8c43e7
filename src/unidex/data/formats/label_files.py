"""Tables of labels: one row per label, or several; with further texts, languages, notations and relations if known."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unidex.data.concepts import Term, language_tag
from unidex.data.dataset import Labels
from unidex.data.formats.columns import label_columns, text_columns_of
from unidex.data.formats.label_numbers import name_of
from unidex.data.formats.skos import is_vocabulary, read_vocabulary
from unidex.data.formats.table_files import Table, kind_of, open_table, row_error
from unidex.data.formats.table_rows import distinct, pack, uid_cells
from unidex.data.label_records import LabelRecord, labels_of
from unidex.data.read_options import ReadOptions
from unidex.data.text_packer import Packer
from unidex.data.texts import Texts
from unidex.errors import DataError, quoted

# Columns beside uid and text, by the names that people give them.
_DETAILS = {
    "texts": ("texts", "synonyms", "alternatives", "altlabel", "altlabels", "alt_labels", "aliases"),
    "language": ("language", "lang"),
    "notation": ("notation",),
    "broader": ("broader",),
    "related": ("related",),
    "groups": ("groups",),
}
# Columns whose name ends in a language: names of labels in it, or synonyms.
_IN_LANGUAGE = re.compile(
    r"(?P<kind>text|label|name|title|preflabel|texts|synonyms|altlabel|altlabels)[_@](?P<language>[a-z]{2,3}(-[a-z0-9]+)*)",
    re.IGNORECASE,
)


def read_labels(file: Path, options: ReadOptions, sample: Sequence[str] = ()) -> Labels:
    """The labels of a vocabulary, or of a table: a row is a label, and the uid (or else the text) is its name in texts.

    A row with the uid of an earlier one gives that label another text. Where several languages fit, the ``sample`` of
    train texts tells which one names the labels.
    """
    if is_vocabulary(file):
        return read_vocabulary(file, options.language, sample)
    if kind_of(file) is None:
        raise DataError(
            "labels must be a table (.csv, .tsv, .jsonl, .parquet, .xlsx) or a vocabulary (.ttl, .rdf, .nt, ...), "
            "but the name of this file ends like neither; rename or convert it",
            file=file,
        )
    table = open_table(file)
    columns = _Columns.of(table, options, options.columns)
    if not columns.details:
        labels = _plain_labels(table, columns.names)
        if labels is not None:
            return labels
    records = read_records(table, columns)
    if not records:
        raise DataError("a table of labels must have at least one row, but has none", file=table.file)
    return labels_of(records, options.language, sample)


@dataclass(frozen=True)
class _Columns:
    """Which columns of a table of labels are read."""

    names: dict[str, str]  # role -> column, of uid and text or title and content
    details: dict[str, str]  # role -> column, of what else is known

    @classmethod
    def of(cls, table: Table, options: ReadOptions, given: Mapping[str, str]) -> _Columns:
        """The columns of a table by their names."""
        details = _detail_columns(table.names)
        others = [name for name in table.names if name not in details.values()]
        has_texts = any(role.startswith("text") for role in details)
        if has_texts and not text_columns_of(others, given, options.text, table.file):
            uid = next((name for name in others if name.strip().lower() in ("uid", "uri", "id")), None)
            names = {} if uid is None else {"uid": given.get("uid", uid)}
        else:
            names = label_columns(others, given, options.text, table.file)
        return cls(names, details)


def _detail_columns(names: Sequence[str]) -> dict[str, str]:
    """Role -> column; a column in a language has the role ``text@de`` or ``texts@de``.

    >>> _detail_columns(["uri", "label_de", "label_en", "notation"])
    {'text@de': 'label_de', 'text@en': 'label_en', 'notation': 'notation'}
    """
    found: dict[str, str] = {}
    for name in names:
        plain = name.strip().lower()
        if match := _IN_LANGUAGE.fullmatch(plain):
            several = match["kind"].endswith("s") or match["kind"].startswith("alt")
            found.setdefault(f"{'texts' if several else 'text'}@{match['language']}", name)
        for role, known in _DETAILS.items():
            if plain in known:
                found.setdefault(role, name)
    languages = {role.partition("@")[2] for role in found if "@" in role}
    if languages == {"id"}:
        # A column label_id alone is a number of labels, not their names in Indonesian.
        found = {role: name for role, name in found.items() if "@" not in role}
    return found


def _plain_labels(table: Table, columns: dict[str, str]) -> Labels | None:
    """The labels of a table with one text per label, whole blocks at a time; None where a uid comes again."""
    packer = Packer()
    uids: list[str] = []
    num_rows = 0
    for block in table.blocks(columns):
        pack(packer, block)
        if "uid" in columns:
            uids.extend(uid_cells(block["uid"], table, num_rows))
        num_rows += len(next(iter(block.values())))
    texts = Texts.packed(packer)
    if num_rows == 0:
        raise DataError("a table of labels must have at least one row, but has none", file=table.file)
    if "uid" not in columns:
        return Labels(texts, distinct(list(texts), table))
    packed = Texts.of_uids(uids)
    return Labels(texts, packed) if packed.first_repeat() is None else None


def read_new_records(table: Table, options: ReadOptions, given: Mapping[str, str]) -> list[LabelRecord]:
    """The labels of a table to add to a model."""
    return read_records(table, _Columns.of(table, options, given), skip_blank=True)


def read_records(table: Table, columns: _Columns, *, skip_blank: bool = False) -> list[LabelRecord]:
    """The rows of a table of labels, those of one uid together.

    Args:
        table: the table.
        columns: its columns.
        skip_blank: pass over rows that have neither uid nor text.
    """
    records: dict[str, LabelRecord] = {}
    for row, cells in enumerate(_rows(table, columns.names | columns.details)):
        try:
            terms = _Texts.of(cells)
            uid = "" if cells.get("uid") is None else name_of(cells["uid"]).strip()
            if not uid and not terms.first and skip_blank:
                continue
            if "uid" in columns.names and not uid and not skip_blank:
                rule = "a row must have a uid where others have one, but this has none"
                raise DataError(f"{rule}; give it one, or leave the uids out (--column uid=)")
            uid = uid or terms.first
            if "uid" not in columns.names and uid in records:
                raise DataError(f"labels must differ, but {quoted(uid)} comes again; give labels uids, or drop one")
            if not terms.first and uid not in records:
                raise DataError(f"a label must have a text, but {quoted(uid)} has none; give it one")
            record = records.setdefault(uid, LabelRecord(uid))
            terms.add_to(record)
            record.notation = record.notation or _string(cells.get("notation"))
            for role in ("broader", "related", "groups"):
                getattr(record, role).extend(_entries(cells.get(role)))
        except (DataError, ValueError) as error:
            raise row_error(table, row, str(error)) from None
    return list(records.values())


@dataclass(frozen=True)
class _Texts:
    """The texts of one row."""

    names: list[tuple[str, str]]  # (text, language)
    synonyms: list[Term]

    @classmethod
    def of(cls, cells: Mapping[str, Any]) -> _Texts:
        language = language_tag(_string(cells.get("language")))
        own = " ".join(filter(None, (_string(cells.get(role)) for role in ("text", "title", "content"))))
        names = [(own, language)] if own else []
        synonyms: list[Term] = []
        for role, cell in cells.items():
            kind, _, tag = role.partition("@")
            if kind == "text" and tag and _string(cell):
                names.append((_string(cell), tag))
            elif kind == "texts":
                synonyms += [_term(entry, tag or language) for entry in _entries(cell)]
        return cls(names, synonyms)

    @property
    def first(self) -> str:
        """The first text; "" where there is none."""
        return next((text for text, _ in self.names), next((term.text for term in self.synonyms), ""))

    def add_to(self, record: LabelRecord) -> None:
        """Add the texts to a label."""
        for text, language in self.names:
            record.add_row([text], language)
        record.terms.extend(self.synonyms)


def _rows(table: Table, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for block in table.blocks(columns):
        for row in zip(*block.values(), strict=True):
            yield dict(zip(block, row, strict=True))


def _string(cell: Any) -> str:
    """A cell as a text without blanks around it; "" where it is empty."""
    return "" if cell is None or cell != cell else name_of(cell).strip()


def _entries(cell: Any) -> list[Any]:
    """The entries of a cell: a list, or strings with | or ; between them.

    >>> _entries("a | b"), _entries('["a; b"]'), _entries(None)
    (['a', 'b'], ['a; b'], [])
    """
    if isinstance(cell, list):
        return cell
    text = _string(cell)
    if text.startswith("["):
        found = msgspec.json.decode(text)
        return found if isinstance(found, list) else [found]
    return [part for part in (part.strip() for part in text.split("|" if "|" in text else ";")) if part]


def _term(entry: Any, language: str) -> Term:
    """A further text: a string, or an object with ``text``, ``language`` and ``kind``."""
    if isinstance(entry, dict):
        return msgspec.convert({"language": language} | {key: value for key, value in entry.items() if value}, Term)
    return Term(_string(entry), language)
