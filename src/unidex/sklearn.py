"""UnidexClassifier: a classifier of texts that follows the rules of scikit-learn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset, Labels, Split, positives_of
from unidex.data.given_texts import as_list, given_texts
from unidex.data.texts import Texts
from unidex.errors import DataError, MissingExtraError, quoted
from unidex.topk import TopK
from unidex.verbs.train import train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError("UnidexClassifier", "sklearn") from None

# Labels of a text that have a probability; all further ones have 0.
MAX_PLACES = 100


class UnidexClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of texts with several labels each.

    ``fit`` takes a list of labels per text, or a matrix of 0 and 1 with one row per text and one column per label: an
    array, a sparse matrix, or a data frame, whose columns are then the labels. ``predict`` answers in the same form.

    ``cross_val_score`` and ``GridSearchCV`` take matrices as they are. For lists of labels, give them a splitter, such
    as ``cv=KFold(3)``: with a number, scikit-learn looks for classes in the lists and refuses them.

    Args:
        recipe: name of a recipe or a TOML file.
        settings: ``section.key=value`` over the recipe.
        label_texts: label -> its text, if the label itself is not its text.
        k: labels per text of ``predict``.
        min_probability: leave out less likely labels: a number, or the name of a threshold such as "best-f1".
        seed: the same seed gives the same model.
        device: where to train and predict.

    Attributes:
        classes_: the labels, in the order of the columns of ``predict_proba``.
        model_: the trained model.
    """

    def __init__(
        self,
        recipe: str = "auto",
        settings: Sequence[str] = (),
        *,
        label_texts: Mapping[Any, str] | None = None,
        k: int = 5,
        min_probability: str | float | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.recipe, self.settings, self.label_texts = recipe, settings, label_texts
        self.k, self.min_probability, self.seed, self.device = k, min_probability, seed, device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.target_tags.two_d_labels = tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Sequence[str], y: Any) -> Self:
        """Learn from texts and their labels: a list of labels per text, or a matrix of 0 and 1."""
        texts = given_texts(X)
        self._form, classes, positives = _read_labels(y)
        if len(texts) != positives.shape[0]:
            raise DataError(
                f"there must be one row of labels per text, but there are {len(texts)} texts and "
                f"{positives.shape[0]} rows"
            )
        if not positives.nnz:
            raise DataError("there must be at least one label to learn, but no text has one")
        given = self.label_texts or {}
        label_texts = Texts.of([given.get(label, str(label)) for label in classes])
        names = [str(label) for label in classes]
        uids = Texts.of(names) if len(set(names)) == len(names) and all(map(str.strip, names)) else None
        dataset = Dataset("fit", Labels(label_texts, uids), Split.of(Texts.of(texts), positives))
        self.model_ = train(dataset, self.recipe, settings=self.settings, seed=self.seed, device=self.device)
        self.classes_ = classes
        return self

    def predict(self, X: Sequence[str]) -> Any:
        """Return the labels of each text in the form that ``fit`` took: lists, best label first, or a matrix."""
        found = self._find(X, self.k)
        if self._form == "lists":
            return [[self.classes_[label] for label in row if label >= 0] for row in found.ids.tolist()]
        return self._matrix(found, np.ones(found.ids.shape, dtype=np.int64))

    def predict_proba(self, X: Sequence[str]) -> Any:
        """Return the probability of each label: texts x labels. Only the 100 best labels of a text have one above 0."""
        check_is_fitted(self, "model_")
        found, probabilities = self._with_probabilities(X, min(MAX_PLACES, len(self.classes_)))
        return self._matrix(found, probabilities)

    def predict_topk(self, X: Sequence[str], k: int = 5) -> tuple[list[list[Any]], list[list[float]]]:
        """Return the k best labels of each text, and their scores."""
        check_is_fitted(self, "model_")
        found = self.model_.topk(given_texts(X), k)
        pairs = [
            [(self.classes_[label], score) for label, score in zip(ids, scores, strict=True) if label >= 0]
            for ids, scores in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
        ]
        return [[label for label, _ in row] for row in pairs], [[score for _, score in row] for row in pairs]

    def score(self, X: Sequence[str], y: Any, sample_weight: Any = None) -> float:
        """Return P@1 between 0 and 1: the share of texts whose best label is right."""
        check_is_fitted(self, "model_")
        _, classes, positives = _read_labels(y)
        place = {label: column for column, label in enumerate(classes)}
        best = self.model_.topk(given_texts(X), 1).ids[:, 0].tolist()
        if len(best) != positives.shape[0]:
            raise DataError(f"there must be one row of labels per text, but there are {len(best)} texts")
        truth = [set(row.tolist()) for row in np.split(positives.indices, positives.indptr[1:-1])]
        hits = [
            label >= 0 and place.get(self.classes_[label], -1) in row for label, row in zip(best, truth, strict=True)
        ]
        return float(np.average(hits, weights=sample_weight)) if hits else 0.0

    def _find(self, X: Sequence[str], k: int) -> TopK:
        """The k best labels, without those below the minimum probability."""
        check_is_fitted(self, "model_")
        if self.min_probability is None:
            return self.model_.topk(given_texts(X), k)
        found, probabilities = self._with_probabilities(X, k)
        is_likely = probabilities >= self.model_.min_probability(self.min_probability)
        return TopK.rank(found.ids, np.where(is_likely, found.scores, -np.inf))

    def _with_probabilities(self, X: Sequence[str], k: int) -> tuple[TopK, NDArray[np.float32]]:
        self.model_.min_probability(0.0)  # a model without probabilities is refused before anything is predicted
        found = self.model_.predict(given_texts(X), k)
        assert found.probabilities is not None
        return found.topk, found.probabilities

    def _matrix(self, found: TopK, values: NDArray[Any]) -> Any:
        """Values of predicted labels as texts x labels: sparse if the labels of the fit were."""
        there = found.ids >= 0
        rows = np.nonzero(there)[0]
        shape = (len(found), len(self.classes_))
        matrix = sparse.csr_array((values[there], (rows, found.ids[there])), shape=shape)
        return matrix if self._form == "sparse" else matrix.toarray()


def _read_labels(y: Any) -> tuple[str, list[Any], sparse.csr_array]:
    """The form of labels ("lists", "dense" or "sparse"), the labels, and texts x labels."""
    if sparse.issparse(y):
        matrix = sparse.csr_array(y)
        matrix.eliminate_zeros()
        return "sparse", list(range(matrix.shape[1])), _indicator(matrix)
    if getattr(y, "ndim", 0) == 2 or hasattr(y, "columns"):
        classes = list(y.columns) if hasattr(y, "columns") else list(range(y.shape[1]))
        values = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
        if not np.isin(values, (0, 1)).all():
            raise DataError("a matrix of labels must have 0 and 1 alone, but has other values")
        return "dense", classes, _indicator(sparse.csr_array(values.astype(np.float32)))
    if isinstance(y, str | bytes) or y is None:
        raise DataError(f"labels must be a list of labels per text, but are {quoted(y)}")
    rows = []
    for number, row in enumerate(as_list(y)):
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise DataError(
                f"the labels of a text must be a list, but those of text {number} are {quoted(row)}; write [label]"
            )
        # The order of a set differs from run to run.
        rows.append(sorted(row, key=str) if isinstance(row, set | frozenset) else list(row))
    _refuse_lists_of_bits(rows)
    number_of: dict[Hashable, int] = {}
    ids = [[number_of.setdefault(label, len(number_of)) for label in row] for row in rows]
    return "lists", list(number_of), positives_of([sorted(set(row)) for row in ids], len(number_of))


def _refuse_lists_of_bits(rows: list[list[Any]]) -> None:
    """Refuse lists that can only be meant as a matrix: they would be learned as two labels, 0 and 1."""
    if len({len(row) for row in rows}) == 1 and any(len(set(row)) < len(row) for row in rows):
        values = {value for row in rows for value in row}
        if values <= {0, 1}:
            raise DataError(
                "lists must name the labels of a text, but have 0 and 1 alone, several times each; for a matrix of 0 "
                "and 1 write numpy.array(y)"
            )


def _indicator(matrix: sparse.csr_array) -> sparse.csr_array:
    if not np.isin(matrix.data, (0, 1)).all():
        raise DataError("a matrix of labels must have 0 and 1 alone, but has other values")
    rows = np.split(matrix.indices, matrix.indptr[1:-1])
    return positives_of([np.sort(row).tolist() for row in rows], matrix.shape[1])
