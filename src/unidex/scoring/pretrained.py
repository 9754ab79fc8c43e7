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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.errors import ModelError
from unidex.index.exact import search_exact
from unidex.scoring.knn import KnnPart
from unidex.storage.mapped import load_array
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.scoring.pretrained_encoder import PretrainedEncoder, Vectors

# The ranking features of this part.
PRETRAINED = ("pretrained", "pretrained_knn")
# With more labels than this, cosines find no candidates: every label would be compared with every text.
_MAX_SEARCHED = 200_000
_PROBE = "What does this encoder make of these words?"
# Minimum cosine of the vector of the probe now and when the model was trained.
_SAME = 0.999


class PretrainedPart:
    """Vectors of labels and of training texts by a frozen encoder.

    Args:
        source: the encoder, as `PretrainedEncoder` reads it.
        max_length: tokens of a text that are read.
        labels_LD: unit vectors of the labels.
        texts: the training texts and their labels.
        probe_D: the vector of a fixed text, by which another encoder of the same name is found out.
    """

    def __init__(self, source: str, max_length: int, labels_LD: Vectors, texts: KnnPart, probe_D: Vectors) -> None:
        self.source, self.max_length, self.texts = source, max_length, texts
        self._labels_LD, self._probe_D = labels_LD, probe_D
        self._encoder: PretrainedEncoder | None = None

    @classmethod
    def of(
        cls, encoder: PretrainedEncoder, source: str, max_length: int, labels_LD: Vectors, texts: KnnPart
    ) -> PretrainedPart:
        """The part of a model in training, whose encoder is loaded already."""
        part = cls(source, max_length, labels_LD, texts, encoder([_PROBE])[0])
        part._encoder = encoder
        return part

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of texts, N x D; the first call loads the encoder."""
        if self._encoder is None:
            # It may load torch, which a model without this part does without.
            from unidex.scoring.pretrained_encoder import PretrainedEncoder

            encoder = PretrainedEncoder(self.source, self.max_length)
            probe_D = encoder([_PROBE])[0]
            if probe_D.shape != self._probe_D.shape or probe_D @ self._probe_D < _SAME:
                raise ModelError(
                    f"predict.pretrained = {self.source!r} must be the encoder that the model was trained with, but "
                    "gives other vectors; install the version of that time, or train again"
                )
            self._encoder = encoder
        return self._encoder(texts)

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
        settings = {"source": self.source, "max_length": self.max_length}
        (folder / "settings.json").write_text(json.dumps(settings) + "\n", encoding="utf-8")
        np.save(folder / "labels.npy", self._labels_LD)
        np.save(folder / "probe.npy", self._probe_D)
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
        return cls(source, max_length, labels_LD, texts, np.array(load_array(folder / "probe.npy", (texts.dim,))))
