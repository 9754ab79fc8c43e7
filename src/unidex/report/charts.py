"""The pictures of a comparison: metrics against each other, what groups of labels contribute, training curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from unidex.report.display_text import cut
from unidex.report.point_names import place_names
from unidex.report.svg import Element, Scale, as_text, axes, element, path, picture

_WIDTH, _HEIGHT = 440.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 14.0, 26.0, 40.0
_SMALL_WIDTH, _SMALL_HEIGHT = 220.0, 130.0
NUM_COLOURS = 8
MANY = 12
_NAME_MOST = 28
_BAR = 1000.0


def colours_of(systems: Sequence[dict[str, Any]]) -> list[int]:
    """A colour a system, the same for all augmentations of a recipe; the ninth recipe has that of the first."""
    recipes = list(dict.fromkeys(system["recipe"] for system in systems))
    return [recipes.index(system["recipe"]) % NUM_COLOURS for system in systems]


def draw_against(
    systems: Sequence[dict[str, Any]], x: tuple[str, str], y: tuple[str, str], *, logarithmic: bool = False
) -> str:
    """Systems by two of their values: a large mark for the mean, its spread as a cross, a dot a seed.

    A square is a system with augmentation; a line leads to it from the same recipe without.

    Args:
        systems: of a table.
        x: "metrics" or "costs", and the name of the value.
        y: the same.
        logarithmic: whether x grows by factors.
    """
    found = [(at, system, _value(system, x), _value(system, y)) for at, system in enumerate(systems)]
    rows = [(at, system, of_x, of_y) for at, system, of_x, of_y in found if of_x is not None and of_y is not None]
    if not rows:
        return ""
    across = Scale.around(_ends(row[2] for row in rows), _LEFT, _WIDTH - _RIGHT, logarithmic=logarithmic, most=_most(x))
    up = Scale.around(_ends(row[3] for row in rows), _HEIGHT - _BOTTOM, _TOP, most=_most(y))
    x_name, y_name = (_AXES.get(name, (name, 1.0))[0] for name in (x[1], y[1]))
    parts = [axes(across, up, x_name, y_name)]
    colours = colours_of(systems)
    centres = [(across(row[2]["mean"]), up(row[3]["mean"])) for row in rows]
    parts += _steps(rows, centres, colours)
    for at, _, of_x, of_y in rows:
        parts += _spread(across, up, of_x, of_y, f"c{colours[at]}")
    for (at, system, *_), (cx, cy) in zip(rows, centres, strict=True):
        parts.append(_mark(cx, cy, f"mark c{colours[at]}", is_plain=system["augment"] == "none"))
    names = _names([row[1] for row in rows])
    for name, place, (cx, cy) in zip(names, place_names(centres, names, _WIDTH, _HEIGHT - 26), centres, strict=True):
        if not name:
            continue
        if place.is_far:
            parts.append(element("line", x1=cx, y1=cy, x2=place.x, y2=place.y - 4, class_="leader"))
        parts.append(element("text", x=place.x, y=place.y, text_anchor=place.anchor, class_="name", text=name))
    said = "; ".join(f"{row[1]['name']}: {row[2]['mean']:.4g}, {row[3]['mean']:.4g}" for row in rows)
    return as_text(picture(_WIDTH, _HEIGHT, f"{y_name} against {x_name}. {said}", *parts))


# What stands at an axis, and the unit that it counts.
_AXES = {
    "cpu_seconds": ("CPU seconds of training", 1.0),
    "wall_seconds": ("seconds of training", 1.0),
    "model_bytes": ("MB on disk", 1e6),
}


def draw_parts(groups: Sequence[dict[str, Any]], highest: float) -> str:
    """A bar of what groups of labels contribute, as long as they are together beside the highest of all systems."""
    bar, at = element("g"), 0.0
    for number, group in enumerate(groups):
        width = _BAR * max(group["contribution"]["mean"], 0.0) / (highest or 1.0)
        said = f"{group['name']}: {group['contribution']['mean']:.2f}"
        bar.append(
            element("rect", element("title", text=said), x=at, y=0, width=width, height=20, class_=f"part b{number}")
        )
        at += width
    made = picture(_BAR, 20, "contributions", bar)
    made.set("preserveAspectRatio", "none")
    made.set("class", "bar")
    return as_text(made)


def draw_curves(name: str, curves: Sequence[Sequence[dict[str, Any]]], colour: int, what: str) -> str:
    """How a value went over the epochs, a line a seed; "" where no run has said it.

    Args:
        name: of the system.
        curves: a run each: what its training has said.
        colour: of the system.
        what: "loss", or a metric on the validation split.
    """
    of_runs = [curve_lines(records, what) for records in curves]
    points = [point for lines in of_runs for line in lines.values() for point in line]
    if not points:
        return ""
    epochs = [epoch for epoch, _ in points]
    across = Scale(min(epochs), max(*epochs, min(epochs) + 1), 36, _SMALL_WIDTH - 8)
    up = Scale.around([value for _, value in points], _SMALL_HEIGHT - 22, 20, margin=0.08)
    parts: list[Element] = [axes(across, up, "", "", most=(4, 4), is_counted=True)]
    for number, (phase, line) in ((number, one) for number, lines in enumerate(of_runs) for one in lines.items()):
        places = [(across(epoch), up(value)) for epoch, value in line]
        style = (" seed" if number else "") + (" trial" if _is_trial(phase) else "")
        if len(places) > 1:
            parts.append(path(places, f"curve c{colour}{style}"))
        else:
            parts.append(element("circle", cx=places[0][0], cy=places[0][1], r=2.5, class_=f"mark c{colour}"))
    parts.append(element("text", x=4, y=12, class_="name", text=cut(name, _NAME_MOST)))
    last = next(line for lines in of_runs for line in lines.values())[-1][1]
    parts.append(element("text", x=_SMALL_WIDTH - 4, y=12, text_anchor="end", class_="what", text=f"{last:.4g}"))
    return as_text(picture(_SMALL_WIDTH, _SMALL_HEIGHT, f"{name}: {what}, at the end {last:.4g}", *parts))


def curve_lines(records: Sequence[dict[str, Any]], what: str) -> dict[str, list[tuple[float, float]]]:
    """Epochs and values of a run, by phase, where it has the value.

    A phase goes on where the one before has ended, but a trial ("training-...") stands beside the first phase.

    >>> said = [{"phase": "training", "epoch": 1, "loss": 2.0}, {"phase": "falling", "epoch": 1, "loss": 1.0}]
    >>> curve_lines(said, "loss")
    {'training': [(1, 2.0)], 'falling': [(2, 1.0)]}
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    begins: dict[str, int] = {}
    last = 0
    for record in records:
        phase, epoch = record.get("phase", "training"), record["epoch"]
        if phase not in begins:
            begins[phase] = 0 if _is_trial(phase) else last
        if not _is_trial(phase):
            last = max(last, begins[phase] + epoch)
        value = record.get("loss") if what == "loss" else record.get("validation", {}).get(what)
        if value is not None:
            lines.setdefault(phase, []).append((begins[phase] + epoch, value))
    return lines


def _is_trial(phase: str) -> bool:
    return phase.startswith("training-")


def _names(systems: Sequence[dict[str, Any]]) -> list[str]:
    """What stands beside the points; where they are many, of a recipe only the first: lines lead to the others."""
    recipes = [system["recipe"] for system in systems]
    is_first = [recipes.index(recipe) == at for at, recipe in enumerate(recipes)]
    return [
        cut(system["name"], _NAME_MOST) if first or len(systems) <= MANY else ""
        for system, first in zip(systems, is_first, strict=True)
    ]


def _most(value: tuple[str, str]) -> float:
    """A metric is a percentage."""
    return 100.0 if value[0] == "metrics" else math.inf


def _value(system: dict[str, Any], which: tuple[str, str]) -> dict[str, Any] | None:
    """A value of a system in the unit of its axis; None where it was not measured."""
    value = system[which[0]].get(which[1])
    if value is None or value["mean"] is None:
        return None
    unit = _AXES.get(which[1], ("", 1.0))[1]
    spread = None if value["spread"] is None else value["spread"] / unit
    return {"mean": value["mean"] / unit, "spread": spread, "values": [one / unit for one in value["values"]]}


def _ends(values: Iterable[dict[str, Any]]) -> list[float]:
    """All that is drawn of some values: means, seeds and the ends of crosses, unless those fall below half a mean."""
    found = []
    for value in values:
        spread = value["spread"] or 0.0
        found += [value["mean"], *value["values"], value["mean"] + spread]
        found += [max(value["mean"] - spread, value["mean"] / 2)]
    return found


def _spread(across: Scale, up: Scale, x: dict[str, Any], y: dict[str, Any], colour: str) -> list[Element]:
    if x["spread"] is None or y["spread"] is None:
        return []
    cx, cy = across(x["mean"]), up(y["mean"])
    left, right = (across(end) for end in _crossed(across, x))
    below, above = (up(end) for end in _crossed(up, y))
    cross = [
        element("line", x1=left, x2=right, y1=cy, y2=cy, class_=f"cross {colour}"),
        element("line", x1=cx, x2=cx, y1=below, y2=above, class_=f"cross {colour}"),
    ]
    dots = [
        element("circle", cx=across(one), cy=up(other), r=1.8, class_=f"dot {colour}")
        for one, other in zip(x["values"], y["values"], strict=True)
    ]
    return cross + dots


def _crossed(scale: Scale, value: dict[str, Any]) -> tuple[float, float]:
    """The ends of a cross, inside what is drawn: a mean less its spread has no logarithm where it is below 0."""
    return max(value["mean"] - value["spread"], scale.low), min(value["mean"] + value["spread"], scale.high)


def _steps(rows: Sequence[Any], centres: Sequence[tuple[float, float]], colours: Sequence[int]) -> list[Element]:
    """Lines between the systems of one recipe, in their order."""
    made = []
    for recipe in dict.fromkeys(row[1]["recipe"] for row in rows):
        own = [place for place, row in enumerate(rows) if row[1]["recipe"] == recipe]
        for one, other in pairwise(own):
            # Models of one recipe that differ in other settings have no order.
            if rows[one][1]["augment"] != rows[other][1]["augment"]:
                made.append(path([centres[one], centres[other]], f"step c{colours[rows[one][0]]}"))
    return made


def _mark(x: float, y: float, class_: str, *, is_plain: bool) -> Element:
    if is_plain:
        return element("circle", cx=x, cy=y, r=5, class_=class_)
    return element("rect", x=x - 4.6, y=y - 4.6, width=9.2, height=9.2, class_=class_)
