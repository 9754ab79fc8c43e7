"""``evaluate``: every metric of a model on a data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unidex import progress
from unidex.data.dataset import Dataset, Propensity, Split
from unidex.data.text_blocks import text_blocks
from unidex.errors import DataError
from unidex.metrics import LIMIT
from unidex.metrics.evaluation import places_needed
from unidex.metrics.hierarchy import hierarchical_scores, with_broader
from unidex.sparse_rows import contains
from unidex.topk import PADDING, TopK
from unidex.verbs.judgement import judge, read_for
from unidex.verbs.score import Scores, score_places

if TYPE_CHECKING:
    from unidex.model.model import Model
    from unidex.scoring.layout import Mode

_BLOCK = 4096


def evaluate(
    model: Model,
    dataset: Dataset | str | Path,
    *,
    split: str | None = None,
    mode: Mode | None = None,
    k: int = 100,
    limit: int = LIMIT,
    with_train_texts: bool = False,
    propensity: Propensity | None = None,
    hierarchy: bool = False,
) -> Scores:
    """Score a model on the test texts of a data set, or on all of its texts if it has no test texts.

    Labels are matched by uid. All labels of the model are predicted, whether or not the data set has them; labels that
    the model does not know are misses. Frequencies and propensities are those of the training.

    Args:
        model: the model.
        dataset: texts with their labels, or where to read them, with the columns of the training.
        split: "test" or "train" for one part of the data set.
        mode: the heads to predict with.
        k: labels to predict per text.
        limit: labels per text that count in the averages over documents, subjects and pairs.
        with_train_texts: count texts that the model was trained on; else they are left out.
        propensity: constants other than those of the training data.
        hierarchy: add hP@k, hR@k and hF1@k, which credit broader labels (`unidex.metrics.hierarchy`).
    """
    if hierarchy and not any(concept.broader for concept in model.labels.concepts.values()):
        raise DataError(
            "--hierarchy needs labels with broader ones, but the model has none; train it with a vocabulary (--labels)"
        )
    if not isinstance(dataset, Dataset):
        dataset = read_for(model, dataset)
    judged = judge(model, dataset, split=split, with_train_texts=with_train_texts, propensity=propensity)
    topk = predict_split(model, judged.split, mode, max(k, limit))
    about = (judged.frequencies_L, judged.num_train, judged.propensity)
    scores = score_places(topk, judged.split, *about, limit=limit)
    if hierarchy:
        closed = with_broader(model.labels.broader_pairs(judged.split.positives.shape[1]))
        is_filtered = contains(judged.split.filter_pairs, topk.ids)
        counted = TopK.rank(np.where(is_filtered, PADDING, topk.ids), topk.scores)
        more = hierarchical_scores(counted, judged.split.positives, closed)
        scores = replace(scores, metrics=scores.metrics | more)
    return replace(
        scores,
        num_left_out=judged.num_left_out,
        num_unknown_labels=judged.num_unknown_labels,
        num_unknown_pairs=judged.num_unknown_pairs,
    )


def predict_split(model: Model, texts: Split, mode: Mode | None, k: int) -> TopK:
    """Predict texts, with as many places more as filter pairs can take away."""
    places = min(places_needed(texts, k), len(model.labels))
    with progress.task("predicting", len(texts), unit="texts") as advance:
        parts = []
        for part in text_blocks(texts.texts, _BLOCK):
            parts.append(model.topk(part, places, mode=mode))
            advance(len(part))
    return TopK.concatenate(parts)
