"""Predictions of several systems for a few texts, side by side."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unidex.data.dataset import Dataset
from unidex.errors import DataError, UnidexError
from unidex.verbs.models import load_model
from unidex.verbs.text_files import read_texts

logger = logging.getLogger(__name__)

PLACES = 5


@dataclass(frozen=True)
class Sample:
    """A text to predict."""

    text: str
    correct: dict[str, str] | None = None  # uid -> text of its labels; None if unknown
    filtered: frozenset[str] = frozenset()  # uids of labels to remove from its predictions


def find_samples(dataset: Dataset | None, file: Path | None, num_texts: int, seed: int = 0) -> list[Sample]:
    """Make samples of the texts of a file, or without a file of test texts that have labels, drawn by a seed.

    A text of a file that is a test text of the data set has its labels.
    """
    if file is None:
        if dataset is None:
            return []
        labelled = np.flatnonzero(np.diff(dataset.test.positives.indptr))
        drawn = np.random.default_rng(seed).permutation(labelled)[:num_texts]
        return [_of_row(dataset, int(row)) for row in drawn]
    texts = [text for text in read_texts(file) if text.strip()]
    if not texts:
        raise DataError("there must be at least one text to predict, but there is none", file=file)
    rows: dict[str, int] = {}
    if dataset is not None:
        wanted = set(texts)
        for row, text in enumerate(dataset.test.texts):
            if text in wanted:
                rows.setdefault(text, row)
    return [_of_row(dataset, rows[text]) if dataset is not None and text in rows else Sample(text) for text in texts]


def predicted_samples(folder: Path, samples: Sequence[Sample], device: str = "auto") -> list[list[dict[str, Any]]]:
    """Predict the first labels of each text: {"text", "is_correct"}; None if the right labels are unknown."""
    model = load_model(folder, device)
    more = max((len(sample.filtered) for sample in samples), default=0)
    found = model.topk([sample.text for sample in samples], min(PLACES + more, len(model.labels)))
    rows = []
    for sample, ids in zip(samples, found.ids.tolist(), strict=True):
        uids = [(label, model.labels.uids[label]) for label in ids if label >= 0]
        kept = [(label, uid) for label, uid in uids if uid not in sample.filtered][:PLACES]
        rows.append(
            [
                {
                    "text": model.labels.texts[label] or uid,
                    "is_correct": None if sample.correct is None else uid in sample.correct,
                }
                for label, uid in kept
            ]
        )
    return rows


def side_by_side(
    systems: Sequence[tuple[str, Path]], samples: Sequence[Sample], device: str = "auto"
) -> list[dict[str, Any]]:
    """Return each text with its labels and the predictions of every system, given by name and model folder."""
    if not samples:
        return []
    predicted: list[tuple[str, list[list[dict[str, Any]]] | None, str]] = []
    for name, folder in systems:
        try:
            predicted.append((name, predicted_samples(folder, samples, device), ""))
        except UnidexError as error:
            # The record has the numbers: a page without the examples of one system is better than none.
            logger.warning("%s: no predictions (%s)", name, error)
            predicted.append((name, None, str(error)))
    return [
        {
            "text": sample.text,
            "correct": None if sample.correct is None else list(sample.correct.values()),
            "systems": [
                {"name": name, "labels": [] if rows is None else rows[at], "error": error}
                for name, rows, error in predicted
            ],
        }
        for at, sample in enumerate(samples)
    ]


def _of_row(dataset: Dataset, row: int) -> Sample:
    def labels(pairs: Any) -> list[int]:
        found: list[int] = pairs.indices[pairs.indptr[row] : pairs.indptr[row + 1]].tolist()
        return found

    names = dataset.labels
    return Sample(
        dataset.test.texts[row],
        {names.uid(label): names.texts[label] or names.uid(label) for label in labels(dataset.test.positives)},
        frozenset(names.uid(label) for label in labels(dataset.test.filter_pairs)),
    )
