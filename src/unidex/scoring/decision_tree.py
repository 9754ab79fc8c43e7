"""Fusion of both heads' scores by a decision tree, fitted to held-out texts (NGAME).

score(x, l) = classifier(x, l) + weight (dual(x, l) + p(x, l)), where p is the tree's probability that the label is
right, from both scores and the label's inverse propensity. The index finds candidates by the weighted sum of both
heads; this score ranks them.

Shapes: N texts, K candidates, P pairs of a text and a label, T nodes of the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.dataset import Propensity
from unidex.errors import MissingExtraError, ModelError
from unidex.metrics.propensity import inverse_propensity
from unidex.scoring.layout import Head, Layout
from unidex.scoring.rankers import Features, Ranker, added_weights

FEATURES = ("classifier", "dual", "frequency")
DEPTH = 7
# The paper has no minimum; with fewer pairs, the probability of a leaf is chance.
_MIN_PAIRS = 10
_LEAF = -1


def check_installed() -> None:
    """Refuse to fit a tree without scikit-learn."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("fitting predict.rank = 'decision-tree'", "fuse")


@dataclass(frozen=True)
class Tree:
    """A decision tree as plain lists with one entry per node.

    Attributes:
        features: T, the number of the feature that the node compares; -1 at a leaf.
        thresholds: T, a pair whose feature is at most this goes left.
        left: T, the left child.
        right: T, the right child.
        probabilities: T, the share of right pairs among the pairs of the fit that reached the node.
    """

    features: list[int]
    thresholds: list[float]
    left: list[int]
    right: list[int]
    probabilities: list[float]

    @classmethod
    def fit(cls, features_PF: NDArray[np.float32], hits_P: NDArray[np.bool_], *, depth: int = DEPTH) -> Tree:
        """Fit a tree of at most this depth with scikit-learn; the same pairs give the same tree."""
        check_installed()
        from sklearn.tree import DecisionTreeClassifier

        fitted = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=_MIN_PAIRS, random_state=0)
        fitted.fit(features_PF, hits_P)
        nodes = fitted.tree_
        counts_TC = nodes.value[:, 0, :]
        # Pairs that are all right or all wrong have one class.
        right_T = counts_TC[:, fitted.classes_ == True].sum(axis=1)  # noqa: E712  # classes are an array
        return cls(
            nodes.feature.clip(min=_LEAF).tolist(),
            nodes.threshold.tolist(),
            nodes.children_left.tolist(),
            nodes.children_right.tolist(),
            (right_T / counts_TC.sum(axis=1)).tolist(),
        )

    def probability(self, features_PF: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probability of each pair, P.

        >>> tree = Tree([1, -1, -1], [0.5, 0.0, 0.0], [1, -1, -1], [2, -1, -1], [0.5, 0.1, 0.9])
        >>> tree.probability(np.array([[9.0, 0.5], [9.0, 0.6]], dtype=np.float32)).tolist()
        [0.10000000149011612, 0.8999999761581421]
        """
        features_T, thresholds_T = np.array(self.features), np.array(self.thresholds)
        left_T, right_T = np.array(self.left), np.array(self.right)
        nodes_P = np.zeros(len(features_PF), dtype=np.int64)
        while True:
            asked_P = features_T[nodes_P]
            open_P = asked_P != _LEAF
            if not open_P.any():
                found: NDArray[np.float32] = np.array(self.probabilities, dtype=np.float32)[nodes_P]
                return found
            values_P = np.take_along_axis(features_PF, np.maximum(asked_P, 0)[:, None], axis=1)[:, 0]
            goes_left_P = values_P <= thresholds_T[nodes_P]
            nodes_P = np.where(open_P, np.where(goes_left_P, left_T[nodes_P], right_T[nodes_P]), nodes_P)


@dataclass(frozen=True)
class DecisionTreeFusion:
    """A decision tree fitted to the scores of both heads, as a model folder stores it.

    Attributes:
        tree: probabilities from (classifier score, dual score, inverse propensity).
        weight: of the dual score and of the tree's probability; the classifier's score has weight 1.
        num_train: number of training texts, for inverse propensities.
        a: their constant A.
        b: their constant B.
    """

    tree: Tree
    weight: float
    num_train: int
    a: float
    b: float

    @classmethod
    def fit(
        cls,
        features: Features,
        hits: NDArray[np.bool_],
        *,
        weight: float,
        num_train: int,
        propensity: Propensity,
    ) -> DecisionTreeFusion:
        """Fit a tree to the features of pairs of texts and labels, of which ``hits`` tells the right ones.

        References: NGAME (arXiv 2207.04452): depth 7, on held-out predictions.
        """
        columns_PF = _columns(features, num_train, propensity)
        return cls(Tree.fit(columns_PF, hits), weight, num_train, propensity.a, propensity.b)

    def probabilities(self, features: Features) -> NDArray[np.float32]:
        """The tree's probability of each candidate, N x K."""
        columns_PF = _columns(features, self.num_train, Propensity(self.a, self.b))
        return self.tree.probability(columns_PF).reshape(features["classifier"].shape)

    def ranker(self, layout: Layout) -> Ranker:
        """The ranker of a model with this layout."""
        return DecisionTreeRanker(self, added_weights(layout.weights))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"kind": "decision-tree"} | asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DecisionTreeFusion:
        """Read what ``as_dict`` gave; refuse a tree whose nodes do not lead to leaves."""
        try:
            rest = {name: value for name, value in values.items() if name != "tree"}
            found = cls(Tree(**values["tree"]), **rest)
            _check(found.tree)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"ranker.json must be a decision tree, but is not ({error}); copy the model again"
            ) from None
        return found


@dataclass(frozen=True)
class DecisionTreeRanker(Ranker):
    """Rank by classifier + weight (dual + probability of the tree), plus the kNN part and the label prior.

    Attributes:
        fusion: the fitted tree and its weight.
        added: weights of the parts that are added, "knn" and "label_prior", without those of weight 0.
    """

    fusion: DecisionTreeFusion
    added: Mapping[str, float] = field(default_factory=dict)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features it reads."""
        return (*FEATURES, *self.added)

    @property
    def head_weights(self) -> Mapping[Head, float]:
        """The factor of each head's score in the sum."""
        return {"dual": self.fusion.weight, "classifier": 1.0}

    def contributions(self, features: Features) -> dict[str, NDArray[Any]]:
        """The terms of the scores by name."""
        weight = np.float32(self.fusion.weight)
        found = {
            "dual": weight * features["dual"],
            "classifier": features["classifier"],
            "decision_tree": weight * self.fusion.probabilities(features),
        }
        return found | {name: added * features[name] for name, added in self.added.items()}


def _columns(features: Features, num_train: int, propensity: Propensity) -> NDArray[np.float32]:
    weights = inverse_propensity(np.ravel(features["frequency"]), num_train, propensity)
    columns = (np.ravel(features["classifier"]), np.ravel(features["dual"]), weights)
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


def _check(tree: Tree) -> None:
    num_nodes = len(tree.features)
    lists = (tree.thresholds, tree.left, tree.right, tree.probabilities)
    if num_nodes == 0 or any(len(part) != num_nodes for part in lists):
        raise ValueError("its lists must be of one length, and not empty")
    for node, feature in enumerate(tree.features):
        # Children come after their node, so that every path ends.
        nexts = (tree.left[node], tree.right[node])
        if feature != _LEAF and not (0 <= feature < 3 and all(node < child < num_nodes for child in nexts)):
            raise ValueError(f"node {node} leads nowhere")
