"""The formats that a model is exported to. A format is one module with a ``FORMAT``, and a row of ``FORMATS``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

from unidex.errors import ConfigError, ModelError, quoted
from unidex.export.format_names import FORMATS
from unidex.model.model import Model
from unidex.scoring.layout import Mode
from unidex.storage.atomic import check_new_folder, write_folder
from unidex.storage.disk_errors import writing

ABOUT_FILE = "export.json"


@dataclass(frozen=True)
class ExportOptions:
    """What a user may choose; a format names those that it knows.

    Attributes:
        mode: the heads that are exported; None for the format's own choice.
        approximate: accept that parts of a model are lost, with a note.
        encoder_only: leave the labels out.
        push_to: a repository on the Hugging Face hub to upload the folder to.
        url: the address of a database.
        table: the table or collection to make there.
    """

    mode: Mode | None = None
    approximate: bool = False
    encoder_only: bool = False
    push_to: str | None = None
    url: str = ""
    table: str = ""

    def given(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        return [option.name for option in fields(self) if getattr(self, option.name) != option.default]


@dataclass(frozen=True)
class Written:
    """What a format wrote.

    Attributes:
        facts: numbers and names for ``export.json`` and the result.
        notes: sentences about what the export does not hold, or holds only approximately.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ExportFormat:
    """A format that a model is exported to.

    Attributes:
        write: writes the files of a model into an empty folder; raises ModelError for a model that does not fit.
        options: the names of the options that it knows.
        finish: called with the finished folder; gives more facts for the result.
    """

    write: Callable[[Model, Path, ExportOptions], Written]
    options: frozenset[str] = frozenset()
    finish: Callable[[Path, ExportOptions], dict[str, Any]] | None = None


def check_export(to: str, out: Path, options: ExportOptions) -> None:
    """Refuse an unknown format, an option that the format does not know, or a taken folder, before a model is read."""
    if to not in FORMATS:
        raise ConfigError(f"--to must be one of {', '.join(FORMATS)}, but is {quoted(to)}")
    known = export_format(to).options
    for name in options.given():
        if name not in known:
            users = [other for other in FORMATS if name in export_format(other).options]
            raise ConfigError(
                f"--{name.replace('_', '-')} is an option of --to {', '.join(users)}, but the format is {to}; "
                "leave it out"
            )
    check_new_folder(out)


def export_format(name: str) -> ExportFormat:
    """The format of a name."""
    found: ExportFormat = import_module(FORMATS[name][0]).FORMAT
    return found


def export_model(model: Model, to: str, out: Path, options: ExportOptions | None = None) -> dict[str, Any]:
    """Write a model in a format: the whole folder, or nothing; the result says what was written."""
    from unidex import __version__

    options = options or ExportOptions()
    check_export(to, out, options)
    try:
        with writing(out), write_folder(out, replace=False) as unfinished:
            written = export_format(to).write(model, unfinished, options)
            about = {"format": to, "unidex": __version__, "model": model.version, **written.facts}
            text = json.dumps(about | {"notes": written.notes}, indent=2, ensure_ascii=False)
            (unfinished / ABOUT_FILE).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{out}: the export cannot be written ({error.strerror or error}); nothing is left") from None
    finish = export_format(to).finish
    facts = written.facts | ({} if finish is None else finish(out, options))
    files = sorted(file for file in out.rglob("*") if file.is_file())
    return {
        "format": to,
        "folder": str(out),
        "files": [str(file.relative_to(out)) for file in files],
        "num_bytes": sum(file.stat().st_size for file in files),
        **facts,
        "notes": written.notes,
    }
