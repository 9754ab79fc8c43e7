"""What a model cannot do: every refused verb, with the reason and the remedy, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unidex.errors import ModelError

if TYPE_CHECKING:
    from unidex.model.model import Model


@dataclass(frozen=True)
class Refusal:
    """A verb that some models cannot do.

    Attributes:
        verb: the method of a model.
        applies: whether a model is one of them.
        reason: what the verb needs, and what was found.
        remedy: what to do instead.
    """

    verb: str
    applies: Callable[[Model], bool]
    reason: str
    remedy: str


REFUSALS = (
    Refusal(
        "add_labels",
        lambda model: "dual" not in model.scorer.layout.heads,
        "labels can only be added to a model with a dual encoder, which knows a label by its text, but this one has a "
        "classifier alone",
        "train one with --set heads.dual=true",
    ),
    Refusal(
        "remember",
        lambda model: model.scorer.knn is None or "knn" not in model.scorer.ranker().features,
        "texts can only be remembered by a model whose scores have a kNN part, but this one's have none",
        "train it with --set predict.knn=0.1 --set predict.choose_knn=false",
    ),
)


def check_verb(verb: str, model: Model) -> None:
    """Refuse a verb that the model cannot do."""
    for refusal in REFUSALS:
        if refusal.verb == verb and refusal.applies(model):
            raise ModelError(f"{refusal.reason}; {refusal.remedy}")
