"""What a model gets wrong on test texts: confused labels, labels that are never predicted, texts without a right label.

Shapes: N texts, K places.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from unidex.sparse_rows import contains
from unidex.verbs.evaluate import predict_split
from unidex.verbs.judgement import judge

if TYPE_CHECKING:
    from unidex.data.dataset import Dataset, Split
    from unidex.model.label_set import LabelSet
    from unidex.model.model import Model
    from unidex.topk import TopK

PLACES = 5
_SHOWN = 10
_SHOWN_TEXTS = 5


def find_mistakes(model: Model, dataset: Dataset) -> dict[str, Any]:
    """Predict the test texts and gather the mistakes in the first five labels.

    The result is ``{"confused": [{"correct", "predicted", "num_texts"}], "never": {"num_labels", "num_asked", "labels":
    [{"label", "num_texts"}]}, "worst": [{"text", "correct", "predicted"}], "num_missed"}``; the last counts texts
    without a right label.
    """
    texts = judge(model, dataset, with_train_texts=True).split
    topk = predict_split(model, texts, None, PLACES)
    return mistakes_of(topk.without(texts.filter_pairs).first(PLACES), texts, model.labels)


def mistakes_of(topk: TopK, test: Split, labels: LabelSet) -> dict[str, Any]:
    """The mistakes of predictions for texts; both have the label ids of the model."""
    # Labels that the model does not know have ids behind its own; their number is reported elsewhere.
    ids_NK, positives = topk.ids, sparse.csr_array(test.positives[:, : len(labels)])
    hits_NK = contains(positives, ids_NK)
    pairs: Counter[tuple[int, int]] = Counter()
    for row in np.flatnonzero(~hits_NK[:, :1].any(axis=1)).tolist():
        predicted = int(ids_NK[row, 0])
        found = set(ids_NK[row].tolist())
        missing = [label for label in _labels_of(positives, row) if label not in found]
        if predicted >= 0:
            pairs.update((label, predicted) for label in missing)
    asked = np.bincount(positives.indices, minlength=positives.shape[1])
    shown = np.zeros(len(asked), dtype=bool)
    shown[ids_NK[ids_NK >= 0]] = True
    never = np.flatnonzero((asked > 0) & ~shown)
    never = never[np.argsort(-asked[never], kind="stable")]
    missed = np.flatnonzero(~hits_NK.any(axis=1) & (np.diff(positives.indptr) > 0))
    # The surest mistakes: the highest first scores.
    worst = missed[np.argsort(-topk.scores[missed, 0], kind="stable")][:_SHOWN_TEXTS] if topk.k else missed[:0]

    def name(label: int) -> str:
        return labels.texts[label] or labels.uids[label]

    return {
        "confused": [
            {"correct": name(correct), "predicted": name(predicted), "num_texts": count}
            for (correct, predicted), count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:_SHOWN]
        ],
        "never": {
            "num_labels": len(never),
            "num_asked": int((asked > 0).sum()),
            "labels": [{"label": name(label), "num_texts": int(asked[label])} for label in never[:_SHOWN].tolist()],
        },
        "worst": [
            {
                "text": test.texts[row],
                "correct": [name(label) for label in _labels_of(positives, row)],
                "predicted": [name(label) for label in ids_NK[row].tolist() if label >= 0],
            }
            for row in worst.tolist()
        ],
        "num_missed": len(missed),
    }


def _labels_of(positives: Any, row: int) -> list[int]:
    found: list[int] = positives.indices[positives.indptr[row] : positives.indptr[row + 1]].tolist()
    return found
