"""The dense products of training: scores of texts and labels, and from their gradient those of both sides.

    S = X W^T        d X = G W        d W = G^T X

torch multiplies numbers of 32 bits by MKL, which uses half of the vectors of some processors that are not Intel's.
oneDNN, which is part of torch too, uses all of them, and a product takes less than half of the time there. On
processors of Intel it takes up to twice the time of MKL. It compiles and keeps code for each shape, so that labels are
filled up with zeros to one of few numbers.

Shapes: B texts, P labels, D dimensions.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

# The number of labels is a multiple of this; at most a few per cent of them are zeros.
_MULTIPLE = 128
# Of smaller products the calls cost as much as the products.
_MIN_TERMS = 1 << 20
_PROCESSORS = Path("/proc/cpuinfo")


class RowsWithRows(Protocol):
    """A product of rows with rows."""

    def __call__(self, x: Tensor, w: Tensor, bias: Tensor | None = None, /) -> Tensor:
        """X w^T, and with a bias x w^T + b."""


class PairProducts:
    """The scores of texts and labels, and the gradients of both, without a graph for autograd.

    >>> products = PairProducts(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    >>> products.scores_BP
    tensor([[1., 2.]])
    >>> products.gradients(products.scores_BP.mul_(2))
    (tensor([[2., 4.]]), tensor([[2., 4.],
            [4., 8.]]))

    Attributes:
        scores_BP: the scores, for a loss to consume.
    """

    def __init__(self, texts_BD: Tensor, labels_PD: Tensor) -> None:
        self._texts_BD, self._labels_PD = texts_BD, labels_PD
        self._rows = _fastest(texts_BD, labels_PD)
        if self._rows is None:
            self.scores_BP = texts_BD @ labels_PD.T
            return
        padded = labels_PD.new_zeros(-(-len(labels_PD) // _MULTIPLE) * _MULTIPLE, labels_PD.shape[1])
        padded[: len(labels_PD)] = labels_PD
        self._padded = padded
        # Scores of labels that are none are 0, and stay so: a loss does not see them.
        self._whole = self._rows(texts_BD, padded)
        self.scores_BP = self._whole[:, : len(labels_PD)]

    def gradients(self, grad_BP: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of texts and labels by G, that of the scores, which may be in their memory."""
        if self._rows is None:
            return grad_BP @ self._labels_PD, grad_BP.T @ self._texts_BD
        if grad_BP.data_ptr() != self.scores_BP.data_ptr():
            self.scores_BP.copy_(grad_BP)
        # Of the turned sides the smaller one is copied.
        turned_DP = self._rows(self._texts_BD.T, self._whole.T)
        return self._rows(self._whole, self._padded.T), turned_DP.T[: len(self._labels_PD)].contiguous()


def all_scores(texts_BD: Tensor, labels_PD: Tensor) -> Tensor:
    """The scores of texts and labels, without a graph for autograd.

    >>> all_scores(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    tensor([[1., 2.]])
    """
    rows = _fastest(texts_BD, labels_PD)
    return texts_BD @ labels_PD.T if rows is None else rows(texts_BD, labels_PD)


def _fastest(texts_BD: Tensor, labels_PD: Tensor) -> RowsWithRows | None:
    """What multiplies these sides faster than torch's own product; None where nothing does."""
    is_plain = texts_BD.device.type == labels_PD.device.type == "cpu"
    is_plain = is_plain and texts_BD.dtype == labels_PD.dtype == torch.float32
    return rows_with_rows() if is_plain and texts_BD.numel() * len(labels_PD) >= _MIN_TERMS else None


@cache
def rows_with_rows() -> RowsWithRows | None:
    """The product of rows with rows by oneDNN; None where that of torch is as fast."""
    has_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return _by_one_dnn() if has_mkl and _vendor() not in ("", "GenuineIntel") else None


def _by_one_dnn() -> RowsWithRows | None:
    """The same, on any processor; None where torch was built without oneDNN."""
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch._C._has_mkldnn else None
    return None if linear is None else lambda x, w, bias=None: linear(x, w, bias, "none", [], "")


def _vendor() -> str:
    """Who made the processor; empty where the system does not say it."""
    try:
        lines = _PROCESSORS.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
