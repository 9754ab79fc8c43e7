"""``export``: a model in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.export.registry import ExportOptions, check_export, export_model
from unidex.verbs.models import load_model


def export(folder: Path, to: str, out: Path, options: ExportOptions | None = None) -> dict[str, Any]:
    """Write a model folder in another format to a new folder; the result lists files and notes."""
    check_export(to, out, options or ExportOptions())
    return export_model(load_model(folder, "cpu"), to, out, options)
