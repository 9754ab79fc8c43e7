"""The sums of boosted decision trees, from the text of a LightGBM model and by array operations alone.

Prediction then needs no import of LightGBM, which takes longer than the first thousands of texts.

A comparison that sends a pair to the right rules out all leaves on the left. So each feature value rules out leaves of
each tree, and of those that no feature rules out, the leftmost is the leaf of the pair (Lucchese et al., "QuickScorer",
SIGIR 2015). A set of leaves is the bits of one number, the leftmost leaf the lowest bit. Values between two successive
thresholds rule out the same leaves: these sets are worked out beforehand.

Shapes: P pairs, F features, T trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import native

# Pairs whose sets of leaves fit the caches.
_PAIRS_AT_ONCE = 2048
_KERNEL_LEAVES = 16
_NUMERICAL = {"0", "2"}
# The numbers of a tree: their kind, and whether there is one per leaf or one per node.
_NUMBERS: dict[str, tuple[type[int] | type[float], bool]] = {
    "split_feature": (int, False),
    "split_gain": (float, False),
    "threshold": (float, False),
    "decision_type": (int, False),
    "left_child": (int, False),
    "right_child": (int, False),
    "leaf_value": (float, True),
    "leaf_weight": (float, True),
    "leaf_count": (int, True),
    "internal_value": (float, False),
    "internal_weight": (float, False),
    "internal_count": (int, False),
}
_MAX: dict[type, float] = {int: 2**31, float: np.inf}


@dataclass(frozen=True, eq=False)
class TreeScores:
    """Trees that are ready to predict.

    Attributes:
        num_features: columns that they read.
        features: of the columns that a comparison reads.
        thresholds: of these columns, ascending; rounded down, which tells the same float32 apart.
        leaves_left: of these columns, the leaves that are possible between two thresholds, one row of T sets each.
        values: of all leaves, tree after tree.
        firsts: T, the place of the first value of a tree.
    """

    num_features: int
    features: list[int]
    thresholds: list[NDArray[np.float32]]
    leaves_left: list[NDArray[np.unsignedinteger[Any]]]
    values: NDArray[np.float64]
    firsts: NDArray[np.int64]

    @classmethod
    def parse(cls, text: str) -> TreeScores:
        """Read the text of a model; raises ValueError or LookupError where it is not whole."""
        header, *blocks = text.split("\nTree=")
        num_features = int(_fields(header)["max_feature_idx"]) + 1
        trees = [_Tree.parse(block) for block in blocks]
        if not trees:
            raise ValueError("there must be trees, but there are none")
        # Whole bytes: 8, 16, 32 or 64 leaves fit one number.
        widest = max(len(tree.values) for tree in trees)
        kind = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if widest <= 8 * kind().itemsize)
        features = sorted({node.feature for tree in trees for node in tree.nodes})
        if features and not 0 <= features[0] <= features[-1] < num_features:
            raise ValueError(f"trees must read {num_features} features, but read {features}")
        thresholds, leaves_left = [], []
        for feature in features:
            own = [(tree, node) for tree in range(len(trees)) for node in trees[tree].nodes if node.feature == feature]
            ascending = np.unique(np.array([node.threshold for _, node in own], dtype=np.float32))
            left = np.full((len(ascending) + 1, len(trees)), np.iinfo(kind).max, dtype=kind)
            for tree, node in own:
                above = int(np.searchsorted(ascending, np.float32(node.threshold))) + 1
                left[above:, tree] &= kind(np.iinfo(kind).max - node.left_leaves)
            thresholds.append(ascending)
            leaves_left.append(left)
        sizes = np.array([len(tree.values) for tree in trees])
        values = np.concatenate([tree.values for tree in trees])
        return cls(num_features, features, thresholds, leaves_left, values, np.cumsum(sizes) - sizes)

    def __call__(self, columns_PF: NDArray[np.float32]) -> NDArray[np.float64]:
        """The sum of the trees for each pair."""
        found = np.empty(len(columns_PF))
        if native.kernels is not None and self.arrays is not None:
            columns_FP = np.ascontiguousarray(columns_PF.T)
            native.kernels.score_trees(*self.arrays, columns_FP, found, self.num_features)
            return found
        for start in range(0, len(columns_PF), _PAIRS_AT_ONCE):
            block = columns_PF[start : start + _PAIRS_AT_ONCE]
            found[start : start + len(block)] = self.values.take(self._leaves(block)).sum(axis=1)
        return found

    @cached_property
    def arrays(self) -> tuple[NDArray[Any], ...] | None:
        """The trees as the kernel reads them; None for trees of more leaves than it has bits."""
        if not self.leaves_left or self.leaves_left[0].itemsize > _KERNEL_LEAVES // 8:
            return None
        # Leaves that no tree has are never read; with them, every set of bits is within the array.
        values = np.concatenate([self.values, np.zeros(_KERNEL_LEAVES)])
        # Where a threshold changes the possible leaves of a tree is a node.
        nodes = [np.nonzero(left[1:] != left[:-1]) for left in self.leaves_left]
        thresholds = [own[places] for own, (places, _) in zip(self.thresholds, nodes, strict=True)]
        leaves = [left[1:][of] for left, of in zip(self.leaves_left, nodes, strict=True)]
        owners = np.concatenate([trees for _, trees in nodes]).astype(np.int32)
        ends = np.cumsum([len(own) for own in thresholds])
        of_nodes = np.concatenate(thresholds), owners, np.concatenate(leaves).astype(np.uint32)
        return np.array(self.features), ends, *of_nodes, values, self.firsts

    def _leaves(self, columns_PF: NDArray[np.float32]) -> NDArray[np.int64]:
        """The place among the values of the leaf of each pair in each tree."""
        possible_PT: NDArray[Any] | None = None
        columns_FP = np.ascontiguousarray(columns_PF.T)
        for feature, thresholds, left in zip(self.features, self.thresholds, self.leaves_left, strict=True):
            own_PT = left.take(thresholds.searchsorted(columns_FP[feature]), axis=0)
            possible_PT = own_PT if possible_PT is None else np.bitwise_and(possible_PT, own_PT, out=possible_PT)
        if possible_PT is None:
            return np.broadcast_to(self.firsts, (len(columns_PF), len(self.firsts)))
        # The number of bits below the lowest one.
        leaves: NDArray[np.int64] = np.bitwise_count(~possible_PT & (possible_PT - 1)) + self.firsts
        return leaves


@dataclass(frozen=True)
class _Node:
    feature: int
    threshold: float
    left_leaves: int  # the leaves on the left, as bits


@dataclass(frozen=True, eq=False)
class _Tree:
    nodes: list[_Node]
    values: NDArray[np.float64]  # of the leaves from left to right

    @classmethod
    def parse(cls, block: str) -> _Tree:
        fields = _fields(block)
        leaf_values = [float(value) for value in fields["leaf_value"].split()]
        if len(leaf_values) == 1:
            return cls([], np.array(leaf_values))
        if not set(fields["decision_type"].split()) <= _NUMERICAL:
            raise ValueError("trees must compare numbers of which none is missing")
        left, right = ([int(child) for child in fields[f"{side}_child"].split()] for side in ("left", "right"))
        split_features = [int(feature) for feature in fields["split_feature"].split()]
        thresholds = _float32_below([float(threshold) for threshold in fields["threshold"].split()]).tolist()
        if not len(left) == len(right) == len(leaf_values) - 1:
            raise ValueError("a tree must have one leaf more than it has nodes")
        check_tree(left, right)
        place_of = {leaf: place for place, leaf in enumerate(_from_left(0, left, right))}
        nodes = [
            _Node(feature, threshold, sum(1 << place_of[leaf] for leaf in _from_left(child, left, right)))
            for feature, threshold, child in zip(split_features, thresholds, left, strict=True)
        ]
        return cls(nodes, np.array([leaf_values[leaf] for leaf in place_of]))


def _float32_below(values: list[float]) -> NDArray[np.float32]:
    """The highest float32 that is not above each value."""
    rounded = np.array(values, dtype=np.float32)
    return np.where(rounded > np.array(values), np.nextafter(rounded, np.float32(-np.inf)), rounded)


def check_tree(left: list[int], right: list[int]) -> None:
    """Refuse children that are not those of one tree: a node must be the child of one node, and so must a leaf."""
    nodes, leaves = range(1, len(left)), range(len(left) + 1)
    children = [*left, *right]
    if sorted(child for child in children if child >= 0) != list(nodes):
        raise ValueError("each node of a tree but the first must be the child of one node")
    if sorted(~child for child in children if child < 0) != list(leaves):
        raise ValueError("each leaf of a tree must be the child of one node")
    # A node behind its parent cannot be its own ancestor.
    if any(0 <= child <= node for side in (left, right) for node, child in enumerate(side)):
        raise ValueError("a node of a tree must stand behind its parent")


def checked_text(text: str) -> str:
    """The trees of a text as another that holds what was checked alone, for LightGBM.

    LightGBM trusts what it reads: a wrong number ends the process.
    """
    header, *blocks = text.split("\nTree=")
    num_features = int(_fields(header)["max_feature_idx"]) + 1
    lines = [
        *("tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"),
        *(f"max_feature_idx={num_features - 1}", "objective=binary sigmoid:1"),
        "feature_names=" + " ".join(f"Column_{number}" for number in range(num_features)),
        "feature_infos=" + " ".join(["none"] * num_features),
    ]
    for number, block in enumerate(blocks):
        fields = _fields(block)
        num_leaves = len(fields["leaf_value"].split())
        lines += ["", f"Tree={number}", f"num_leaves={num_leaves}", "num_cat=0"]
        for name, (kind, is_leaf) in _NUMBERS.items():
            values = [kind(value) for value in fields[name].split()] if name in fields else []
            wanted = num_leaves if is_leaf else num_leaves - 1
            if num_leaves > 1 and len(values) != wanted:
                raise ValueError(f"a tree must have {wanted} numbers {name}, but has {len(values)}")
            if not all(np.isfinite(value) and abs(value) < _MAX[kind] for value in values):
                raise ValueError(f"numbers {name} of a tree must be finite, but are not")
            if values:
                lines.append(f"{name}={' '.join(map(repr, values))}")
        lines += ["is_linear=0", "shrinkage=1"]
    return "\n".join([*lines, "", "", "end of trees", ""])


def _from_left(node: int, left: list[int], right: list[int]) -> Iterator[int]:
    """The leaves below a node from left to right; a leaf is written as ~leaf."""
    if node < 0:
        yield ~node
    else:
        yield from _from_left(left[node], left, right)
        yield from _from_left(right[node], left, right)


def _fields(lines: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines.splitlines() if "=" in line)
