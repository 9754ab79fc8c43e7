"""The neighbours part: the labels of the train texts that are nearest to a text add to its score.

It knows nothing of encoders: it takes vectors as they are searched, those of train texts fused like those of labels.
How the nearest texts are found lives in ``nearest``.

Shapes: B texts to be scored, T train texts, L labels, D dimensions, K places, P pairs of a text and a label.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unidex.data.dataset import canonical
from unidex.errors import ModelError
from unidex.index.base import load_array, read_manifest, saved_folder
from unidex.nearest import NearestTexts
from unidex.topk import PADDING, TopK

if TYPE_CHECKING:
    from torch import Tensor

MAPPED_ABOVE = 1 << 24  # pairs; fewer are read into memory
# Scores of one pair from an index and from elsewhere differ by rounding: so much, at most, in vectors of norm 1.
_ROUNDING = 1e-5


class Neighbours:
    """Train texts that can be searched, and their labels.

    Formula, with n over the nearest train texts of a text x and y the targets of their labels::

        score(x, l) = sum_n p_n y_nl        p = softmax over n of <x, n> / temperature

    A score lies between 0 and the highest target. A train text without labels takes its share p_n and gives nothing.

    >>> vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]], dtype=np.float32)
    >>> labels = sparse.csr_array(np.array([[1, 0], [0, 1], [1, 1]]))
    >>> part = Neighbours.of(vectors, labels, num_neighbours=2, temperature=0.5)
    >>> query = np.array([[1.0, 0.0]], dtype=np.float32)
    >>> part.nearest(query).ids.tolist()
    [[0, 2]]
    >>> part.label_scores(query).toarray().round(3).tolist()  # p = softmax([1 / 0.5, 0.8 / 0.5])
    [[1.0, 0.4009999930858612]]
    """

    def __init__(
        self, texts: NearestTexts, positives: sparse.csr_array, num_neighbours: int, temperature: float
    ) -> None:
        self._texts = texts
        self._positives = positives
        self.num_neighbours = num_neighbours
        self.temperature = temperature

    @classmethod
    def of(
        cls,
        vectors_TD: NDArray[np.floating[Any]] | Tensor,
        positives: sparse.csr_array,
        *,
        num_neighbours: int = 32,
        temperature: float = 0.05,
    ) -> Self:
        """The part over train texts.

        Args:
            vectors_TD: their vectors, joined and weighted like those of labels.
            positives: T x L, their targets.
            num_neighbours: how many of them speak for a text.
            temperature: how far beyond the nearest the others count; similarities are divided by it.
        """
        _check_settings(num_neighbours, temperature)
        texts = NearestTexts.of(vectors_TD)
        return cls(texts, _checked_positives(positives, len(texts), None), num_neighbours, temperature)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The part that ``save`` wrote; many pairs are mapped, not read."""
        folder = Path(folder)
        manifest = read_manifest(folder, "neighbours")
        try:
            settings = dict(manifest["settings"])
            num_labels, num_pairs = int(settings["num_labels"]), int(settings["num_pairs"])
            has_targets = bool(settings["has_targets"])
            num_neighbours, temperature = int(settings["num_neighbours"]), float(settings["temperature"])
            _check_settings(num_neighbours, temperature)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{folder} is not a whole part of neighbours ({type(error).__name__}: {error}); build it again"
            ) from None
        num_texts = manifest["num_ids"]
        mapped = num_pairs > MAPPED_ABOVE
        starts = load_array(folder / "starts.npy", (num_texts + 1,))
        labels = load_array(folder / "labels.npy", (num_pairs,), mapped=mapped)
        _check_pairs(folder, starts, labels, num_labels)
        if has_targets:
            targets = load_array(folder / "targets.npy", (num_pairs,), mapped=mapped)
            if targets.dtype != np.float32 or not np.isfinite(targets).all():
                raise ModelError(f"{folder / 'targets.npy'} must hold finite float32, but does not; build it again")
        else:
            targets = np.ones(num_pairs, dtype=np.float32)
        positives = sparse.csr_array((targets, labels, starts), shape=(num_texts, num_labels))
        texts = NearestTexts.read(folder, num_texts, manifest["dim"])
        return cls(texts, positives, num_neighbours, temperature)

    def save(self, folder: Path) -> None:
        """Write ``manifest.json``, the vectors and the pairs (``targets.npy`` only where some are not 1)."""
        pairs = self._positives
        has_targets = bool((pairs.data != 1).any())
        settings = {
            "num_neighbours": self.num_neighbours,
            "temperature": self.temperature,
            "num_labels": self.num_labels,
            "num_pairs": int(pairs.nnz),
            "has_targets": has_targets,
        }
        manifest = {"kind": "neighbours", "num_ids": self.num_texts, "dim": self.dim, "settings": settings}
        with saved_folder(folder, manifest) as new:
            self._texts.write(new)
            np.save(new / "starts.npy", pairs.indptr)
            np.save(new / "labels.npy", pairs.indices)
            if has_targets:
                np.save(new / "targets.npy", pairs.data)

    @property
    def num_texts(self) -> int:
        """Number of train texts."""
        return len(self._texts)

    @property
    def num_labels(self) -> int:
        """Number of labels, those without a train text included."""
        return int(self._positives.shape[1])

    @property
    def dim(self) -> int:
        """Numbers a vector."""
        return self._texts.dim

    def nearest(self, queries_BD: NDArray[np.floating[Any]] | Tensor, *, excluded: ArrayLike | None = None) -> TopK:
        """The nearest train texts of each text, with their similarities.

        Args:
            queries_BD: one vector a text.
            excluded: B, the id of the one train text that may not be among them, -1 for none. A train text that is
                scored is its own nearest, which says nothing of a text that was never seen: name it here.
        """
        if excluded is None:
            return self._texts.search(queries_BD, self.num_neighbours)
        without_B = np.asarray(excluded, dtype=np.int64)
        if without_B.shape != (len(queries_BD),):
            raise ValueError(f"excluded must be one id a text ({len(queries_BD)}), but has shape {without_B.shape}")
        found = self._texts.search(queries_BD, self.num_neighbours + 1)
        hidden_BK = (found.ids == without_B[:, None]) & (found.ids >= 0)
        return TopK.rank(found.ids, np.where(hidden_BK, -np.inf, found.scores)).first(self.num_neighbours)

    def label_scores(
        self,
        queries_BD: NDArray[np.floating[Any]] | Tensor,
        *,
        excluded: ArrayLike | None = None,
        hidden_L: NDArray[np.bool_] | None = None,
    ) -> sparse.csr_array:
        """B x L, the formula of the class; only the labels of the nearest are stored, in ascending order.

        Args:
            queries_BD: one vector a text.
            excluded: as for ``nearest``.
            hidden_L: labels that get no score (removed, forbidden), as ``index.base.hidden_labels`` gives them.
        """
        near = self.nearest(queries_BD, excluded=excluded)
        shares_BK = softmax_shares(near.scores, self.temperature)
        # A share that underflows to 0 stays out, and so does padding.
        kept_BK = shares_BK > 0
        starts = np.concatenate([[0], np.cumsum(kept_BK.sum(axis=1))]).astype(np.int32)
        chosen = near.ids[kept_BK].astype(np.int32)
        shares_BT = sparse.csr_array((shares_BK[kept_BK], chosen, starts), shape=(len(near), self.num_texts))
        scores_BL: sparse.csr_array = shares_BT @ self._positives
        if hidden_L is not None:
            scores_BL = _without_columns(scores_BL, hidden_L)
        scores_BL.sort_indices()
        return scores_BL

    def add(self, vectors: NDArray[np.floating[Any]] | Tensor, positives: sparse.csr_array) -> NDArray[np.int64]:
        """Append train texts with their labels, without training; the result is their ids."""
        pairs = _checked_positives(positives, len(vectors), self.num_labels)
        ids = self._texts.add(vectors)
        self._positives = sparse.csr_array(sparse.vstack([self._positives, pairs], format="csr"))
        return ids

    def grow(self, num_labels: int) -> None:
        """Make room for labels that were added; they have no train texts yet."""
        if num_labels < self.num_labels:
            raise ValueError(f"the number of labels must be at least {self.num_labels}, but is {num_labels}")
        pairs = self._positives
        self._positives = sparse.csr_array((pairs.data, pairs.indices, pairs.indptr), (self.num_texts, num_labels))


def softmax_shares(scores_BK: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """The softmax of score / temperature over a row; an empty place (-inf) has 0, and so has an empty row.

    Formula, with m the highest score of the row::

        p_k = exp((s_k - m) / temperature) / sum_j exp((s_j - m) / temperature)

    Shapes: scores_BK [B, K], result [B, K].

    >>> softmax_shares(np.array([[0.5, 0.5, -np.inf], [-np.inf] * 3], dtype=np.float32), 0.05).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    highest_B1 = scores_BK.max(axis=1, keepdims=True, initial=-np.inf)
    powers_BK = np.exp((scores_BK - np.where(np.isneginf(highest_B1), 0, highest_B1)) / np.float32(temperature))
    totals_B1 = powers_BK.sum(axis=1, keepdims=True)
    shares_BK: NDArray[np.float32] = (powers_BK / np.where(totals_B1 == 0, 1, totals_B1)).astype(np.float32)
    return shares_BK


def join_scores(
    found: TopK,
    label_scores: sparse.csr_array,
    weight: float,
    score_of: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.floating[Any]]],
    *,
    k: int | None = None,
    found_is_best: bool = False,
) -> TopK:
    """The best labels by the sum of both scores, among those of the index and those of the neighbours.

    Formula, for the labels that are in ``found`` or stored in ``label_scores``::

        joined(x, l) = score(x, l) + weight label_scores(x, l)

    The result is ordered by it, ties by the lower id.

    Args:
        found: B x K, the labels that the index found, with their scores.
        label_scores: B x L, what the neighbours say; column indices must be sorted.
        weight: of the neighbours, 0 or more.
        score_of: the index's score of each pair (texts[i], labels[i]); asked once, for labels that are not in
            ``found``.
        k: number of places; those of ``found`` if None.
        found_is_best: says that no label has a higher score than the last place of a row of ``found``, unless it is in
            the row, as an exact index promises. Then a label that cannot enter even with that score is not asked for:
            the result is the same and most of the work is spared.

    Shapes: found [B, K], label_scores [B, L], result [B, k].

    >>> found = TopK.rank([[0, 1]], [[0.9, 0.5]])
    >>> said = sparse.csr_array(np.array([[0.0, 0.2, 0.8]]))
    >>> joined = join_scores(found, said, 1.0, lambda texts, labels: np.array([0.4]))
    >>> joined.ids.tolist(), joined.scores.round(2).tolist()
    ([[2, 0]], [[1.2000000476837158, 0.8999999761581421]])
    """
    if not (np.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of neighbours must be a number >= 0, but is {weight}")
    if label_scores.shape[0] != len(found):
        raise ValueError(f"label scores must have one row a text ({len(found)}), but have {label_scores.shape[0]}")
    num_places = found.k if k is None else k
    num_texts, num_labels = label_scores.shape
    text_P = np.repeat(np.arange(num_texts, dtype=np.int64), np.diff(label_scores.indptr))
    label_P = label_scores.indices.astype(np.int64)
    added_P = np.float32(weight) * label_scores.data.astype(np.float32)

    # Row-major keys of pairs ascend, so that each place of the index finds its pair by one sorted search.
    key_P = text_P * num_labels + label_P
    filled_BK = found.ids >= 0
    key_BK = np.where(filled_BK, np.arange(num_texts)[:, None] * num_labels + found.ids, -1)
    place_BK = np.searchsorted(key_P, key_BK)
    if len(key_P):
        place_BK = np.minimum(place_BK, len(key_P) - 1)
        both_BK = key_P[place_BK] == key_BK
    else:
        both_BK = np.zeros_like(filled_BK)
    scores_BK = found.scores.copy()
    scores_BK[both_BK] += added_P[place_BK[both_BK]]

    asked_P = np.ones(len(key_P), dtype=bool)
    asked_P[place_BK[both_BK]] = False
    if found_is_best and 0 < num_places <= found.k:
        # A row with empty places has no last score, and every label is asked for.
        empty_B = np.isneginf(found.scores[:, -1])
        last_B = np.where(empty_B, 0, found.scores[:, -1])
        enters_B = np.partition(scores_BK, found.k - num_places, axis=1)[:, found.k - num_places]
        needed_B = np.where(empty_B, -np.inf, enters_B - last_B - _ROUNDING * np.maximum(1, np.abs(last_B)))
        asked_P &= added_P >= needed_B[text_P]
    text_P, label_P, added_P = text_P[asked_P], label_P[asked_P], added_P[asked_P]
    if len(text_P) == 0:
        return TopK.rank(found.ids, scores_BK).first(num_places)
    scores_P = np.asarray(score_of(text_P, label_P), dtype=np.float32) + added_P

    counts_B = np.bincount(text_P, minlength=num_texts)
    shape = (num_texts, found.k + int(counts_B.max()))
    ids, scores = np.full(shape, PADDING, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
    ids[:, : found.k], scores[:, : found.k] = found.ids, scores_BK
    column_P = found.k + np.arange(len(text_P)) - (np.cumsum(counts_B) - counts_B)[text_P]
    ids[text_P, column_P], scores[text_P, column_P] = label_P, scores_P
    return TopK.rank(ids, scores).first(num_places)


def _check_settings(num_neighbours: int, temperature: float) -> None:
    if num_neighbours < 1:
        raise ValueError(f"num_neighbours must be at least 1, but is {num_neighbours}")
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature must be > 0, but is {temperature}; typical values are 0.02-0.1")


def _checked_positives(positives: sparse.csr_array, num_texts: int, num_labels: int | None) -> sparse.csr_array:
    """Targets as float32 with sorted int32 columns; refused where rows or columns do not fit."""
    if positives.shape[0] != num_texts:
        raise ValueError(f"positives must have one row a train text ({num_texts}), but have {positives.shape[0]}")
    if num_labels is not None and positives.shape[1] != num_labels:
        raise ValueError(
            f"positives must have one column a label ({num_labels}), but have {positives.shape[1]}; "
            "grow the part first where labels were added"
        )
    pairs = canonical(positives, np.float32)
    if not np.isfinite(pairs.data).all():
        raise ValueError("targets must be finite numbers, but some are not")
    # int32 columns: scipy widens them by itself where there are more pairs than int32 counts.
    arrays = (pairs.data, pairs.indices.astype(np.int32), pairs.indptr.astype(_index_type(pairs.nnz)))
    return sparse.csr_array(arrays, shape=pairs.shape)


def _index_type(num_pairs: int) -> type[np.signedinteger[Any]]:
    return np.int32 if num_pairs <= np.iinfo(np.int32).max else np.int64


def _check_pairs(folder: Path, starts: NDArray[Any], labels: NDArray[Any], num_labels: int) -> None:
    whole = np.issubdtype(starts.dtype, np.signedinteger) and np.issubdtype(labels.dtype, np.signedinteger)
    fits = whole and starts[0] == 0 and starts[-1] == len(labels) and bool((np.diff(starts) >= 0).all())
    if not fits or (len(labels) and (labels.min() < 0 or labels.max() >= num_labels)):
        raise ModelError(
            f"{folder} must hold pairs of texts and labels below {num_labels}, but does not; build it again"
        )


def _without_columns(scores_BL: sparse.csr_array, hidden_L: NDArray[np.bool_]) -> sparse.csr_array:
    if hidden_L.shape != (scores_BL.shape[1],):
        raise ValueError(f"hidden labels must be one mark a label ({scores_BL.shape[1]}), but have {hidden_L.shape}")
    kept = ~hidden_L[scores_BL.indices]
    starts = np.concatenate([[0], np.cumsum(kept)])[scores_BL.indptr]
    return sparse.csr_array((scores_BL.data[kept], scores_BL.indices[kept], starts), shape=scores_BL.shape)
