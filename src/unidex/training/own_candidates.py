"""Candidates of each text's own: what a loss takes where texts are not scored with the same labels.

The candidates of a text are its positives in the pool and the labels that were mined for it. No other pair of the text
counts: its loss is that of a pool of its own. A beam in a label tree finds candidates in another way (`Beam`); the loss
of their scores is taken here for both.

On several processes, each scores its own texts. Label vectors of the pool come from the processes that have them, and
their gradients go back there.

Shapes: B texts of the batch, b texts of this process, P labels of the pool, K candidates per text, N labels mined per
text, M positive pairs, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unidex.distributed import Processes
from unidex.losses import HeadLoss, Targets
from unidex.losses.blocks import BlockedGrad
from unidex.nn.candidate_scores import candidate_scores
from unidex.topk import PADDING


@dataclass(frozen=True, eq=False)
class OwnCandidates:
    """The candidates of this process's texts."""

    places_bK: Tensor  # places in the pool, -1 behind the last candidate of a text
    targets: Targets  # the pairs of the texts and their candidates, b x K

    @classmethod
    def of(cls, targets: Targets, mined_BN: Tensor, processes: Processes) -> OwnCandidates:
        """The candidates of a batch; ``targets`` are the pairs of all its texts and the pool.

        A mined label that is a positive or a filter pair of the text, as it may be after MixUp, is that alone.

        >>> from unidex.distributed import ALONE
        >>> targets = Targets.of([0, 1, 1], [3, 0, 2], shape=(2, 4))
        >>> found = OwnCandidates.of(targets, torch.tensor([[1, 2], [3, -1]]), ALONE)
        >>> found.places_bK.tolist(), found.targets.columns.tolist()
        ([[3, 1, 2], [0, 2, 3]], [0, 0, 1])
        """
        own, num_labels = processes.part(targets.shape[0]), targets.shape[1]
        rows_M, is_own_M = targets.rows - own.start, (targets.rows >= own.start) & (targets.rows < own.stop)
        rows_M, columns_M, weights_M = (part[is_own_M] for part in (rows_M, targets.columns, targets.weights))
        mined_bN = mined_BN[own]
        mined_rows, places = (mined_bN >= 0).nonzero(as_tuple=True)
        mined_columns = mined_bN[mined_rows, places]
        named = torch.cat([rows_M, targets.ignored_rows - own.start]) * num_labels
        named += torch.cat([columns_M, targets.ignored_columns])
        is_new = ~torch.isin(mined_rows * num_labels + mined_columns, named)
        # Positives first, so that their places are known without a search.
        rows = torch.cat([rows_M, mined_rows[is_new]])
        columns = torch.cat([columns_M, mined_columns[is_new]])
        places = _places_in_rows(rows, len(mined_bN))
        width = int(places.max()) + 1 if len(places) else 0
        places_bK = torch.full((len(mined_bN), width), PADDING, dtype=torch.int64, device=rows.device)
        places_bK[rows, places] = columns
        places_bK = same_width(places_bK, processes)
        empty_rows, empty_places = (places_bK < 0).nonzero(as_tuple=True)
        shape = (len(mined_bN), places_bK.shape[1])
        pairs = Targets(rows_M, places[: len(rows_M)], weights_M, empty_rows, empty_places, shape)
        return cls(places_bK, pairs)

    def loss(
        self,
        texts_BD: Tensor,
        labels_PD: Tensor,
        first: int,
        scale: Tensor,
        loss: HeadLoss,
        seed: int,
        ranks: Processes,
    ) -> BlockedGrad:
        """The loss of a head over the texts of all processes, and the gradients that `run_blocked` gives.

        ``labels_PD`` are those of this process; the first of them stands at place ``first`` of the pool.
        """
        device, own = texts_BD.device, ranks.part(len(texts_BD))
        texts = texts_BD[own].detach().requires_grad_()
        scale = scale.detach().requires_grad_()
        pool = ranks.gather(labels_PD.detach()).requires_grad_()
        scores_bK = candidate_scores(texts * scale, pool, self.places_bK.to(device).clamp(min=0))
        value, gradient_bK = loss_of_candidates(scores_bK.detach(), self.targets.to(device), loss, seed, ranks)
        of_texts, of_labels, of_scale = torch.autograd.grad(scores_bK, (texts, pool, scale), gradient_bK)
        gradient_BD = torch.zeros_like(texts_BD)
        gradient_BD[own] = of_texts
        return BlockedGrad(value, gradient_BD, ranks.sum_(of_labels)[first : first + len(labels_PD)], of_scale)


def loss_of_candidates(
    scores_bK: Tensor, targets: Targets, loss: HeadLoss, seed: int, processes: Processes
) -> tuple[Tensor, Tensor]:
    """The value over the texts of all processes, and the gradient of this process's scores, which are consumed."""
    num_texts, first = len(scores_bK), 0
    if processes.size > 1:
        # A loss is a mean over the texts of all processes; each takes its own rows of the gradient.
        sizes = processes.gather(torch.tensor([num_texts], device=scores_bK.device)).tolist()
        first, scores_bK = sum(sizes[: processes.rank]), processes.gather(scores_bK)
        targets = targets.gathered(processes, (len(scores_bK), scores_bK.shape[1]), first_row=first)
    value, gradient = loss.dense()(scores_bK, loss.sample(targets, seed))
    return value, gradient[first : first + num_texts]


def same_width(ids_bK: Tensor, processes: Processes, value: float = PADDING) -> Tensor:
    """As many candidates per text on each process, with ``value`` behind the last."""
    if processes.size == 1:
        return ids_bK
    width = int(processes.max_(torch.tensor(float(ids_bK.shape[1]), device=ids_bK.device)))
    return nn.functional.pad(ids_bK, (0, width - ids_bK.shape[1]), value=value)


def _places_in_rows(rows: Tensor, num_rows: int) -> Tensor:
    """How many earlier pairs of the same row each pair has.

    >>> _places_in_rows(torch.tensor([0, 1, 1, 0]), 2).tolist()
    [0, 0, 1, 1]
    """
    order = rows.argsort(stable=True)
    starts = torch.searchsorted(rows[order], torch.arange(num_rows, device=rows.device))
    places = torch.empty_like(rows)
    places[order] = torch.arange(len(rows), device=rows.device) - starts[rows[order]]
    return places
