"""Explanations: why a model gives a text a label.

The parts of the score, the attribution of the heads' scores to words of the text, the nearest training texts that have
the label, and the predicted labels that occur with it on training texts.

Shapes: L labels that are explained, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError, quoted
from unidex.model.attribution import attribute
from unidex.model.model import Model
from unidex.scoring.layout import Mode
from unidex.scoring.rankers import sum_parts
from unidex.topk import PADDING, TopK

_DIGITS = 8


@dataclass(frozen=True)
class Token:
    """A word of the text and its contribution to the score."""

    token: str  # the word as in the text
    start: int  # its first character in the text, from 0
    end: int  # the character after its last one
    score: float  # its contribution to the heads' parts of the score; below 0 where it counts against the label


@dataclass(frozen=True)
class Reason:
    """Why a model gives a text a label."""

    id: int  # the label's id
    uid: str  # the user's own name of it
    text: str  # its text
    score: float  # as ``Model.predict`` gives it
    probability: float | None  # that the label is right; None for a model that is not calibrated
    frequency: str  # head, torso or tail
    # the terms of the score, which is their sum: "dual" and "classifier", or "label_tree"; with a decision tree,
    # "decision_tree"; then "knn" and "label_prior". Parts that the model does not have or the mode does not use are
    # left out. With a learned ranker, the contribution of each feature to its score.
    parts: dict[str, float]
    # words of the text by place; with ``rest`` they sum to the parts of the two heads. With a label tree, they sum to
    # the logit of the label within its cluster; with a learned ranker, to the heads' weighted sum.
    tokens: list[Token]
    rest: float  # the share of that sum that belongs to no word
    texts: list[dict[str, Any]]  # the nearest training texts that have the label: {"text", "similarity"}
    # the predicted labels that occur with it: {"id", "uid", "text", "share"}, the share of the label's training texts
    # that have the other label too
    together: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rounded: dict[str, Any] = _rounded(asdict(self))
        return rounded


def explain(
    model: Model,
    text: str,
    *,
    k: int = 5,
    labels: Sequence[str | int] | None = None,
    mode: Mode | None = None,
    num_texts: int = 3,
) -> list[Reason]:
    """Why a model gives a text its k best labels, or how near other labels come.

    Args:
        model: the model.
        text: one text.
        k: number of best labels to explain; ``together`` names only these.
        labels: explain these instead: a string is a uid, a whole number an id.
        mode: the heads that are used, as for ``Model.predict``.
        num_texts: maximum number of training texts per label; only a model with snippets shows them.
    """
    if not isinstance(text, str):
        raise DataError(f"a text to explain must be one string, but is {quoted(text)}")
    mode = mode or model.config.predict.mode
    if mode not in get_args(Mode):
        raise DataError(f"mode must be both, dual or classifier, but is {quoted(mode)}")
    if num_texts < 0:
        raise DataError(f"num_texts must be at least 0, but is {num_texts}")
    if k < 1:
        raise DataError(f"k must be at least 1, but is {k}")
    scorer, queries = model.scorer, model.queries([text], mode)
    allowed, forbidden = model.choose_labels()
    best = scorer.search(queries, k, mode=mode, allowed=allowed, forbidden=forbidden)
    predicted = [label for label in best.ids[0].tolist() if label >= 0]
    chosen = predicted if labels is None else _ids_of(model, labels)
    if not chosen:
        return []
    ids = np.array(chosen, dtype=np.int64)
    contributions = scorer.ranker(mode).contributions(scorer.describe(queries, ids[None], mode).features)
    parts = {name: values[0].astype(np.float64) for name, values in contributions.items()}
    scores = sum_parts(parts)
    vectors = scorer.head_vectors(ids, mode)
    words = attribute(model.vectoriser, text, vectors.get("dual"), vectors.get("classifier"))
    probabilities = _probabilities(model, text, mode, best, ids, scores)
    texts = _nearest_texts(model, text, queries.vectors if mode == "both" else None, chosen, num_texts)
    others = list(dict.fromkeys([*predicted, *chosen]))
    return [
        Reason(
            **_named(model, label),
            score=float(scores[row]),
            probability=None if probabilities is None else probabilities[row],
            frequency=model.labels.frequency_class(label),
            parts={name: float(values[row]) for name, values in parts.items()},
            tokens=[
                Token(text[start:end], start, end, score)
                for start, end, score in zip(
                    words.starts.tolist(), words.ends.tolist(), words.scores[row].tolist(), strict=True
                )
            ],
            rest=float(words.rest[row]),
            texts=texts[row],
            together=_together(model, label, others),
        )
        for row, label in enumerate(chosen)
    ]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _named(model: Model, label: int) -> dict[str, Any]:
    return {"id": label, "uid": model.labels.uids[label], "text": model.labels.texts[label]}


def _ids_of(model: Model, labels: Sequence[str | int]) -> list[int]:
    """Ids of labels by uid or id, each once, in the given order."""
    if isinstance(labels, str):
        raise DataError("labels to explain must be a list of uids or ids, but are one string; write [label]")
    for name in labels:
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
            rule = "a label to explain must be a uid (a string) or an id (a whole number)"
            raise DataError(f"{rule}, but is {quoted(name)}")
    return list(dict.fromkeys(model.labels.ids_of(labels, "labels to explain")))


def _probabilities(
    model: Model, text: str, mode: Mode, best: TopK, ids: NDArray[np.int64], scores: NDArray[np.float64]
) -> list[float] | None:
    """Probabilities of labels at their predicted places; a label that is not predicted gets the place behind them."""
    given = TopK(
        np.concatenate([np.repeat(best.ids, len(ids), axis=0), ids[:, None]], axis=1),
        np.concatenate([np.repeat(best.scores, len(ids), axis=0), scores[:, None].astype(np.float32)], axis=1),
    )
    found = model.probabilities(given, mode, model.known_shares([text] * len(ids)))
    if found is None:
        return None
    # The first place of each label: its predicted place, or the last.
    places = np.argmax(given.ids == ids[:, None], axis=1)
    return [float(value) for value in found[np.arange(len(ids)), places]]


def _nearest_texts(
    model: Model, text: str, queries: NDArray[np.float32] | None, labels: list[int], num_texts: int
) -> list[list[dict[str, Any]]]:
    """For each label the nearest training texts that have it, by both heads alike."""
    knn = model.scorer.knn
    if knn is None or knn.snippets is None or num_texts == 0:
        return [[] for _ in labels]
    whole = model.encode([text], "both") if queries is None else queries
    found = knn.nearest_with(labels, model.scorer.layout.knn_queries(whole)[0], num_texts)
    return [
        [
            {"text": knn.snippets[place], "similarity": round(similarity, 6)}
            for place, similarity in zip(one.ids[0].tolist(), one.scores[0].tolist(), strict=True)
            if place != PADDING
        ]
        for one in found
    ]


def _together(model: Model, label: int, others: list[int]) -> list[dict[str, Any]]:
    """Other labels by the share of the label's training texts that have them, the highest first."""
    if model.scorer.knn is None:
        return []
    texts = model.scorer.knn.label_texts()
    shares = {other: texts.share(label, other) for other in others if other != label}
    order = sorted((other for other in shares if shares[other] > 0), key=lambda other: (-shares[other], other))
    return [_named(model, other) | {"share": round(shares[other], 6)} for other in order]
