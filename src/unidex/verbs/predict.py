"""``predict``: the labels of texts, best first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np

from unidex.data.text_blocks import text_blocks
from unidex.errors import DataError, quoted
from unidex.model.label_set import Frequency, LabelSet
from unidex.scoring.layout import Mode

if TYPE_CHECKING:
    from unidex.model.model import Model

logger = logging.getLogger(__name__)
_BLOCK = 1024
_DIGITS = 6  # as many as a float32 has; more would be noise


class PredictedLabel(msgspec.Struct):
    """A predicted label; the probability is null where the model is not calibrated for the mode."""

    id: int
    uid: str
    text: str
    score: float
    probability: float | None
    frequency: Frequency


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for some texts: one row per text, best label first, -1 after the last."""

    labels: LabelSet  # the labels of the model
    ids: list[list[int]]  # labels
    scores: list[list[float]]  # their scores, rounded
    # their probabilities, not rounded; None where the model has no calibration for the mode
    probabilities: list[list[float]] | None
    known: list[float] | None  # share of each text's words that the model knows; None without a vocabulary of words

    def row(self, number: int, k: int | None = None, min_probability: float | None = None) -> list[PredictedLabel]:
        """Return the labels of one text: at most k, and none below the minimum probability."""
        labels, scores = self.labels, self.scores[number]
        probabilities = None if self.probabilities is None else self.probabilities[number]
        return [
            PredictedLabel(
                label,
                labels.uids[label],
                labels.texts[label],
                scores[place],
                None if probabilities is None else round(probabilities[place], _DIGITS),
                labels.frequency_class(label),
            )
            for place, label in enumerate(self.ids[number][:k])
            if label >= 0
            and (min_probability is None or probabilities is None or probabilities[place] >= min_probability)
        ]


def predict_labels(
    model: Model,
    texts: Sequence[str],
    k: int,
    *,
    mode: Mode | None = None,
    allowed: Sequence[int] | None = None,
    forbidden: Sequence[int] | None = None,
) -> Predictions:
    """Predict the k best labels of texts, with probabilities where the model has a calibration for the mode."""
    topk = model.topk(texts, k, mode=mode, allowed=allowed, forbidden=forbidden)
    known = model.known_shares(texts)
    probabilities = model.probabilities(topk, mode, known)
    return Predictions(
        model.labels,
        topk.ids.tolist(),
        np.round(topk.scores.astype(np.float64), _DIGITS).tolist(),
        None if probabilities is None else probabilities.tolist(),
        None if known is None else np.round(known.known_N.astype(np.float64), _DIGITS).tolist(),
    )


def predict_rows(
    model: Model,
    texts: Iterable[str],
    k: int = 5,
    mode: str | None = None,
    min_probability: str | float | None = None,
) -> Iterator[dict[str, Any]]:
    """Predict texts in blocks: {"text", "known", "labels": [{"id", "uid", "text", "score", "frequency"}]} per text.

    "known" is the share of the text's words that the model knows; null for an encoder without a vocabulary of words.
    Where the model has a calibration for the mode, a label has its "probability" too, and labels below
    ``min_probability``, a number or the name of a threshold, are left out.
    """
    predict = BlockPredictor(model, k, mode, min_probability)
    for block in text_blocks(texts, _BLOCK):
        for text, labels, known in zip(block, *predict(block), strict=True):
            rows = [msgspec.to_builtins(label) for label in labels]
            if not predict.has_probabilities:
                for row in rows:
                    del row["probability"]
            yield {"text": text, "known": known, "labels": rows}
    predict.warn()


class BlockPredictor:
    """Predicts blocks of texts with the same k, mode and minimum probability; a blank text has no labels."""

    def __init__(
        self, model: Model, k: int = 5, mode: str | None = None, min_probability: str | float | None = None
    ) -> None:
        if mode is not None and mode not in get_args(Mode):
            raise DataError(f"--mode must be both, dual or classifier, but is {quoted(mode)}")
        self._model, self._k = model, k
        self._mode: Mode = mode or model.config.predict.mode  # type: ignore[assignment]
        self._minimum = None if min_probability is None else model.min_probability(min_probability, self._mode)
        self._num_blank = self._num_unknown = 0

    @property
    def has_probabilities(self) -> bool:
        """Whether the model has a calibration for the mode."""
        calibration = self._model.scorer.calibration
        return calibration is not None and calibration.mode == self._mode

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[PredictedLabel]], Sequence[float | None]]:
        """Return the labels of each text, best first, and the share of its words that the model knows."""
        predictions = predict_labels(self._model, texts, self._k, mode=self._mode)
        is_blank = [not text.strip() for text in texts]
        self._num_blank += sum(is_blank)
        known: Sequence[float | None] = predictions.known or [None] * len(texts)
        self._num_unknown += sum(share == 0 and not blank for share, blank in zip(known, is_blank, strict=True))
        rows = [
            [] if blank else predictions.row(number, self._k, self._minimum) for number, blank in enumerate(is_blank)
        ]
        return rows, known

    def warn(self) -> None:
        """Log how many texts were blank, and how many have no known word."""
        if self._num_blank:
            what = "text is" if self._num_blank == 1 else "texts are"
            logger.warning("%s %s blank, and without labels in the result.", f"{self._num_blank:,}", what)
        if self._num_unknown:
            what = "text has" if self._num_unknown == 1 else "texts have"
            logger.warning("%s %s no known words: the labels are guesses.", f"{self._num_unknown:,}", what)
