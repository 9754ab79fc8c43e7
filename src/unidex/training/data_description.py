"""What a model remembers of its training data."""

from __future__ import annotations

from typing import Any

from unidex.data.dataset import Dataset


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """The name, sizes, propensity and columns of the training data: later data is read and judged in the same way."""
    about: dict[str, Any] = {"name": dataset.name, "num_train": len(dataset.train)}
    about["propensity"] = {"a": dataset.propensity.a, "b": dataset.propensity.b}
    if dataset.table.columns:
        about |= {"columns": dict(dataset.table.columns), "separator": dataset.table.separator}
    return about
