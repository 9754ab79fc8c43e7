"""``predict``: the labels of texts, best first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from unidex.data.concepts import is_language, language_tag
from unidex.data.text_blocks import text_blocks
from unidex.errors import DataError, listed, quoted
from unidex.model.label_rules import matching_labels
from unidex.model.label_set import Frequency, LabelSet
from unidex.scoring.layout import Mode

if TYPE_CHECKING:
    from unidex.model.model import Model

logger = logging.getLogger(__name__)
_BLOCK = 1024
_DIGITS = 6  # as many as a float32 has; more would be noise


class PredictedLabel(msgspec.Struct, omit_defaults=True):
    """A predicted label; the probability is null where the model is not calibrated for the mode."""

    id: int
    uid: str
    text: str
    score: float
    probability: float | None
    frequency: Frequency
    notation: str = ""  # its short code; left out of JSON where it has none


@dataclass(frozen=True)
class LabelOptions:
    """Which labels are predicted, and how they are shown.

    Attributes:
        language: language of their texts, such as "de"; a label without such a text has its own.
        allowed: rules for the only labels that may be predicted (`unidex.model.label_rules`); None: all.
        forbidden: rules for labels that are not predicted.
        most_specific: drop a label if a narrower one is predicted too; None: as the rules of the model say.
    """

    language: str = ""
    allowed: Sequence[str] | None = None
    forbidden: Sequence[str] | None = None
    most_specific: bool | None = None


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for some texts: one row per text, best label first, -1 after the last."""

    labels: LabelSet  # the labels of the model
    ids: list[list[int]]  # labels
    scores: list[list[float]]  # their scores, rounded
    # their probabilities, not rounded and rounded; None where the model has no calibration for the mode
    probabilities: list[list[float]] | None
    rounded: list[list[float]] | None
    known: list[float] | None  # share of each text's words that the model knows; None without a vocabulary of words

    def row(
        self,
        number: int,
        k: int | None = None,
        min_probability: float | None = None,
        *,
        language: str = "",
        most_specific: bool = False,
    ) -> list[PredictedLabel]:
        """Return the labels of one text.

        Args:
            number: the place of the text.
            k: maximum number of labels.
            min_probability: minimum probability of a label.
            language: language of label texts.
            most_specific: drop a label if one of the others is narrower.
        """
        ids, shown = self.ids[number][:k], self.labels.shown
        rounded = [None] * len(ids) if self.rounded is None else self.rounded[number]
        found: Iterable[tuple[int, float, float | None]] = zip(ids, self.scores[number], rounded, strict=False)
        if min_probability is not None and self.probabilities is not None:
            likely = [probability >= min_probability for probability in self.probabilities[number]]
            found = [entry for entry, is_likely in zip(found, likely, strict=False) if is_likely]
        if most_specific:
            found = [entry for entry in found if entry[0] >= 0]
            kept = self.labels.most_specific([label for label, _, _ in found])
            found = [entry for entry, is_kept in zip(found, kept, strict=True) if is_kept]
        return [
            PredictedLabel(label, uid, text, score, probability, frequency, notation)
            for label, score, probability in found
            if label >= 0
            for uid, text, frequency, notation in (shown(label, language),)
        ]


def checked_language(model: Model, language: str) -> str:
    """A language in which labels have names; "" for the labels' own texts."""
    tag, known = language_tag(language), model.labels.languages
    if tag and not any(is_language(name, tag) for name in known):
        found = listed(map(quoted, known)) or "none"
        raise DataError(
            f"the language must be one that labels have names in, but is {quoted(language)}; there is {found}"
        )
    return tag


def predict_labels(
    model: Model,
    texts: Sequence[str],
    k: int,
    *,
    mode: Mode | None = None,
    allowed: Sequence[str | int] | None = None,
    forbidden: Sequence[str | int] | None = None,
) -> Predictions:
    """Predict the k best labels of texts, with probabilities where the model has a calibration for the mode."""
    topk = model.topk(texts, k, mode=mode, allowed=allowed, forbidden=forbidden)
    known = model.known_shares(texts)
    probabilities = model.probabilities(topk, mode, known)
    return Predictions(
        model.labels,
        topk.ids.tolist(),
        _rounded(topk.scores),
        None if probabilities is None else probabilities.tolist(),
        None if probabilities is None else _rounded(probabilities),
        None if known is None else _rounded(known.known_N),
    )


def _rounded(values: NDArray[np.float32]) -> list[Any]:
    found: list[Any] = np.round(values.astype(np.float64), _DIGITS).tolist()
    return found


def predict_rows(
    model: Model,
    texts: Iterable[str],
    k: int = 5,
    mode: str | None = None,
    min_probability: str | float | None = None,
    options: LabelOptions | None = None,
) -> Iterator[dict[str, Any]]:
    """Predict texts in blocks: {"text", "known", "labels": [{"id", "uid", "text", "score", "frequency"}]} per text.

    "known" is the share of the text's words that the model knows; null for an encoder without a vocabulary of words.
    Where the model has a calibration for the mode, a label has its "probability" too, and labels below
    ``min_probability``, a number or the name of a threshold, are left out. A label with a notation has "notation".
    """
    predict = BlockPredictor(model, k, mode, min_probability, options)
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
        self,
        model: Model,
        k: int = 5,
        mode: str | None = None,
        min_probability: str | float | None = None,
        options: LabelOptions | None = None,
    ) -> None:
        options = options or LabelOptions()
        if mode is not None and mode not in get_args(Mode):
            raise DataError(f"--mode must be both, dual or classifier, but is {quoted(mode)}")
        self._model, self._k = model, k
        self._mode: Mode = mode or model.config.predict.mode  # type: ignore[assignment]
        self._minimum = None if min_probability is None else model.min_probability(min_probability, self._mode)
        self._language = checked_language(model, options.language)
        asked = options.most_specific
        self._most_specific = model.config.predict.most_specific if asked is None else asked
        self._allowed, self._forbidden = (
            None if rules is None else matching_labels(model.labels, rules, what)
            for rules, what in ((options.allowed, "--allowed"), (options.forbidden, "--forbidden"))
        )
        self._num_blank = self._num_unknown = 0

    @property
    def has_probabilities(self) -> bool:
        """Whether the model has a calibration for the mode."""
        calibration = self._model.scorer.calibration
        return calibration is not None and calibration.mode == self._mode

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[PredictedLabel]], Sequence[float | None]]:
        """Return the labels of each text, best first, and the share of its words that the model knows."""
        predictions = predict_labels(
            self._model, texts, self._k, mode=self._mode, allowed=self._allowed, forbidden=self._forbidden
        )
        is_blank = [not text.strip() for text in texts]
        self._num_blank += sum(is_blank)
        known: Sequence[float | None] = predictions.known or [None] * len(texts)
        self._num_unknown += sum(share == 0 and not blank for share, blank in zip(known, is_blank, strict=True))
        shown = {"language": self._language, "most_specific": self._most_specific}
        rows = [
            [] if blank else predictions.row(number, self._k, self._minimum, **shown)  # type: ignore[arg-type]
            for number, blank in enumerate(is_blank)
        ]
        return rows, known

    def warn(self) -> None:
        """Log how many texts were blank, and how many have no known word."""
        if self._num_blank:
            what = "text is" if self._num_blank == 1 else "texts are"
            logger.warning("%s %s blank, and without labels in the result.", f"{self._num_blank:,}", what)
        if self._num_unknown:
            what = "text has" if self._num_unknown == 1 else "texts have"
            message = "%s %s no known words (known from a label or several train texts): the labels may be guesses."
            logger.warning(message, f"{self._num_unknown:,}", what)
