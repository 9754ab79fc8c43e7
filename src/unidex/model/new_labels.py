"""Initial classifiers of labels that are added without training.

Shapes: N new labels, L labels, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unidex.scoring.scorer import Scorer
from unidex.topk import PADDING, TopK

NUM_NEAREST = 5
# Candidates examined per wanted label, until enough have training texts. If those are still too few, labels without
# training texts are forbidden in the search, which costs an index much more.
EXAMINED = (4, 32)


def initial_classifiers(
    dual_ND: Tensor, classifiers_LD: Tensor, frequencies_L: NDArray[np.int64], scorer: Scorer
) -> Tensor:
    """Classifiers of new labels: the mean direction of the classifiers of the five labels with the nearest texts.

    Only labels with training texts count: the classifiers of others are such means themselves. So labels get the same
    classifiers one by one as all together. Where no label has training texts, all count.

    Shapes: result [N, D].
    """
    queries = dual_ND.cpu().numpy()
    trained_L = frequencies_L > 0
    if not trained_L.any():
        trained_L = np.ones(len(frequencies_L), dtype=bool)
    near = np.full((len(queries), NUM_NEAREST), PADDING, dtype=np.int64)
    left = np.arange(len(queries))
    for times in EXAMINED:
        found = scorer.nearest_by_head(queries[left], "dual", NUM_NEAREST * times)
        trained = (found.ids >= 0) & trained_L[found.ids]
        near[left] = TopK.rank(np.where(trained, found.ids, PADDING), found.scores).first(NUM_NEAREST).ids
        left = left[near[left, -1] < 0]
        if len(left) == 0:
            break
    else:
        untrained = np.flatnonzero(~trained_L)
        near[left] = scorer.nearest_by_head(queries[left], "dual", NUM_NEAREST, forbidden=untrained).ids
    rows = torch.from_numpy(np.maximum(near, 0)).to(classifiers_LD.device)
    unit = nn.functional.normalize(classifiers_LD[rows], dim=2)
    counted = torch.from_numpy((near >= 0).astype(np.float32)).to(unit)
    return (unit * counted[:, :, None]).sum(dim=1) / counted.sum(dim=1).clamp(min=1)[:, None]
