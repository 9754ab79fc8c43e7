"""The weights of the parts of a score, chosen where the right labels are known.

score(x, l) = w dual(x, l) + (1 - w) classifier(x, l) + v neighbours(x, l) + p ln(1 + n_l); a head alone has no weight

Candidates are searched once; each part scores them once, and every choice of (w, v, p) ranks them anew.

Shapes: N texts, K candidates, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from unidex.index.exact import search_exact
from unidex.nn.network import Vectors
from unidex.scoring.knn import Neighbours
from unidex.sparse_rows import values_at
from unidex.topk import PADDING, TopK

# Both heads alike: how near two texts are.
EVEN = 0.5
# Neither head quite alone: one of weight 0 could not be searched by itself any more, as a new label's neighbours are.
FUSIONS = (0.02, *(round(0.1 * tenth, 1) for tenth in range(1, 10)), 0.98)
NEIGHBOURS = (0.0, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5)
PRIORS = (-0.02, -0.01, -0.005, 0.0, 0.005, 0.01, 0.02)
# The best labels under any weights are among the best of the mean of both heads and those of the neighbours.
_CANDIDATES = 64
_BY_NEIGHBOURS = 32
_TEXTS_AT_ONCE = 256
_ROUNDS = 2


@dataclass(frozen=True)
class Weights:
    """What the parts of a score count.

    Attributes:
        fusion: w, of the dual encoder against the classifier.
        knn: v, of the labels of the nearest train texts.
        label_prior: p, of the logarithm of a label's frequency.
    """

    fusion: float
    knn: float = 0.0
    label_prior: float = 0.0


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of the scores of candidates, N x K each; the score of an id of -1 counts for nothing.

    Attributes:
        both_heads: whether there are two to weigh; a head alone counts whole, as it is searched, and the other is 0.
    """

    ids_NK: NDArray[np.int64]
    dual_NK: NDArray[np.float32]
    classifier_NK: NDArray[np.float32]
    neighbours_NK: NDArray[np.float32]
    log_counts_NK: NDArray[np.float32]
    both_heads: bool = True

    def ranked(self, weights: Weights, k: int) -> TopK:
        """The best k candidates of each text."""
        w, v, p = weights.fusion, weights.knn, weights.label_prior
        of_dual, of_classifier = (w, 1 - w) if self.both_heads else (1.0, 1.0)
        scores_NK = of_dual * self.dual_NK + of_classifier * self.classifier_NK
        scores_NK = scores_NK + v * self.neighbours_NK + p * self.log_counts_NK
        scores_NK = np.where(self.ids_NK < 0, -np.inf, scores_NK).astype(np.float32)
        ids_NK = self.ids_NK
        if k < ids_NK.shape[1]:
            best_NK = np.argpartition(-scores_NK, k - 1, axis=1)[:, :k]
            ids_NK, scores_NK = (np.take_along_axis(array, best_NK, axis=1) for array in (ids_NK, scores_NK))
        return TopK.rank(ids_NK, scores_NK)


def parts_of(
    queries: Vectors,
    labels: Vectors,
    counts_L: NDArray[np.int64],
    neighbours: Neighbours | None,
    *,
    least: int = 1,
    forbidden: NDArray[np.int64] | None = None,
) -> Parts:
    """Candidates of texts and their parts.

    Args:
        queries: vectors of the texts.
        labels: vectors of all labels.
        counts_L: number of train texts of each label.
        neighbours: train texts; None for a part that is 0.
        least: candidates that a text must have.
        forbidden: labels that are no candidates.
    """
    both = queries.joined()
    ids = search_exact(both, labels.joined(EVEN), max(_CANDIDATES, least), forbidden=forbidden).ids
    said = None
    if neighbours is not None:
        hidden = np.zeros(len(counts_L), dtype=bool)
        hidden[[] if forbidden is None else forbidden] = True
        said = neighbours.label_scores(both, hidden_L=hidden)
        ids = np.concatenate([ids, _best_columns(said, _BY_NEIGHBOURS)], axis=1)
    ids = without_repeats(ids)
    zero = np.zeros(ids.shape, dtype=np.float32)
    return Parts(
        ids,
        zero if queries.dual is None or labels.dual is None else _scores_of(queries.dual, labels.dual, ids),
        zero
        if queries.classifier is None or labels.classifier is None
        else _scores_of(queries.classifier, labels.classifier, ids),
        zero if said is None else values_at(said, ids),
        np.log1p(counts_L).astype(np.float32)[np.maximum(ids, 0)],
        queries.dual is not None and queries.classifier is not None,
    )


def best_weights(
    value_of: Callable[[Weights], float],
    start: Weights,
    *,
    fusions: Sequence[float] = (),
    neighbours: Sequence[float] = (),
    priors: Sequence[float] = (),
) -> Weights:
    """The weights of the highest value, one changed at a time, in turn; of equal ones, that which is there stays.

    >>> best_weights(lambda weights: -abs(weights.fusion - 0.3), Weights(0.5), fusions=(0.1, 0.3, 0.9))
    Weights(fusion=0.3, knn=0.0, label_prior=0.0)
    """
    choices = {"fusion": fusions, "knn": neighbours, "label_prior": priors}
    best, highest = start, value_of(start)
    for _ in range(_ROUNDS):
        before = best
        for name, offered in choices.items():
            for number in offered:
                tried = replace(best, **{name: number})
                value = value_of(tried) if tried != best else highest
                if value > highest:
                    best, highest = tried, value
        if best == before:
            break
    return best


def without_repeats(ids_NK: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each id of a row once, in ascending order; what came again is -1.

    >>> without_repeats(np.array([[3, 1, 3]])).tolist()
    [[1, 3, -1]]
    """
    ascending = np.sort(ids_NK, axis=1)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = PADDING
    return ascending


def _best_columns(scores_NL: sparse.csr_array, most: int) -> NDArray[np.int64]:
    """The columns of the highest values of each row, at most so many."""
    counts = np.diff(scores_NL.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-scores_NL.data, rows))
    places = np.arange(len(rows)) - np.repeat(scores_NL.indptr[:-1], counts)
    kept = places < most
    found = np.full((len(counts), most), PADDING, dtype=np.int64)
    found[rows[kept], places[kept]] = scores_NL.indices[order][kept]
    return found


def _scores_of(queries_ND: Tensor, vectors_LD: Tensor, ids_NK: NDArray[np.int64]) -> NDArray[np.float32]:
    blocks = []
    for start in range(0, len(ids_NK), _TEXTS_AT_ONCE):
        ids = torch.from_numpy(np.maximum(ids_NK[start : start + _TEXTS_AT_ONCE], 0)).to(vectors_LD.device)
        queries = queries_ND[start : start + _TEXTS_AT_ONCE]
        blocks.append(torch.einsum("nd,nkd->nk", queries, vectors_LD[ids]).cpu())
    scores: Any = torch.cat(blocks).numpy()
    found: NDArray[np.float32] = scores
    return found
