"""Training on an encoder that stays as it is: its vectors are made once, and heads and classifiers learn on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unidex.config import Config
from unidex.distributed import Processes
from unidex.errors import ConfigError
from unidex.nn.network import Network
from unidex.nn.row_table import Touched
from unidex.training.training_set import TrainingSet


class KeptVectors(nn.Module):
    """An encoder of texts that are vectors already: some columns of them, as they are.

    >>> KeptVectors(slice(1, 3))(torch.tensor([[1.0, 2.0, 3.0]]))
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


def frozen(network: Network, data: TrainingSet, config: Config, processes: Processes) -> tuple[Network, TrainingSet]:
    """The heads and classifiers of a network on vectors that its encoders give now, and the training set as those.

    What is learned there is learned by the network itself: both share everything but the encoders. Dropout before the
    vectors (encoder.dropout, or inside a transformer) is off, as in a search.
    """
    heads = config.heads
    if not (heads.classifier or heads.projection or config.loss.learn_temperature):
        raise ConfigError(
            "a frozen encoder (train.freeze_encoder) needs something else that learns, but this recipe has neither "
            "heads.classifier nor heads.projection; switch one on or leave the encoder free"
        )
    dim = network.encoder.dim
    own = network.classifier_encoder
    step = Network(
        KeptVectors(slice(0, dim)),
        network.dual,
        network.classifier,
        network.classifiers,
        temperature=1.0,
        classifier_encoder=None if own is None else KeptVectors(slice(dim, dim + own.dim)),
        tree=network.tree,
    )
    step.log_scales = network.log_scales
    network.eval()
    # Label texts are read by the dual encoder alone.
    labels = torch.empty(data.labels.shape[0], 0, device=network.device)
    if network.dual is not None:
        labels = _encoded([network.encoder], network, data.labels, processes)
    encoders = [network.encoder] if own is None else [network.encoder, own]
    return step, replace(data, texts=_encoded(encoders, network, data.texts, processes), labels=labels)


@torch.no_grad()
def _encoded(encoders: list[Any], network: Network, prepared: Any, processes: Processes) -> Tensor:
    """The vectors of all encoders side by side; of several processes, each makes a part and all get the whole."""
    mine = prepared[processes.part(prepared.shape[0])] if processes.size > 1 else prepared
    vectors = torch.cat([network.encoded_by(encoder, mine) for encoder in encoders], dim=1)
    return processes.gather(vectors) if processes.size > 1 else vectors
