"""The section [tree] of a recipe: clusters of labels that a text's shortlist is found by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from unidex.config.section import Section

_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]
_Number = TypeVar("_Number", int, float)


class Tree(Section):
    """Clusters of labels, one classifier of clusters per level, and a beam that selects the labels of each text."""

    levels: list[_Count] = Field(
        [],
        description="clusters of labels on each level, the coarsest first, such as [1024, 8192]; empty for no tree. A "
        "level with at least as many clusters as the level below it, or as there are labels, is left out",
    )
    beam: list[_Count] = Field(
        [20],
        min_length=1,
        description="clusters per level that a text opens in training, including its true ones; the last number holds "
        "for deeper levels",
    )
    search_beam: list[_Count] = Field([100], min_length=1, description="the same in a search")
    losses: Literal["both", "clusters", "labels"] = Field(
        "both",
        description="losses that count: both; of clusters alone, in a stage that another one follows; or of labels "
        "alone, on shortlists of fixed clusters",
    )
    detached_epochs: int = Field(
        0, ge=0, description="first epochs in which the loss of labels does not reach the encoder (InceptionXML: 10)"
    )
    smooth_centroids: bool = Field(
        False, description="cluster labels by centroids smoothed by random walks between labels (Astec, ECLARE)"
    )
    weight: float = Field(1.0, gt=0, description="weight of each level's loss; the loss of labels has weight 1")
    residual: bool = Field(
        False, description="a residual layer of spectral norm 1 before the clusters of each level (InceptionXML)"
    )
    dropout: list[_Share] = Field(
        [0.0],
        min_length=1,
        description="dropout before the clusters of each level; the last number holds for deeper levels",
    )
    layers: list[Annotated[list[_Count], Field(min_length=1)]] = Field(
        [],
        description="transformer: layers, counted from 1, whose outputs each level reads, several side by side, such "
        "as [[5, 6], [8], [10]] (CascadeXML); labels read the last layer. Empty: every level reads the text's vector",
    )


def at_level(numbers: Sequence[_Number], level: int) -> _Number:
    """The number of a level; the last one holds for deeper levels.

    >>> [at_level([128, 256], level) for level in range(3)]
    [128, 256, 256]
    """
    return numbers[min(level, len(numbers) - 1)]


def kept_levels(levels: Sequence[int], num_labels: int) -> list[int]:
    """Which levels a tree over so many labels has; one that has no fewer clusters than what is below it is left out.

    One level is always there, with a cluster a label at most.

    >>> kept_levels([4, 16, 64], 1000), kept_levels([4, 16, 64], 10), kept_levels([64], 10)
    ([0, 1, 2], [0], [0])
    """
    counts = [min(count, num_labels) for count in levels]
    found: list[int] = []
    below = num_labels
    for level in reversed(range(len(counts))):
        if counts[level] < below:
            found.insert(0, level)
            below = counts[level]
    return found or list(range(min(1, len(counts))))
