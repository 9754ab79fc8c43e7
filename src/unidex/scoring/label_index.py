"""The index over the labels of a network: by inner products, or by the label tree where the network has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import index as indexes
from unidex.config.tree import at_level
from unidex.distributed import ALONE, Processes
from unidex.index import Index
from unidex.index.disk import DiskIndex
from unidex.index.pq import LISTED_FROM
from unidex.index.streamed import StreamedIndex
from unidex.index.tree import TreeIndex
from unidex.nn.array_network import ArrayNetwork
from unidex.nn.label_tree import LabelTree
from unidex.nn.network import Network
from unidex.nn.vectors import as_array
from unidex.scoring.computed_rows import LabelRows
from unidex.scoring.layout import Layout

# Beyond this, rows stay in a file.
MAX_IN_MEMORY = 1 << 31


def chosen_kind(kind: str, num_labels: int, dim: int) -> str:
    """The kind of index for so many rows: one in memory up to 2 GiB of rows, one on disk beyond.

    It depends on nothing but the sizes, so that the same data gives the same model on every machine.

    >>> chosen_kind("pq", 1_000_000, 257), chosen_kind("pq", 100_000_000, 65), chosen_kind("auto", 1000, 65)
    ('pq', 'disk', 'exact')
    """
    fits = 4 * num_labels * dim <= MAX_IN_MEMORY
    if kind == "auto":
        return "exact" if fits else "disk"
    return "disk" if kind == "pq" and not fits else kind


def build_index(
    network: Network,
    layout: Layout,
    prepared: Any,
    frequencies: NDArray[np.int64],
    kind: str | None = None,
    *,
    processes: Processes = ALONE,
    scratch: Path | None = None,
    arrays: ArrayNetwork | None = None,
    for_many_texts: bool = False,
) -> Index:
    """An index over labels as they are now.

    Args:
        network: gives the vectors of labels and the clusters of a label tree.
        layout: the layout of the rows.
        prepared: prepared texts of this process's labels.
        frequencies: number of training texts per label, of all processes.
        kind: of the index, in main memory or on disk; None for an exact one that follows the network where there are
            many labels. A label tree is its own index.
        processes: the processes that share the labels.
        scratch: a folder for large files while the index is built; an interrupted build is continued there.
        arrays: the network by array operations where a model predicts by it; it encodes the label texts then.
        for_many_texts: without a kind, an index of many labels is searched approximately, and is on disk in place of
            one that follows the network: for thousands of texts its build takes less time than the exact search.
    """
    tree = network.tree
    if tree is None and processes.size == 1:
        rows = LabelRows(network, layout, prepared, frequencies, arrays)
        if kind is None:
            if not rows.is_large:
                is_coded = for_many_texts and len(rows) >= LISTED_FROM
                return indexes.build("pq", rows[:].cpu().numpy()) if is_coded else indexes.build("exact", rows[:])
            return DiskIndex.build(rows, scratch=scratch) if for_many_texts else StreamedIndex(rows)
        kind = chosen_kind(kind, *rows.shape)
        if kind == "disk":
            return DiskIndex.build(rows, folder=None if scratch is None else scratch / "index")
        with rows.stored(scratch) as vectors:
            return indexes.build(kind, vectors)
    whole = layout.rows(network.label_vectors(prepared).gathered(processes), frequencies)
    if tree is None:
        return indexes.build("exact", whole) if kind is None else indexes.build(kind, as_array(whole))
    return TreeIndex.build(
        whole,
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
