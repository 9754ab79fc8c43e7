"""Optimisers of a network: AdamW for dense parameters, row optimisers for tables, one schedule for all."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unidex.config import Config
from unidex.distributed import ALONE, Processes
from unidex.encoders import registry as encoders
from unidex.nn.network import Network
from unidex.nn.row_table import RowAdagrad, RowAdam, RowOptimiser, RowSGD, RowTable, Touched, merged
from unidex.nn.spectral import spectral_layers
from unidex.training.adamw import AdamW, Group


def lr_factor(step: int, num_steps: int, *, schedule: str, warmup: float) -> float:
    """What learning rates are multiplied with at a step, counted from 0.

    Rises to 1 over the first ``warmup`` share of the steps, then falls to 0 (cosine or linear) or stays (constant).
    One-cycle rises from 1/10 and falls to 1e-5, both along half a cosine (Smith and Topin, arXiv 1708.07120), as
    torch's OneCycleLR with div_factor 10 does.

    >>> [round(lr_factor(step, 10, schedule="linear", warmup=0.2), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.12]
    >>> [round(lr_factor(step, 10, schedule="one-cycle", warmup=0.3), 2) for step in (0, 1, 2, 5, 9)]
    [0.1, 0.55, 1.0, 0.61, 0.0]
    """
    if schedule == "one-cycle":
        return _one_cycle(step, num_steps, warmup)
    rising = math.ceil(num_steps * warmup)
    if step < rising:
        return (step + 1) / rising
    done = (step - rising) / max(1, num_steps - rising)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    return 1 - done if schedule == "linear" else 1.0


def _one_cycle(step: int, num_steps: int, warmup: float) -> float:
    top = max(0.0, num_steps * warmup - 1)
    if step <= top:
        first, last, done = _CYCLE_FIRST, 1.0, step / top if top else 1.0
    else:
        first, last, done = 1.0, _CYCLE_LAST, (step - top) / (num_steps - 1 - top)
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * done))


_CYCLE_FIRST, _CYCLE_LAST = 0.1, 1e-5
_ROWS: dict[str, type[RowOptimiser]] = {"adam": RowAdam, "adagrad": RowAdagrad, "sgd": RowSGD}


class Optimisers:
    """All optimisers of a network, driven together.

    On several processes, dense parameters and feature vectors, of both encoders where the classifier has its own, are
    the same on each and move along the sum of all gradients; classifiers are sharded, and a process moves its own rows.
    """

    def __init__(self, network: Network, config: Config, num_steps: int, processes: Processes = ALONE) -> None:
        self.config, self.num_steps, self.processes = config, num_steps, processes
        train = config.train
        is_pretrained = encoders.get(config.encoder.kind).can.is_pretrained
        groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for name, parameter in network.named_parameters():
            if not parameter.requires_grad:
                continue
            # Dense layers before which nothing was trained learn like a head; the vectors of words are a row table.
            lr = train.lr_encoder if name.startswith("encoder.") and is_pretrained else train.lr_heads
            # Biases and norms are not pulled to 0: they are no matrices, whatever their names.
            decay = train.weight_decay if parameter.ndim >= 2 else 0.0
            groups.setdefault((lr, decay), []).append(parameter)
        self._spectral = spectral_layers(network)
        self.dense = AdamW([Group(part, lr, decay) for (lr, decay), part in groups.items()]) if groups else None
        self._loss_scale = getattr(network.encoder, "loss_scale", None)
        has_bias = config.heads.classifier_bias != "none"

        def rows_of(name: str, table: RowTable) -> RowOptimiser:
            # Word vectors do not decay: a rare word would be worth what its few texts left of it.
            decay = 0.0 if name.endswith("features") else train.classifier_decay
            return _ROWS[train.row_optimiser](table, decay=decay, has_bias=has_bias)

        # Word vectors learn like an encoder; clusters of a label tree learn like classifiers.
        self._table_rates = {
            name: train.lr_encoder if name.endswith("features") else train.lr_classifier for name in network.tables()
        }
        self.rows = {name: rows_of(name, table) for name, table in network.tables().items()}
        self._name_of = {id(table): name for name, table in network.tables().items()}

    def step(self, touched: list[Touched], step: int) -> None:
        """One step of everything along the gradients that are there; none where half precision made one infinite."""
        factor = self._factor(step)
        if self.dense is not None:
            self._sum_dense()
            if self._loss_scale is not None and not self._loss_scale.judge(self.dense.parameters):
                self.dense.zero_grad()
                return
        for used in merged(touched):
            name = self._name_of[id(used.table)]
            whole = self._summed(used) if name != "classifiers" and self.processes.size > 1 else used
            self.rows[name].step(whole.ids, whole.rows, self._table_rates[name] * factor)
        if self.dense is not None:
            self.dense.step(factor)
            self.dense.zero_grad()
        for layer in self._spectral:
            layer.sharpen()

    def step_rows(self, table: RowTable, rows: slice, gradient: Tensor, step: int) -> None:
        """One step of neighbouring rows of a table whose gradient is known; for tables too large for one gradient."""
        name = self._name_of[id(table)]
        ids = torch.arange(rows.start, rows.stop, device=gradient.device)
        moved = table.gradient_leaf(len(ids))
        moved.grad = gradient
        self.rows[name].step(ids, moved, self._table_rates[name] * self._factor(step))

    def _factor(self, step: int) -> float:
        train = self.config.train
        return lr_factor(step, self.num_steps, schedule=train.schedule, warmup=train.warmup)

    def _summed(self, used: Touched) -> Touched:
        """The rows that any process has used, with the sum of all gradients."""
        anywhere = torch.zeros(used.table.num_rows, dtype=torch.uint8, device=used.ids.device)
        anywhere[used.ids] = 1
        ids = self.processes.max_(anywhere).nonzero().squeeze(1)
        rows = used.table.gradient_leaf(len(ids))
        gradient = rows.new_zeros(rows.shape)
        if used.rows.grad is not None:
            gradient.index_copy_(0, torch.searchsorted(ids, used.ids), used.rows.grad)
        rows.grad = self.processes.sum_(gradient)
        return Touched(used.table, ids, rows)

    def _sum_dense(self) -> None:
        """Sum the gradients of dense parameters over processes, in one message."""
        if self.processes.size == 1 or self.dense is None:
            return
        parameters = self.dense.parameters
        flat = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])
        summed = torch.split(self.processes.sum_(flat), [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, summed, strict=True):
            parameter.grad = part.view_as(parameter)

    def state(self) -> dict[str, Tensor]:
        """Everything as tensors by name."""
        found = {f"rows.{name}.{key}": value for name, rows in self.rows.items() for key, value in rows.state().items()}
        if self.dense is not None:
            found |= {f"dense.{key}": value for key, value in self.dense.state().items()}
        return found

    def load(self, state: dict[str, Tensor]) -> None:
        """Take a saved state."""
        for name, rows in self.rows.items():
            rows.load({key: state[f"rows.{name}.{key}"] for key in rows.names})
        if self.dense is not None:
            own = {key.removeprefix("dense."): value for key, value in state.items() if key.startswith("dense.")}
            self.dense.load(own)
