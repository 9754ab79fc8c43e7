"""The lexical part of a run: the words of labels, and how often train texts that have them have the label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Dataset
from unidex.features.analyser import Analyser
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_columns import Reading


def lexical_part(
    dataset: Dataset, analyser: Analyser, rows: NDArray[np.int64], folder: Path | None = None
) -> LexicalPart:
    """The words of the labels of a data set, and what these train texts tell of them; files are in ``folder``."""
    labels = dataset.labels
    part = LexicalPart.of(labels.texts, labels.concepts, Reading(analyser), scratch=folder)
    assert part.matches is not None
    part.matches.learn(dataset.train, rows)
    return part


def with_other_texts(part: LexicalPart, dataset: Dataset, rows: NDArray[np.int64]) -> LexicalPart:
    """The part of the final model, which has seen all train texts, from one that has seen these."""
    assert part.matches is not None
    part.matches.learn(dataset.train, np.setdiff1d(np.arange(len(dataset.train)), rows))
    return part
