"""``milvus``: a model whose label vectors are in a collection of Milvus or a file of Milvus Lite."""

from __future__ import annotations

from pathlib import Path

from unidex.export.database_model import write_to_database
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    return write_to_database(model, folder, options, "milvus")


FORMAT = ExportFormat(_write, frozenset({"url", "table"}))
