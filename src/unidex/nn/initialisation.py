"""Initial values: where every parameter starts, by seed, by label texts, by train texts.

Shapes: L labels, D numbers of a classifier.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from unidex.config import Config
from unidex.distributed import Processes
from unidex.nn.label_tree import label_centroids

if TYPE_CHECKING:
    from unidex.nn.network import Network

# Rows of a table that share a seed.
_ROWS_PER_SEED = 4096
# Labels whose texts are encoded together; blocks of the network are of this size too.
_LABELS_AT_ONCE = 4096
# Added to the seed, so that the classifier's own encoder and the clusters of each level draw numbers of their own.
OWN_ENCODER = 0x2545F4914F6CDD1D
_CLUSTERS = 0x5851F42D4C957F2D
# Of classifiers that are not trained as unit vectors, as the paper's Xavier initialisation is.
_SMALL = 0.02


@contextmanager
def seed_of(purpose: int) -> Iterator[None]:
    """Draw from a seed of one purpose inside; what is drawn behind it stays the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((torch.initial_seed() + purpose) % 2**63)
        yield


def random_rows(rows: slice, dim: int) -> Tensor:
    """Standard normal rows of a table by their numbers: a shard draws the same rows as the whole table.

    Each block of rows has a seed of its own, so that no process draws the rows of the others.

    >>> torch.equal(random_rows(slice(0, 5000), 2)[4000:4200], random_rows(slice(4000, 4200), 2))
    True
    """
    found = torch.empty(rows.stop - rows.start, dim)
    for first in range(rows.start // _ROWS_PER_SEED * _ROWS_PER_SEED, rows.stop, _ROWS_PER_SEED):
        seed = (torch.initial_seed() + 0x9E3779B97F4A7C15 * (first // _ROWS_PER_SEED + 1)) % 2**63
        block = torch.randn(_ROWS_PER_SEED, dim, generator=torch.Generator().manual_seed(seed))
        start, stop = max(first, rows.start), min(first + _ROWS_PER_SEED, rows.stop)
        found[start - rows.start : stop - rows.start] = block[start - first : stop - first]
    return found


def random_vectors(count: int, dim: int, length: float = 1.0) -> Tensor:
    """Vectors of words, of about this length, in random directions: texts that share no word are unrelated."""
    vectors = torch.randn(count, dim)
    # To divide by a root and to multiply by its inverse round differently.
    return vectors.div_(dim**0.5) if length == 1 else vectors.mul_(length / dim**0.5)


def orthogonal_linear(dim_in: int, dim: int, *, gain: float = 1.0, bias: bool = True) -> nn.Linear:
    """A linear layer that keeps inner products, times ``gain``; the bias is 0."""
    linear = nn.Linear(dim_in, dim, bias=bias)
    nn.init.orthogonal_(linear.weight, gain=gain)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def orthogonal_rows(count: int, dim: int) -> Tensor:
    """Rows that keep inner products of vectors with ``count`` numbers, as nearly as ``dim`` numbers can."""
    rows = torch.empty(count, dim)
    nn.init.orthogonal_(rows, gain=max(1.0, (count / dim) ** 0.5))
    return rows


def small_linear(dim: int) -> nn.Linear:
    """A layer of a residual block: the block starts near the identity, and every weight gets a gradient."""
    linear = nn.Linear(dim, dim)
    nn.init.normal_(linear.weight, std=0.1 / dim**0.5)
    nn.init.zeros_(linear.bias)
    return linear


def xavier_matrix(rows: int, columns: int, *, normal: bool = False) -> Tensor:
    """A matrix by Xavier's rule, uniform or normal."""
    matrix = torch.empty(rows, columns)
    return nn.init.xavier_normal_(matrix) if normal else nn.init.xavier_uniform_(matrix)


def classifier_rows(config: Config, rows: slice, dim: int) -> Tensor:
    """Random classifiers of these labels: of about unit length where they are trained so, else small, or 0."""
    heads = config.heads
    scale = 0.0 if heads.classifier_init == "zero" else 1.0 if heads.classifier_normalised else _SMALL
    return random_rows(rows, dim).mul_(scale / dim**0.5)


def cluster_rows(level: int, count: int, dim: int) -> Tensor:
    """Random vectors of the clusters of a level, as small as classifiers."""
    with seed_of(_CLUSTERS * (level + 1)):
        return random_rows(slice(0, count), dim).mul_(_SMALL / dim**0.5)


def initialise_classifiers(
    network: Network,
    config: Config,
    label_texts: Any,
    texts: Any,
    positives: sparse.csr_array,
    processes: Processes,
    graph_LL: sparse.csr_array | None = None,
) -> None:
    """Give new classifiers, and biases, the initial values of the recipe; surrogate clusters stay random.

    The network is in eval mode: initial vectors are vectors as they are searched. ``positives`` are train texts x what
    is learned, labels or clusters of them; each process has a shard of their classifiers. ``graph_LL`` is the label
    graph of the initial value "label-graph".
    """
    heads, shard = config.heads, processes.shard(positives.shape[1])
    if heads.classifier_init == "label-text" and not config.train.surrogate:
        classifiers_from_label_texts(network, processes.own_rows(label_texts))
    elif heads.classifier_init == "label-graph" and not config.train.surrogate:
        assert graph_LL is not None
        classifiers_from_label_texts(network, label_texts, graph_LL[shard])
    elif heads.classifier_init == "centroid" and not config.train.surrogate:
        classifiers_from_centroids(network, texts, positives, shard, processes)
    if heads.classifier_bias != "none":
        initialise_biases(network, heads.classifier_bias, positives, shard)


def classifiers_from_label_texts(network: Network, labels: Any, graph_lL: sparse.csr_array | None = None) -> None:
    """Set each classifier to the vector that its head gives the label's own text; without a text it stays random.

    With ``graph_lL``, the rows of a label graph of the labels of these classifiers, each gets the sum of the vectors of
    its neighbours, itself among them (SiameseXML, ICML 2021).
    """
    assert network.classifiers is not None
    assert network.classifier is not None
    summed = None
    if graph_lL is not None:
        every = network.text_vectors(labels).classifier
        assert every is not None
        summed = torch.from_numpy(graph_lL @ every.cpu().numpy()).to(every)
    for start in range(0, network.classifiers.num_rows, _LABELS_AT_ONCE):
        rows = slice(start, start + _LABELS_AT_ONCE)
        vectors = network.text_vectors(labels[rows]).classifier if summed is None else summed[rows]
        assert vectors is not None
        # A classifier of length 0 has no direction to learn from; the 1 before a bias is no direction either.
        has_text = vectors[:, : vectors.shape[1] - network.classifier.bias].abs().sum(dim=1, keepdim=True) > 0
        own = network.classifiers.weight[rows]
        own.copy_(torch.where(has_text, vectors, own))


@torch.no_grad()
def classifiers_from_centroids(
    network: Network, texts: Any, positives: sparse.csr_array, shard: slice, processes: Processes
) -> None:
    """Set each classifier to the mean direction of its texts, less that of all labels; without texts it stays random.

    The mean of all changes every score of a text alike, so a search with these classifiers ranks labels by their
    centroids, as Astec makes its shortlists. Left in, it would make every label likely where there are no biases.
    """
    vectors = network.text_vectors(texts, processes).classifier
    assert vectors is not None
    assert network.classifiers is not None
    centroids = label_centroids(vectors.cpu().numpy(), positives)
    assert not sparse.issparse(centroids)
    found = torch.from_numpy(np.ascontiguousarray(centroids))
    has_texts = found.abs().sum(dim=1, keepdim=True) > 0
    found = torch.where(has_texts, found - found[has_texts[:, 0]].mean(dim=0), 0)[shard].to(network.device)
    network.classifiers.weight.copy_(
        torch.where(has_texts[shard].to(network.device), found, network.classifiers.weight)
    )


def initialise_biases(
    network: Network, bias: str, positives: sparse.csr_array, shard: slice, biases_L: Tensor | None = None
) -> None:
    """Set the bias of each label in a shard to 0, or to ln(p / (1 - p)) with p the share of texts that have it.

    A score is divided by the temperature, and the bias with it: the quotient is the log odds. ``biases_L`` are those of
    the classifiers unless given.
    """
    if biases_L is None:
        assert network.classifiers is not None
        biases_L = network.classifiers.weight[:, -1]
    if bias == "zero":
        biases_L.zero_()
        return
    counts_L = np.bincount(positives.indices, weights=positives.data, minlength=positives.shape[1])[shard]
    # Half a text more with the label, and half a text more without: no log of 0.
    odds_L = (counts_L + 0.5) / (positives.shape[0] - counts_L + 0.5)
    temperature = math.exp(-float(network.log_scales[1].detach()))
    biases_L.copy_(torch.from_numpy(np.log(odds_L) * temperature))
