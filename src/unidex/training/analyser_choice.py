"""The choice of an analyser on the validation split: words as they are written, stems, parts of compounds.

A full training per analyser would take too long. So the held-out texts get the labels of the train texts whose features
are nearest, and the labels whose words they have, each counted as often as it is right: what a model reads of texts, in
a second or two. Texts in English are not tried: there character n-grams find what stems would.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Config, Features
from unidex.config.features import DETECT
from unidex.data.dataset import Dataset, Split
from unidex.features.analyser import Analyser
from unidex.features.compounds import has_compounds
from unidex.features.languages import ENGLISH, detect
from unidex.features.word_strings import words_in
from unidex.scoring.lexical_columns import NUM_COLUMNS, Reading
from unidex.scoring.mapped_matches import matches_of
from unidex.scoring.network_metrics import metric_value, metrics_of
from unidex.sparse_rows import csr_from_counts
from unidex.topk import TopK
from unidex.training.held_out import held_out_rows, wanted_share
from unidex.training.phases import changed

logger = logging.getLogger(__name__)

# An analyser costs time in prediction: it must raise the metric by this share.
_MIN_GAIN = 0.02
# Texts that are looked at: for their languages, as nearest ones, and as held-out ones.
_DETECTED, _TRAIN, _HELD_OUT = 1000, 2000, 500
_CHARACTERS, _READ = 500, 2000  # of a text, for its language and for its features
_MIN_SHARE = 0.1  # of the texts in a language that makes a trial worth its time
_NUM_NEAREST = 20
_MIN_HELD_OUT = 50
_PLACES = 20
_AS_WRITTEN: dict[str, Any] = {"language": "", "analyser": "stems", "compounds": False}


def choose_analyser(dataset: Dataset, config: Config, seed: int) -> Config:
    """The recipe with the analyser that pays, where ``features.analyser`` is "auto"."""
    features = config.features
    if features.analyser != DETECT or not features.language:
        return config
    return changed(config, {"features": _chosen(dataset, config, seed)})


def _chosen(dataset: Dataset, config: Config, seed: int) -> dict[str, Any]:
    language = config.features.language
    inflected = _languages(dataset.train) if language == DETECT else [language]
    if not set(inflected) - {ENGLISH}:
        return _AS_WRITTEN
    spoken = ", ".join(inflected)
    if config.train.validation == 0:
        logger.info("Words stay as they are written (%s): no validation split tells what pays.", spoken)
        return _AS_WRITTEN
    num_texts = len(dataset.train)
    rows, held_out = held_out_rows(num_texts, wanted_share(config, num_texts), seed)
    if len(held_out) < _MIN_HELD_OUT:
        logger.info("Words stay as they are written (%s): %d held-out texts are too few.", spoken, len(held_out))
        return _AS_WRITTEN
    tried = {"words as they are written": _AS_WRITTEN, "stems": {"language": language, "analyser": "stems"}}
    if any(map(has_compounds, inflected)):
        tried["stems and parts of compounds"] = tried["stems"] | {"compounds": True}
    splits = (dataset.train.take(_evenly(rows, _TRAIN)), dataset.train.take(_evenly(held_out, _HELD_OUT)))
    values = {name: _value(dataset, config, changes, *splits) for name, changes in tried.items()}
    first, *others = values
    best = max(others, key=lambda name: values[name])
    if values[best] <= (1 + _MIN_GAIN) * values[first]:
        best = first
    found = ", ".join(f"{value:.1f} with {name}" for name, value in values.items())
    logger.info("Texts are in %s. The model reads %s: a quick look at held-out texts scores %s.", spoken, best, found)
    return tried[best]


def _languages(split: Split) -> list[str]:
    """The languages that at least a tenth of the texts are in."""
    some = split.take(_evenly(np.arange(len(split)), _DETECTED))
    found = [detect(words_in(text[:_CHARACTERS])) for text in some.texts]
    names, counts = np.unique([language for language in found if language], return_counts=True)
    return [str(name) for name in names[counts >= _MIN_SHARE * len(found)]]


def _value(dataset: Dataset, config: Config, changes: dict[str, Any], train: Split, held_out: Split) -> float:
    """What the nearest texts and the words of labels score, as texts are read with these settings."""
    settings = Features(**(config.features.model_dump() | changes))
    texts = [text[:_READ] for split in (train, held_out) for text in split.texts]
    reading = Reading(Analyser.fit(texts, dataset.labels.texts, settings), beginning=0)
    # Words and character n-grams of each text once, by their rarity.
    columns, starts = reading.columns_of(texts)
    rarity_F = np.log((1 + len(texts)) / (1 + np.bincount(columns, minlength=NUM_COLUMNS)))
    rows = csr_from_counts(rarity_F[columns].astype(np.float32), columns, np.diff(starts), NUM_COLUMNS)
    nearest = _nearest(rows[len(train) :], rows[: len(train)])
    labels = matches_of(dataset.labels.texts, dataset.labels.concepts, reading)
    labels.learn(train, np.arange(len(train)))
    scores = sparse.csr_array(nearest @ train.positives) + labels.scores(labels.find(list(held_out.texts)))
    scores.sort_indices()
    return metric_value(metrics_of(TopK.from_csr(scores, _PLACES), dataset, held_out), config.train.metric)


def _nearest(held_out_NF: sparse.csr_array, train_TF: sparse.csr_array) -> sparse.csr_array:
    """The similarities of the nearest train texts, N x T; those of a text sum to 1."""
    similar_NT = (_of_length_1(held_out_NF) @ _of_length_1(train_TF).T).toarray()
    k = min(_NUM_NEAREST, similar_NT.shape[1])
    columns = np.argpartition(-similar_NT, k - 1, axis=1)[:, :k]
    # Squares: a text that is twice as near tells more than two others.
    values = np.take_along_axis(similar_NT, columns, axis=1) ** 2
    values /= np.maximum(values.sum(axis=1, keepdims=True), 1e-9)
    rows = np.repeat(np.arange(len(values)), k)
    return sparse.csr_array((values.ravel(), (rows, columns.ravel())), shape=similar_NT.shape)


def _of_length_1(rows: sparse.csr_array) -> sparse.csr_array:
    norms = np.sqrt(rows.multiply(rows).sum(axis=1))
    scale = sparse.dia_array((1 / np.maximum(norms, 1e-9)[None], [0]), shape=(len(norms), len(norms)))
    return sparse.csr_array(scale @ rows)


def _evenly(rows: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """So many of the rows, evenly spread."""
    return rows if len(rows) <= number else rows[np.linspace(0, len(rows) - 1, number).astype(np.int64)]
