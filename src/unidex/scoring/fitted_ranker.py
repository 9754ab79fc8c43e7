"""Fitted rankers by kind, as model folders store them."""

from __future__ import annotations

from typing import Any

from unidex.errors import ModelError, quoted
from unidex.scoring.boosted_trees import BoostedTrees
from unidex.scoring.decision_tree import DecisionTreeFusion
from unidex.scoring.linear_ranker import LinearWeights
from unidex.scoring.rankers import FittedRanker


def read_ranker(values: Any) -> FittedRanker:
    """The ranker whose ``as_dict`` gave these values; a decision tree of an earlier format names no kind."""
    if not isinstance(values, dict):
        raise ModelError(f"ranker.json must hold an object, but holds {quoted(values)}; copy the model again")
    rest = {name: value for name, value in values.items() if name != "kind"}
    kind = values.get("kind", "decision-tree")
    if kind == "decision-tree":
        return DecisionTreeFusion.from_dict(rest)
    if kind == "boosted-trees":
        return BoostedTrees.from_dict(rest)
    if kind == "linear":
        return LinearWeights.from_dict(rest)
    raise ModelError(
        f"ranker.json must be a decision-tree, boosted-trees or linear, but is {quoted(kind)}; copy the model again"
    )
