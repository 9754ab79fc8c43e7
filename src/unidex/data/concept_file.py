"""``concepts.jsonl``: what is known of labels beyond uid and text, beside the files of any format of data sets.

One line per label that has a concept: ``{"label": 3, "texts": [...], "notation": ...}``, ascending by label id.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from unidex.data.concepts import Concept, Concepts, concept_of, fields_of
from unidex.data.files import write_json_lines
from unidex.errors import DataError

FILE = "concepts.jsonl"


class _Line(Concept, frozen=True):
    label: int


def write_concepts(folder: Path, concepts: Concepts) -> None:
    """Write the file, where a label has a concept."""
    if concepts:
        with (folder / FILE).open("wb") as out:
            write_json_lines(out, (_Line(label, **fields_of(concepts[label])) for label in sorted(concepts)))


def read_concepts(folder: Path, num_labels: int) -> dict[int, Concept]:
    """The concepts of a folder; none where it has no such file."""
    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        lines = msgspec.json.Decoder(_Line).decode_lines(file.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        rule = 'a line must be a concept such as {"label": 3, "notation": "A1"}'
        raise DataError(f"{rule}, but: {error}; convert the data set again", file=file) from None
    for number, line in enumerate(lines, 1):
        if not 0 <= line.label < num_labels:
            rule = f"labels must be from 0 to {num_labels - 1}, but one is {line.label}"
            raise DataError(f"{rule}; convert the data set again", file=file, line=number)
    return {line.label: concept_of(line) for line in lines}
