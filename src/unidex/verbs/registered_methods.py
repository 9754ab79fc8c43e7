"""Methods of a model whose work verbs do: they are registered when this module is imported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats import BUILT_IN, read
from unidex.data.read_options import ReadOptions
from unidex.model.model import Model
from unidex.model.model_methods import REGISTERED
from unidex.verbs.evaluate import evaluate
from unidex.verbs.score import Scores

__all__ = ["Model", "evaluate_data"]


def evaluate_data(model: Model, data: Any, *, reading: ReadOptions | None = None, **options: Any) -> Scores:
    """Score a model on a data set, on what a file or folder holds, or on all rows of a data frame or table."""
    if not isinstance(data, Dataset):
        data = read(data, reading or _as_trained(model, data))
    options.setdefault("split", "test" if len(data.test) else "train")
    return evaluate(model, data, **options)


def _as_trained(model: Model, data: Any) -> ReadOptions:
    if isinstance(data, str) and data == BUILT_IN:
        return ReadOptions()
    return replace(ReadOptions(), columns=model.table_form.columns, test_fraction=0.0)


REGISTERED["evaluate"] = evaluate_data
