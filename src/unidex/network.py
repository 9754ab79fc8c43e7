"""The network: an encoder or two, the heads and the classifiers, for training and for search.

Shapes: N texts or labels, D dimensions of a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from unidex.distributed import ALONE, Processes
from unidex.labels.heads import ClassifierHead, DualHead
from unidex.labels.rows import RowTable, Touched

# Vectors are made in blocks of so many texts, so that memory does not grow with their number.
BLOCK = 4096


class Prepared(Protocol):
    """Texts in the form an encoder reads, made once: sparse rows or token ids. Rows are taken by an array of ids."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of texts first."""

    def __getitem__(self, rows: Any) -> Any: ...


class Encoder(Protocol):
    """Texts -> vectors. Texts and labels share it."""

    dim: int

    def prepare(self, texts: Any) -> Any:
        """Texts in the form that ``__call__`` takes rows of."""

    def stack(self, parts: list[Any]) -> Any:
        """Prepared texts one after the other."""

    def __call__(
        self, prepared: Any, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """Vectors of prepared texts; with ``touched``, for training: rows of tables that were used are noted there."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of both heads; None for a head that the network does not have."""

    dual: Tensor | None
    classifier: Tensor | None

    def joined(self, fusion: float | None = None, bonus_N: Tensor | None = None) -> Tensor:
        """Both side by side; with ``fusion`` w, as label vectors [w dual ; (1 - w) classifier].

        The inner product of a text's vectors with a label's is then w cos(dual) + (1 - w) cos(classifier), so that one
        index serves both heads, and either alone when the other's part of the text is 0. A ``bonus`` is one number
        more a label, that a text with a 1 there gets as it is.
        """
        parts = [part for part in (self.dual, self.classifier) if part is not None]
        if fusion is not None and len(parts) == 2:
            parts = [parts[0] * fusion, parts[1] * (1 - fusion)]
        if bonus_N is not None:
            parts.append(bonus_N.to(parts[0])[:, None])
        return torch.cat(parts, dim=1)


class Network(nn.Module):
    """Encoder, heads, classifiers and temperatures.

    Attributes:
        encoder: of the dual encoder, and of the classifier unless that has its own.
        classifier_encoder: the classifier's own, which reads what ``encoder`` has prepared; None where both share one.
    """

    # Encoders that are Modules: attributes of modules have no types of their own.
    encoder: Any
    classifier_encoder: Any

    def __init__(
        self,
        encoder: nn.Module,
        dual: DualHead | None,
        classifier: ClassifierHead | None,
        classifiers: RowTable | None,
        *,
        temperature: float,
        classifier_temperature: float | None = None,
        learn_temperature: bool = False,
        classifier_encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier_encoder = classifier_encoder
        self.dual = dual
        self.classifier = classifier
        self.classifiers = classifiers
        # Learned as a logarithm: it stays positive, and a step changes it by a share of itself.
        scales = torch.tensor([-math.log(temperature), -math.log(classifier_temperature or temperature)])
        self.log_scales = nn.Parameter(scales, requires_grad=learn_temperature)

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return self.log_scales.device

    def tables(self) -> dict[str, RowTable]:
        """The row tables by name."""
        found = {
            "classifiers": self.classifiers,
            "features": getattr(self.encoder, "table", None),
            "classifier_features": getattr(self.classifier_encoder, "table", None),
        }
        return {name: table for name, table in found.items() if table is not None}

    def gather_classifiers(self, ids_U: Tensor, touched: list[Touched]) -> Tensor:
        """Classifiers of these labels, for a step: the rows that get a gradient are noted in ``touched``."""
        assert self.classifiers is not None
        rows = self.classifiers.gather(ids_U)
        touched.append(Touched(self.classifiers, ids_U, rows))
        return rows

    @torch.no_grad()
    def encode(self, prepared: Any) -> Tensor:
        """Encoder vectors of prepared texts, without a graph; the dual encoder's where the heads do not share one."""
        return self.encoded_by(self.encoder, prepared)

    def encoded_by(self, encoder: Any, prepared: Any) -> Tensor:
        """Vectors of prepared texts by one of the network's encoders, block by block."""
        num_texts = prepared.shape[0]
        if num_texts == 0:
            return torch.empty(0, encoder.dim, device=self.device)
        if num_texts <= BLOCK:
            # Whole as it is: the rows of a sparse matrix are copied where some are taken.
            vectors: Tensor = encoder(prepared)
            return vectors
        return torch.cat([encoder(prepared[start : start + BLOCK]) for start in range(0, num_texts, BLOCK)])

    @torch.no_grad()
    def text_vectors(self, prepared: Any, processes: Processes = ALONE) -> Vectors:
        """Vectors of texts as they are searched; of several processes, each encodes a part and all get the whole."""
        if processes.size > 1:
            own = self.text_vectors(prepared[processes.part(prepared.shape[0])])
            return Vectors(*(None if part is None else processes.gather(part) for part in (own.dual, own.classifier)))
        encoded = self.encode(prepared)
        dual = None if self.dual is None else self.dual(encoded)
        if self.classifier_encoder is not None:
            encoded = self.encoded_by(self.classifier_encoder, prepared)
        classifier = None if self.classifier is None else self.classifier.as_searched(self.classifier(encoded))
        return Vectors(dual, classifier)

    @torch.no_grad()
    def label_vectors(self, prepared: Any) -> Vectors:
        """Vectors of labels as they are searched; ``prepared`` are the texts of those that this network has."""
        dual = None if self.dual is None else self.dual(self.encode(prepared))
        classifier = None
        if self.classifiers is not None and self.classifier is not None:
            classifier = self.classifier.as_searched(self.classifiers.weight)
        return Vectors(dual, classifier)
