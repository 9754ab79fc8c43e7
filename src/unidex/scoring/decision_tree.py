"""Fusing the scores of both heads by a decision tree, fitted to texts whose labels are known (NGAME).

score(x, l) = classifier(x, l) + weight (dual(x, l) + p(x, l)), where p is the tree's probability that the label is
right, from both scores and the label's inverse propensity. A model searches candidates by the sum of both scores, and
ranks them anew by this.

Shapes: N texts, K candidates, P pairs of a text and a label, T nodes of the tree.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unidex.data.dataset import Propensity
from unidex.errors import MissingExtraError, ModelError
from unidex.metrics.propensity import inverse_propensity
from unidex.topk import TopK

# Labels of a text that are ranked anew.
CANDIDATES = 100
DEPTH = 7
# The paper has no bound; below this, a leaf's probability is chance.
_LEAST_PAIRS = 10
_LEAF = -1


def check_installed() -> None:
    """Refuse to fit a tree without the library that does it."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("fitting predict.combine = 'decision-tree'", "fuse")


@dataclass(frozen=True)
class Tree:
    """A decision tree as plain lists: what each node asks, where it sends a pair, and how likely a pair there is right.

    Attributes:
        features: T, the number of the feature that is asked; -1 at a leaf.
        thresholds: T, a pair whose feature is at most this goes left.
        left: T, the node it goes to then.
        right: T, the node it goes to otherwise.
        probabilities: T, the share of right pairs among those of the fit that came here.
    """

    features: list[int]
    thresholds: list[float]
    left: list[int]
    right: list[int]
    probabilities: list[float]

    @classmethod
    def fit(cls, features_PF: NDArray[np.float32], hits_P: NDArray[np.bool_], *, depth: int = DEPTH) -> Tree:
        """A tree of at most this depth by scikit-learn; the same pairs give the same tree."""
        check_installed()
        from sklearn.tree import DecisionTreeClassifier

        fitted = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=_LEAST_PAIRS, random_state=0)
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
class Fusing:
    """How a model's two scores of a label become one.

    Attributes:
        tree: probabilities from (classifier score, dual score, inverse propensity).
        weight: of the dual score and the probability beside the classifier's score.
        num_train: number of train texts, for inverse propensities.
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
        classifier_P: ArrayLike,
        dual_P: ArrayLike,
        frequencies_P: NDArray[np.int64],
        hits_P: NDArray[np.bool_],
        *,
        weight: float,
        num_train: int,
        propensity: Propensity,
    ) -> Fusing:
        """Fit a tree to pairs of texts and labels of which it is known whether they are right.

        References: NGAME (arXiv 2207.04452): depth 7, on held-out predictions.
        """
        features_PF = _features(classifier_P, dual_P, frequencies_P, num_train, propensity)
        return cls(Tree.fit(features_PF, hits_P), weight, num_train, propensity.a, propensity.b)

    def scores(
        self, classifier_NK: NDArray[np.float32], dual_NK: NDArray[np.float32], frequencies_NK: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The fused scores of candidates, N x K."""
        features_PF = _features(classifier_NK, dual_NK, frequencies_NK, self.num_train, Propensity(self.a, self.b))
        probabilities_NK = self.tree.probability(features_PF).reshape(classifier_NK.shape)
        fused: NDArray[np.float32] = classifier_NK + np.float32(self.weight) * (dual_NK + probabilities_NK)
        return fused

    def ranked(
        self,
        ids_NK: NDArray[np.int64],
        classifier_NK: NDArray[np.float32],
        dual_NK: NDArray[np.float32],
        frequencies_L: NDArray[np.int64],
    ) -> TopK:
        """Candidates by their fused scores, best first; an id of -1 is none."""
        scores_NK = self.scores(classifier_NK, dual_NK, frequencies_L[np.maximum(ids_NK, 0)])
        return TopK.rank(ids_NK, np.where(ids_NK < 0, -np.inf, scores_NK))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Fusing:
        """What ``as_dict`` gave, as a fusing again; one that cannot be followed to its leaves is refused."""
        try:
            rest = {name: value for name, value in values.items() if name != "tree"}
            found = cls(Tree(**values["tree"]), **rest)
            _check(found.tree)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"fusing.json must be a decision tree, but is not ({error}); copy the model again"
            ) from None
        return found


def _features(
    classifier: ArrayLike, dual: ArrayLike, frequencies: NDArray[np.int64], num_train: int, propensity: Propensity
) -> NDArray[np.float32]:
    weights = inverse_propensity(np.ravel(frequencies), num_train, propensity)
    columns = (np.ravel(np.asarray(classifier)), np.ravel(np.asarray(dual)), weights)
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


def _check(tree: Tree) -> None:
    num_nodes = len(tree.features)
    lists = (tree.thresholds, tree.left, tree.right, tree.probabilities)
    if num_nodes == 0 or any(len(part) != num_nodes for part in lists):
        raise ValueError("its lists must be of one length, and not empty")
    for node, feature in enumerate(tree.features):
        # Children come after their node: whoever follows them arrives.
        nexts = (tree.left[node], tree.right[node])
        if feature != _LEAF and not (0 <= feature < 3 and all(node < child < num_nodes for child in nexts)):
            raise ValueError(f"node {node} leads nowhere")
