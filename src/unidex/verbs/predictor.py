"""A model as a function of a batch of rows, for engines that send functions to many processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex.errors import DataError, listed, quoted

if TYPE_CHECKING:
    from unidex.model.model import Model


class Predictor:
    """Predicts the labels of a batch: a data frame of pandas, a table of Arrow, or columns by name.

    The result has the type of the batch, its columns, and ``labels``, ``uids``, ``scores`` and ``probabilities`` with
    one list per row, best label first. It can be pickled: only the path and the options travel, and each process loads
    the model once. Processes of one machine share the mapped files of a model.

    Args:
        model: a model folder.
        text: the column of the texts.
        k: labels per text.
        mode: the heads that are used; the recipe's unless given.
        min_probability: minimum probability of a label, a number or the name of a threshold of the model.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        text: str = "text",
        k: int = 5,
        mode: str | None = None,
        min_probability: str | float | None = None,
    ) -> None:
        self.model = str(Path(model).resolve())
        self.text, self.k, self.mode, self.min_probability = text, k, mode, min_probability

    def __call__(self, batch: Any) -> Any:
        """Return the batch with the columns of the prediction."""
        names = [str(name) for name in _names(batch)]
        if self.text not in names:
            raise DataError(
                f"a batch must have the column {quoted(self.text)}, but has {listed(names)}; "
                "name it with Predictor(..., text=...)"
            )
        return _with_columns(batch, self.predict(_cells(batch[self.text])))

    def predict(self, texts: list[str | None]) -> dict[str, list[list[Any]]]:
        """Return the columns of the prediction for texts; an empty cell is an empty text."""
        from unidex.verbs.predict import BlockPredictor

        predict = BlockPredictor(_loaded(self.model), self.k, self.mode, self.min_probability)
        rows = predict([text or "" for text in texts])[0] if texts else []
        found: dict[str, list[list[Any]]] = {
            "labels": [[label.text or label.uid for label in row] for row in rows],
            "uids": [[label.uid for label in row] for row in rows],
            "scores": [[label.score for label in row] for row in rows],
        }
        if predict.has_probabilities:
            found["probabilities"] = [[label.probability for label in row] for row in rows]
        return found


@lru_cache(maxsize=2)
def _loaded(folder: str) -> Model:
    from unidex.verbs.models import load_model

    return load_model(Path(folder), "cpu")


def _names(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return batch.keys()
    return batch.column_names if hasattr(batch, "column_names") else batch.columns


def _cells(column: Any) -> list[Any]:
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            found: list[Any] = getattr(column, method)()
            return found
    return list(column)


def _with_columns(batch: Any, columns: dict[str, list[list[Any]]]) -> Any:
    if isinstance(batch, Mapping):
        return {**batch, **columns}
    if hasattr(batch, "append_column"):
        import pyarrow

        types = {"scores": pyarrow.float64(), "probabilities": pyarrow.float64()}
        for name, cells in columns.items():
            batch = batch.append_column(name, pyarrow.array(cells, pyarrow.list_(types.get(name, pyarrow.string()))))
        return batch
    return batch.assign(**columns)
