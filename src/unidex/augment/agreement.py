"""Whether co-occurrence tells the labels of a label's text: checked where a train text is that label itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unidex.augment.label_points import Points
from unidex.sparse_rows import find_sorted, row_of_entries


@dataclass(frozen=True)
class Agreement:
    """How many targets of label texts are true, as far as that is known."""

    num_labels: int  # labels that are themselves train texts, and points with a target beside their own label
    num_targets: int  # targets of these points, without their own labels
    precision: float  # share of these targets that the train text has as positives; 0 where there are none


def agreement(points: Points, positives: sparse.csr_array, filter_pairs: sparse.csr_array) -> Agreement:
    """Compare the targets of label texts with the positives of the train texts that are these labels.

    Gandalf takes P(i | j) over texts as the targets of label j's own text. That holds where labels relate to one
    another as texts do to labels (see-also pages), and fails where they do not: what packages need together is not what
    one of them needs. A filter pair of train says that a text is a label itself, so that its positives are the truth.

    >>> positives = sparse.csr_array(np.array([[0, 1, 1], [0, 1, 0]], dtype=np.float32))
    >>> points = Points(np.arange(2), np.arange(1), sparse.csr_array(np.array([[1, 0.5, 0]], dtype=np.float32)))
    >>> agreement(points, positives, sparse.csr_array(np.array([[1, 0, 0], [0, 0, 0]], dtype=bool)))
    Agreement(num_labels=1, num_targets=1, precision=1.0)
    """
    texts, own = row_of_entries(filter_pairs), filter_pairs.indices
    places, known = find_sorted(points.labels, own)
    texts, own, places = texts[known], own[known], places[known]
    targets = sparse.csr_array(points.targets[places] > 0)
    rows = row_of_entries(targets)
    others = targets.indices != own[rows]
    asked = sparse.csr_array(
        (np.ones(int(others.sum()), dtype=np.int32), (rows[others], targets.indices[others])), shape=targets.shape
    )
    true = asked.multiply(positives[texts] > 0).sum()
    return Agreement(len(np.unique(rows[others])), int(asked.nnz), float(true) / max(1, asked.nnz))
