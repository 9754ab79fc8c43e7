"""What a label without training begins with: a classifier made of those of labels like it.

Shapes: N new labels, L labels, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unidex.index import Index
from unidex.topk import PADDING, TopK

NEIGHBOURS = 5
# So many times as many are looked at, until enough have a classifier of their own. Where others crowd around a label,
# those are kept out of the search, which costs an index much more.
LOOKED_AT = (4, 32)


def first_classifiers(
    dual_ND: Tensor, classifiers_LD: Tensor, frequencies_L: NDArray[np.int64], index: Index
) -> Tensor:
    """Classifiers for labels by the vectors of their texts: the mean direction of those of the five nearest labels.

    Only labels with train texts count: others have a mean themselves. So labels get the same one by one as all
    together. Where no label has train texts, all count.

    Args:
        dual_ND: the dual encoder's vectors of the new labels' texts.
        classifiers_LD: the classifiers there are.
        frequencies_L: number of train texts of each label.
        index: label vectors, of which those of the dual encoder are the first numbers.

    Shapes: result [N, D].
    """
    queries = np.zeros((len(dual_ND), index.dim), dtype=np.float32)
    queries[:, : dual_ND.shape[1]] = dual_ND.cpu().numpy()
    trained_L = frequencies_L > 0
    if not trained_L.any():
        trained_L = np.ones(len(frequencies_L), dtype=bool)
    near = np.full((len(queries), NEIGHBOURS), PADDING, dtype=np.int64)
    left = np.arange(len(queries))
    for times in LOOKED_AT:
        found = index.search(queries[left], NEIGHBOURS * times)
        trained = (found.ids >= 0) & trained_L[found.ids]
        near[left] = TopK.rank(np.where(trained, found.ids, PADDING), found.scores).first(NEIGHBOURS).ids
        left = left[near[left, -1] < 0]
        if len(left) == 0:
            break
    else:
        near[left] = index.search(queries[left], NEIGHBOURS, forbidden=np.flatnonzero(~trained_L)).ids
    rows = torch.from_numpy(np.maximum(near, 0)).to(classifiers_LD.device)
    unit = nn.functional.normalize(classifiers_LD[rows], dim=2)
    counted = torch.from_numpy((near >= 0).astype(np.float32)).to(unit)
    return (unit * counted[:, :, None]).sum(dim=1) / counted.sum(dim=1).clamp(min=1)[:, None]
