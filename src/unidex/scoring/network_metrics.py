"""Metrics of a network on texts whose labels are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Dataset, Split
from unidex.distributed import ALONE, Processes
from unidex.errors import ConfigError
from unidex.index.shards import search_shards
from unidex.metrics.evaluation import DEFAULT_KS, Evaluation, places_needed
from unidex.nn.network import Network
from unidex.scoring.computed_rows import LabelRows
from unidex.scoring.label_index import build_index
from unidex.scoring.layout import Layout, Weights
from unidex.topk import TopK

PLACES = 5


def score_network(
    network: Network,
    texts: Any,
    labels: Any,
    dataset: Dataset,
    split: Split,
    fusion: float,
    processes: Processes = ALONE,
    *,
    forbidden: NDArray[np.int64] | None = None,
) -> dict[str, float]:
    """Metrics of a network on prepared texts of a split, by exact search, or by the label tree where there is one.

    ``labels`` are the prepared texts of this process's labels.
    """
    layout, frequencies = Layout.of(network, Weights(fusion)), dataset.label_frequencies()
    queries = layout.queries(network.text_vectors(texts, processes))
    places = places_needed(split, PLACES)
    if layout.has_tree:
        index = build_index(network, layout, labels, frequencies, processes=processes)
        return metrics_of(index.search(queries, places, forbidden=forbidden), dataset, split)
    shard = processes.shard(dataset.num_labels)
    own = LabelRows(network, layout, labels, frequencies[shard])
    found = search_shards(queries, own, places, shard.start, processes, forbidden=forbidden)
    return metrics_of(found, dataset, split)


def metric_value(metrics: dict[str, float], wanted: str) -> float:
    """The value of a metric, or the sum of several joined by "+".

    >>> metric_value({"P@1": 50.0, "PSP@1": 30.0}, "P@1+PSP@1")
    80.0
    """
    names = [name.strip() for name in wanted.split("+")]
    unknown = [name for name in names if name not in metrics]
    if unknown:
        raise ConfigError(f"train.metric must be of {', '.join(metrics)}, joined by +, but has {unknown[0]!r}")
    return sum(metrics[name] for name in names)


def metrics_of(found: TopK, dataset: Dataset, split: Split, wanted: str | None = None) -> dict[str, float]:
    """Metrics of predictions for a split: all of them, or those that ``metric_value`` reads for what is wanted."""
    ks = None if wanted is None else _ks_of(wanted)
    evaluation = Evaluation(dataset.label_frequencies(), len(dataset.train), dataset.propensity, ks)
    evaluation.add(found.first(places_needed(split, PLACES)), split.positives, split.filter_pairs)
    return evaluation.results()


def _ks_of(wanted: str) -> dict[str, list[int]] | None:
    """The places of each metric of a sum; None where one is not among all.

    >>> _ks_of("P@1+PSP@1 + P@5"), _ks_of("speed@1"), _ks_of("R@10")
    ({'P': [1, 5], 'PSP': [1]}, None, None)
    """
    ks: dict[str, list[int]] = {}
    for name in wanted.split("+"):
        metric, _, k = name.strip().partition("@")
        if not k.isdecimal() or int(k) not in DEFAULT_KS.get(metric, ()) or int(k) > PLACES:
            return None
        ks.setdefault(metric, []).append(int(k))
    return ks
