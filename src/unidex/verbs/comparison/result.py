"""The tables and the page of a comparison, as both ``compare`` and ``report`` write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.errors import UnidexError
from unidex.report.html import as_html
from unidex.report.systems import systems_of
from unidex.storage.atomic import write_text
from unidex.verbs.comparison.records import read_curve, versions
from unidex.verbs.comparison.samples import Sample, side_by_side

NUM_TEXTS = 4


def make_table(
    title: str, data: dict[str, Any], records: list[dict[str, Any]], failed: list[dict[str, Any]], command: str
) -> dict[str, Any]:
    """Gather the records of runs into one table of systems."""
    return {
        "title": title,
        "data": data,
        "systems": systems_of(records),
        "failed": failed,
        "command": command,
        "versions": versions(),
    }


def make_page(table: dict[str, Any], records: list[dict[str, Any]], samples: list[Sample], device: str) -> str:
    """Draw the page of a table."""
    curves = {record["folder"]: read_curve(Path(record["folder"])) for record in records}
    # The first seed stands for its system.
    speakers = [(system["name"], Path(system["runs"][0]["folder"])) for system in table["systems"]]
    mistakes = {record["folder"]: record["mistakes"] for record in records if record.get("mistakes")}
    wrong = [(name, mistakes[str(folder)]) for name, folder in speakers if str(folder) in mistakes]
    return as_html(table, curves, side_by_side(speakers, samples, device), wrong)


def write_file(file: Path, content: str) -> None:
    """Write a table or a page; bytes of a file name that are not UTF-8 are replaced."""
    try:
        write_text(file, content, errors="replace")
    except OSError as error:
        raise UnidexError(f"{file}: the file cannot be written ({error.strerror}); name another") from None


def count_of(number: int, what: str) -> str:
    """Return a number with its noun in singular or plural.

    >>> count_of(2, "run")
    '2 runs'
    """
    return f"{number} {what}" + ("" if number == 1 else "s")
