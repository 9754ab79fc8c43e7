"""``parquet``: one row per label with its vector, for any database that searches inner products.

Columns: ``uid``, ``text``, ``vector`` (a list of numbers of fixed length) and ``prior``, the label prior. In the mode
of both heads a vector is the row that the model itself searches, the label prior included as its last number (see
`unidex.scoring.layout`); a query is ``Model.encode``. In the mode of one head it is that head's vector.

Shapes: L labels, D columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.errors import MissingExtraError, ModelError
from unidex.export.registry import ExportFormat, ExportOptions, Written
from unidex.model.model import Model
from unidex.scoring.layout import Mode

FILE = "labels.parquet"
ROW_GROUP = 8192


@dataclass(frozen=True, eq=False)
class LabelBlock:
    """Some labels of a model: their ids, uids, texts, vectors, L x D, and label priors."""

    ids: NDArray[np.int64]
    uids: list[str]
    texts: list[str]
    vectors_LD: NDArray[np.float32]
    priors_L: NDArray[np.float32]


def label_blocks(model: Model, mode: Mode, size: int = ROW_GROUP) -> Iterator[LabelBlock]:
    """The labels that a model can predict, block by block, so that memory does not grow with their number."""
    layout, index, labels = model.scorer.layout, model.scorer.index, model.labels
    living = np.flatnonzero(~labels.removed)
    with progress.task("writing labels", len(living), unit="labels") as advance:
        for start in range(0, len(living), size):
            ids = living[start : start + size]
            rows = index.vectors(ids)
            yield LabelBlock(
                ids,
                [labels.uids[label] for label in ids.tolist()],
                [labels.texts[label] for label in ids.tolist()],
                rows if mode == "both" else layout.vectors_of(rows, mode),
                layout.priors(labels.frequencies[ids]),
            )
            advance(len(ids))


def check_inner_products(model: Model) -> None:
    """Refuse a model whose labels no inner product finds."""
    if model.scorer.layout.has_tree:
        raise ModelError(
            "label vectors can only be exported where inner products find labels, but this model searches a label "
            "tree; train one without (--set tree.levels=[])"
        )


def exported_mode(model: Model, options: ExportOptions) -> Mode:
    """The mode that is exported: the given one, else the model's."""
    layout = model.scorer.layout
    mode = options.mode or model.config.predict.mode
    if mode not in ("both", "dual", "classifier"):
        raise ModelError(f"--mode must be dual, classifier or both, but is {mode!r}")
    if mode != "both" and mode not in layout.heads:
        raise ModelError(f"--mode must be one of the model's heads ({', '.join(layout.heads)}), but is {mode}")
    if mode != "both" and layout.weight(mode) == 0:
        raise ModelError(
            f"--mode {mode} needs the vectors of that head, but it has weight 0 here and they were not kept; "
            "leave --mode out"
        )
    return mode


def missing_parts(model: Model, mode: Mode) -> list[str]:
    """A note on the parts of the model's score that vectors do not hold."""
    scorer = model.scorer
    if mode != "both":
        return []
    parts = ["the kNN part"] if scorer.knn is not None and "knn" in scorer.ranker().features else []
    parts += ["the ranker"] if scorer.fitted is not None else []
    if not parts:
        return []
    return [f"Inner products find the model's candidates. Not in the export: {' and '.join(parts)} of unidex predict."]


def _write(model: Model, folder: Path, options: ExportOptions) -> Written:
    arrow = _arrow()
    check_inner_products(model)
    mode = exported_mode(model, options)
    layout = model.scorer.layout
    dim = model.scorer.index.dim if mode == "both" else getattr(layout, mode)
    facts = {
        "mode": mode,
        "metric": "inner product",
        "dim": dim,
        "num_labels": int((~model.labels.removed).sum()),
        "columns": layout.column_names() if mode == "both" else {mode: [0, dim]},
    }
    schema = arrow.schema(
        [
            arrow.field("uid", arrow.string(), nullable=False),
            arrow.field("text", arrow.string(), nullable=False),
            arrow.field("vector", arrow.list_(arrow.float32(), dim), nullable=False),
            arrow.field("prior", arrow.float32(), nullable=False),
        ],
        metadata={"unidex": json.dumps(facts)},
    )
    # Floats hardly compress; a dictionary of them only costs time.
    with arrow.parquet.ParquetWriter(folder / FILE, schema, compression="zstd", use_dictionary=["text"]) as writer:
        for block in label_blocks(model, mode):
            vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(block.vectors_LD.ravel()), dim)
            columns = [arrow.array(column) for column in (block.uids, block.texts)]
            columns += [vectors, arrow.array(block.priors_L)]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
    return Written(facts, missing_parts(model, mode))


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("--to parquet", "parquet") from None
    return pyarrow


FORMAT = ExportFormat(_write, frozenset({"mode"}))
