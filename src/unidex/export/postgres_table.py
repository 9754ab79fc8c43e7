"""``pgvector``: a model whose label vectors are in a table of PostgreSQL with the extension pgvector."""

from __future__ import annotations

from pathlib import Path

from unidex.export.database_model import write_to_database
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    return write_to_database(model, folder, options, "pgvector")


FORMAT = ExportFormat(_write, frozenset({"url", "table"}))
