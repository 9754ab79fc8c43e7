"""The tables of a comparison as Markdown: what can be put into a paper's draft or an issue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unidex.report import numbers
from unidex.report.systems import best_of, shown_metrics

COST_COLUMNS = ("training", "CPU", "peak memory", "parameters", "model", "CPU per predicted text")


def metric_rows(table: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the metrics: system, seeds, then mean and spread."""
    systems = table["systems"]
    metrics = shown_metrics(systems)
    rows = [
        [system["name"], str(len(system["seeds"]))]
        + [numbers.with_spread(system["metrics"][m]) if m in system["metrics"] else "" for m in metrics]
        for system in systems
    ]
    return ["system", "seeds", *metrics], rows


def cost_rows(table: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what systems cost, each the mean over seeds."""
    return ["system", *COST_COLUMNS], [[system["name"], *cost_cells(system)] for system in table["systems"]]


def cost_cells(system: dict[str, Any]) -> list[str]:
    """What a system costs, in the order of `COST_COLUMNS`."""
    costs = {name: value["mean"] for name, value in system["costs"].items()}
    return [
        numbers.seconds(costs["wall_seconds"]),
        numbers.seconds(costs["cpu_seconds"]),
        numbers.size(costs["peak_memory_bytes"]),
        numbers.count(costs["num_parameters"]),
        numbers.size(costs["model_bytes"]),
        numbers.milliseconds(costs["predict_cpu_ms"]),
    ]


def as_markdown(table: dict[str, Any]) -> str:
    """A comparison as Markdown."""
    named = (("num_train", "train texts"), ("num_test", "test texts"), ("num_labels", "labels"))
    sizes = [f"{table['data'][key]:,} {what}" for key, what in named if table["data"].get(key) is not None]
    columns, rows = metric_rows(table)
    for at, metric in enumerate(columns[2:], start=2):
        for best in best_of(table["systems"], metric):
            rows[best][at] = f"**{rows[best][at]}**"
    parts = [
        f"# {_cell(table['title'])}",
        f"{', '.join(sizes) or 'Sizes not known'}. "
        "Percent on test; mean ± standard deviation over seeds; best in bold.",
        _table(columns, rows),
        "Costs (means over seeds; training is wall-clock time, memory the maximum of its process):",
        _table(*cost_rows(table)),
    ]
    if table["failed"]:
        lines = [f"- {_cell(failed['name'])}: {_cell(failed['error'])}" for failed in table["failed"]]
        parts.append("Failed, and not in the tables:\n\n" + "\n".join(lines))
    if table.get("command"):
        parts.append(f"```\n{table['command']}\n```")
    return "\n\n".join(parts) + "\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["|" + "|".join(f" {_cell(cell)} " for cell in row) + "|" for row in (columns, *rows)]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(columns) - 1), *lines[1:]])


def _cell(text: str) -> str:
    # A bar would begin another cell, an angle bracket HTML.
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
