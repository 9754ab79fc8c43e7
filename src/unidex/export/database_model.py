"""A model folder whose label vectors are in a database: everything else is a copy of the model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from unidex import index as indexes
from unidex.errors import UnidexError
from unidex.export.label_table import check_inner_products
from unidex.export.registry import ExportOptions, Written
from unidex.index.remote import RemoteIndex, without_secrets
from unidex.model.folder import write_parts
from unidex.model.model import Model

ROWS_AT_ONCE = 1 << 14


def write_to_database(model: Model, folder: Path, options: ExportOptions, kind: str) -> Written:
    """Fill a new table with the vectors of all labels, and write a model folder that searches it."""
    check_inner_products(model)
    before = model.scorer.index
    index = indexes.build(kind, before.vectors(np.arange(min(ROWS_AT_ONCE, before.num_ids))), **_address(options))
    assert isinstance(index, RemoteIndex)
    scorer = model.scorer
    try:
        for start in range(ROWS_AT_ONCE, before.num_ids, ROWS_AT_ONCE):
            index.add(before.vectors(np.arange(start, min(start + ROWS_AT_ONCE, before.num_ids))))
        index.finish()
        index.remove(np.flatnonzero(model.labels.removed))
        model.scorer = replace(scorer, index=index)
        write_parts(folder, model)
    except BaseException:
        # Without its folder a table is of no use.
        with suppress(UnidexError):
            index.drop()
        raise
    finally:
        model.scorer = scorer
    facts = {"url": without_secrets(index.url), "table": index.table, "num_labels": index.num_labels, "dim": index.dim}
    return Written(facts, ["The folder is a model: unidex predict, serve and labels use the vectors in the database."])


def _address(options: ExportOptions) -> dict[str, str]:
    return {"url": options.url, "table": options.table}
