"""Initial classifiers of labels that are added without training.

Shapes: N new labels, L labels, D dimensions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unidex.config import Heads
from unidex.nn.unit_arrays import unit_rows
from unidex.scoring.scorer import Scorer
from unidex.topk import PADDING, TopK

NUM_NEAREST = 5
# Candidates examined per wanted label, until enough have training texts. If those are still too few, labels without
# training texts are forbidden in the search, which costs an index much more.
EXAMINED = (4, 32)


def initial_classifiers(
    dual_ND: NDArray[np.float32], frequencies_L: NDArray[np.int64], scorer: Scorer, heads: Heads
) -> NDArray[np.float32]:
    """Classifiers of new labels: the mean direction of the classifiers of the five labels with the nearest texts.

    Only labels with training texts count: the classifiers of others are such means themselves. So labels get the same
    classifiers one by one as all together. Where no label has training texts, all count.

    Shapes: result [N, D], as they are searched.
    """
    trained_L = frequencies_L > 0
    if not trained_L.any():
        trained_L = np.ones(len(frequencies_L), dtype=bool)
    near = np.full((len(dual_ND), NUM_NEAREST), PADDING, dtype=np.int64)
    left = np.arange(len(dual_ND))
    for times in EXAMINED:
        found = scorer.nearest_by_head(dual_ND[left], "dual", NUM_NEAREST * times)
        trained = (found.ids >= 0) & trained_L[found.ids]
        near[left] = TopK.rank(np.where(trained, found.ids, PADDING), found.scores, NUM_NEAREST).ids
        left = left[near[left, -1] < 0]
        if len(left) == 0:
            break
    else:
        untrained = np.flatnonzero(~trained_L)
        near[left] = scorer.nearest_by_head(dual_ND[left], "dual", NUM_NEAREST, forbidden=untrained).ids
    rows = scorer.layout.vectors_of(scorer.index.vectors(np.maximum(near, 0).ravel()), "classifier")
    unit = unit_rows(rows).reshape(*near.shape, -1)
    counted = (near >= 0).astype(np.float32)
    means: NDArray[np.float32] = (unit * counted[:, :, None]).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)[:, None]
    if heads.classifier_search_vectors != "unit":
        return means
    if heads.classifier_bias == "none":
        return unit_rows(means)
    return np.concatenate([unit_rows(means[:, :-1]), means[:, -1:]], axis=1)
