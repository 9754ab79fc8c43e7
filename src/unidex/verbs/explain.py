"""``explain``: why a text has its labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unidex.model.explanation import explain

if TYPE_CHECKING:
    from unidex.model.model import Model
    from unidex.scoring.layout import Mode


def explain_text(
    model: Model,
    text: str,
    *,
    k: int = 5,
    labels: Sequence[str | int] | None = None,
    mode: Mode | None = None,
    num_texts: int = 3,
) -> list[dict[str, Any]]:
    """Explain the k best labels of a text, or the labels named by uid or id, as plain values for JSON."""
    reasons = explain(model, text, k=k, labels=labels, mode=mode, num_texts=num_texts)
    return [reason.as_dict() for reason in reasons]
