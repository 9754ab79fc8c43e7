"""The network of a loaded model as a torch module, for those who want to train or change it.

Shapes: L labels, D dimensions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from unidex.config import Config
from unidex.encoders.registry import get, saves_weights
from unidex.errors import ModelError
from unidex.index import Index
from unidex.nn.array_network import ENCODER_TABLES, ArrayNetwork
from unidex.nn.assembly import build_network
from unidex.nn.device import choose_device
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable
from unidex.scoring.label_index import label_tree, restore_clusters
from unidex.scoring.scorer import Scorer
from unidex.storage.eight_bits import whole_table
from unidex.storage.mapped import load_tensors


def restored_network(config: Config, arrays: ArrayNetwork, scorer: Scorer) -> Network:
    """A network of the same weights, with the classifiers of the index: of length 1 where unit vectors are searched."""
    encoder = get(config.encoder.kind).of_arrays(config, arrays.encoder)
    network = build_network(config, encoder, 1)
    weights = arrays.weights()
    for name, table in ENCODER_TABLES.items():
        own = getattr(arrays, name)
        if own is not None:
            getattr(network, name).table.weight = torch.from_numpy(whole_table(own.table).copy())
            weights = {key: values for key, values in weights.items() if key.split(".")[0] != table}
    network.load_state_dict({key: torch.from_numpy(np.array(values)) for key, values in weights.items()})
    restore_classifiers(network, scorer)
    network.eval()
    return network


def restore_classifiers(network: Network, scorer: Scorer) -> None:
    """Give a network the classifiers of its index."""
    if network.classifiers is not None:
        rows = scorer.index.vectors(np.arange(scorer.index.num_ids))
        weight = torch.from_numpy(np.ascontiguousarray(scorer.layout.vectors_of(rows, "classifier")))
        network.classifiers = RowTable(weight.to(network.device))


def read_network(config: Config, encoder: Any, file: Path, index: Index, device: str) -> Network:
    """A network with the weights of a file and the clusters of a label tree, without its classifiers."""
    device = str(choose_device(device))
    try:
        weights = load_tensors(file, device=device)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file}: the model cannot be read ({error}); copy it again") from None
    # One label: the classifiers are those of the index.
    network = build_network(config, encoder, 1, device, label_tree(index))
    restore_clusters(network, index)
    tables = network.tables()
    for name in ENCODER_TABLES.values():
        if name in tables:
            tables[name].weight = weights.pop(name)
    if saves_weights(config) and not any(name.startswith("encoder.") for name in weights):
        weights |= {name: weight for name, weight in network.state_dict().items() if name.startswith("encoder.")}
    network.load_state_dict(weights)
    return network
