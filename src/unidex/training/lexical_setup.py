"""The parts of a run that read label texts: their words, how often train texts that have them have the label, links."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset, Split
from unidex.features.analyser import Analyser
from unidex.scoring.lexical import LexicalPart
from unidex.scoring.lexical_columns import Reading
from unidex.scoring.links import Links, count_true_links, named_labels

logger = logging.getLogger(__name__)

# Where texts and labels are pages that refer to each other, half of all links are true; between packages, 3 in 100 are.
_MIN_TRUE = 0.1
_TEXTS_AT_ONCE = 1000
# Named texts whose links are compared with their labels: one with the name of a common label has thousands of links.
_MAX_COMPARED = 10_000


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


def links_of(dataset: Dataset, part: LexicalPart, rows: NDArray[np.int64]) -> Links:
    """The links of these train texts."""
    split = dataset.train.take(rows)
    return Links.of(_names(part, split), split.positives)


def true_links(dataset: Dataset, part: LexicalPart, rows: NDArray[np.int64]) -> Links | None:
    """The links of these train texts; None where fewer than a tenth of the links of these texts are their labels."""
    split = dataset.train.take(rows)
    names = _names(part, split)
    links = Links.of(names, split.positives)
    share = _true_share(links, names, split) if len(links) else 0.0
    if share < _MIN_TRUE:
        return None
    percent = 100 * share
    logger.info("Links between labels: %.0f%% of those of the train texts are true. The ranker reads them.", percent)
    return links


def _true_share(links: Links, names: sparse.csr_array, split: Split) -> float:
    """The share of the links of these texts that are labels of the text."""
    named = np.flatnonzero(np.diff(names.indptr))
    if len(named) > _MAX_COMPARED:
        named = named[np.linspace(0, len(named) - 1, _MAX_COMPARED).astype(np.int64)]
    blocks = [named[start : start + _TEXTS_AT_ONCE] for start in range(0, len(named), _TEXTS_AT_ONCE)]
    counts = [count_true_links(links.of_texts(names[rows]), split.positives[rows]) for rows in blocks]
    num_true, total = np.sum(counts, axis=0)
    return float(num_true / max(1, total))


def _names(part: LexicalPart, split: Split) -> sparse.csr_array:
    """The labels that texts are named like."""
    assert part.matches is not None
    blocks = [
        named_labels(part.matches, part.matches.find(list(split.texts[start : start + _TEXTS_AT_ONCE])))
        for start in range(0, max(1, len(split)), _TEXTS_AT_ONCE)
    ]
    return sparse.csr_array(sparse.vstack(blocks, format="csr"))
