"""The labels nearest to a label: by the train texts they share, or by a model's vectors.

Shapes: N texts, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset
from unidex.errors import DataError, quoted
from unidex.metrics.bins import CLASSES, frequency_classes
from unidex.topk import TopK

if TYPE_CHECKING:
    from unidex.model.model import Model

_MOST_CANDIDATES = 5


def correlations(positives_NL: sparse.csr_array, label: int) -> NDArray[np.float64]:
    """How likely a text with a label has each other label: one row of the graph of label correlations.

    Formula, with Y 1 where a pair is stored and G = Y^T Y::

        P(i | j) = G_ij / G_jj         0 for i = j, and everywhere where no text has j

    Only the texts that have j are looked at: G itself is never built. P is not symmetric: a rare label that always
    comes with a frequent one has 1 in its row and nearly 0 in the other's.

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


def find_label(
    wanted: str, texts: Sequence[str], uids: Sequence[str], frequencies_L: NDArray[np.int64], ids: Sequence[int]
) -> int:
    """A label by its uid, else by its text, else by its text in any case, else by a part that no other text has.

    Args:
        wanted: what the user calls the label.
        texts: texts of all labels.
        uids: their uids.
        frequencies_L: their numbers of train texts; of several candidates the most frequent are named.
        ids: the labels to look among.

    >>> find_label("shoe", ["Red shoe", "Hat"], ["a", "b"], np.array([3, 1]), [0, 1])
    0
    >>> find_label("hats", ["Red shoe", "Hat"], ["a", "b"], np.array([3, 1]), [0, 1])
    Traceback (most recent call last):
    unidex.errors.DataError: a label must be there under its uid, its text or a part of it, but 'hats' is not;
        near it: 'Hat' (b)
    """
    folded = wanted.casefold()
    exact = [label for label in ids if uids[label] == wanted]
    named = exact or [label for label in ids if texts[label] == wanted]
    if not named and folded:
        lower = {label: texts[label].casefold() for label in ids}
        named = [label for label, text in lower.items() if text == folded]
        named = named or [label for label, text in lower.items() if folded in text]
        if not named:
            near = _near(folded, lower)
            hint = f"near it: {_shown(near, texts, uids)}" if near else "look for another word of it"
            raise DataError(
                f"a label must be there under its uid, its text or a part of it, but {quoted(wanted)} is not; {hint}"
            )
    if len(named) == 1:
        return named[0]
    if not named:
        raise DataError("a label must be named by its uid, its text or a part of it, but nothing is given")
    order = sorted(named, key=lambda label: (-int(frequencies_L[label]), label))
    more = f" and {len(order) - _MOST_CANDIDATES:,} more" if len(order) > _MOST_CANDIDATES else ""
    raise DataError(
        f"a label must be named so that no other is meant too, but {quoted(wanted)} fits {len(order):,}: "
        f"{_shown(order, texts, uids)}{more}; take its uid"
    )


def neighbours_in_data(dataset: Dataset, wanted: str, k: int = 10) -> dict[str, Any]:
    """The labels that come most often with a label on train texts; of equals the lower id first.

    The result is ``{"name", "by": "texts", "label": {...}, "neighbours": [{..., "score"}]}``; a score is P(i | j).
    """
    texts, frequencies_L = dataset.labels.texts, dataset.label_frequencies()
    uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
    label = find_label(wanted, texts, uids, frequencies_L, range(dataset.num_labels))
    shares_L = correlations(dataset.train.positives, label)
    ids = np.flatnonzero(shares_L)
    found = TopK.rank(ids[None], shares_L[None, ids]).first(k)
    return _rows(dataset.name, "texts", label, found, texts, uids, frequencies_L)


def neighbours_in_model(name: str, model: Model, wanted: str, k: int = 10) -> dict[str, Any]:
    """The labels whose vectors are nearest to a label's, as `nearest_labels` finds them.

    The result is that of `neighbours_in_data` with ``"by": "vectors"``.
    """
    labels = model.labels
    alive = np.flatnonzero(~labels.removed).tolist()
    label = find_label(wanted, labels.texts, labels.uids, labels.frequencies, alive)
    found = nearest_labels(model, label, k)
    return _rows(name, "vectors", label, found, labels.texts, labels.uids, labels.frequencies)


def nearest_labels(model: Model, label: int, k: int = 10) -> TopK:
    """The labels whose vectors are nearest to a label's, as the model scores them for a text: one row.

    The label is searched as if it were a text, with the dual encoder's vector of its text and with its own classifier.
    So a score is w cos(dual) + (1 - w) cos(classifier) for a model of both heads on unit vectors, w its fusion weight.
    """
    if model.network.tree is not None:
        from unidex.index.exact import search_exact

        # Which clusters they are in says nothing here: classifiers alone are compared.
        hidden = np.union1d([label], np.flatnonzero(model.labels.removed)).astype(np.int64)
        every = model.index.vectors(np.arange(len(model.labels)))
        return search_exact(every[label : label + 1], every, k, forbidden=hidden)
    vector = model.encode([model.labels.texts[label]])
    classifiers, head = model.network.classifiers, model.network.classifier
    if classifiers is not None and head is not None and model.config.predict.mode != "dual":
        row = head.as_searched(classifiers.weight[label : label + 1]).cpu().numpy()
        # Dual and classifier stand side by side, and the classifier's part is that of the text so far.
        vector[:, -row.shape[1] :] = row
    return model.index.search(vector, k, forbidden=[label])


def _rows(
    name: str,
    by: str,
    label: int,
    found: TopK,
    texts: Sequence[str],
    uids: Sequence[str],
    frequencies_L: NDArray[np.int64],
) -> dict[str, Any]:
    classes = frequency_classes(frequencies_L)

    def row(number: int) -> dict[str, Any]:
        return {
            "id": number,
            "uid": uids[number],
            "text": texts[number],
            "frequency": CLASSES[classes[number]],
            "num_texts": int(frequencies_L[number]),
        }

    neighbours = [
        row(number) | {"score": round(score, 6)}
        for number, score in zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        if number >= 0
    ]
    return {"name": name, "by": by, "label": row(label), "neighbours": neighbours}


def _near(folded: str, lower: dict[int, str]) -> list[int]:
    """The labels whose texts hold most of the three-letter parts of what was asked for, the shortest first."""
    parts = {folded[start : start + 3] for start in range(max(1, len(folded) - 2))}
    hits = {label: sum(part in text for part in parts) for label, text in lower.items()}
    # Less than a third is chance.
    near = [label for label, count in hits.items() if 3 * count >= len(parts)]
    return sorted(near, key=lambda label: (-hits[label], len(lower[label]), label))[:_MOST_CANDIDATES]


def _shown(labels: Sequence[int], texts: Sequence[str], uids: Sequence[str]) -> str:
    return ", ".join(f"{quoted(texts[label])} ({uids[label]})" for label in labels[:_MOST_CANDIDATES])
