"""Similar labels: by the training texts that labels share, or by a model's vectors.

Shapes: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset
from unidex.data.text_lookup import rows_with
from unidex.errors import DataError, quoted
from unidex.model.label_set import LabelRow, LabelSet
from unidex.nn.vectors import Vectors
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.model.model import Model

_MAX_CANDIDATES = 5


def correlations(positives_NL: sparse.csr_array, label: int) -> NDArray[np.float64]:
    """The share of a label's texts that have each other label: one row of the graph of label correlations.

    Formula, with Y 1 where a pair is stored and G = Y^T Y::

        P(i | j) = G_ij / G_jj         0 for i = j, and everywhere where no text has j

    Only the texts that have j are read: G itself is never built. P is not symmetric: a rare label that always comes
    with a frequent one has 1 in its row and nearly 0 in the row of the other.

    Shapes: positives_NL [N, L], result [L].

    References: Gandalf (arXiv 2405.04545), its soft targets before the threshold.

    >>> positives = sparse.csr_array(np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 0, 0]]))
    >>> correlations(positives, 0).tolist(), correlations(positives, 1).tolist()
    ([0.0, 0.5, 0.25], [1.0, 0.0, 0.5])
    """
    places = np.flatnonzero(positives_NL.indices == label)
    texts = np.searchsorted(positives_NL.indptr, places, side="right") - 1
    together_L = np.bincount(positives_NL[texts].indices, minlength=positives_NL.shape[1])
    together_L[label] = 0
    shares_L: NDArray[np.float64] = together_L / max(len(texts), 1)
    return shares_L


class SimilarLabel(LabelRow, frozen=True):
    """A label similar to another, with its score."""

    score: float


def find_label(wanted: str, labels: LabelSet) -> int:
    """A label by its uid, else by its text, else by its text in any case, else by a part that no other text has.

    >>> labels = LabelSet(["Red shoe", "Hat"], ["a", "b"], np.array([3, 1]), np.zeros(2, dtype=bool))
    >>> find_label("shoe", labels)
    0
    >>> find_label("hats", labels)
    Traceback (most recent call last):
    unidex.errors.DataError: a label must be there under its uid, its text or a part of it, but 'hats' is not;
        near it: 'Hat' (b)
    """
    if wanted in labels:
        return labels.id_of(wanted)
    folded = wanted.casefold()
    # All that fits in any way has the wanted text as a part, in one case.
    parts = np.flatnonzero(rows_with(labels.texts, folded) & ~labels.removed).tolist()
    named = [label for label in parts if labels.texts[label] == wanted]
    if not named and folded:
        named = [label for label in parts if labels.texts[label].casefold() == folded] or parts
        if not named:
            living = np.flatnonzero(~labels.removed).tolist()
            near = _near(folded, {label: labels.texts[label].casefold() for label in living})
            hint = f"near it: {_shown(near, labels)}" if near else "look for another word of it"
            raise DataError(
                f"a label must be there under its uid, its text or a part of it, but {quoted(wanted)} is not; {hint}"
            )
    if len(named) == 1:
        return named[0]
    if not named:
        raise DataError("a label must be named by its uid, its text or a part of it, but nothing is given")
    order = sorted(named, key=lambda label: (-int(labels.frequencies[label]), label))
    more = f" and {len(order) - _MAX_CANDIDATES:,} more" if len(order) > _MAX_CANDIDATES else ""
    raise DataError(
        f"a label must be named so that no other is meant too, but {quoted(wanted)} fits {len(order):,}: "
        f"{_shown(order, labels)}{more}; take its uid"
    )


def similar_in_data(dataset: Dataset, wanted: str, k: int = 10) -> dict[str, Any]:
    """The labels that most often occur with a label on training texts; ties go to the lower id.

    The result is ``{"name", "by": "texts", "label": {...}, "similar": [{..., "score"}]}``; a score is P(i | j).
    """
    labels = LabelSet.of(dataset)
    label = find_label(wanted, labels)
    shares_L = correlations(dataset.train.positives, label)
    ids = np.flatnonzero(shares_L)
    found = TopK.rank(ids[None], shares_L[None, ids], k)
    return _result(dataset.name, "texts", labels, label, found)


def similar_in_model(name: str, model: Model, wanted: str, k: int = 10) -> dict[str, Any]:
    """The labels whose vectors are nearest to a label's; the result is that of `similar_in_data`, "by" vectors."""
    label = find_label(wanted, model.labels)
    return _result(name, "vectors", model.labels, label, nearest_labels(model, label, k))


def nearest_labels(model: Model, label: int, k: int = 10) -> TopK:
    """The labels whose vectors are nearest to a label's, as one row of results.

    Formula, with w the fusion weight and each head's vectors as they are searched::

        score(i, j) = w <dual_i, dual_j> + (1 - w) <classifier_i, classifier_j>

    Only the head of the recipe's mode counts where that is not both. The label prior and the clusters of a label tree
    do not count.
    """
    scorer, layout, mode = model.scorer, model.scorer.layout, model.config.predict.mode
    row = scorer.index.vectors(np.array([label]))
    vectors = {head: layout.vectors_of(row, head) for head in layout.heads}
    side_by_side = layout.side_by_side(Vectors(vectors.get("dual"), vectors.get("classifier")), mode)
    return scorer.nearest(side_by_side, k, forbidden=[label])


def similar_rows(labels: LabelSet, found: TopK) -> list[SimilarLabel]:
    """One row of results as labels with their scores."""
    return [
        SimilarLabel(**msgspec.structs.asdict(labels.row(label)), score=round(score, 6))
        for label, score in zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        if label >= 0
    ]


def _result(name: str, by: str, labels: LabelSet, label: int, found: TopK) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.to_builtins(
        {"name": name, "by": by, "label": labels.row(label), "similar": similar_rows(labels, found)}
    )
    return result


def _near(folded: str, lower: dict[int, str]) -> list[int]:
    """The labels whose texts contain most of the three-letter parts of the wanted text, the shortest first."""
    parts = {folded[start : start + 3] for start in range(max(1, len(folded) - 2))}
    hits = {label: sum(part in text for part in parts) for label, text in lower.items()}
    # Less than a third is chance.
    near = [label for label, count in hits.items() if 3 * count >= len(parts)]
    return sorted(near, key=lambda label: (-hits[label], len(lower[label]), label))[:_MAX_CANDIDATES]


def _shown(ids: Sequence[int], labels: LabelSet) -> str:
    return ", ".join(f"{quoted(labels.texts[label])} ({labels.uids[label]})" for label in ids[:_MAX_CANDIDATES])
