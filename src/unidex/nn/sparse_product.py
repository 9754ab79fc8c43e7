"""The product of sparse rows with a row table: the weighted sum of the vectors that each row names.

Shapes: N rows, F rows of the table, U of them that a step uses, D dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from unidex.nn.row_table import RowTable, Touched


def weighted_sum(rows_NF: sparse.csr_array, table: RowTable, touched: list[Touched] | None = None) -> Tensor:
    """The weighted sum of the vectors that each row names, N x D; with ``touched``, the vectors used are appended."""
    if touched is None:
        return _product(rows_NF, table.weight)
    ids_U, places = used_columns(rows_NF)
    ids = torch.from_numpy(ids_U).to(table.weight.device)
    vectors_UD = table.gather(ids)
    touched.append(Touched(table, ids, vectors_UD))
    narrow = sparse.csr_array((rows_NF.data, places, rows_NF.indptr), shape=(rows_NF.shape[0], len(ids_U)))
    summed: Tensor = _SparseProduct.apply(narrow, vectors_UD)  # type: ignore[no-untyped-call]
    return summed


def used_columns(rows_NF: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The columns that hold an entry, ascending, and the place of each entry's column among them.

    >>> ids, places = used_columns(sparse.csr_array(np.array([[0, 2, 0, 1], [0, 0, 0, 3]])))
    >>> ids.tolist(), places.tolist()
    ([1, 3], [0, 1, 1])
    """
    used = np.zeros(rows_NF.shape[1], dtype=bool)
    used[rows_NF.indices] = True
    ids = np.flatnonzero(used)
    place_of = np.empty(rows_NF.shape[1], dtype=np.int32)
    place_of[ids] = np.arange(len(ids), dtype=np.int32)
    return ids, place_of[rows_NF.indices]


def _product(rows_NF: sparse.csr_array, table_FD: Tensor) -> Tensor:
    if table_FD.device.type == "cpu":
        # SciPy's product costs about 0.6 of torch's embedding_bag in CPU time.
        return torch.from_numpy(rows_NF @ table_FD.detach().numpy())
    return nn.functional.embedding_bag(
        torch.from_numpy(rows_NF.indices.astype(np.int64)).to(table_FD.device),
        table_FD,
        torch.from_numpy(rows_NF.indptr[:-1].astype(np.int64)).to(table_FD.device),
        mode="sum",
        per_sample_weights=torch.from_numpy(rows_NF.data).to(table_FD.device),
    )


class _SparseProduct(torch.autograd.Function):
    """rows_NU @ vectors_UD; the gradient is rows_NU^T @ grad_ND."""

    @staticmethod
    def forward(ctx: Any, rows_NU: sparse.csr_array, vectors_UD: Tensor) -> Tensor:
        ctx.rows_NU = rows_NU
        return _product(rows_NU, vectors_UD)

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[None, Tensor]:
        if grad_ND.device.type == "cpu":
            return None, torch.from_numpy(ctx.rows_NU.T @ grad_ND.contiguous().numpy())
        transposed = sparse.csr_array(ctx.rows_NU.T)
        return None, _product(transposed, grad_ND.contiguous())
