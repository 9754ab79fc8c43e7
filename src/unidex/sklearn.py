"""UnidexClassifier: fit and predict on lists of texts and lists of labels, like scikit-learn."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from unidex.data.dataset import Dataset, Labels, Split, positives_of
from unidex.data.texts import Texts
from unidex.errors import DataError
from unidex.verbs.train import train


class UnidexClassifier:
    """A classifier of texts.

    Args:
        recipe: name of a recipe or a TOML file.
        settings: ``section.key=value`` over the recipe.
        label_texts: label -> its text, if the label itself is not its text.
        k: labels per text of ``predict``.
        seed: the same seed gives the same model.
        device: where to train and predict.
    """

    def __init__(
        self,
        recipe: str = "auto",
        settings: Sequence[str] = (),
        *,
        label_texts: Mapping[Any, str] | None = None,
        k: int = 5,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.recipe, self.settings, self.label_texts = recipe, settings, label_texts
        self.k, self.seed, self.device = k, seed, device

    def fit(self, texts: Sequence[str], labels: Sequence[Sequence[Hashable]]) -> Self:
        """Learn from texts and, for each, the list of its labels."""
        if len(texts) != len(labels):
            raise DataError(f"there must be one list of labels per text, but there are {len(texts)} and {len(labels)}")
        if any(isinstance(row, str) for row in labels):
            raise DataError("the labels of a text must be a list, but one is a plain string; write [label]")
        number: dict[Hashable, int] = {}
        rows = [[number.setdefault(label, len(number)) for label in row] for row in labels]
        self.classes_ = list(number)
        given = self.label_texts or {}
        label_texts = Texts.of([given.get(label, str(label)) for label in self.classes_])
        if not number:
            raise DataError("there must be at least one label to learn, but every list is empty")
        split = Split.of(Texts.of(list(texts)), positives_of(rows, len(number)))
        dataset = Dataset("fit", Labels(label_texts), split)
        self.model_ = train(dataset, self.recipe, settings=self.settings, seed=self.seed, device=self.device)
        return self

    def predict(self, texts: Sequence[str]) -> list[list[Any]]:
        """Return the k best labels of each text, best first."""
        return self.predict_topk(texts, self.k)[0]

    def predict_topk(self, texts: Sequence[str], k: int = 5) -> tuple[list[list[Any]], list[list[float]]]:
        """Return the k best labels of each text, and their scores."""
        if not hasattr(self, "model_"):
            raise DataError("predict needs a fitted classifier, but this one is not; call fit first")
        found = self.model_.predict(list(texts), k)
        labels = [[self.classes_[label] for label in row if label >= 0] for row in found.ids.tolist()]
        scores = [
            [score for label, score in zip(ids, row, strict=True) if label >= 0]
            for ids, row in zip(found.ids.tolist(), found.scores.tolist(), strict=True)
        ]
        return labels, scores

    def score(self, texts: Sequence[str], labels: Sequence[Sequence[Hashable]]) -> float:
        """Return P@1 between 0 and 1: the share of texts whose best label is right."""
        best = self.predict_topk(texts, 1)[0]
        hits = [bool(row) and row[0] in set(truth) for row, truth in zip(best, labels, strict=True)]
        return float(np.mean(hits)) if hits else 0.0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("recipe", "settings", "label_texts", "k", "seed", "device")
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor."""
        unknown = params.keys() - self.get_params().keys()
        if unknown:
            raise DataError(f"UnidexClassifier has no parameter {sorted(unknown)[0]!r}")
        for name, value in params.items():
            setattr(self, name, value)
        return self
