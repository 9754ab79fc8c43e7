"""The numbers of row-wise Adagrad: by compiled code in one pass over a gradient, else by torch, bit for bit the same.

Shapes: U rows, D numbers per row, F rows of the table.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unidex import native

# Squares of a row are added in so many sums side by side, and these by halves: the order that compiled code keeps.
_LANES = 16
_LEAST = 1e-10  # of a root, so that a row without a gradient can be divided by it


def is_compiled(ids_U: Tensor, grad_UD: Tensor, sum_F1: Tensor, table_FD: Tensor) -> bool:
    """Whether compiled code takes these tensors."""
    is_plain = _is_plain(grad_UD) and _is_plain(table_FD) and sum_F1.dtype == torch.float32
    return (
        native.kernels is not None
        and is_plain
        and all(tensor.is_contiguous() for tensor in (ids_U, grad_UD, sum_F1, table_FD))
    )


def move_rows(ids_U: Tensor, grad_UD: Tensor, sum_F1: Tensor, table_FD: Tensor, lr: float) -> None:
    """Add to the sums of these rows, and move the rows; no id may repeat."""
    if grad_UD.numel():
        rate = np.array([lr], dtype=np.float32)
        arrays = (tensor.numpy() for tensor in (ids_U, grad_UD, sum_F1, table_FD))
        native.kernels.adagrad_rows(rate, *arrays, grad_UD.shape[1])


def mean_squares(grad_UD: Tensor) -> Tensor:
    """The mean square of each row, U x 1.

    >>> mean_squares(torch.tensor([[3.0, 4.0]]))
    tensor([[12.5000]])
    """
    num = grad_UD.shape[1]
    if not _is_plain(grad_UD):
        # norm^2 / D is the mean square without a squared copy of the gradient.
        lengths_U1: Tensor = torch.linalg.vector_norm(grad_UD, dim=1, keepdim=True)
        return lengths_U1.square_().div_(num)
    squares_UD = torch.nn.functional.pad(grad_UD.square(), (0, -num % _LANES))
    lanes = squares_UD[:, :_LANES].clone()
    for start in range(_LANES, squares_UD.shape[1], _LANES):
        lanes += squares_UD[:, start : start + _LANES]
    half = _LANES // 2
    while half:
        lanes = lanes[:, :half] + lanes[:, half:]
        half //= 2
    return lanes.div_(num)


def factors(sum_U1: Tensor, lr: float) -> Tensor:
    """What each row of a gradient is multiplied with, of the sums of the rows."""
    if not _is_plain(sum_U1):
        return lr / (sum_U1.sqrt() + _LEAST)
    # A root by torch may be that of MKL, which does not always round to the nearest number.
    roots_U1 = np.sqrt(sum_U1.numpy()) + np.float32(_LEAST)
    return torch.from_numpy(np.float32(lr) / roots_U1)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"
