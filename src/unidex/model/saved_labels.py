"""The labels in a model folder: one line each, or, if they are many, packed files that are mapped.

``labels.jsonl`` has everything of a label in one line. ``labels/`` has ``texts`` and ``uids`` (`unidex.data.texts`; no
uids where they are the numbers of the labels), ``frequencies.npy``, ``removed.npy``, sorted hashes of the uids
(`unidex.model.uid_table`), ``concepts.jsonl`` with those labels of which more is known, and ``words.npy``, hashes of
the words of labels that the vocabulary lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from unidex.data.concepts import NOTHING, Concept, concept_of, fields_of
from unidex.data.growing_texts import GrowingTexts, Numbers
from unidex.data.texts import Texts
from unidex.errors import DataError, ModelError
from unidex.features.known_words import KnownWords
from unidex.model.label_set import LabelSet
from unidex.model.uid_table import UidTable
from unidex.storage.mapped import load_array

LINES, PACKED, WORDS = "labels.jsonl", "labels", "words.npy"
PACKED_ABOVE = 1 << 18  # labels; a file of fewer lines is read in a second or two, by people too
# Labels whose places are all checked when they are read. More of them are not touched, and mapped in a service too.
CHECKED_UP_TO = 1 << 22


class _Label(Concept, frozen=True):
    """One line of labels.jsonl; what is empty, 0 or false is left out."""

    uid: str
    text: str
    frequency: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    removed: bool = False


class _NumberedConcept(Concept, frozen=True):
    """One line of concepts.jsonl."""

    label: int


def write_labels(folder: Path, labels: LabelSet, known_words: Callable[[], KnownWords | None] = lambda: None) -> None:
    """Write the labels of a model; of many labels, also their words, so that a loaded model need not read all texts."""
    if len(labels) > PACKED_ABOVE:
        (folder / PACKED).mkdir()
        _write_packed(folder / PACKED, labels)
        words = known_words()
        if words is not None:
            np.save(folder / PACKED / WORDS, words.label_keys)
    else:
        _write_lines(folder / LINES, labels)


def read_labels(folder: Path) -> LabelSet:
    """Read what ``write_labels`` wrote."""
    packed = folder / PACKED
    return _read_packed(packed) if packed.is_dir() else _read_lines(folder / LINES)


def _write_lines(file: Path, labels: LabelSet) -> None:
    encode = msgspec.json.Encoder().encode
    rows = zip(labels.uids, labels.texts, labels.frequencies.tolist(), labels.removed.tolist(), strict=True)
    more = {label: fields_of(concept) for label, concept in labels.concepts.items()}
    with file.open("wb") as out:
        out.writelines(encode(_Label(*row, **more.get(label, {}))) + b"\n" for label, row in enumerate(rows))


def _read_lines(file: Path) -> LabelSet:
    rows = _lines(file, _Label)
    return LabelSet(
        [row.text for row in rows],
        [row.uid for row in rows],
        np.array([row.frequency for row in rows], dtype=np.int64),
        np.array([row.removed for row in rows], dtype=bool),
        {label: concept for label, row in enumerate(rows) if (concept := concept_of(row)) is not NOTHING},
    )


def _lines(file: Path, kind: Any) -> list[Any]:
    try:
        return msgspec.json.Decoder(kind).decode_lines(file.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{file}: the labels cannot be read ({error}); copy the model again") from None


def _write_packed(folder: Path, labels: LabelSet) -> None:
    _whole(labels.texts).save(folder / "texts")
    uids = labels.uids
    if not (isinstance(uids, GrowingTexts) and uids.are_numbers):
        packed = _whole(uids)
        packed.save(folder / "uids")
        UidTable.write(folder, packed)
    np.save(folder / "frequencies.npy", labels.frequencies)
    np.save(folder / "removed.npy", labels.removed)
    encode = msgspec.json.Encoder().encode
    with (folder / "concepts.jsonl").open("wb") as out:
        for label, concept in sorted(labels.concepts.items()):
            out.write(encode(_NumberedConcept(label, **fields_of(concept))) + b"\n")


def _whole(texts: Sequence[str]) -> Texts:
    """The texts as packed ones; the same object where none has changed since."""
    packed = texts.packed if isinstance(texts, GrowingTexts) and texts.is_unchanged else texts
    return packed if isinstance(packed, Texts) else Texts.of(packed)


def _read_packed(folder: Path) -> LabelSet:
    try:
        texts = Texts.load(folder / "texts", checked_up_to=CHECKED_UP_TO)
        uids: GrowingTexts | Texts | Numbers = Numbers(len(texts))
        if (folder / "uids.ends.npy").exists():
            uids = Texts.load(folder / "uids", distinct=True, checked_up_to=CHECKED_UP_TO)
        uids = GrowingTexts(uids)
    except DataError as error:
        raise ModelError(f"{error}; copy the model again") from None
    frequencies = load_array(folder / "frequencies.npy", (len(texts),), np.int64, mapped="always")
    removed = load_array(folder / "removed.npy", (len(texts),), np.bool_, mapped="always")
    if len(uids) != len(texts):
        raise ModelError(
            f"{folder}: there must be one uid per label, but there are {len(uids)} uids and {len(texts)} labels; copy "
            "the model again"
        )
    concepts = {row.label: concept_of(row) for row in _lines(folder / "concepts.jsonl", _NumberedConcept)}
    # Mapped copy-on-write because torch warns of others; nobody writes to it.
    frequencies.flags.writeable = removed.flags.writeable = False
    words = load_array(folder / WORDS, (None,), np.uint64, mapped=True) if (folder / WORDS).exists() else None
    return LabelSet(texts, uids, frequencies, removed, concepts, UidTable.read(folder, uids), words)
