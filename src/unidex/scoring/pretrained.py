"""The pretrained part of a score: vectors of texts and labels by a frozen encoder beside the trained one.

Two features of the learned ranker come from it: the cosine of a text and a label, and the kNN score by its vectors.
Both also find candidates. The frozen encoder runs once per train text and label in training and once per text in
prediction; nothing of it learns.

Shapes: N texts, K candidates, L labels, D dimensions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.features.frozen_encoder import FrozenEncoder, Vectors
from unidex.features.pretrained_columns import PretrainedColumns
from unidex.index.exact import search_exact
from unidex.scoring.knn import KnnPart
from unidex.storage.mapped import load_array
from unidex.topk import TopK

# The ranking features of this part.
PRETRAINED = ("pretrained", "pretrained_knn")
# With more labels than this, cosines find no candidates: every label would be compared with every text.
_MAX_SEARCHED = 200_000


class PretrainedPart:
    """Vectors of labels and of training texts by a frozen encoder.

    Args:
        encoder: the frozen encoder.
        labels_LD: unit vectors of the labels.
        texts: the training texts and their labels.
    """

    def __init__(self, encoder: FrozenEncoder, labels_LD: Vectors, texts: KnnPart) -> None:
        self.encoder, self.texts = encoder, texts
        self._labels_LD = labels_LD
        self._columns: PretrainedColumns | None = None

    def encode(self, texts: Sequence[str], prepared: sparse.csr_array | None = None) -> Vectors:
        """Unit vectors of texts, N x D; the first call loads the encoder.

        Where the bag reads the vectors of the same encoder, they are in the prepared texts.
        """
        if self._columns is not None and prepared is not None:
            return self._columns.vectors(prepared)
        return self.encoder(texts)

    def share(self, columns: PretrainedColumns | None) -> None:
        """Read the vectors that the bag reads where they are of the same encoder, so that it runs once per text."""
        if columns is not None and self.encoder.is_same(columns.encoder):
            self.encoder, self._columns = columns.encoder, columns

    def cosines(self, texts_ND: Vectors, ids_NK: NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines of texts and labels, N x K."""
        found: NDArray[np.float32] = np.einsum("nd,nkd->nk", texts_ND, self._labels_LD[ids_NK], optimize=True)
        # Trees tell a gap of 1e-7 from one of 0, and sums of one text and of many differ so much.
        return found.round(5).astype(np.float32)

    def search(self, texts_ND: Vectors, k: int, hidden_L: NDArray[np.bool_] | None) -> TopK | None:
        """The k labels of highest cosine with each text; None where labels are too many to compare all."""
        if len(self._labels_LD) > _MAX_SEARCHED:
            return None
        forbidden = None if hidden_L is None else np.flatnonzero(hidden_L)
        return search_exact(texts_ND, self._labels_LD, k, forbidden=forbidden)

    def knn_scores(self, texts_ND: Vectors, hidden_L: NDArray[np.bool_] | None) -> sparse.csr_array:
        """The kNN scores of labels, N x L."""
        return self.texts.scores_of(self.texts.nearest(texts_ND), hidden_L)

    def add_labels(self, label_texts: Sequence[str]) -> None:
        """Append labels."""
        self._labels_LD = np.concatenate([self._labels_LD, self.encode(label_texts)])
        self.texts.grow(len(self._labels_LD))

    def rename(self, label: int, text: str) -> None:
        """Give a label another text."""
        self._labels_LD = self._labels_LD.copy()
        self._labels_LD[label] = self.encode([text])[0]

    def remember(self, texts: Sequence[str], positives: sparse.csr_array) -> None:
        """Add training texts with their labels."""
        self.texts.add(self.encode(texts), positives, texts)

    def save(self, folder: Path) -> None:
        """Write vectors, and the name of the encoder; the encoder itself is not copied."""
        folder.mkdir(parents=True)
        (folder / "settings.json").write_text(json.dumps(self.encoder.about()) + "\n", encoding="utf-8")
        np.save(folder / "labels.npy", self._labels_LD)
        np.save(folder / "probe.npy", self.encoder.probe)
        self.texts.save(folder / "texts")

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> PretrainedPart:
        """Read what ``save`` wrote; the encoder is loaded with the first text."""
        try:
            settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
            source, max_length = str(settings["source"]), int(settings["max_length"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ModelError(f"{folder}: the pretrained part cannot be read ({error}); copy the model again") from None
        texts = KnnPart.load(folder / "texts")
        labels_LD = np.array(load_array(folder / "labels.npy", (num_labels, texts.dim), np.float32))
        probe_D = np.array(load_array(folder / "probe.npy", (texts.dim,)))
        return cls(FrozenEncoder(source, max_length, probe_D), labels_LD, texts)
