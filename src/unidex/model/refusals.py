"""What a model cannot do: every refused verb, with the reason and the remedy, in one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unidex.errors import ModelError

if TYPE_CHECKING:
    from unidex.model.model import Model

# Method of a model -> whether a model cannot do it, and the message.
REFUSALS: dict[str, tuple[Callable[[Model], bool], str]] = {
    "add_labels": (
        lambda model: "dual" not in model.scorer.layout.heads,
        "labels can only be added to a model with a dual encoder, which knows a label by its text, but this one has a "
        "classifier alone; train one with --set heads.dual=true",
    ),
    "remember": (
        lambda model: model.scorer.knn is None or "knn" not in model.scorer.ranker().features,
        "texts can only be remembered by a model whose scores have a kNN part, but those of this one have none; "
        "train it with --set predict.knn=0.1 --set predict.choose_knn=false",
    ),
}


def check_verb(verb: str, model: Model) -> None:
    """Refuse a verb that the model cannot do."""
    is_refused, message = REFUSALS[verb]
    if is_refused(model):
        raise ModelError(message)
