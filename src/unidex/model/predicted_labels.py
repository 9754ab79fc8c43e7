"""Predictions as a user gets them: labels with names and probabilities, ready to print and to convert.

Shapes: N texts, K places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unidex.errors import UnidexError
from unidex.model.label_set import LabelSet
from unidex.topk import PADDING, TopK

_SHOWN_TEXTS = 10
_SHOWN_CHARACTERS = 80


class LabelScore(NamedTuple):
    """A predicted label."""

    text: str
    uid: str
    score: float
    probability: float | None  # that the label is right; None if the model has no calibration for the mode
    notation: str = ""  # its short code, if it has one


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Sequence[list[LabelScore]]):
    """The labels of texts, best first. As a sequence, it has one list of labels per text.

    Attributes:
        texts: the texts.
        ids: label ids, N x K; -1 at places behind the last label of a text.
        scores: of the labels, N x K; -inf at places without a label.
        probabilities: that labels are right, N x K, 0 without a label; None without a calibration for the mode.
        known: share of each text's words that the model knows, N; None for an encoder without a vocabulary of words.
    """

    texts: Sequence[str]
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    probabilities: NDArray[np.float32] | None
    known: NDArray[np.float32] | None
    _label_set: LabelSet
    _language: str = ""

    @cached_property
    def labels(self) -> list[list[LabelScore]]:
        """The labels of each text, as (text, uid, score, probability, notation); without padding."""
        labels, uids, language = self._label_set, self._label_set.uids, self._language
        likely = [[None] * self.ids.shape[1]] * len(self) if self.probabilities is None else self.probabilities.tolist()
        return [
            [
                LabelScore(
                    labels.text_in(label, language) or uids[label],
                    uids[label],
                    score,
                    probability,
                    labels.notation(label),
                )
                for label, score, probability in zip(*row, strict=True)
                if label != PADDING
            ]
            for row in zip(self.ids.tolist(), self.scores.tolist(), likely, strict=True)
        ]

    @property
    def topk(self) -> TopK:
        """Ids and scores alone, as metrics read them."""
        return TopK(self.ids, self.scores)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, number: Any) -> Any:
        return self.labels[number]

    def __iter__(self) -> Iterator[list[LabelScore]]:
        return iter(self.labels)

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns of a table with one row per label: row, text, place, label, uid, score, probability, known.

        If labels have notations, there is a column notation too.
        """
        rows = [(row, place, label) for row, labels in enumerate(self) for place, label in enumerate(labels, 1)]
        known = None if self.known is None else self.known.tolist()
        notations: dict[str, list[Any]] = (
            {"notation": [label.notation for _, _, label in rows]} if self._label_set.has_notations else {}
        )
        columns: dict[str, list[Any]] = {
            "row": [row for row, _, _ in rows],
            "text": [self.texts[row] for row, _, _ in rows],
            "place": [place for _, place, _ in rows],
            "label": [label.text for _, _, label in rows],
            "uid": [label.uid for _, _, label in rows],
            "score": [label.score for _, _, label in rows],
            "probability": [label.probability for _, _, label in rows],
            "known": [None if known is None else known[row] for row, _, _ in rows],
        }
        return columns | notations

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per label, as ``to_dict`` names the columns."""
        return _package("pandas").DataFrame(self.to_dict())

    def to_polars(self) -> Any:
        """Return a polars DataFrame with one row per label, as ``to_dict`` names the columns."""
        return _package("polars").DataFrame(self.to_dict())

    def __repr__(self) -> str:
        lines = []
        for number, labels in enumerate(self[:_SHOWN_TEXTS]):
            lines.append(_shortened(self.texts[number]) + self._remark(number))
            for label in labels:
                likely = "" if label.probability is None else f"  {label.probability:4.0%}"
                code = f"{label.notation}  " if label.notation else ""
                lines.append(f"  {label.score:7.4f}{likely}  {code}{label.text}")
        if len(self) > _SHOWN_TEXTS:
            lines.append(f"... and {len(self) - _SHOWN_TEXTS:,} texts more")
        return "\n".join(lines) or "(no texts)"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = []
        for number, labels in enumerate(self[:_SHOWN_TEXTS]):
            text = escape(_shortened(self.texts[number]) + self._remark(number))
            for place, label in enumerate(labels):
                likely = "" if label.probability is None else f"{label.probability:.0%}"
                cells = (
                    text if place == 0 else "",
                    escape(label.text),
                    escape(label.uid),
                    f"{label.score:.4f}",
                    likely,
                )
                rows.append("".join(f"<td>{cell}</td>" for cell in cells))
        head = "".join(f"<th>{name}</th>" for name in ("text", "label", "uid", "score", "probability"))
        more = f"<p>and {len(self) - _SHOWN_TEXTS:,} texts more</p>" if len(self) > _SHOWN_TEXTS else ""
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>{more}"

    def _remark(self, number: int) -> str:
        return "  (no known words)" if self.known is not None and self.known[number] == 0 else ""


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}..."


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UnidexError(
            f"this table needs the package {name}, which is not installed: pip install {name}; to_dict() needs nothing"
        ) from None
