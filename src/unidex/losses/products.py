"""Dense products of matrices on a CPU, by NumPy's library.

torch multiplies numbers of 32 bits by MKL, which leaves a half or more of a processor unused that is not Intel's.
NumPy's OpenBLAS does not, and reads a turned side without a copy.

Shapes: N rows, K columns of the left and rows of the right, M columns.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def product(left_NK: Tensor, right_KM: Tensor, out_NM: Tensor | None = None) -> Tensor:
    """Left right, into ``out_NM`` where it is given; autograd does not see it.

    >>> product(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    is_plain = left_NK.device.type == "cpu" and left_NK.layout == torch.strided
    if not is_plain or not left_NK.dtype == right_KM.dtype == torch.float32:
        return torch.mm(left_NK.detach(), right_KM.detach(), out=out_NM)
    sides = left_NK.detach().numpy(), right_KM.detach().numpy()
    if out_NM is None:
        return torch.from_numpy(np.matmul(*sides))
    np.matmul(*sides, out=out_NM.numpy())
    return out_NM
