"""The vectors of a batch, one tensor per head, and the way back through heads and encoders.

`OneGraph` encodes texts and labels in one call. `Chunks` encodes both by themselves: on several processes, each its own
texts and labels, and in chunks where the recipe asks for them. Mixup acts between encoders and heads.

Shapes: B texts of the batch, P labels of this process, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unidex.augment.mixup import Mixture, draw_mixture
from unidex.distributed import ALONE, Processes
from unidex.losses import Targets
from unidex.nn.row_table import Touched
from unidex.training.backward_pass import Parts, backward
from unidex.training.chosen_rows import taken
from unidex.training.gradient_cache import GradientCache, Ids
from unidex.training.towers import Towers

Exchange = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of prepared texts, taken when they are needed."""

    prepared: Any
    ids: Ids

    def __getitem__(self, places: Any) -> Any:
        return taken(self.prepared, self.ids[places])


@dataclass(frozen=True, eq=False)
class Sides:
    """What is encoded in a step."""

    towers: Towers  # encoders and heads
    texts: Rows  # the texts of the batch, those of all processes
    labels: Rows  # the labels of this process
    targets: Targets  # the pairs of the batch
    first_label: int  # the place in the pool of this process's first label
    mixture: Mixture | None  # how texts are mixed; None to draw it from ``rng`` where the recipe asks for mixup
    is_detached: bool  # whether the classifier's gradient stops before the encoder
    rng: np.random.Generator  # of feature dropout and mixup; in the same state on each process
    touched: list[Touched]  # takes the rows of tables that are used

    def draw(self) -> Mixture | None:
        """How texts are mixed."""
        return self.mixture or draw_mixture(self.towers.config.augment, self.targets, self.rng)


class BatchVectors(Protocol):
    """The vectors of a batch, without a graph.

    Attributes:
        texts: one tensor per head, as `Towers.heads` orders them.
        labels: P x D, the dual encoder's vectors of this process's labels; None where it is not trained.
        targets: the pairs of the batch, mixed where texts are.
    """

    texts: Parts
    labels: Tensor | None
    targets: Targets

    def send_labels(self, gradient_PD: Tensor) -> None:
        """Take the gradient of the labels' vectors; it may go back at once."""

    def send_texts(self, gradients: Parts) -> None:
        """Take the gradients of the texts' vectors; all that is left goes back to everything that made them."""


class OneGraph:
    """Texts and labels in one call of the encoder, on one process."""

    def __init__(self, sides: Sides) -> None:
        towers, num_texts = sides.towers, sides.targets.shape[0]
        labels = sides.labels[:] if towers.encodes_labels else None
        read = towers.read(sides.texts[:], labels, sides.touched, sides.rng)
        mixture = sides.draw()
        self.targets = sides.targets if mixture is None else mixture.targets
        if mixture is not None:
            texts, beside = (tuple(part[rows] for part in read) for rows in (slice(num_texts), slice(num_texts, None)))
            mixed = _mixed(texts, beside, mixture, 0, ALONE)
            read = tuple(torch.cat(pair) for pair in zip(mixed, beside, strict=True))
        vectors = towers.heads(read, num_texts, is_detached=sides.is_detached)
        self._labels: Tensor | None = None
        if towers.has_dual:
            self._labels, vectors = vectors[0][num_texts:], (vectors[0][:num_texts], *vectors[1:])
        self._texts, self._gradient_PD = vectors, torch.empty(0)
        self.texts = tuple(part.detach() for part in vectors)
        self.labels = None if self._labels is None else self._labels.detach()

    def send_labels(self, gradient_PD: Tensor) -> None:
        """Keep the gradient: it goes back with that of the texts, through one graph."""
        self._gradient_PD = gradient_PD

    def send_texts(self, gradients: Parts) -> None:
        """Go back through the graph."""
        if self._labels is None:
            backward(self._texts, gradients)
        else:
            backward((*self._texts, self._labels), (*gradients, self._gradient_PD))


class Chunks:
    """Texts and labels of this process by themselves, in chunks where the recipe asks for them.

    With ``gathers`` each process scores the texts of all, and not only its own.
    """

    def __init__(self, sides: Sides, seed: int, processes: Processes, *, gathers: bool) -> None:
        towers = self._towers = sides.towers
        self._processes, self._gathers = processes, gathers
        num_texts, mixture = sides.targets.shape[0], sides.draw()
        self.targets = sides.targets if mixture is None else mixture.targets
        own = np.arange(num_texts)[processes.part(num_texts)]

        def encode_texts(ids: Ids, rng: np.random.Generator) -> Parts:
            read = towers.read(sides.texts[ids], None, _used(sides.touched), rng)
            return read if mixture is not None else towers.heads(read, len(ids), is_detached=sides.is_detached)

        def encode_labels(ids: Ids, rng: np.random.Generator) -> Parts:
            read = towers.read_labels(sides.labels[ids], _used(sides.touched), rng)
            return read if mixture is not None else towers.label_heads(read)

        chunk, rank = towers.config.train.chunk, processes.rank
        self._text_cache = GradientCache(encode_texts, own, chunk=chunk, seed=[seed, 0, rank])
        self._label_cache: GradientCache | None = None
        texts = self._text_cache.vectors()
        labels: Parts = ()
        if towers.encodes_labels:
            ids = np.arange(len(sides.labels.ids))
            self._label_cache = GradientCache(encode_labels, ids, chunk=chunk, seed=[seed, 1, rank])
            labels = self._label_cache.vectors()
        self._read: tuple[Parts, Parts] | None = None
        self._scored: Parts = ()
        if mixture is not None:
            # Graphs end where the encoders' vectors are: caches take the gradient from there.
            self._read = (_leaves(texts), _leaves(labels))
            mixed = _mixed(*self._read, mixture, sides.first_label, processes)
            of_texts = towers.heads(mixed, len(own), is_detached=sides.is_detached)
            of_labels = towers.label_heads(self._read[1]) if towers.has_dual else ()
            self._scored = (*of_texts, *of_labels)
            texts, labels = (tuple(part.detach() for part in side) for side in (of_texts, of_labels))
        self.texts = tuple(processes.gather(part) for part in texts) if gathers else texts
        self.labels = labels[0] if towers.has_dual else None
        self._gradient_PD = torch.empty(0)

    def send_labels(self, gradient_PD: Tensor) -> None:
        """Go back through the labels at once, unless texts are mixed with them."""
        assert self._label_cache is not None
        self._gradient_PD = gradient_PD
        if self._read is None:
            self._label_cache.backward((gradient_PD,))

    def send_texts(self, gradients: Parts) -> None:
        """Go back through this process's texts, with the sum of all processes' gradients."""
        if self._gathers:
            gradients = tuple(self._processes.reduce_scatter(part) for part in gradients)
        if self._read is not None:
            backward(self._scored, (*gradients, self._gradient_PD) if self._towers.has_dual else gradients)
            gradients, of_labels = (tuple(_gradient(leaf) for leaf in side) for side in self._read)
            if self._label_cache is not None:
                self._label_cache.backward(of_labels)
        self._text_cache.backward(gradients)


def _mixed(texts: Parts, labels: Parts, mixture: Mixture, first: int, processes: Processes) -> Parts:
    """This process's texts mixed with their partners, which another process may have encoded."""
    own, found = processes.part(mixture.targets.shape[0]), []

    def sum_(values: Tensor) -> Tensor:
        return processes.sum_(values.clone())

    for number, part_bD in enumerate(texts):
        everywhere_BD = _exchanged(part_bD, processes.gather, processes.reduce_scatter, processes)
        places_B = mixture.partners_B.to(part_bD.device)
        if not mixture.is_with_labels:
            partners_BD = everywhere_BD[places_B]
        elif processes.size == 1:
            partners_BD = labels[number][places_B]
        else:
            # Labels of other processes are rows of 0 here; the sum has all.
            places_B = places_B - first
            is_own_B = (places_B >= 0) & (places_B < len(labels[number]))
            padded_PD = torch.nn.functional.pad(labels[number], (0, 0, 0, 1))
            own_BD = padded_PD[torch.where(is_own_B, places_B, len(padded_PD) - 1)]
            partners_BD = _exchanged(own_BD, sum_, sum_, processes)
        found.append(mixture.mix(everywhere_BD, partners_BD)[own])
    return tuple(found)


def _exchanged(rows: Tensor, there: Exchange, back: Exchange, processes: Processes) -> Tensor:
    """An exchange between processes; ``back`` takes a gradient of any of the rows to its owner."""
    if processes.size == 1:
        return rows
    found: Tensor = _Exchange.apply(rows, there, back)  # type: ignore[no-untyped-call]
    return found


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, there: Exchange, back: Exchange) -> Tensor:
        ctx.back = back
        return there(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradient), None, None


def _used(touched: list[Touched]) -> list[Touched]:
    """Where rows are noted: a pass without a graph uses none."""
    return touched if torch.is_grad_enabled() else []


def _leaves(parts: Parts) -> Parts:
    return tuple(part.detach().requires_grad_() for part in parts)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
