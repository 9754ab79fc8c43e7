"""Tables and figures of the works as data: what is trained for each row, what the paper prints, what it claims.

A row is a recipe with settings. All rows are sized for a CPU by ``CPU`` and use the bag (or inception) encoder; the
recipes have the papers' own settings. ``paper`` has the paper's figures in ``Table.paper_columns`` on
``Table.paper_set``. An ordering is one claim: a row is ahead of another in a metric.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Settings = tuple[str, ...]

_CLUSTERS = ("stages.surrogate.train.surrogate=1024", "encoder.dim=128")
_FEW_NEGATIVES = ("stages.extreme.pool.hard_negatives=3", "train.epochs=6")
_SHORT_TEXTS = (
    "encoder.dim=128",
    "encoder.max_length=16",
    "encoder.dropout=0.1",
    "encoder.layer_dropout=0.1",
    "heads.dropout=0.2",
    "train.epochs=8",
)
# What makes the papers' settings small; recipes that are not here have a [bag] section of their own.
CPU: dict[str, Settings] = {
    "astec": (*_CLUSTERS, "train.epochs=8"),
    "decaf": (*_CLUSTERS, *_FEW_NEGATIVES),
    # Words that have learned clusters of six labels alone cannot tell labels apart (docs/papers.md, controls).
    "eclare": (*_CLUSTERS, *_FEW_NEGATIVES, "stages.extreme.train.lr_encoder=0.05"),
    "inceptionxml": _SHORT_TEXTS,
    "inceptionxml-lf": _SHORT_TEXTS,
    "siamesexml": (
        "stages.dual.train.batch_size=512",
        "stages.dual.train.epochs=15",
        "stages.classifier.train.epochs=15",
    ),
}


@dataclass(frozen=True)
class Row:
    """One row: a recipe with settings, or one head of it."""

    name: str
    recipe: str
    settings: Settings = ()
    mode: str = ""  # the head that predicts; empty for the recipe's own choice
    paper: tuple[float, ...] = ()  # the paper's figures
    equal_steps: bool = False  # with label texts as points: as many steps as without, by fewer epochs
    encoder_of: str = ""  # a recipe whose trained encoder this row starts from


@dataclass(frozen=True)
class Ordering:
    """A claim of a paper: one row is ahead of another."""

    claim: str
    metric: str
    ahead: str
    behind: str


def claims(text: str) -> tuple[Ordering, ...]:
    """Orderings, a line each: what is claimed, the row ahead, the row behind, and the metrics in which it is.

    >>> claims("more labels help: all > 1,000 | P@1, P@5")[1]
    Ordering(claim='more labels help', metric='P@5', ahead='all', behind='1,000')
    """
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        claim, rows, metrics = re.fullmatch(r"(.+?): (.+) \| (.+)", line).groups()
        ahead, behind = rows.split(" > ")
        found += [Ordering(claim, metric, ahead, behind) for metric in metrics.split(", ")]
    return tuple(found)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
    orderings: tuple[Ordering, ...] = ()
    paper_set: str = ""
    paper_columns: tuple[str, ...] = ()
    facts: tuple[str, ...] = field(default=("steps", "CPU s"))  # of a run, before the metrics


GANDALF = "augment.method=gandalf"
BINS = tuple(f"bin {number}" for number in range(1, 6))
FOUR = ("P@1", "P@5", "PSP@1", "PSP@5")
LF_131K, LF_13M = "LF-AmazonTitles-131K", "LF-AmazonTitles-1.3M"
