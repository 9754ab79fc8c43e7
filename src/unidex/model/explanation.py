"""Reasons: why a text was given a label.

The parts of the score, the words of the text that carried it, the nearest train texts that have the label, and the
labels that came with it in train and were predicted too.

Shapes: L labels that are explained, D dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from unidex.errors import DataError, listed, quoted
from unidex.model.attribution import carried
from unidex.model.model import Model
from unidex.model.searcher import Mode
from unidex.topk import PADDING, TopK

_DIGITS = 8


@dataclass(frozen=True)
class Token:
    """A word of the text, and what it brought to the score.

    Attributes:
        token: as it stands in the text.
        start: the character of the text where it begins, from 0.
        end: the character behind its last one.
        score: its part of what the heads say; below 0 where it spoke against the label.
    """

    token: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Reason:
    """Why a text was given a label.

    Attributes:
        id: the label's id.
        uid: the user's own name of it.
        text: its text.
        score: as ``Model.predict`` gives it.
        probability: that the label is right; None for a model that is not calibrated.
        frequency: head, torso or tail.
        parts: what the score is the sum of, as far as the model has it and the mode counts it: "dual", "classifier",
            "neighbours", "frequency".
        tokens: words of the text by place; with ``rest`` they sum to the parts of the two heads.
        rest: what these have that no word brought.
        texts: the nearest train texts that have the label: {"text", "similarity"}.
        together: which of the predicted labels come with it: {"id", "uid", "text", "share"}, the share of the label's
            train texts that have the other too.
    """

    id: int
    uid: str
    text: str
    score: float
    probability: float | None
    frequency: str
    parts: dict[str, float]
    tokens: list[Token]
    rest: float
    texts: list[dict[str, Any]]
    together: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "id": self.id,
            "uid": self.uid,
            "text": self.text,
            "score": round(self.score, _DIGITS),
            "probability": None if self.probability is None else round(self.probability, _DIGITS),
            "frequency": self.frequency,
            "parts": {name: round(value, _DIGITS) for name, value in self.parts.items()},
            "tokens": [
                {"token": one.token, "start": one.start, "end": one.end, "score": round(one.score, _DIGITS)}
                for one in self.tokens
            ],
            "rest": round(self.rest, _DIGITS),
            "texts": [dict(row) for row in self.texts],
            "together": [dict(row) for row in self.together],
        }


def explain(
    model: Model,
    text: str,
    *,
    k: int = 5,
    labels: Sequence[str | int] | None = None,
    mode: Mode | None = None,
    num_texts: int = 3,
) -> list[Reason]:
    """Why a text is given its k best labels, or how near other labels come.

    Args:
        model: the model.
        text: one text.
        k: explain so many of the best labels; the labels that come together are looked for among these.
        labels: explain these instead: a string is a uid, a whole number an id.
        mode: the heads that count, as for ``Model.predict``.
        num_texts: at most so many train texts for each label; there are some where the model keeps texts.
    """
    if not isinstance(text, str):
        raise DataError(f"a text to explain must be one string, but is {quoted(text)}")
    mode = mode or model.config.predict.mode
    if mode not in get_args(Mode):
        raise DataError(f"mode must be both, dual or classifier, but is {quoted(mode)}")
    if model.fusing is not None and mode == "both":
        raise DataError(
            "an explanation needs a score that is a sum of parts, but this model joins both heads by a decision tree; "
            "give the mode dual or classifier"
        )
    if model.network.tree is not None:
        raise DataError(
            "an explanation needs a score that is a sum of parts, but this model has a label tree, whose scores are "
            "products of probabilities; explain a model without one (tree.levels = [])"
        )
    if num_texts < 0:
        raise DataError(f"num_texts must be at least 0, but is {num_texts}")
    if k < 1:
        raise DataError(f"k must be at least 1, but is {k}")
    queries = model.encode([text], mode)
    said = model.neighbour_scores(queries, mode)
    best = model.search(queries, said, k)
    predicted = [label for label in best.ids[0].tolist() if label >= 0]
    chosen = predicted if labels is None else _ids_of(model, labels)
    if not chosen:
        return []
    ids = np.array(chosen, dtype=np.int64)
    vectors_LD = model.index.vectors(ids)
    spans = _columns(model, mode)
    parts = {name: vectors_LD[:, span].astype(np.float64) @ queries[0, span] for name, span in spans.items()}
    if said is not None:
        parts["neighbours"] = model.config.predict.knn * said[:, ids].toarray()[0].astype(np.float64)
    scores = np.sum(list(parts.values()), axis=0)
    words = carried(
        model.network, text, *(vectors_LD[:, spans[name]] if name in spans else None for name in ("dual", "classifier"))
    )
    probabilities = _probabilities(model, mode, best, ids, scores)
    texts = _nearest_texts(model, text, queries[0] if mode == "both" else None, chosen, num_texts)
    others = list(dict.fromkeys([*predicted, *chosen]))
    return [
        Reason(
            **_named(model, label),
            score=float(scores[row]),
            probability=None if probabilities is None else probabilities[row],
            frequency=model.labels.frequency_class(label),
            parts={name: float(parts[name][row]) for name in _NAMES if name in parts},
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


_NAMES = ("dual", "classifier", "neighbours", "frequency")


def _named(model: Model, label: int) -> dict[str, Any]:
    return {"id": label, "uid": model.labels.uids[label], "text": model.labels.texts[label]}


def _ids_of(model: Model, labels: Sequence[str | int]) -> list[int]:
    """Ids of labels by uid or id, each once, in the order they are named."""
    if isinstance(labels, str):
        raise DataError("labels to explain must be a list of uids or ids, but are one string; write [label]")
    found: list[int] = []
    unknown: list[str] = []
    for name in labels:
        label = _id_of(model, name)
        if label is None:
            unknown.append(quoted(name))
        else:
            found.append(label)
    if unknown:
        raise DataError(f"labels to explain must be among the model's, but it does not have {listed(unknown)}")
    return list(dict.fromkeys(found))


def _id_of(model: Model, name: str | int) -> int | None:
    if isinstance(name, str):
        return model.labels.id_of(name) if name in model.labels else None
    if isinstance(name, bool) or not isinstance(name, int | np.integer):
        raise DataError(f"a label to explain must be a uid (a string) or an id (a whole number), but is {quoted(name)}")
    is_there = 0 <= name < len(model.labels) and not model.labels.removed[name]
    return int(name) if is_there else None


def _columns(model: Model, mode: Mode) -> dict[str, slice]:
    """Which numbers of a vector, as it is searched, make which part of a score that counts in this mode."""
    network, width = model.network, model.index.dim
    has_prior = model.config.predict.label_prior != 0
    own = 0 if network.classifiers is None else network.classifiers.dim
    middle = width - has_prior - own
    found = {"dual": slice(0, middle), "classifier": slice(middle, middle + own)}
    if mode != "both":
        return {mode: found[mode]}
    found = {name: span for name, span in found.items() if span.start < span.stop}
    return found | ({"frequency": slice(width - 1, width)} if has_prior else {})


def _probabilities(
    model: Model, mode: Mode, best: TopK, ids: NDArray[np.int64], scores: NDArray[np.float64]
) -> list[float] | None:
    """Probabilities of labels at the places where they were predicted; another stands right behind the predicted."""
    given = TopK(
        np.concatenate([np.repeat(best.ids, len(ids), axis=0), ids[:, None]], axis=1),
        np.concatenate([np.repeat(best.scores, len(ids), axis=0), scores[:, None].astype(np.float32)], axis=1),
    )
    found = model.probabilities(given, mode)
    if found is None:
        return None
    # The first place of each label: that of the prediction, or the last.
    places = np.argmax(given.ids == ids[:, None], axis=1)
    return [float(value) for value in found[np.arange(len(ids)), places]]


def _nearest_texts(
    model: Model, text: str, query: NDArray[np.float32] | None, labels: list[int], num_texts: int
) -> list[list[dict[str, Any]]]:
    """For each label the train texts that have it and are nearest, by both heads alike."""
    near = model.neighbours
    if near is None or near.kept is None or num_texts == 0:
        return [[] for _ in labels]
    whole = model.encode([text], "both")[0] if query is None else query
    found = near.nearest_with(labels, whole[: near.dim], num_texts)
    return [
        [
            {"text": near.kept[place], "similarity": round(similarity, 6)}
            for place, similarity in zip(one.ids[0].tolist(), one.scores[0].tolist(), strict=True)
            if place != PADDING
        ]
        for one in found
    ]


def _together(model: Model, label: int, others: list[int]) -> list[dict[str, Any]]:
    """Other labels by the share of the label's train texts that have them, the highest first; none without a share."""
    if model.neighbours is None:
        return []
    texts = model.neighbours.label_texts()
    shares = {other: texts.share(label, other) for other in others if other != label}
    order = sorted((other for other in shares if shares[other] > 0), key=lambda other: (-shares[other], other))
    return [_named(model, other) | {"share": round(shares[other], 6)} for other in order]
