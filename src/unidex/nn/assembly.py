"""From a recipe and an encoder to a network: which heads, which classifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from unidex.config import Config
from unidex.errors import ConfigError
from unidex.nn.heads import ClassifierHead, DualHead, TreeHeads
from unidex.nn.initialisation import OWN_ENCODER, classifier_rows, cluster_rows, seed_of
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable

ROWS_AT_ONCE = 1 << 18


def build_network(
    config: Config,
    encoder: Any,
    labels: slice | int,
    device: torch.device | str = "cpu",
    tree: LabelTree | None = None,
    file: Path | None = None,
) -> Network:
    """A network before training, with classifiers for so many labels or for a shard of them. The caller seeds torch.

    With ``tree``, also with heads for its clusters. With ``file``, the classifiers live there from the beginning.
    """
    heads = config.heads
    dim = heads.dim if heads.projection else encoder.dim
    options: dict[str, Any] = {"dropout": heads.dropout, "projection": heads.projection}
    dual = DualHead(encoder.dim, dim, normalised=heads.dual_normalised, **options) if heads.dual else None
    classifier = table = None
    if heads.classifier:
        classifier = ClassifierHead(
            encoder.dim, dim, searched=heads.classifier_search_vectors, bias=_has_bias(config), **options
        )
        table = _classifiers(config, labels if isinstance(labels, slice) else slice(0, labels), dim, device, file)
    own: Any = None
    if heads.separate_encoders:
        # Its random vectors differ, so that rare features, which stay near their initial vectors, do not err alike in
        # both heads.
        with seed_of(OWN_ENCODER):
            own = encoder.twin(config)
    network = Network(
        encoder,
        dual,
        classifier,
        table,
        temperature=config.loss.temperature,
        classifier_temperature=config.loss.classifier_temperature or None,
        learn_temperature=config.loss.learn_temperature,
        classifier_encoder=own,
        tree=None if tree is None else _tree_heads(config, encoder, tree, device),
    )
    for part in (encoder, own):
        if hasattr(part, "table"):
            part.table.weight = part.table.weight.to(device)
    return network.to(device)


def _classifiers(config: Config, labels: slice, dim: int, device: torch.device | str, file: Path | None) -> RowTable:
    """Classifiers of these labels; in a file, block by block, so that they are never all in memory."""
    number, width = labels.stop - labels.start, dim + _has_bias(config)
    dtype = torch.float16 if config.train.classifier_numbers == "float16" else torch.float32
    if file is None:
        table = RowTable(torch.zeros(number, width, device=device, dtype=dtype))
    else:
        table = RowTable.mapped(file, number, width, dtype)
    for first in range(0, number, ROWS_AT_ONCE):
        rows = slice(first, min(first + ROWS_AT_ONCE, number))
        of_labels = slice(labels.start + rows.start, labels.start + rows.stop)
        table.weight[rows, :dim] = classifier_rows(config, of_labels, dim).to(device)
        table.weight[rows, dim:] = 0
    return table


def _tree_heads(config: Config, encoder: Any, tree: LabelTree, device: torch.device | str) -> TreeHeads:
    layers = config.tree.layers
    if layers and any(not 1 <= layer <= encoder.num_layers for some in layers for layer in some):
        raise ConfigError(
            f"tree.layers must be layers of the transformer, 1 to {encoder.num_layers}, but are {layers}; for one of "
            f"{encoder.num_layers} layers, spread them over the upper half"
        )
    dim = encoder.layer_dim if layers else encoder.dim
    heads = TreeHeads(tree, config.tree, dim, bias=_has_bias(config))
    for level, table in enumerate(heads.tables):
        size = table.dim - heads.bias
        table.weight[:, :size] = cluster_rows(level, table.num_rows, size)
        table.weight = table.weight.to(device)
    return heads


def _has_bias(config: Config) -> bool:
    return config.heads.classifier_bias != "none"
