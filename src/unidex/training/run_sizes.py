"""The numbers that memory, disk and time of a run depend on: counted in a data set, measured on a sample of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unidex.config import Config
from unidex.data.dataset import Dataset, Labels, Split
from unidex.data.texts import Texts
from unidex.encoders import registry as encoders
from unidex.features.extractor import MAX_COUNTED, FeatureExtractor
from unidex.features.feature_counts import count_features
from unidex.features.frozen_encoder import load_frozen
from unidex.sparse_rows import find_sorted

# Bytes and texts of the sample; features of so many are counted in about a second.
SAMPLE_BYTES, SAMPLE_TEXTS = 2 << 20, 8192
MAX_KEYS = 1 << 27  # of the distinct features of as many texts as are counted


@dataclass(frozen=True)
class Sizes:
    """What a run is about.

    Attributes:
        num_texts: train texts.
        num_test: test texts.
        num_labels: labels.
        num_pairs: pairs of a train text and a label.
        text_bytes: bytes per text.
        label_bytes: bytes per label text.
        num_features: rows of the table of features; 0 for an encoder without one.
        text_entries: features per text.
        label_entries: features per label text.
        num_counted: distinct features, also those that are too rare for the table.
        is_mapped: whether the data set is mapped from files.
    """

    num_texts: int
    num_test: int
    num_labels: int
    num_pairs: int
    text_bytes: float
    label_bytes: float
    num_features: int = 0
    text_entries: float = 0.0
    label_entries: float = 0.0
    num_counted: int = 0
    is_mapped: bool = False

    @classmethod
    def of(cls, dataset: Dataset, config: Config) -> Sizes:
        """The sizes of a data set under a recipe; features are counted in a sample and extrapolated."""
        counted = cls._without_features(dataset)
        if not encoders.get(config.encoder.kind).can.has_table:
            return counted
        return counted.with_features(sample_of(dataset), config)

    @classmethod
    def upper_bound(cls, dataset: Dataset, config: Config) -> Sizes:
        """Sizes that those of a data set cannot exceed, without reading its texts."""
        found, texts, labels = cls._without_features(dataset), dataset.train.texts, dataset.labels.texts
        num_bytes = texts.num_bytes + labels.num_bytes
        # A byte starts at most a word, a pair of words and an n-gram of each length.
        columns = _num_columns(config)
        features = min(config.features.max_features, 6 * num_bytes) + config.features.num_buckets + columns
        return replace(
            found,
            num_features=features if encoders.get(config.encoder.kind).can.has_table else 0,
            text_entries=4 * found.text_bytes + columns,
            label_entries=4 * found.label_bytes + columns,
            num_counted=min(6 * num_bytes, MAX_KEYS),
        )

    @classmethod
    def _without_features(cls, dataset: Dataset) -> Sizes:
        train, labels = dataset.train, dataset.labels
        return cls(
            len(train),
            len(dataset.test),
            len(labels),
            int(train.positives.nnz),
            train.texts.num_bytes / len(train),
            labels.texts.num_bytes / len(labels),
            is_mapped=train.texts.is_mapped,
        )

    def scaled(self, num_labels: int | None, num_texts: int | None) -> Sizes:
        """A set like this one with other numbers of labels and texts; features grow as in `with_features`."""
        labels, texts = num_labels or self.num_labels, num_texts or self.num_texts
        return replace(self, num_labels=labels, num_texts=texts, num_pairs=self.num_pairs * texts // self.num_texts)

    def with_features(self, sample: Dataset, config: Config) -> Sizes:
        """The sizes with the number of features, from how it grows between half of a sample and the whole sample.

        The number of words grows as a power of the number of texts (Heaps' law).
        """
        whole = (sample.train.texts, sample.labels.texts)
        half = [texts[: max(1, len(texts) // 2)] for texts in whole]
        features = FeatureExtractor.fit(whole[0], whole[1], config.features)
        of_half = len(FeatureExtractor.fit(half[0], half[1], config.features).vocabulary)
        number = min(config.features.max_features, self._grown(of_half, len(features.vocabulary), whole))
        counted_half, counted = (
            sum(len(counter.result()[0]) for counter in count_features(part[0], part[1], config.features).values())
            for part in (half, whole)
        )
        columns = _num_columns(config)
        entries = [features.transform(texts).nnz / max(1, len(texts)) + columns for texts in whole]
        return replace(
            self,
            num_features=number + config.features.num_buckets + columns,
            text_entries=entries[0],
            label_entries=entries[1],
            num_counted=self._grown(counted_half, counted, whole),
        )

    def _grown(self, of_half: int, of_whole: int, sample: Sequence[Texts]) -> int:
        """A number that grows with texts, from half of a sample and the whole sample; of many texts, some are read."""
        growth = min(1.0, max(0.0, math.log2(max(1, of_whole) / max(1, of_half))))
        num_read = min(self.num_texts, MAX_COUNTED) + min(self.num_labels, MAX_COUNTED)
        ratio: float = num_read / max(1, sum(map(len, sample)))
        return round(of_whole * float(ratio**growth))


def _num_columns(config: Config) -> int:
    """Numbers of a frozen encoder's vector beside the words of a text."""
    source = config.features.pretrained
    return load_frozen("features.pretrained", source, config.encoder.max_length).dim if source else 0


def sample_of(dataset: Dataset, seed: int = 0) -> Dataset:
    """Some train texts, and the labels that they have or that were drawn, as a data set of its own."""
    rng = np.random.default_rng(seed)
    train = dataset.train
    rows = _drawn(train.texts, rng)
    split = train.take(rows)
    drawn = _drawn(dataset.labels.texts, rng)
    labels = np.union1d(drawn, np.unique(split.positives.indices))
    positives, pairs = (matrix.copy() for matrix in (split.positives, split.filter_pairs))
    for matrix in (positives, pairs):
        places, known = find_sorted(labels, matrix.indices)
        kept = np.append(0, np.cumsum(known))
        matrix.data, matrix.indices = matrix.data[known], places[known].astype(matrix.indices.dtype)
        matrix.indptr = kept[matrix.indptr].astype(matrix.indptr.dtype)
        matrix._shape = (len(rows), len(labels))
    own = Split.of(split.texts, positives, pairs)
    return Dataset(dataset.name, Labels(dataset.labels.texts.take(labels)), own, propensity=dataset.propensity)


def _drawn(texts: Texts, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of texts within the bounds of a sample, ascending."""
    number = min(len(texts), SAMPLE_TEXTS, max(64, int(SAMPLE_BYTES / max(1.0, texts.num_bytes / max(1, len(texts))))))
    if number == len(texts):
        return np.arange(number)
    return np.sort(rng.choice(len(texts), number, replace=False))
