"""The page of a search for settings: one HTML file with everything in it, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

_WIDTH, _HEIGHT, _MARGIN = 640, 200, 10


def tuning_page(result: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """The page: the best settings beside those of the recipe, and every trial."""
    trials = result["trials"]
    best = max(trials, key=lambda trial: trial["value"])
    return _template().render(
        result=result,
        gain=result["best"] - result["before"],
        best=best,
        rows=[(name, _short(value), _short(best["values"][name])) for name, value in recipe.items()],
        names=list(recipe),
        trials=sorted(trials, key=lambda trial: -trial["value"]),
        points=_points([trial["value"] for trial in trials]),
        size=(_WIDTH, _HEIGHT),
        style=Markup(_file("report.css")),
    )


def _points(values: list[float]) -> list[tuple[float, float, float, float]]:
    """Per trial its place in the picture, its value's height, and that of the best value so far.

    >>> [point[2] for point in _points([1.0, 3.0, 2.0])]
    [190.0, 10.0, 100.0]
    """
    found = [value for value in values if value > 0]
    low, high = min(found, default=0.0), max(found, default=1.0)
    scale = (_HEIGHT - 2 * _MARGIN) / ((high - low) or 1.0)
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(values) - 1)

    def height(value: float) -> float:
        return round(_HEIGHT - _MARGIN - (max(value, low) - low) * scale, 1)

    best = [max(values[: place + 1]) for place in range(len(values))]
    return [
        (place + 1, round(_MARGIN + place * step, 1), height(value), height(best[place]))
        for place, value in enumerate(values)
    ]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _file(name: str) -> str:
    return (resources.files("unidex.report") / "page" / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["short"] = _short
    return environment.from_string(_file("tuning.html"))
