"""A network whose encoder does not learn: its vectors are made once, and steps start from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.config import Config
from unidex.distributed import Processes
from unidex.nn.network import BLOCK, Network
from unidex.nn.row_table import Touched
from unidex.training.training_set import TrainingSet


class StoredVectors(nn.Module):
    """An encoder of texts that are vectors already: some columns of them, as they are.

    >>> StoredVectors(slice(1, 3))(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 3.]])
    """

    def __init__(self, columns: slice) -> None:
        super().__init__()
        self.columns, self.dim = columns, columns.stop - columns.start

    def stack(self, parts: list[Tensor]) -> Tensor:
        """Vectors one after the other."""
        return torch.cat(parts)

    def forward(
        self, vectors: Tensor, touched: list[Touched] | None = None, rng: np.random.Generator | None = None
    ) -> Tensor:
        """The columns of this encoder; nothing of it learns."""
        return vectors[:, self.columns]

    def at_layers(self, vectors: Tensor, layers: list[list[int]]) -> tuple[Tensor, list[Tensor]]:
        """The columns of this encoder, and those of the layers behind them, level by level."""
        widths = [self.dim * len(some) for some in layers]
        behind = vectors[:, self.columns.stop : self.columns.stop + sum(widths)]
        return self(vectors), list(torch.split(behind, widths, dim=1))


def freeze(network: Network, data: TrainingSet, config: Config, processes: Processes) -> tuple[Network, TrainingSet]:
    """The heads and classifiers of a network on vectors that its encoders give now, and the training set as those.

    What is learned there is learned by the network itself: both share everything but the encoders. Dropout before the
    vectors (encoder.dropout, or inside a transformer) is off, as in a search.
    """
    dim = network.encoder.dim
    own = network.classifier_encoder
    step = Network(
        StoredVectors(slice(0, dim)),
        network.dual,
        network.classifier,
        network.classifiers,
        temperature=1.0,
        classifier_encoder=None if own is None else StoredVectors(slice(dim, dim + own.dim)),
        tree=network.tree,
    )
    step.log_scales = network.log_scales
    if network.parts is not None:
        # Word vectors are the encoder's: parts read them as they are.
        step.parts, step.fixed_words = network.parts, network.words
    network.eval()
    # The dual encoder reads label texts, and so does mixup with labels.
    mixes_labels = config.augment.mixup == "labels"
    labels = torch.empty(data.labels.shape[0], 0, device=network.device)
    if network.dual is not None or mixes_labels:
        labels = _encoded(network, data.labels, processes, whole=mixes_labels)
    return step, replace(data, texts=_encoded(network, data.texts, processes), labels=labels)


@torch.no_grad()
def _encoded(network: Network, prepared: Any, processes: Processes, *, whole: bool = True) -> Tensor:
    """Vectors side by side: the encoder's, then those of the classifier's own or of a tree's layers.

    Of several processes, each makes a part and all get the whole. Without ``whole``, the encoder's alone.
    """
    own_texts = prepared[processes.part(prepared.shape[0])] if processes.size > 1 else prepared
    if whole and network.tree is not None and network.tree.layers:
        layers = network.tree.layers
        blocks = [own_texts[start : start + BLOCK] for start in range(0, max(1, own_texts.shape[0]), BLOCK)]
        read = [network.encoder.at_layers(block, layers) for block in blocks]
        vectors = torch.cat([torch.cat([encoded, *levels], dim=1) for encoded, levels in read])
    else:
        own = network.classifier_encoder
        encoders = [network.encoder] if own is None or not whole else [network.encoder, own]
        vectors = torch.cat([network.encoded_by(encoder, own_texts) for encoder in encoders], dim=1)
    return processes.gather(vectors) if processes.size > 1 else vectors
