"""The page of a comparison: one HTML file with everything in it, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import accumulate
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from unidex.report import numbers
from unidex.report.charts import MANY, colours_of, draw_against, draw_curves
from unidex.report.display_text import cut, plain
from unidex.report.markdown import COST_COLUMNS, cost_cells
from unidex.report.systems import best_of, shown_metrics

_MAX_LABEL, _MAX_TEXT, _MAX_ERROR = 120, 600, 400
_VALIDATION = ("P@1", "P@5")


def as_html(
    table: dict[str, Any],
    curves: Mapping[str, Sequence[dict[str, Any]]],
    samples: Sequence[dict[str, Any]],
    mistakes: Sequence[tuple[str, dict[str, Any]]] = (),
) -> str:
    """The page of a table.

    ``curves`` has the training log by model folder, ``samples`` texts with the predictions of all systems, and
    ``mistakes`` the mistakes of a system by its name.
    """
    systems = table["systems"]
    time = "cpu_seconds" if any(system["costs"]["cpu_seconds"]["values"] for system in systems) else "wall_seconds"
    return _template().render(
        table=table,
        systems=systems,
        style=Markup(_file("report.css")),
        lead=_lead(systems),
        metrics=_metrics(systems),
        pictures=_pictures(
            systems,
            ("PSP@1 against P@1", ("metrics", "P@1"), ("metrics", "PSP@1")),
            ("PSP@5 against P@5", ("metrics", "P@5"), ("metrics", "PSP@5")),
        ),
        cost_pictures=_pictures(
            systems,
            ("P@1 against training time", ("costs", time), ("metrics", "P@1")),
            ("P@1 against size of the model", ("costs", "model_bytes"), ("metrics", "P@1")),
        ),
        bins=_bins(systems, "bins"),
        classes=_bins(systems, "classes"),
        cost_columns=COST_COLUMNS,
        costs=[(system["name"], cost_cells(system)) for system in systems],
        curves=_curves(systems, curves),
        samples=samples,
        mistakes=mistakes,
        is_marked=any(sample["correct"] is not None for sample in samples),
        runs=[run for system in systems for run in system["runs"]],
        machines=_machines(systems),
        versions=_versions(systems, table["versions"]),
        is_many=len(systems) > MANY,
        num_seeds=max((len(system["seeds"]) for system in systems), default=0),
        was_resumed=any((run["training"].get("num_starts") or 1) > 1 for system in systems for run in system["runs"]),
    )


def _lead(systems: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """The best system in what most people look at first, and how far the next one is behind."""
    found = []
    for metric in ("P@1", "P@5", "PSP@5"):
        ranked = sorted(
            (system for system in systems if metric in system["metrics"]),
            key=lambda system: -system["metrics"][metric]["mean"],
        )
        if not ranked:
            continue
        best = ranked[0]["metrics"][metric]["mean"]
        behind = ""
        if len(ranked) > 1:
            gap = best - ranked[1]["metrics"][metric]["mean"]
            behind = f"{gap:.2f} ahead of {ranked[1]['name']}" if round(gap, 2) else f"level with {ranked[1]['name']}"
        value = numbers.with_spread(ranked[0]["metrics"][metric])
        found.append({"metric": metric, "value": value, "system": ranked[0]["name"], "behind": behind})
    return found


def _metrics(systems: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = shown_metrics(systems)
    best = {name: best_of(systems, name) for name in names}
    rows = [
        {
            "system": system,
            "cells": [
                {
                    "mean": numbers.percent(value["mean"]),
                    "spread": numbers.percent(value["spread"]),
                    "is_best": at in best[name],
                }
                for name in names
                for value in [system["metrics"].get(name, {"mean": None, "spread": None})]
            ],
        }
        for at, system in enumerate(systems)
    ]
    return {"names": names, "rows": rows}


def _pictures(
    systems: Sequence[dict[str, Any]], *wanted: tuple[str, tuple[str, str], tuple[str, str]]
) -> list[tuple[str, Markup]]:
    """Pictures by title, and what is on their axes; costs are on a logarithmic one."""
    drawn = [(title, draw_against(systems, x, y, logarithmic=x[0] == "costs")) for title, x, y in wanted]
    return [(title, Markup(svg)) for title, svg in drawn if svg]


def _bins(systems: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    groups = systems[0][kind] if systems else []
    totals = [sum(group["contribution"]["mean"] for group in system[kind]) for system in systems]
    highest = max(totals, default=0.0)
    return {
        "groups": groups,
        "rows": [
            {
                "name": system["name"],
                "bars": _bars(system[kind], highest),
                "parts": [numbers.percent(group["contribution"]["mean"]) for group in system[kind]],
                "total": numbers.percent(total),
            }
            for system, total in zip(systems, totals, strict=True)
        ],
    }


def _bars(groups: Sequence[dict[str, Any]], highest: float) -> list[dict[str, Any]]:
    """Start and width of the bar of each group, in thousandths of the highest total of all systems."""
    values = [max(group["contribution"]["mean"], 0.0) for group in groups]
    widths = [1000 * value / (highest or 1.0) for value in values]
    return [
        {"name": group["name"], "value": numbers.percent(value), "start": round(start, 2), "width": round(width, 2)}
        for group, value, width, start in zip(groups, values, widths, accumulate(widths, initial=0.0), strict=False)
    ]


def _curves(
    systems: Sequence[dict[str, Any]], curves: Mapping[str, Sequence[dict[str, Any]]]
) -> list[tuple[str, list[Markup]]]:
    """Per value, one small picture per system that has it."""
    found = []
    for what in ("loss", *_VALIDATION):
        drawn = [
            draw_curves(system["name"], [curves.get(run["folder"], []) for run in system["runs"]], colour, what)
            for system, colour in zip(systems, colours_of(systems), strict=True)
        ]
        title = "Loss" if what == "loss" else f"{what} on the validation split"
        found.append((title, [Markup(svg) for svg in drawn if svg]))
    return [(title, drawn) for title, drawn in found if drawn]


def _machines(systems: Sequence[dict[str, Any]]) -> list[str]:
    found = {}
    for machine in (run["machine"] for system in systems for run in system["runs"] if run["machine"]):
        device = machine.get("gpu", machine["device"])
        threads = f"{machine['num_threads']} thread" + ("" if machine["num_threads"] == 1 else "s")
        found[f"{machine['system']} on {machine['processor']}, {machine['num_cores']} cores; {device}, {threads}"] = (
            True
        )
    return list(found)


def _versions(systems: Sequence[dict[str, Any]], now: dict[str, str]) -> dict[str, str]:
    """Per package, the versions of the runs as one text; the versions of this process where no run has any."""
    found: dict[str, list[str]] = {}
    runs = [run["versions"] for system in systems for run in system["runs"] if run["versions"]]
    for versions in runs or [now]:
        for name, version in versions.items():
            known = found.setdefault(name, [])
            if version not in known:
                known.append(version)
    return {name: " and ".join(known) for name, known in found.items()}


def _file(name: str) -> str:
    return (resources.files("unidex.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        # Characters that no page may hold are replaced; escaping comes after this.
        finalize=lambda value: plain(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "label": partial(cut, max_length=_MAX_LABEL),
        "text": partial(cut, max_length=_MAX_TEXT),
        "error": partial(cut, max_length=_MAX_ERROR),
        "seconds": numbers.seconds,
        "percent": numbers.percent,
    }
    environment.filters |= filters
    return environment.from_string(_file("report.html"))
