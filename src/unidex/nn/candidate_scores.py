"""Scores of texts with candidates of their own: each text is scored with rows of its own.

Shapes: B texts, K candidates of a text, U rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# With up to so many times as many rows as candidates, one matrix product is quicker than copies of rows. As measured on
# a CPU with 128 to 768 dimensions, both take as long at about 64 times for 32 texts and more, at about 12 for one text.
DENSE_UP_TO = 32
# Numbers of rows that are copied at once: 64 MB of float32.
NUMBERS_AT_ONCE = 1 << 24


def candidate_scores(texts_BD: Tensor, rows_UD: Tensor, places_BK: Tensor) -> Tensor:
    """B x K inner products of each text with its own candidates, differentiable in texts and rows.

    Formula: s_bk = <x_b, w_p> with p = places_bk. Where candidates are few among the rows they are copied out, some
    texts at a time; else all rows are scored, and the candidates' scores are selected.

    >>> rows = torch.tensor([[1.0], [2.0], [3.0]])
    >>> candidate_scores(torch.tensor([[1.0], [10.0]]), rows, torch.tensor([[0, 2], [1, 1]])).tolist()
    [[1.0, 3.0], [20.0, 20.0]]
    """
    if is_dense(places_BK.shape[1], len(rows_UD)):
        return (texts_BD @ rows_UD.T).gather(1, places_BK)
    scores: Tensor = _CopiedOut.apply(texts_BD, rows_UD, places_BK)  # type: ignore[no-untyped-call]
    return scores


def is_dense(num_candidates: int, num_rows: int) -> bool:
    """Whether scoring all rows is quicker than copying so many candidates per text."""
    return num_rows <= DENSE_UP_TO * num_candidates


class _CopiedOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, texts_BD: Tensor, rows_UD: Tensor, places_BK: Tensor) -> Tensor:
        ctx.save_for_backward(texts_BD, rows_UD, places_BK)
        scores_BK = texts_BD.new_empty(places_BK.shape)
        for some in _blocks(places_BK, rows_UD.shape[1]):
            copied_bKD = rows_UD[places_BK[some]]
            scores_BK[some] = torch.bmm(copied_bKD, texts_BD[some, :, None]).squeeze(2)
        return scores_BK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BK: Tensor) -> tuple[Tensor, Tensor, None]:
        texts_BD, rows_UD, places_BK = ctx.saved_tensors
        of_texts, of_rows = torch.empty_like(texts_BD), torch.zeros_like(rows_UD)
        for some in _blocks(places_BK, rows_UD.shape[1]):
            places_bK, gradient_bK1 = places_BK[some], gradient_BK[some, :, None]
            of_texts[some] = torch.bmm(gradient_bK1.transpose(1, 2), rows_UD[places_bK]).squeeze(1)
            of_rows.index_add_(0, places_bK.flatten(), (gradient_bK1 * texts_BD[some, None]).flatten(0, 1))
        return of_texts, of_rows, None


def _blocks(places_BK: Tensor, dim: int) -> Iterator[slice]:
    num_texts, width = places_BK.shape
    at_once = max(1, NUMBERS_AT_ONCE // max(1, width * dim))
    for start in range(0, num_texts, at_once):
        yield slice(start, min(start + at_once, num_texts))
