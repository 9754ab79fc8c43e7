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

from unidex import native
from unidex.nn.row_table import RowTable, Touched
from unidex.sparse_rows import unchecked_csr


def weighted_sum(rows_NF: sparse.csr_array, table: RowTable, touched: list[Touched] | None = None) -> Tensor:
    """The weighted sum of the vectors that each row names, N x D; with ``touched``, the vectors used are appended.

    The vectors are read where the table stores them, so that a step copies none of them.
    """
    if touched is None:
        return _sums(rows_NF.data, rows_NF.indices, rows_NF.indptr, table.weight)
    ids_U, transposed_UN = used_columns(rows_NF)
    ids = torch.from_numpy(ids_U).to(table.weight.device)
    leaf_UD = table.gradient_leaf(len(ids))
    touched.append(Touched(table, ids, leaf_UD))
    summed: Tensor = _SparseProduct.apply(rows_NF, transposed_UN, table.weight, leaf_UD)  # type: ignore[no-untyped-call]
    return summed


def used_columns(rows_NF: sparse.csr_array) -> tuple[NDArray[np.int64], sparse.csr_array]:
    """The columns that hold an entry, ascending, and the transpose of the matrix without the other columns.

    >>> ids, transposed = used_columns(sparse.csr_array(np.array([[0, 2, 0, 1], [0, 0, 0, 3]])))
    >>> ids.tolist(), transposed.toarray().tolist()
    ([1, 3], [[2, 0], [1, 3]])
    """
    num_rows, num_columns = rows_NF.shape
    if native.is_plain(rows_NF):
        size = rows_NF.nnz
        ids, starts = np.empty(size, dtype=np.int64), np.empty(size + 1, dtype=np.int32)
        values, places = np.empty(size, dtype=np.float32), np.empty(size, dtype=np.int32)
        used = native.kernels.used_columns(*native.arrays_of(rows_NF), ids, values, places, starts, num_columns)
        return ids[:used], unchecked_csr(values, places, starts[: used + 1], (used, num_rows))
    by_column = rows_NF.tocsc()
    ids = np.flatnonzero(np.diff(by_column.indptr))
    starts = np.append(by_column.indptr[ids], by_column.indptr[-1])
    return ids, sparse.csr_array((by_column.data, by_column.indices, starts), shape=(len(ids), num_rows))


def _sums(values: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any], table_FD: Tensor) -> Tensor:
    # Twice as fast as SciPy's product, and five times where the table is far larger than the caches.
    return nn.functional.embedding_bag(
        _tensor(columns).to(table_FD.device),
        table_FD.detach(),
        _tensor(starts.astype(columns.dtype, copy=False)).to(table_FD.device),
        mode="sum",
        per_sample_weights=_tensor(values).to(table_FD),
        include_last_offset=True,
    )


def _tensor(array: NDArray[Any]) -> Tensor:
    # torch warns of arrays that are read-only: those are copied.
    return torch.from_numpy(np.require(array, requirements="W"))


class _SparseProduct(torch.autograd.Function):
    """rows_NF @ table_FD; the gradient of the rows used is transposed_UN @ grad_ND."""

    @staticmethod
    def forward(
        ctx: Any, rows_NF: sparse.csr_array, transposed_UN: sparse.csr_array, table_FD: Tensor, leaf_UD: Tensor
    ) -> Tensor:
        ctx.transposed_UN = transposed_UN
        return _sums(rows_NF.data, rows_NF.indices, rows_NF.indptr, table_FD)

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[None, None, None, Tensor]:
        of = ctx.transposed_UN
        return None, None, None, _sums(of.data, of.indices, of.indptr, grad_ND.contiguous())
