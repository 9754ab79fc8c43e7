"""Vectors of a run's texts and labels by a frozen encoder (predict.pretrained), made once and stored for a resumed run.

Shapes: T train texts, L labels, D dimensions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from unidex.config import Config
from unidex.config.predict import Predict
from unidex.data.dataset import Dataset
from unidex.distributed import Processes
from unidex.features.frozen_encoder import FrozenEncoder, Vectors, load_frozen
from unidex.features.pretrained_columns import PretrainedColumns
from unidex.nn.token_vectors import WORDLLAMA, is_installed
from unidex.scoring.knn import KnnPart
from unidex.scoring.pretrained import PretrainedPart
from unidex.storage.mapped import read_array

logger = logging.getLogger(__name__)

AUTO = "auto"
# Numbers of train texts with which 'auto' tries static vectors: fewer are not ranked by trees, and for more the time of
# a second ranker is long beside a gain that is small where words alone are learned well.
FEW_TEXTS, MANY_TEXTS = 2_000, 20_000


@dataclass(frozen=True, eq=False)
class BesideWords:
    """The vectors of a frozen encoder that prepared texts have beside their words (features.pretrained).

    Attributes:
        columns: where they are in a row.
        rows: prepared texts by name, "train" and "labels".
    """

    columns: PretrainedColumns
    rows: Mapping[str, sparse.csr_array]


@dataclass(frozen=True, eq=False)
class PretrainedVectors:
    """The vectors of a run.

    Attributes:
        source: the encoder.
        max_length: tokens of a text that it reads.
        dataset: whose train texts and labels are encoded.
        folder: where vectors are stored; None to store nothing.
        processes: each encodes a part.
        beside: what the bag reads of a frozen encoder; None where it reads none.
    """

    source: str
    max_length: int
    dataset: Dataset
    folder: Path | None
    processes: Processes
    beside: BesideWords | None = None

    @classmethod
    def of(
        cls,
        config: Config,
        dataset: Dataset,
        folder: Path | None,
        processes: Processes,
        beside: BesideWords | None = None,
    ) -> PretrainedVectors | None:
        """What the recipe asks for; None without a frozen encoder, or without a ranker that reads its vectors."""
        source = config.predict.pretrained
        if source == AUTO:
            is_tried = FEW_TEXTS <= len(dataset.train) <= MANY_TEXTS and config.predict.rank == "learned"
            source = WORDLLAMA if is_tried and is_installed(WORDLLAMA) else ""
        if source and config.predict.rank != "learned":
            logger.warning("predict.pretrained is left out: only predict.rank = 'learned' reads it.")
        if not source or config.predict.rank != "learned":
            return None
        found = cls(source, config.encoder.max_length, dataset, folder, processes, beside)
        _ = found._encoder  # before training
        return found

    def part(self, predict: Predict, rows: NDArray[np.int64] | None = None) -> PretrainedPart:
        """The part of a model that knows all train texts, or these."""
        vectors, positives = self._of_texts, self.dataset.train.positives
        if rows is not None:
            vectors, positives = vectors[rows], positives[rows]
        texts = KnnPart.of(vectors, positives, num_nearest=predict.knn_texts, temperature=predict.knn_temperature)
        part = PretrainedPart(self._encoder, self._of_labels, texts)
        part.share(None if self.beside is None else self.beside.columns)
        return part

    @cached_property
    def _encoder(self) -> FrozenEncoder:
        if self._is_beside_words:
            assert self.beside is not None
            return self.beside.columns.encoder
        return load_frozen("predict.pretrained", self.source, self.max_length)

    @property
    def _is_beside_words(self) -> bool:
        """Whether the bag reads vectors of the same encoder."""
        if self.beside is None:
            return False
        other = self.beside.columns.encoder
        return (other.source, other.max_length) == (self.source, self.max_length)

    @cached_property
    def _of_texts(self) -> Vectors:
        return self._encoded(self.dataset.train.texts, "train")

    @cached_property
    def _of_labels(self) -> Vectors:
        return self._encoded(self.dataset.labels.texts, "labels")

    def _encoded(self, texts: Sequence[str], name: str) -> Vectors:
        if self._is_beside_words and self.beside is not None and name in self.beside.rows:
            return self.beside.columns.vectors(self.beside.rows[name])
        file = None if self.folder is None else self.folder / f"pretrained-{name}.npy"
        if file is not None and file.exists():
            try:
                return read_array(file, (len(texts), None), np.float32)
            except ValueError:
                pass  # made again
        logger.info("Vectors of %d texts by %s, which is not trained.", len(texts), self.source)
        own = self._encoder(texts[self.processes.part(len(texts))] if self.processes.size > 1 else texts)
        vectors: Vectors = self.processes.gather(torch.from_numpy(own)).numpy() if self.processes.size > 1 else own
        if file is not None and self.processes.is_first:
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_name(f".{file.name}")
            with unfinished.open("wb") as out:
                np.save(out, vectors)
            unfinished.replace(file)
        return vectors
