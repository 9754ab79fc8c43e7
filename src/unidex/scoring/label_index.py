"""The index over the labels of a network: by inner products, or by the label tree where the network has one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unidex import index as indexes
from unidex.config.tree import at_level
from unidex.index import Index
from unidex.index.tree import TreeIndex
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import Network
from unidex.nn.vectors import Vectors, as_array
from unidex.scoring.layout import Layout


def build_index(
    network: Network, layout: Layout, labels: Vectors, frequencies: NDArray[np.int64], kind: str | None = None
) -> Index:
    """An index over labels as they are now.

    Args:
        network: gives the clusters of a label tree.
        layout: the layout of the rows.
        labels: vectors of all labels.
        frequencies: number of training texts per label.
        kind: of the index, in main memory; None for an exact one where the vectors are. A label tree is its own index.
    """
    rows = layout.rows(labels, frequencies)
    if network.tree is None:
        return indexes.build("exact", rows) if kind is None else indexes.build(kind, as_array(rows))
    tree = network.tree
    return TreeIndex.build(
        rows,
        tree=tree.shape,
        clusters=[table.weight for table in tree.tables],
        beam=[at_level(tree.settings.search_beam, level) for level in tree.shape.levels],
        scale=float(network.log_scales[1].detach().exp()),
    )


def label_tree(index: Index) -> LabelTree | None:
    """The label tree that an index searches by; None where it does not."""
    return index.tree if isinstance(index, TreeIndex) else None


def restore_clusters(network: Network, index: Index) -> None:
    """Give a network the cluster vectors that its index was saved with."""
    if network.tree is not None and isinstance(index, TreeIndex):
        for table, clusters in zip(network.tree.tables, index.clusters, strict=True):
            table.weight = clusters.to(network.device)
