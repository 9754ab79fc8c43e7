"""From a recipe and an encoder to a network: which heads, which classifiers."""

from __future__ import annotations

from typing import Any

import torch

from unidex.config import Config
from unidex.errors import ConfigError
from unidex.nn.heads import ClassifierHead, DualHead, TreeHeads
from unidex.nn.initialisation import OWN_ENCODER, classifier_rows, cluster_rows, seed_of
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import Network
from unidex.nn.row_table import RowTable


def build_network(
    config: Config,
    encoder: Any,
    labels: slice | int,
    device: torch.device | str = "cpu",
    tree: LabelTree | None = None,
) -> Network:
    """A network before training, with classifiers for so many labels or for a shard of them. The caller seeds torch.

    With ``tree``, also with heads for its clusters.
    """
    heads = config.heads
    dim = heads.dim if heads.projection else encoder.dim
    options: dict[str, Any] = {"dropout": heads.dropout, "projection": heads.projection}
    dual = DualHead(encoder.dim, dim, normalised=heads.dual_normalised, **options) if heads.dual else None
    classifier = table = None
    if heads.classifier:
        has_bias = _has_bias(config)
        classifier = ClassifierHead(
            encoder.dim, dim, searched=heads.classifier_search_vectors, bias=has_bias, **options
        )
        rows = classifier_rows(config, labels if isinstance(labels, slice) else slice(0, labels), dim)
        table = RowTable((torch.nn.functional.pad(rows, (0, 1)) if has_bias else rows).to(device))
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
