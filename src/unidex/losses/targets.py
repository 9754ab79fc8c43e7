"""Targets: which pairs of a batch of texts and a pool of labels are positive, and which do not count.

Shapes: B texts, P labels in the pool, M positive pairs, I ignored pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unidex.distributed import Processes


@dataclass(frozen=True, eq=False)
class Targets:
    """The positive and the ignored pairs of B texts and a pool of P labels, as coordinates. All others are negatives.

    A target in (0, 1] is how much a positive counts among the positives of its text: 1 for a plain positive, less for
    a soft one (Gandalf). A target of 0 marks a known positive that was not drawn in this step (see `one_positive`).
    An ignored pair (a filter pair) is neither positive nor negative: it is in no normaliser and its gradient is 0.

    `Targets.of` checks what it is given; the constructor takes it as it is, without a pass over the pairs.

    Attributes:
        rows: M int64, the text of each positive pair.
        columns: M int64, its place in the pool.
        weights: M float, its target.
        ignored_rows: I int64, the text of each ignored pair.
        ignored_columns: I int64, its place in the pool.
        shape: (B, P).

    >>> targets = Targets.of([0, 0, 1], [0, 2, 1], [1.0, 0.5, 1.0], ignored_rows=[1], ignored_columns=[2], shape=(2, 3))
    >>> targets.num_positives, targets.transposed().shape
    (3, (3, 2))
    """

    rows: Tensor
    columns: Tensor
    weights: Tensor
    ignored_rows: Tensor
    ignored_columns: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(
        cls,
        rows: Tensor | list[int],
        columns: Tensor | list[int],
        weights: Tensor | list[float] | None = None,
        *,
        ignored_rows: Tensor | list[int] | None = None,
        ignored_columns: Tensor | list[int] | None = None,
        shape: tuple[int, int],
    ) -> Targets:
        """Checked targets; every weight is 1 where none are given. Build them on the CPU: checking reads the values."""
        rows_M, columns_M = _ids(rows), _ids(columns)
        ignored_rows_I = _ids([] if ignored_rows is None else ignored_rows).to(rows_M.device)
        ignored_columns_I = _ids([] if ignored_columns is None else ignored_columns).to(rows_M.device)
        weights_M = torch.ones(len(rows_M), device=rows_M.device) if weights is None else torch.as_tensor(weights)
        if not weights_M.is_floating_point():
            weights_M = weights_M.to(torch.float32)
        targets = cls(rows_M, columns_M, weights_M, ignored_rows_I, ignored_columns_I, (int(shape[0]), int(shape[1])))
        _check(targets)
        return targets

    @property
    def num_positives(self) -> int:
        """Number of positive pairs."""
        return len(self.rows)

    def transposed(self) -> Targets:
        """The same pairs with the labels as anchors and the texts as their pool."""
        shape = (self.shape[1], self.shape[0])
        return Targets(self.columns, self.rows, self.weights, self.ignored_columns, self.ignored_rows, shape)

    def take(self, positives: Any, ignored: Any, labels: slice | None = None) -> Targets:
        """Some of the pairs, by places, masks or slices; with ``labels``, columns are counted among those alone."""
        first, stop = (0, self.shape[1]) if labels is None else (labels.start, labels.stop)
        return Targets(
            self.rows[positives],
            self.columns[positives] - first,
            self.weights[positives],
            self.ignored_rows[ignored],
            self.ignored_columns[ignored] - first,
            (self.shape[0], stop - first),
        )

    def between(self, first: int, stop: int) -> Targets:
        """The same texts with the labels from place ``first`` to before ``stop`` only.

        >>> Targets.of([0, 0, 1], [0, 2, 1], shape=(2, 3)).between(1, 3).columns
        tensor([1, 0])
        """
        kept = (self.columns >= first) & (self.columns < stop)
        ignored = (self.ignored_columns >= first) & (self.ignored_columns < stop)
        return self.take(kept, ignored, slice(first, stop))

    def gathered(
        self, processes: Processes, shape: tuple[int, int], *, first_row: int = 0, first_column: int = 0
    ) -> Targets:
        """The pairs of all processes; where the texts or labels of this one start among those of all."""
        return Targets(
            processes.gather(self.rows + first_row),
            processes.gather(self.columns + first_column),
            processes.gather(self.weights),
            processes.gather(self.ignored_rows + first_row),
            processes.gather(self.ignored_columns + first_column),
            shape,
        )

    def to(self, device: torch.device | str) -> Targets:
        """The same targets on another device."""
        rows, columns, weights, ignored_rows, ignored_columns = (
            part.to(device, non_blocking=True)
            for part in (self.rows, self.columns, self.weights, self.ignored_rows, self.ignored_columns)
        )
        return Targets(rows, columns, weights, ignored_rows, ignored_columns, self.shape)

    def totals(self, dtype: torch.dtype) -> Tensor:
        """The sum of the targets of each text, B; 0 for a text without a positive."""
        totals_B = torch.zeros(self.shape[0], dtype=dtype, device=self.rows.device)
        return totals_B.index_add_(0, self.rows, self.weights.to(dtype))

    def shares(self, dtype: torch.dtype) -> Tensor:
        """What each positive pair weighs in the mean over texts, M.

        w_ip / n, with w_ip = y_ip / sum_p y_ip and n the number of texts that have a positive; they add up to 1.

        >>> Targets.of([0, 0, 2], [0, 1, 1], [1.0, 0.25, 0.5], shape=(3, 2)).shares(torch.float64)
        tensor([0.4000, 0.1000, 0.5000], dtype=torch.float64)
        """
        totals_B = self.totals(dtype)
        return self.shares_of(totals_B, (totals_B > 0).sum())

    def shares_of(self, totals_B: Tensor, num_texts: Tensor) -> Tensor:
        """The same from sums over the targets of all processes, and the number of texts with a positive."""
        # A text whose targets are all 0 is one without a positive: 0 / 1.
        totals_M = torch.where(totals_B > 0, totals_B, 1)[self.rows]
        return self.weights.to(totals_B.dtype) / totals_M / num_texts.clamp_min(1)


def one_positive(targets: Targets, generator: torch.Generator) -> Targets:
    """One positive per text, drawn in proportion to its target: that one gets the target 1, the others 0.

    The drawn targets give an unbiased estimate of the mean over positives under `decoupled_softmax` and `triplet`.
    The draw is a race: the first of independent exponential times with rates y_ip wins with probability
    y_ip / sum_p y_ip. It needs no loop over texts and no number of positives on the host.

    References: DEXML (`loss_sample`), NGAME, DPR and ANCE train on one positive per text.

    >>> targets = Targets.of([0, 0, 0, 2], [0, 1, 2, 1], shape=(3, 3))
    >>> drawn = one_positive(targets, torch.Generator().manual_seed(0))
    >>> drawn.totals(torch.float32)
    tensor([1., 0., 1.])
    """
    drawn_M = draw_positives(targets, 1, generator).weights > 0
    return replace(targets, weights=drawn_M.to(targets.weights.dtype))


def draw_positives(targets: Targets, k: int, generator: torch.Generator) -> Targets:
    """At most k positives per text, drawn without replacement in proportion to their targets; the others get 0.

    The drawn ones keep their targets. No text can have more than k labels among its k highest, so `soft_topk_loss`
    cannot ask for all of more. The draw is that of `one_positive`: the first k of a race win.

    References: DEXML (arXiv 2310.10636) draws k positives for its soft top-k loss.

    >>> targets = Targets.of([0, 0, 0, 2], [0, 1, 2, 1], shape=(3, 3))
    >>> draw_positives(targets, 2, torch.Generator().manual_seed(0)).totals(torch.float32)
    tensor([2., 0., 1.])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
    weights_M = targets.weights.to(torch.float64)
    times_M = torch.empty_like(weights_M).exponential_(generator=generator) / weights_M
    return lowest_positives(targets, times_M, k)


def lowest_positives(targets: Targets, keys_M: Tensor, count: int) -> Targets:
    """The ``count`` positives of lowest key of each text keep their targets; the others get 0.

    A positive whose target is 0 already is not among them. Of equal keys the one named first counts.

    >>> targets = Targets.of([0, 0, 1], [0, 1, 1], shape=(2, 2))
    >>> lowest_positives(targets, torch.tensor([0.9, 0.2, 0.5]), 1).weights
    tensor([0., 1., 1.])
    """
    # By text, then by key: the second sort keeps the order of the first.
    order = torch.where(targets.weights > 0, keys_M, torch.inf).argsort(stable=True)
    order = order[targets.rows[order].argsort(stable=True)]
    rows = targets.rows[order]
    starts_B = torch.searchsorted(rows, torch.arange(targets.shape[0], device=rows.device))
    places_M = torch.empty_like(order)
    places_M[order] = torch.arange(len(rows), device=rows.device) - starts_B[rows]
    return replace(targets, weights=torch.where(places_M < count, targets.weights, 0))


def _ids(values: Tensor | list[int]) -> Tensor:
    ids = torch.as_tensor(values)
    # An empty list has no type of its own; torch calls it float.
    return ids.to(torch.int64) if len(ids) == 0 else ids


def _check(targets: Targets) -> None:
    num_texts, num_labels = targets.shape
    for what, rows, columns in (
        ("positive", targets.rows, targets.columns),
        ("ignored", targets.ignored_rows, targets.ignored_columns),
    ):
        if rows.dtype != torch.int64 or columns.dtype != torch.int64:
            raise ValueError(f"{what} pairs must be int64, but are {rows.dtype} and {columns.dtype}")
        if rows.dim() != 1 or rows.shape != columns.shape:
            raise ValueError(
                f"{what} pairs must have one row and one column each, "
                f"but have the shapes {tuple(rows.shape)} and {tuple(columns.shape)}"
            )
        if len(rows) and not bool(((rows >= 0) & (rows < num_texts) & (columns >= 0) & (columns < num_labels)).all()):
            raise ValueError(
                f"{what} pairs must lie in {num_texts} texts x {num_labels} labels, but reach row {int(rows.max())} "
                f"and column {int(columns.max())} (lowest: {int(rows.min())} and {int(columns.min())}); "
                "a column is a label's place in the pool, not its id"
            )
    weights = targets.weights
    if weights.shape != targets.rows.shape:
        raise ValueError(f"there must be one target per positive, but {len(targets.rows)} have {tuple(weights.shape)}")
    if len(weights) and not bool(((weights > 0) & (weights <= 1)).all()):
        worst = weights[~((weights > 0) & (weights <= 1))][0].item()
        raise ValueError(f"a target must be in (0, 1], but one is {worst}; leave pairs that are not positive out")
    rows = torch.cat([targets.rows, targets.ignored_rows])
    pairs = (rows * num_labels + torch.cat([targets.columns, targets.ignored_columns])).sort().values
    again = pairs[1:][pairs[1:] == pairs[:-1]]
    if len(again):
        row, column = divmod(int(again[0]), num_labels)
        raise ValueError(
            f"a pair must be named once, as positive or as ignored, but row {row}, column {column} comes again"
        )
