"""The passes over scores that a softmax in both directions takes: highest scores, exponentials and sums, products.

Compiled code takes each in one pass over the scores; torch takes a dozen, and gives the same bits: sums have a fixed
order, and the exponential of float32 is a polynomial of plain products and sums. Scores are on the CPU.

Shapes: B texts, P labels.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from unidex import native

# Rows whose exponentials are added to one sum per column; sums of blocks are added then.
ROWS = 32
# exp(r) = 1 + r + r^2 (...) for |r| <= log(2) / 2, by Cephes; as in native/softmax.c.
_POWERS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG2_E, _LOG_2, _REST = 1.44269504, 0.693359375, -2.12194440e-4
_ROUNDING = 12582912.0  # floats behind it have a distance of 1
_NONE = np.empty(0, dtype=np.float32)


def highest(scores_BP: Tensor) -> tuple[Tensor, Tensor]:
    """The highest score of each text and of each label.

    >>> highest(torch.tensor([[1.0, 4.0], [3.0, 2.0]]))
    (tensor([4., 3.]), tensor([3., 4.]))
    """
    if not _is_compiled(scores_BP):
        return scores_BP.amax(1), scores_BP.amax(0)
    of_texts_B, of_labels_P = scores_BP.new_empty(len(scores_BP)), scores_BP.new_empty(scores_BP.shape[1])
    native.kernels.highest(_flat(scores_BP), of_texts_B.numpy(), of_labels_P.numpy(), scores_BP.stride(0))
    return of_texts_B, of_labels_P


def exponentials_(scores_BP: Tensor, top: float, factors_P: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """exp(scores - top) in place, 0 for scores of -inf; and the sums of each text and of each label.

    No score is above ``top``. Exponentials below the smallest normal number become that number: they cost twenty times
    as much otherwise. Those of a text are multiplied by ``factors_P`` before they are added.

    >>> scores = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    >>> exponentials_(scores, 0.0, torch.tensor([1.0, 0.5])), scores
    ((tensor([1.0000, 1.5000]), tensor([2., 1.])), tensor([[1., 0.],
            [1., 1.]]))
    """
    lowest = math.log(torch.finfo(scores_BP.dtype).tiny) + 0.1
    num_texts, num_labels = scores_BP.shape
    if _is_compiled(scores_BP):
        sums_B, blocks_KP = scores_BP.new_empty(num_texts), scores_BP.new_empty(-(-num_texts // ROWS), num_labels)
        factors = _NONE if factors_P is None else factors_P.contiguous().numpy()
        room = np.empty(num_labels, dtype=np.float32)
        sizes = scores_BP.stride(0), ROWS
        bounds = np.array([top, lowest], dtype=np.float32)
        native.kernels.exponentials(bounds, factors, _flat(scores_BP), sums_B.numpy(), blocks_KP.numpy(), room, *sizes)
        return sums_B, _added(blocks_KP)
    is_masked_BP = scores_BP == -torch.inf
    scores_BP.sub_(top).clamp_min_(lowest)
    scores_BP.copy_(_polynomial(scores_BP) if scores_BP.dtype == torch.float32 else scores_BP.exp())
    scores_BP.masked_fill_(is_masked_BP, 0.0)
    padded = torch.nn.functional.pad(scores_BP, (0, 0, 0, -num_texts % ROWS))
    blocks_KP = _added(padded.view(-1, ROWS, num_labels).transpose(0, 1))
    return _halved(scores_BP if factors_P is None else scores_BP * factors_P), _added(blocks_KP)


def multiply_pushes_(scores_BP: Tensor, pushes_B: Tensor, pushes_P: Tensor, factors_P: Tensor | None = None) -> None:
    """Multiply by the push of the text, times ``factors_P``, plus the push of the label; in place."""
    if _is_compiled(scores_BP):
        factors = _NONE if factors_P is None else factors_P.contiguous().numpy()
        of_both = pushes_B.numpy(), factors, pushes_P.numpy()
        native.kernels.multiply_pushes(*of_both, _flat(scores_BP), scores_BP.stride(0))
    else:
        scores_BP.mul_((pushes_B[:, None] if factors_P is None else pushes_B[:, None] * factors_P) + pushes_P)


def _is_compiled(scores_BP: Tensor) -> bool:
    """Whether compiled code takes these scores: rows of float32 numbers side by side."""
    is_plain = scores_BP.dtype == torch.float32 and scores_BP.numel() > 0 and scores_BP.stride(1) == 1
    return native.kernels is not None and is_plain and scores_BP.stride(0) >= scores_BP.shape[1]


def _flat(scores_BP: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """All numbers from the first row to the end of the last one, what lies between two rows included."""
    size = (len(scores_BP) - 1) * scores_BP.stride(0) + scores_BP.shape[1]
    flat: np.ndarray[tuple[int], np.dtype[np.float32]] = scores_BP.detach().as_strided((size,), (1,)).numpy()
    return flat


def _polynomial(x: Tensor) -> Tensor:
    """exp(x) for x up to 0 whose exponential is a normal number: 2^n exp(r) with |r| <= log(2) / 2."""
    shifted = x.mul(_LOG2_E).add_(_ROUNDING)
    n = shifted - _ROUNDING
    r = x.sub(n * _LOG_2).sub_(n * _REST)
    p = torch.full_like(r, _POWERS[0])
    for factor in _POWERS[1:]:
        p.mul_(r).add_(factor)
    p.mul_(r * r).add_(r).add_(1.0)
    # The last bits of the shifted numbers are n; here they come to be the exponent.
    return p.view(torch.int32).add_(shifted.view(torch.int32) << 23).view(torch.float32)


def _added(parts: Tensor) -> Tensor:
    """The sum over the first dimension, one part after the other."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _halved(rows_BP: Tensor) -> Tensor:
    """The sum of each row: its second half is added to its first one, again and again."""
    half, num_labels = 1, rows_BP.shape[1]
    while half * 2 < num_labels:
        half *= 2
    total = rows_BP[:, :half].clone()
    total[:, : num_labels - half] += rows_BP[:, half:]
    while half > 1:
        half //= 2
        total = total[:, :half] + total[:, half:]
    return total[:, 0]
