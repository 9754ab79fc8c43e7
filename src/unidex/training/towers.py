"""Encoders and heads of a network as a step uses them: only what is trained is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from unidex.config import Config
from unidex.nn.network import Network
from unidex.nn.row_table import Touched
from unidex.training.backward_pass import Parts


@dataclass(frozen=True, eq=False)
class Towers:
    """From prepared texts to the vectors that are scored, in two halves: encoders, then heads."""

    network: Network
    config: Config

    @property
    def has_dual(self) -> bool:
        """Whether the dual encoder is trained; a loss of weight 0 trains nothing."""
        return self.network.dual is not None and (self.config.loss.dual_weight > 0 or self.network.classifier is None)

    @property
    def has_classifier(self) -> bool:
        """Whether classifiers of labels are trained, and not only clusters of a label tree."""
        clusters_only = self.network.tree is not None and self.config.tree.losses == "clusters"
        return self.network.classifier is not None and not clusters_only

    @property
    def weights(self) -> tuple[float, float]:
        """The weights of the losses of the dual encoder and the classifier; a head alone has 1."""
        if self.network.dual is None or self.network.classifier is None:
            return 1.0, 1.0
        return self.config.loss.dual_weight, 1 - self.config.loss.dual_weight

    @property
    def encodes_labels(self) -> bool:
        """Whether label texts are encoded: for the dual encoder, or to be mixed into texts."""
        return self.has_dual or self.config.augment.mixup == "labels"

    def read(self, texts: Any, labels: Any | None, touched: list[Touched], rng: np.random.Generator) -> Parts:
        """What the heads read: the encoder's vectors, then those of the classifier's own encoder or a tree's layers.

        The vectors of ``labels`` stand behind those of the texts.
        """
        network, own = self.network, self.network.classifier_encoder
        if network.tree is not None and network.tree.layers:
            encoded, levels = network.encoder.at_layers(self._stacked(texts, labels), network.tree.layers)
            return (encoded, *levels)
        read = []
        if own is None or self.has_dual:
            read.append(network.encoder(self._stacked(texts, labels), touched, rng))
        if own is not None:
            # Only mixup needs labels from the classifier's encoder.
            mixed_in = labels if self.config.augment.mixup == "labels" else None
            read.append(own(self._stacked(texts, mixed_in), touched, rng))
        return tuple(read)

    def _stacked(self, texts: Any, labels: Any | None) -> Any:
        return texts if labels is None else self.network.encoder.stack([texts, labels])

    def read_labels(self, labels: Any, touched: list[Touched], rng: np.random.Generator) -> Parts:
        """What the heads read of labels; of all encoders where labels are mixed into texts."""
        if self.config.augment.mixup == "labels":
            return self.read(labels, None, touched, rng)
        return (self.network.encoder(labels, touched, rng),)

    def heads(self, read: Parts, num_texts: int, *, is_detached: bool = False) -> Parts:
        """What is scored of what `read` gave: dual (texts, then labels behind them), classifier, levels of a tree.

        With ``is_detached`` the classifier's gradient stops before the encoder.
        """
        network = self.network
        found: list[Tensor] = []
        levels: list[Tensor] = []
        if network.tree is not None:
            texts = [_first(part, num_texts) for part in read]
            levels = network.tree(texts[1:] or texts * len(network.tree.tables))
        if self.has_dual:
            found += self.label_heads(read)
        if self.has_classifier:
            assert network.classifier is not None
            encoded = _first(read[0] if network.classifier_encoder is None else read[-1], num_texts)
            vectors = network.classifier(encoded.detach() if is_detached else encoded)
            found.append(network.classifier.unit(vectors) if self.config.heads.classifier_normalised else vectors)
        return (*found, *levels)

    @property
    def classifiers_are_as_stored(self) -> bool:
        """Whether classifiers are scored just as the table has them."""
        heads = self.config.heads
        return not (heads.classifier_normalised or heads.classifier_dropout or self.network.parts)

    def gather_classifiers(self, ids_U: Tensor, touched: list[Touched]) -> Tensor:
        """The classifiers of these rows as they are scored, U x D, with a graph back to the rows and parts.

        Dropout and unit length are those of the recipe; a bias is neither dropped nor scaled.
        """
        head, heads = self.network.classifier, self.config.heads
        assert head is not None
        rows_UD = self.network.gather_classifiers(ids_U, touched)
        if heads.classifier_dropout:
            rows_UD = head.beside_bias(lambda part: nn.functional.dropout(part, heads.classifier_dropout), rows_UD)
        return head.unit(rows_UD) if heads.classifier_normalised else rows_UD

    def label_heads(self, read: Parts) -> Parts:
        """The dual encoder's vectors of what was read."""
        assert self.network.dual is not None
        return (self.network.dual(read[0]),)


def _first(rows: Tensor, count: int) -> Tensor:
    # All rows as they are: a slice would be one more node of the graph, and sum gradients in another order.
    return rows if len(rows) == count else rows[:count]
