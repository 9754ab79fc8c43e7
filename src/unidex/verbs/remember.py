"""``remember``: new texts with their labels count in the kNN part of a model at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unidex.data.read_options import ReadOptions
from unidex.verbs.models import model_to_change
from unidex.verbs.text_files import read_pairs

if TYPE_CHECKING:
    from unidex.model.model import Model


def remember(folder: Path, file: Path, out: Path | None = None, reading: ReadOptions | None = None) -> dict[str, Any]:
    """Add texts and their labels to the kNN part of a model folder, or of a copy of it; the result counts them."""
    with model_to_change(folder, out) as model:
        counts = remember_texts(model, file, reading)
    return {"model": str(out or folder)} | counts


def remember_texts(model: Model, file: Path, reading: ReadOptions | None = None) -> dict[str, int]:
    """Add texts and their labels to the kNN part of a loaded model; the result counts them."""
    texts, positives = read_pairs(model, file, reading)
    model.remember(texts, positives)
    assert model.scorer.knn is not None
    return {
        "num_texts": len(texts),
        "num_pairs": int(positives.nnz),
        "num_labels": len(np.unique(positives.indices)),
        "total": model.scorer.knn.num_texts,
    }
