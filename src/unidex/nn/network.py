"""The network: an encoder or two, the heads and the classifiers, for training and for search.

Shapes: N texts or labels, D dimensions of a head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unidex.config.predict import Precision
from unidex.distributed import ALONE, Processes
from unidex.nn.array_network import ArrayNetwork
from unidex.nn.classifier_parts import ClassifierParts
from unidex.nn.encoder_protocol import HasFold
from unidex.nn.heads import ClassifierHead, DualHead, TreeHeads
from unidex.nn.row_table import RowTable, Touched
from unidex.nn.vectors import Vectors, as_array

# Vectors are made in blocks of so many texts, so that memory does not grow with their number.
BLOCK = 4096


class Network(nn.Module):
    """Encoder, heads, classifiers and temperatures.

    Attributes:
        encoder: the encoder of both heads, unless the classifier has its own.
        classifier_encoder: the classifier's own, on texts that ``encoder`` has prepared; None where both share one.
        tree: the heads of a label tree, by which labels are searched; None without a tree.
        parts: makes classifiers of word vectors too, while they are trained; None for plain classifiers.
    """

    # Encoders that are Modules: attributes of modules have no types of their own.
    encoder: Any
    classifier_encoder: Any
    parts: ClassifierParts | None

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
        tree: TreeHeads | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.classifier_encoder = encoder, classifier_encoder
        self.dual, self.classifier, self.classifiers, self.tree = dual, classifier, classifiers, tree
        self.parts = None
        self.fixed_words: RowTable | None = None
        # Learned as a logarithm: it stays positive, and a step changes it by a share of itself.
        scales = torch.tensor([-math.log(temperature), -math.log(classifier_temperature or temperature)])
        self.log_scales = nn.Parameter(scales, requires_grad=learn_temperature)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.log_scales.device

    @property
    def words(self) -> RowTable:
        """The word vectors of the classifier's encoder; parts of classifiers are made of them."""
        if self.fixed_words is not None:
            return self.fixed_words
        encoder = self.encoder if self.classifier_encoder is None else self.classifier_encoder
        table: RowTable = encoder.table
        return table

    def tables(self) -> dict[str, RowTable]:
        """The row tables by name."""
        found = {
            "classifiers": self.classifiers,
            "features": getattr(self.encoder, "table", None),
            "classifier_features": getattr(self.classifier_encoder, "table", None),
        }
        tables = {name: table for name, table in found.items() if table is not None}
        clusters = [] if self.tree is None else self.tree.tables
        return tables | {f"clusters_{level}": table for level, table in enumerate(clusters)}

    def gather_classifiers(self, ids_U: Tensor, touched: list[Touched]) -> Tensor:
        """Classifiers of these labels, for a step: the rows that get a gradient are noted in ``touched``."""
        assert self.classifiers is not None
        if self.parts is not None and not self.parts.needs(self.classifiers):
            return self._of_parts(ids_U, None, touched)
        rows = self.classifiers.gather(ids_U)
        touched.append(Touched(self.classifiers, ids_U, rows))
        return rows if self.parts is None else self._of_parts(ids_U, rows, touched)

    def _of_parts(self, ids_U: Tensor, own_UD: Tensor | None, touched: list[Touched] | None = None) -> Tensor:
        assert self.parts is not None
        # Word vectors of a frozen encoder are read, not learned.
        noted = touched if self.fixed_words is None else None
        classifiers: Tensor = self.parts(ids_U, own_UD, self.words, noted)
        return classifiers

    @torch.no_grad()
    def all_classifiers(self) -> Tensor:
        """The current classifiers of all labels; classifiers of parts are made block by block."""
        assert self.classifiers is not None
        own = self.classifiers.rows(slice(None))
        return own if self.parts is None else self._make_classifiers(torch.empty_like(own))

    @torch.no_grad()
    def _make_classifiers(self, into_LD: Tensor) -> Tensor:
        assert self.classifiers is not None
        for start in range(0, len(into_LD), BLOCK):
            ids = torch.arange(start, min(start + BLOCK, len(into_LD)), device=self.device)
            into_LD[start : start + BLOCK] = self._of_parts(ids, self.classifiers.rows(slice(start, start + BLOCK)))
        return into_LD

    def fold(self) -> None:
        """Turn classifiers of parts and an encoder in training into plain ones: only training knows parts."""
        if isinstance(self.encoder, HasFold):
            self.encoder.fold()
        if self.parts is not None and self.classifiers is not None:
            self.eval()
            # In place: a table in a file may be larger than memory.
            self._make_classifiers(self.classifiers.weight)
            self.parts = None

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

    def with_levels(
        self, prepared: Any, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Encoder vectors of prepared texts, and their vectors for the clusters of each level of the tree."""
        assert self.tree is not None
        if self.tree.layers:
            encoded, read = self.encoder.at_layers(prepared, self.tree.layers)
        else:
            encoded = self.encoder(prepared, touched, rng)
            read = [encoded] * len(self.tree.tables)
        return encoded, self.tree(read)

    @torch.no_grad()
    def _tree_vectors(self, prepared: Any) -> Vectors:
        assert self.tree is not None
        assert self.classifier is not None
        found: list[tuple[Tensor, Tensor]] = []
        for start in range(0, max(1, prepared.shape[0]), BLOCK):
            encoded, read = self.with_levels(prepared[start : start + BLOCK])
            found.append((self.classifier.as_searched(self.classifier(encoded)), torch.cat(read, dim=1)))
        classifier, levels = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Vectors(None, classifier, levels)

    @torch.no_grad()
    def text_vectors(self, prepared: Any, processes: Processes = ALONE) -> Vectors:
        """Vectors of texts as they are searched; of several processes, each encodes a part and all get the whole."""
        if processes.size > 1:
            return self.text_vectors(prepared[processes.part(prepared.shape[0])]).gathered(processes)
        if self.tree is not None:
            return self._tree_vectors(prepared)
        encoded = self.encode(prepared)
        dual = None if self.dual is None else self.dual(encoded)
        if self.classifier_encoder is not None:
            encoded = self.encoded_by(self.classifier_encoder, prepared)
        classifier = None if self.classifier is None else self.classifier.as_searched(self.classifier(encoded))
        return Vectors(dual, classifier)

    @torch.no_grad()
    def label_vectors(self, prepared: Any, rows: slice | NDArray[np.int64] | None = None) -> Vectors:
        """Vectors of labels as they are searched.

        ``prepared`` are the texts of those that this network has, or of the ``rows`` of its classifiers; None for
        vectors of classifiers alone.
        """
        dual = None if self.dual is None or prepared is None else self.dual(self.encode(prepared))
        classifier = None
        if self.classifiers is not None and self.classifier is not None:
            own = self.all_classifiers() if rows is None else self._classifiers_of(rows)
            classifier = self.classifier.as_searched(own)
        return Vectors(dual, classifier)

    def _classifiers_of(self, rows: slice | NDArray[np.int64]) -> Tensor:
        assert self.classifiers is not None
        weight = self.classifiers.weight
        ids = torch.arange(*rows.indices(len(weight))) if isinstance(rows, slice) else torch.from_numpy(rows)
        ids = ids.to(weight.device)
        own = self.classifiers.rows(rows if isinstance(rows, slice) else ids)
        return own if self.parts is None else self._of_parts(ids, own)

    def arrays(self, precision: Precision) -> ArrayNetwork | None:
        """The network by array operations, as it is now; None where its encoder or a label tree needs torch."""
        if self.tree is not None or not getattr(self.encoder, "has_arrays", False):
            return None
        own = self.classifier_encoder
        return ArrayNetwork(
            self.encoder.arrays(precision),
            None if own is None else own.arrays(precision),
            None if self.dual is None else self.dual.arrays(),
            None if self.classifier is None else self.classifier.arrays(),
            as_array(self.log_scales),
        )
