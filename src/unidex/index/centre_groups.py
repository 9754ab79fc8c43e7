"""Centres of lists in groups: a vector finds a near centre without being compared with all of them.

A vector is compared with the centres of the groups that are nearest to it, many vectors at a time: all that a group has
to be compared with are one matrix product. So the cost of a vector grows with the root of the number of centres.

Shapes: B vectors, D dimensions, C centres, G groups, P groups that a vector is compared with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUPS_COMPARED = 4
VECTORS_AT_ONCE = 1 << 14


class CentreGroups:
    """Centres, sorted by the group whose own centre is nearest to them.

    >>> groups = CentreGroups(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)[:2])
    >>> groups.nearest(np.array([[0.1, 0.2, 0.9], [0.8, 0.1, 0.0]], dtype=np.float32)).tolist()
    [2, 0]
    """

    def __init__(self, centres_CD: NDArray[np.float32], groups_GD: NDArray[np.float32]) -> None:
        self._groups_GD = groups_GD
        group_C = (centres_CD @ groups_GD.T).argmax(axis=1)
        self._order_C = np.argsort(group_C, kind="stable")
        self._centres_CD = np.ascontiguousarray(centres_CD[self._order_C])
        self._ends_G = np.cumsum(np.bincount(group_C, minlength=len(groups_GD)))

    def nearest(self, vectors_BD: NDArray[np.float32]) -> NDArray[np.int64]:
        """The centre of highest inner product with each vector, among those of its nearest groups."""
        starts = range(0, len(vectors_BD), VECTORS_AT_ONCE)
        found = [self._nearest(vectors_BD[start : start + VECTORS_AT_ONCE]) for start in starts]
        nearest_B: NDArray[np.int64] = self._order_C[np.concatenate([np.empty(0, dtype=np.int64), *found])]
        return nearest_B

    def _nearest(self, vectors_BD: NDArray[np.float32]) -> NDArray[np.int64]:
        num_vectors, num_groups = len(vectors_BD), len(self._groups_GD)
        number = min(GROUPS_COMPARED, num_groups)
        near_BP = np.argpartition(vectors_BD @ self._groups_GD.T, num_groups - number, axis=1)[:, -number:]
        # Pairs of a vector and a group, sorted by group; short numbers are sorted by their digits, in linear time.
        pairs = np.argsort(near_BP.ravel().astype(np.uint16), kind="stable")
        ends_G = np.cumsum(np.bincount(near_BP.ravel(), minlength=num_groups))
        best_B = np.full(num_vectors, -np.inf, dtype=np.float32)
        places_B = np.zeros(num_vectors, dtype=np.int64)
        start = first = 0
        for end, last in zip(ends_G.tolist(), self._ends_G.tolist(), strict=True):
            vectors = pairs[start:end] // number
            if len(vectors) and last > first:
                scores = vectors_BD[vectors] @ self._centres_CD[first:last].T
                places = scores.argmax(axis=1)
                highest = scores[np.arange(len(vectors)), places]
                better = highest > best_B[vectors]
                best_B[vectors[better]] = highest[better]
                places_B[vectors[better]] = first + places[better]
            start, first = end, last
        return places_B
