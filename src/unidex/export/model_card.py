"""The model card of an exported folder: README.md with the fields that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from unidex.model.model import Model


def model_card(
    model: Model, library: str, pipeline_tag: str, tags: Sequence[str], use: str, notes: Sequence[str]
) -> str:
    """A README.md: fields for the hub, what the model is, how to use it, what it lacks, how good it is."""
    data = model.metrics.get("data", {})
    scores = {
        name: value
        for name, value in (model.metrics.get("test") or model.metrics.get("validation") or {}).items()
        if isinstance(value, float)
    }
    name = str(data.get("name", "unnamed data"))
    fields: dict[str, Any] = {
        "library_name": library,
        "pipeline_tag": pipeline_tag,
        "tags": ["unidex", "extreme-multi-label-classification", *tags],
        "datasets": [name],
        "metrics": sorted(scores),
    }
    # A JSON value is a YAML value, whatever a name holds.
    header = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in fields.items())
    config, num_labels = model.config, int((~model.labels.removed).sum())
    return (
        f"---\n{header}---\n\n# {name}: labels of texts\n\n"
        f"A unidex model with {num_labels:,} labels, trained on {data.get('num_train', 0):,} texts with the recipe "
        f"{config.recipe or 'of its own'} ({config.encoder.kind} encoder; heads: "
        f"{' and '.join(model.scorer.layout.heads)}).\n\n## Use\n\n```python\n{use.rstrip()}\n```\n"
        + _section("Limits", [f"- {note}" for note in notes])
        + _section("Scores", _table(scores))
    )


def _table(scores: dict[str, float]) -> list[str]:
    rows = [f"| {metric} | {value:.2f} |" for metric, value in scores.items()]
    head = ["Of `unidex predict` on held-out texts, in percent.", "", "| metric | percent |", "|---|---:|"]
    return [*head, *rows] if rows else []


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join(["", f"## {title}", "", *lines, ""]) if lines else ""
