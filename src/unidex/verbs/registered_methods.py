"""Methods of a model whose work verbs do: they are registered when this module is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.read_options import ReadOptions
from unidex.export.registry import ExportOptions, export_model
from unidex.model.model import Model
from unidex.model.model_methods import REGISTERED
from unidex.verbs.evaluate import evaluate
from unidex.verbs.judgement import read_for
from unidex.verbs.score import Scores

__all__ = ["Model", "evaluate_data", "export_to"]


def evaluate_data(model: Model, data: Any, *, reading: ReadOptions | None = None, **options: Any) -> Scores:
    """Score a model on a data set, on what a file or folder holds, or on all rows of a table or data frame."""
    return evaluate(model, data if isinstance(data, Dataset) else read_for(model, data, reading), **options)


def export_to(model: Model, to: str, out: str | Path, **options: Any) -> dict[str, Any]:
    """Write a model in the format of another tool; options are those of `unidex.export.registry.ExportOptions`."""
    return export_model(model, to, Path(out), ExportOptions(**options))


REGISTERED["evaluate"] = evaluate_data
REGISTERED["export"] = export_to
