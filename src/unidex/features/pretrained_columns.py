"""The columns of a frozen encoder: its vector of a text as further features beside those of words.

With x the row of the words of a text, of length 1, and v its unit vector by the frozen encoder, the row is

    (x, weight * v)

So whatever reads rows reads v: the bag of each head through a linear map, whose rows are vectors of features as those
of words are, and the linear classifiers of labels.

Shapes: N texts, D dimensions of the frozen encoder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from unidex.errors import ModelError
from unidex.features.feature_weights import Rows
from unidex.features.frozen_encoder import FrozenEncoder, Vectors
from unidex.storage.mapped import load_array

# The row of one text and that of many may differ in the last bits of a sum, and are to be the same.
_DECIMALS = 5
_SETTINGS, _PROBE = "pretrained.json", "pretrained.npy"


def columns_of(encoder: Any) -> PretrainedColumns | None:
    """What an encoder of texts reads of a frozen one; None where it reads words alone, or no words."""
    found: PretrainedColumns | None = getattr(getattr(encoder, "features", None), "columns", None)
    return found


class PretrainedColumns:
    """The columns of a frozen encoder, which follow those of the vocabulary.

    Args:
        encoder: the frozen encoder.
        weight: the length of its vector beside the words, which have length 1.
    """

    def __init__(self, encoder: FrozenEncoder, weight: float) -> None:
        self.encoder, self.weight = encoder, weight

    @property
    def dim(self) -> int:
        """D."""
        return self.encoder.dim

    def append(self, rows: Rows, texts: Sequence[str], first: int) -> Rows:
        """Rows with D more entries, from the column ``first`` on.

        A blank text, or one that the encoder knows nothing of, gets none.

        >>> encoder = FrozenEncoder("none", 1, np.zeros(2, dtype=np.float32))
        >>> encoder._encode = lambda texts: np.array([[0.6, -0.8], [0, 0]], dtype=np.float32)
        >>> words = Rows(np.array([1, 1]), np.array([3, 4], dtype=np.int32), np.ones(2, dtype=np.float32))
        >>> rows = PretrainedColumns(encoder, 0.5).append(words, ["known", "unknown"], 7)
        >>> rows.counts.tolist(), rows.ids.tolist(), rows.weights.astype(float).round(2).tolist()
        ([3, 1], [3, 7, 8, 4], [1.0, 0.3, -0.4, 1.0])
        """
        vectors_ND = (self.weight * self.encoder(texts)).round(_DECIMALS).astype(np.float32)
        # A transformer makes a vector of nothing too.
        is_known_N = vectors_ND.any(axis=1) & np.array([bool(text.strip()) for text in texts], dtype=bool)
        more_N = np.where(is_known_N, self.dim, 0)
        # Where the entries of words end in each new row.
        before = np.repeat(np.cumsum(more_N) - more_N, rows.counts)
        size = len(rows.ids) + int(more_N.sum())
        is_word = np.zeros(size, dtype=bool)
        is_word[np.arange(len(rows.ids)) + before] = True
        ids, weights = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
        ids[is_word], weights[is_word] = rows.ids, rows.weights
        known_ND = vectors_ND[is_known_N]
        ids[~is_word] = np.tile(np.arange(first, first + self.dim, dtype=np.int32), len(known_ND))
        weights[~is_word] = known_ND.ravel()
        return Rows(rows.counts + more_N, ids, weights)

    def vectors(self, rows_NF: sparse.csr_array) -> Vectors:
        """The unit vectors by the frozen encoder of texts whose rows are these, without encoding them again."""
        first = rows_NF.shape[1] - self.dim
        found: Vectors = np.zeros((rows_NF.shape[0], self.dim), dtype=np.float32)
        # They are the last ones of their row.
        is_column = rows_NF.indices >= first
        rows = np.repeat(np.arange(rows_NF.shape[0]), np.diff(rows_NF.indptr))[is_column]
        found[rows, rows_NF.indices[is_column] - first] = rows_NF.data[is_column]
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return (found / np.where(lengths > 0, lengths, 1)).astype(np.float32)

    def save(self, folder: Path) -> None:
        """Write the name of the encoder and what it makes of a fixed text; the encoder itself is not copied."""
        about = self.encoder.about() | {"weight": self.weight}
        (folder / _SETTINGS).write_text(json.dumps(about) + "\n", encoding="utf-8")
        np.save(folder / _PROBE, self.encoder.probe)

    @classmethod
    def load(cls, folder: Path) -> PretrainedColumns | None:
        """Read what ``save`` wrote; None where there are no columns. The encoder is loaded with the first text."""
        if not (folder / _SETTINGS).exists():
            return None
        try:
            about = json.loads((folder / _SETTINGS).read_text(encoding="utf-8"))
            source, max_length, weight = str(about["source"]), int(about["max_length"]), float(about["weight"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ModelError(
                f"{folder / _SETTINGS}: the columns of a frozen encoder cannot be read ({error}); copy the model again"
            ) from None
        probe_D = np.array(load_array(folder / _PROBE, (None,), np.float32))
        return cls(FrozenEncoder(source, max_length, probe_D), weight)
