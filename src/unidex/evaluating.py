"""Scores of a network on texts whose labels are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unidex.data.dataset import Dataset, Split
from unidex.distributed import ALONE, Processes
from unidex.errors import ConfigError
from unidex.index.exact import search_exact
from unidex.index.shards import search_shards
from unidex.metrics.evaluation import Evaluation, places_needed
from unidex.network import Network
from unidex.topk import TopK

_PLACES = 5
# The best labels under any fusion weight are among the best of each head and of their mean.
_CANDIDATES = 50


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
    """Metrics of a network on prepared texts of a split, by exact search; ``labels`` are those of this process."""
    queries = network.text_vectors(texts, processes).joined()
    vectors = network.label_vectors(labels).joined(fusion)
    first = processes.shard(dataset.num_labels).start
    return _metrics(
        search_shards(queries, vectors, places_needed(split, _PLACES), first, processes, forbidden=forbidden),
        dataset,
        split,
    )


def fusion_scores(
    network: Network,
    texts: Any,
    labels: Any,
    dataset: Dataset,
    split: Split,
    weights: Sequence[float],
    processes: Processes = ALONE,
    *,
    forbidden: NDArray[np.int64] | None = None,
) -> dict[float, dict[str, float]]:
    """Metrics for each fusion weight. The candidates are searched once and scored anew for each weight.

    On several processes a candidate's vectors are elsewhere, so that each weight is searched for itself.
    """
    if processes.size > 1:
        return {
            weight: score_network(network, texts, labels, dataset, split, weight, processes, forbidden=forbidden)
            for weight in weights
        }
    queries, vectors = network.text_vectors(texts), network.label_vectors(labels)
    assert queries.dual is not None and queries.classifier is not None  # noqa: PT018
    assert vectors.dual is not None and vectors.classifier is not None  # noqa: PT018
    count = places_needed(split, _CANDIDATES)
    lists = [
        search_exact(queries.joined(), vectors.joined(0.5), count, forbidden=forbidden).ids,
        search_exact(queries.dual, vectors.dual, count, forbidden=forbidden).ids,
        search_exact(queries.classifier, vectors.classifier, count, forbidden=forbidden).ids,
    ]
    candidates = _without_repeats(np.concatenate(lists, axis=1))
    dual = _scores_of(queries.dual, vectors.dual, candidates)
    classifier = _scores_of(queries.classifier, vectors.classifier, candidates)
    return {
        weight: _metrics(TopK.rank(candidates, weight * dual + (1 - weight) * classifier), dataset, split)
        for weight in weights
    }


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


def _metrics(found: TopK, dataset: Dataset, split: Split) -> dict[str, float]:
    evaluation = Evaluation(dataset.label_frequencies(), len(dataset.train), dataset.propensity)
    evaluation.add(found.first(places_needed(split, _PLACES)), split.positives, split.filter_pairs)
    return evaluation.results()


def _without_repeats(ids_NK: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    ascending = np.sort(ids_NK, axis=1)
    ascending[:, 1:][ascending[:, 1:] == ascending[:, :-1]] = -1
    return ascending


def _scores_of(
    queries_ND: Tensor, vectors_LD: Tensor, ids_NK: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    blocks = []
    for start in range(0, len(ids_NK), 256):
        ids = torch.from_numpy(np.maximum(ids_NK[start : start + 256], 0)).to(vectors_LD.device)
        blocks.append(torch.einsum("nd,nkd->nk", queries_ND[start : start + 256], vectors_LD[ids]).cpu())
    scores: np.ndarray[Any, np.dtype[np.float32]] = torch.cat(blocks).numpy()
    return scores
