"""The kNN part of a score: labels of the nearest training texts.

It takes vectors and knows nothing of encoders. `unidex.scoring.nearest_texts` finds the nearest texts.

Shapes: B texts, T training texts, L labels, D dimensions, K places.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex import native
from unidex.errors import ModelError
from unidex.index.manifest import read_manifest, saved_folder
from unidex.scoring.knn_pairs import checked_pairs, read_pairs, save_pairs, stores_targets
from unidex.scoring.label_texts import LabelTexts
from unidex.scoring.nearest_texts import NearestTexts
from unidex.scoring.snippets import Snippets
from unidex.sparse_rows import sparse_product, unchecked_csr
from unidex.topk import TopK

if TYPE_CHECKING:
    from torch import Tensor

_KIND = "neighbours"  # the name in model folders since format 1
# Training texts of one label that a text is compared with, beside the label's own among the nearest of all labels.
COMPARED, AMONG_NEAREST = 1 << 9, 256
_LOWEST = np.finfo(np.float32).min


class KnnPart:
    """Training texts that can be searched, their labels, and perhaps their snippets.

    Formula, with n over the nearest training texts of a text x and y the targets of their labels::

        score(x, l) = sum_n p_n y_nl        p = softmax over n of <x, n> / temperature

    A score lies between 0 and the highest target. A training text without labels takes its share p_n and gives
    nothing.

    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], dtype=np.float32)
    >>> labels = sparse.csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> part = KnnPart.of(vectors, labels, num_nearest=2, temperature=0.5)
    >>> query = np.array([[1.0, 0.0]], dtype=np.float32)
    >>> part.nearest(query).ids.tolist()
    [[0, 2]]
    >>> part.label_scores(query).toarray().round(3).tolist()  # p = softmax([1 / 0.5, 0.8 / 0.5])
    [[1.0, 0.4009999930858612]]
    """

    def __init__(
        self,
        texts: NearestTexts,
        positives: sparse.csr_array,
        num_nearest: int,
        temperature: float,
        snippets: Snippets | None = None,
    ) -> None:
        self._texts = texts
        self._positives = positives
        self._label_texts: LabelTexts | None = None
        self.snippets = snippets
        self.num_nearest = num_nearest
        self.temperature = temperature

    @classmethod
    def of(
        cls,
        vectors_TD: NDArray[np.floating[Any]] | Tensor,
        positives: sparse.csr_array,
        *,
        num_nearest: int = 32,
        temperature: float = 0.05,
        snippets: Snippets | None = None,
    ) -> Self:
        """The part over training texts.

        Args:
            vectors_TD: their vectors, as `Layout.knn_vectors` gives them.
            positives: T x L, their targets.
            num_nearest: number of nearest training texts per text.
            temperature: similarities are divided by it; a higher one gives more weight to texts behind the nearest.
            snippets: the beginnings of the texts, to show them in explanations.
        """
        _check_settings(num_nearest, temperature)
        texts = NearestTexts.of(vectors_TD)
        if snippets is not None and len(snippets) != len(texts):
            raise ValueError(
                f"there must be one snippet per training text ({len(texts)}), but there are {len(snippets)}"
            )
        return cls(texts, checked_pairs(positives, len(texts), None), num_nearest, temperature, snippets)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what ``save`` wrote; many pairs are mapped, not read."""
        folder = Path(folder)
        manifest = read_manifest(folder, _KIND)
        try:
            settings = dict(manifest["settings"])
            num_labels, num_pairs = int(settings["num_labels"]), int(settings["num_pairs"])
            has_targets = bool(settings["has_targets"])
            num_nearest, temperature = int(settings["num_neighbours"]), float(settings["temperature"])
            snippet_length = int(settings.get("keep_texts", 0))
            _check_settings(num_nearest, temperature)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{folder} is not a whole kNN part ({type(error).__name__}: {error}); build it again"
            ) from None
        num_texts = manifest["num_ids"]
        positives = read_pairs(folder, (num_texts, num_labels), num_pairs, has_targets=has_targets)
        texts = NearestTexts.read(folder, num_texts, manifest["dim"])
        snippets = Snippets.read(folder, num_texts, snippet_length) if snippet_length > 0 else None
        return cls(texts, positives, num_nearest, temperature, snippets)

    def save(self, folder: Path) -> None:
        """Write ``manifest.json``, vectors, pairs (``targets.npy`` only where some are not 1), and snippets if any."""
        pairs = self._positives
        has_targets = stores_targets(pairs)
        settings = {
            "num_neighbours": self.num_nearest,
            "temperature": self.temperature,
            "num_labels": self.num_labels,
            "num_pairs": int(pairs.nnz),
            "has_targets": has_targets,
            "keep_texts": 0 if self.snippets is None else self.snippets.max_length,
        }
        manifest = {"kind": _KIND, "num_ids": self.num_texts, "dim": self.dim, "settings": settings}
        with saved_folder(folder, manifest) as new:
            self._texts.write(new)
            if self.snippets is not None:
                self.snippets.write(new)
            save_pairs(new, pairs, has_targets=has_targets)

    @property
    def num_texts(self) -> int:
        """Number of training texts."""
        return len(self._texts)

    @property
    def num_labels(self) -> int:
        """Number of labels, also those without a training text."""
        return int(self._positives.shape[1])

    @property
    def dim(self) -> int:
        """Numbers per vector."""
        return self._texts.dim

    @property
    def positives(self) -> sparse.csr_array:
        """T x L, the targets of the training texts."""
        return self._positives

    def vectors(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """The vectors of training texts, one per row."""
        return self._texts.vectors(ids)

    def search(self, queries_BD: NDArray[np.floating[Any]] | Tensor, k: int) -> TopK:
        """The k nearest training texts of each vector, with their similarities."""
        return self._texts.search(queries_BD, k)

    def nearest(self, queries_BD: NDArray[np.floating[Any]] | Tensor, *, excluded: ArrayLike | None = None) -> TopK:
        """The nearest training texts of each text, with their similarities.

        Args:
            queries_BD: one vector per text.
            excluded: B, the id of one training text that is left out, -1 for none. A training text is its own nearest,
                which no new text has: leave it out.
        """
        if excluded is None:
            return self._texts.search(queries_BD, self.num_nearest)
        without_B = np.asarray(excluded, dtype=np.int64)
        if without_B.shape != (len(queries_BD),):
            raise ValueError(f"excluded must be one id per text ({len(queries_BD)}), but has shape {without_B.shape}")
        found = self._texts.search(queries_BD, self.num_nearest + 1)
        hidden_BK = (found.ids == without_B[:, None]) & (found.ids >= 0)
        return TopK.rank(found.ids, np.where(hidden_BK, -np.inf, found.scores), self.num_nearest)

    def label_scores(
        self,
        queries_BD: NDArray[np.floating[Any]] | Tensor,
        *,
        excluded: ArrayLike | None = None,
        hidden_L: NDArray[np.bool_] | None = None,
    ) -> sparse.csr_array:
        """B x L, the formula of the class; only the labels of the nearest are stored, in ascending order.

        Args:
            queries_BD: one vector per text.
            excluded: as for ``nearest``.
            hidden_L: labels that get no score (removed, forbidden), as ``index.checks.hidden_labels`` gives them.
        """
        return self.scores_of(self.nearest(queries_BD, excluded=excluded), hidden_L)

    def shares_of(self, near: TopK) -> sparse.csr_array:
        """B x T, the shares p of the nearest training texts."""
        shares_BK = softmax_shares(near.scores, self.temperature)
        # A share that underflows to 0 stays out, and so does padding.
        if native.is_plain(self._positives):
            values, chosen = shares_BK.ravel(), near.ids.ravel()
            starts = np.arange(0, len(chosen) + 1, near.k or 1, dtype=np.int32)[: len(near) + 1]
        else:
            kept_BK = shares_BK > 0
            values, chosen = shares_BK[kept_BK], near.ids[kept_BK]
            starts = np.concatenate([[0], np.cumsum(kept_BK.sum(axis=1))])
        shape = (len(near), self.num_texts)
        return unchecked_csr(values, chosen.astype(np.int32), starts.astype(np.int32, copy=False), shape)

    def scores_of(self, near: TopK, hidden_L: NDArray[np.bool_] | None = None) -> sparse.csr_array:
        """``label_scores`` from the nearest training texts."""
        scores_BL = sparse_product(self.shares_of(near), self._positives)
        return scores_BL if hidden_L is None else _without_columns(scores_BL, hidden_L)

    def label_texts(self) -> LabelTexts:
        """The training texts of each label, computed at the first call."""
        if self._label_texts is None:
            self._label_texts = LabelTexts(self._positives)
        return self._label_texts

    def nearest_with(self, labels: Sequence[int], query_D: NDArray[np.float32], k: int) -> list[TopK]:
        """For each label, the training texts with the label that are nearest to one text, with their similarities.

        The text is compared with all of them if they are at most ``COMPARED``. Of more, it is compared with those
        among its ``AMONG_NEAREST`` nearest texts and with ``COMPARED`` others, evenly spread.
        """
        of_labels = [self.label_texts().of(label) for label in labels]
        near = np.empty(0, dtype=np.int64)
        if any(len(own) > COMPARED for own in of_labels):
            near = self._texts.search(query_D[None], AMONG_NEAREST).ids[0]
        found = []
        for own in of_labels:
            if len(own) > COMPARED:
                spread = own[np.linspace(0, len(own) - 1, COMPARED).astype(np.int64)]
                own = np.union1d(spread, near[np.isin(near, own)])
            found.append(TopK.rank(own[None], self._texts.similarities(query_D, own)[None], k))
        return found

    def add(
        self,
        vectors: NDArray[np.floating[Any]] | Tensor,
        positives: sparse.csr_array,
        texts: Sequence[str] | None = None,
    ) -> NDArray[np.int64]:
        """Append training texts with their labels, without training; the result is their ids.

        A part with snippets stores those of the new texts too; a text that is not given has an empty one.
        """
        if texts is not None and len(texts) != len(vectors):
            raise ValueError(f"there must be one text per vector ({len(vectors)}), but are {len(texts)}")
        pairs = checked_pairs(positives, len(vectors), self.num_labels)
        ids = self._texts.add(vectors)
        self._positives = sparse.csr_array(sparse.vstack([self._positives, pairs], format="csr"))
        self._label_texts = None
        if self.snippets is not None:
            self.snippets.add([""] * len(ids) if texts is None else texts)
        return ids

    def join(self, ids: NDArray[np.int64], positives: sparse.csr_array) -> None:
        """Give training texts further labels, one row of positives each; a target that is there already stays."""
        pairs = checked_pairs(positives, len(ids), self.num_labels)
        ones = np.ones(len(ids), dtype=np.float32)
        spread = sparse.csr_array((ones, (ids, np.arange(len(ids)))), shape=(self.num_texts, len(ids)))
        further = sparse.csr_array(spread @ pairs)
        self._positives = checked_pairs(self._positives.maximum(further), self.num_texts, self.num_labels)
        self._label_texts = None

    def grow(self, num_labels: int) -> None:
        """Make room for labels that were added; they have no training texts yet."""
        if num_labels < self.num_labels:
            raise ValueError(f"the number of labels must be at least {self.num_labels}, but is {num_labels}")
        pairs = self._positives
        self._positives = sparse.csr_array((pairs.data, pairs.indices, pairs.indptr), (self.num_texts, num_labels))


def softmax_shares(scores_BK: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """The softmax of score / temperature over a row; an empty place (-inf) gets 0, and so does an empty row.

    Formula, with m the highest score of the row::

        p_k = exp((s_k - m) / temperature) / sum_j exp((s_j - m) / temperature)

    Shapes: scores_BK [B, K], result [B, K].

    >>> softmax_shares(np.array([[0.5, 0.5, -np.inf], [-np.inf] * 3], dtype=np.float32), 0.05).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    # Of an empty row, the lowest number; a difference to it is -inf all the same.
    highest_B1 = scores_BK.max(axis=1, keepdims=True, initial=_LOWEST)
    powers_BK = np.exp((scores_BK - highest_B1) / np.float32(temperature))
    # At least 1, the power of the highest, or 0.
    shares_BK: NDArray[np.float32] = powers_BK / np.maximum(powers_BK.sum(axis=1, keepdims=True), np.float32(1))
    return shares_BK


def _check_settings(num_nearest: int, temperature: float) -> None:
    if num_nearest < 1:
        raise ValueError(f"num_nearest must be at least 1, but is {num_nearest}")
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be > 0, but is {temperature}; typical values are 0.02-0.1")


def _without_columns(scores_BL: sparse.csr_array, hidden_L: NDArray[np.bool_]) -> sparse.csr_array:
    if hidden_L.shape != (scores_BL.shape[1],):
        raise ValueError(f"hidden labels must be one mark per label ({scores_BL.shape[1]}), but have {hidden_L.shape}")
    kept = ~hidden_L[scores_BL.indices]
    starts = np.concatenate([[0], np.cumsum(kept)])[scores_BL.indptr]
    return sparse.csr_array((scores_BL.data[kept], scores_BL.indices[kept], starts), shape=scores_BL.shape)
