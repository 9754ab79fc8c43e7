"""Rows of length 1 and their gradient as arrays: by compiled code, else by NumPy, bit for bit the same.

Shapes: N rows, D numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unidex import native

SHORTEST = 1e-12  # as in torch.nn.functional.normalize: a row of zeros stays one
_NONE = np.empty(0, dtype=np.float32)


def unit_rows(rows_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows divided by their lengths; a row of zeros stays so.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    return _divided(rows_ND, _NONE)


def measured_unit_rows(rows_ND: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The same, and what the rows were divided by, N."""
    lengths_N = np.empty(len(rows_ND), dtype=np.float32)
    return _divided(rows_ND, lengths_N), lengths_N


def unit_gradient(
    grad_ND: NDArray[np.float32], unit_ND: NDArray[np.float32], lengths_N: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The gradient of rows from that of the rows divided by their lengths: (g - y <y, g>) / |x|.

    >>> unit = np.array([[0.6, 0.8]], dtype=np.float32)
    >>> unit_gradient(np.array([[5, 0]], dtype=np.float32), unit, np.array([5], dtype=np.float32)).round(2).tolist()
    [[0.6399999856948853, -0.47999998927116394]]
    """
    grad_ND = np.ascontiguousarray(grad_ND)
    found = np.empty_like(grad_ND)
    if native.kernels is not None and grad_ND.size:
        native.kernels.unit_gradient(grad_ND, unit_ND, lengths_N, found, grad_ND.shape[1])
        return found
    along_N1 = (grad_ND * unit_ND).sum(axis=1)[:, None]
    np.divide(grad_ND - unit_ND * along_N1, lengths_N[:, None], out=found)
    return found


def _divided(rows_ND: NDArray[np.float32], lengths_N: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows divided by their lengths, which are written where there is room for them."""
    found: NDArray[np.float32]
    if native.kernels is not None and rows_ND.dtype == np.float32 and rows_ND.size:
        found = np.empty(rows_ND.shape, dtype=np.float32)
        native.kernels.unit_rows(np.ascontiguousarray(rows_ND), lengths_N, found, rows_ND.shape[1], SHORTEST)
        return found
    lengths = np.maximum(np.sqrt((rows_ND * rows_ND).sum(axis=1)), np.float32(SHORTEST))
    if len(lengths_N):
        lengths_N[:] = lengths
    found = rows_ND / lengths[:, None]
    return found
