"""``evaluate``: every metric of a model on a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.data.dataset import Dataset, Split
from unidex.errors import DataError, quoted
from unidex.metrics.evaluation import places_needed
from unidex.topk import PADDING, TopK
from unidex.verbs.score import Scores, find_split, score_topk

if TYPE_CHECKING:
    from unidex.model.model import Model
    from unidex.scoring.layout import Mode

_BLOCK = 4096


def evaluate(model: Model, dataset: Dataset, *, split: str = "test", mode: Mode | None = None, k: int = 100) -> Scores:
    """Score a model on a split of a data set. Labels are matched by uid; either side may have labels of its own."""
    texts = find_split(dataset, split)
    return score_topk(predict_split(model, dataset, texts, mode, k), dataset, texts)


def predict_split(model: Model, dataset: Dataset, texts: Split, mode: Mode | None, k: int) -> TopK:
    """Predict texts of a data set, by the ids of its labels; labels that only the model has are never predicted."""
    ids_of = match_labels(model, dataset)
    unknown = np.flatnonzero(ids_of < 0) if (ids_of < 0).any() else None
    places = min(places_needed(texts, k), len(model.labels))
    with progress.task("predicting", len(texts), unit="texts") as advance:
        parts = []
        for start in range(0, len(texts), _BLOCK):
            part = list(texts.texts[start : start + _BLOCK])
            found = model.topk(part, places, mode=mode, forbidden=unknown)
            parts.append(TopK(np.where(found.ids < 0, PADDING, ids_of[found.ids]), found.scores))
            advance(len(part))
    return TopK.concatenate(parts)


def match_labels(model: Model, dataset: Dataset) -> NDArray[np.int64]:
    """Return for each label of a model its id in a data set, or -1."""
    uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
    if uids == model.labels.uids:
        return np.arange(dataset.num_labels)
    number = {uid: label for label, uid in enumerate(uids)}
    found = np.array([number.get(uid, -1) for uid in model.labels.uids], dtype=np.int64)
    if (found < 0).all():
        raise DataError(
            f"the labels of data set {quoted(dataset.name)} must be among the model's, but none is; "
            "is this the data it was trained on?"
        )
    return found
