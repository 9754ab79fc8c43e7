"""``predict --out``: the labels of texts as a table, with every column that the texts came with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex import progress
from unidex.data.formats.table_writers import free_names, table_writer
from unidex.data.formats.text_source import TextBlock, TextSource
from unidex.verbs.predict import BlockPredictor, LabelOptions, PredictedLabel

if TYPE_CHECKING:
    from unidex.model.model import Model

_LONG = {"rank": int, "uid": str, "label": str, "score": float, "probability": float, "frequency": str}
_ROWS = 1024


def predict_table(
    model: Model,
    source: TextSource,
    out: Path,
    k: int = 5,
    mode: str | None = None,
    min_probability: str | float | None = None,
    *,
    options: LabelOptions | None = None,
    long: bool = False,
    run: Callable[[Callable[[], Any]], Any] = lambda function: function(),
    texts_at_once: int = _ROWS,
) -> dict[str, Any]:
    """Predict texts and write a table: the columns of the texts, then their labels; the result counts them.

    A row is a text with ``label_1``, ``uid_1``, ``probability_1`` and so on (``score_1`` if the model has no
    probabilities for the mode). With ``long``, a row is a text and one label; a text without labels has one row too. If
    labels have notations, there are columns for them.
    ``run`` calls the model, in the thread that may use it.
    """
    predict = BlockPredictor(model, k, mode, min_probability, options)
    notation = {"notation": str} if model.labels.has_notations else {}
    value = "probability" if predict.has_probabilities else "score"
    parts = {"label": str, "uid": str, **notation, value: float}
    wide = {f"{part}_{place}": kind for place in range(1, k + 1) for part, kind in parts.items()}
    added = _LONG | notation if long else wide
    names = free_names(list(added), source.names)
    types: dict[str, Any] = dict(zip(names, added.values(), strict=True))
    if source.schema is not None:
        types |= dict(zip(source.schema.names, source.schema.types, strict=True))
    counts = {"num_texts": 0, "num_without_labels": 0, "num_labels": 0}
    with (
        table_writer(out, [*source.names, *names], types) as write,
        progress.task("predicting", unit="texts") as advance,
    ):
        for block in _pieces(source.blocks, texts_at_once):
            rows, _ = run(partial(predict, block.texts))
            write(_long_columns(block.cells, rows, list(added)) if long else _wide_columns(block.cells, rows, k, parts))
            counts["num_texts"] += len(rows)
            counts["num_without_labels"] += sum(not row for row in rows)
            counts["num_labels"] += sum(map(len, rows))
            advance(len(rows))
    predict.warn()
    return {"file": str(out)} | counts


def _pieces(blocks: Iterator[TextBlock], num_rows: int) -> Iterator[TextBlock]:
    """Blocks that are small enough for the progress bar to move."""
    for block in blocks:
        for start in range(0, len(block.texts), num_rows):
            rows = slice(start, start + num_rows)
            yield TextBlock(block.texts[rows], [cells[rows] for cells in block.cells])


def _wide_columns(
    cells: list[list[Any]], rows: Sequence[Sequence[PredictedLabel]], k: int, parts: Iterable[str]
) -> list[list[Any]]:
    columns = list(cells)
    for place in range(k):
        labels = [row[place] if place < len(row) else None for row in rows]
        columns += [[None if label is None else _cell(label, part) for label in labels] for part in parts]
    return columns


def _cell(label: PredictedLabel, part: str) -> Any:
    """A part of a label by the name of its column."""
    return label.text or label.uid if part == "label" else getattr(label, part)


def _long_columns(
    cells: list[list[Any]], rows: Sequence[Sequence[PredictedLabel]], parts: Sequence[str]
) -> list[list[Any]]:
    columns = [[cell for cell, row in zip(column, rows, strict=True) for _ in row or (None,)] for column in cells]
    found = [
        [rank if part == "rank" else _cell(label, part) for part in parts] if label is not None else [None] * len(parts)
        for row in rows
        for rank, label in enumerate(row or (None,), start=1)
    ]
    return columns + [list(column) for column in zip(*found, strict=True)]
