"""The pictures of a comparison: metrics against each other and against costs, and training curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

from unidex.report.display_text import cut, plain
from unidex.report.pictures import (
    PAGE_INK,
    PAGE_LINE,
    PAGE_SOFT,
    PAGE_SURFACE,
    SERIES,
    as_inline_svg,
    new_figure,
)
from unidex.report.point_names import place_names

MANY = 12
_POINT = 1 / 72  # inches; all sizes below are in points, which are the units of the SVG
_WIDTH, _HEIGHT = 440.0, 330.0
_SMALL_WIDTH, _SMALL_HEIGHT = 220.0, 130.0
_MAX_NAME = 28
# Names of axes, and the units of their numbers.
_AXES = {
    "cpu_seconds": ("CPU seconds of training", 1.0),
    "wall_seconds": ("seconds of training", 1.0),
    "model_bytes": ("MB on disk", 1e6),
}


def colours_of(systems: Sequence[dict[str, Any]]) -> list[str]:
    """A colour per system, the same for all augmentations of a recipe; the ninth recipe has the colour of the first."""
    recipes = list(dict.fromkeys(system["recipe"] for system in systems))
    return [SERIES[recipes.index(system["recipe"]) % len(SERIES)] for system in systems]


def draw_against(
    systems: Sequence[dict[str, Any]], x: tuple[str, str], y: tuple[str, str], *, logarithmic: bool = False
) -> str:
    """Systems by two of their values: a large mark for the mean, its spread as a cross, one dot per seed.

    A square is a system with augmentation; a line joins it to the same recipe without. An axis is "metrics" or
    "costs", and the name of the value.
    """
    rows = [
        (system, of_x, of_y, colour)
        for system, colour in zip(systems, colours_of(systems), strict=True)
        for of_x, of_y in [(_value(system, x), _value(system, y))]
        if of_x is not None and of_y is not None
    ]
    if not rows:
        return ""
    x_name, y_name = (_AXES.get(name, (name, 1.0))[0] for name in (x[1], y[1]))
    figure, axes = _new_chart(_WIDTH, _HEIGHT, (40, 40, 14, 26))
    axes.set_xscale("log" if logarithmic else "linear")
    x_ends, y_ends = _ends(row[1] for row in rows), _ends(row[2] for row in rows)
    _set_range(axes, "x", _room_around(x_ends, _highest(x), is_log=logarithmic), is_log=logarithmic)
    _set_range(axes, "y", _room_around(y_ends, _highest(y)))
    style = {"xycoords": "figure points", "fontsize": 11, "color": PAGE_SOFT}
    axes.annotate(x_name, (_WIDTH - 14, 9), ha="right", **style)
    axes.annotate(y_name, (10, _HEIGHT - 13), **style)
    for one, other in _augmentation_steps(rows):
        ends = [[row[at]["mean"] for row in (one, other)] for at in (1, 2)]
        axes.plot(*ends, color=one[3], linewidth=1.2, linestyle=(0, (3, 3)), alpha=0.8, clip_on=False)
    for system, of_x, of_y, colour in rows:
        _draw_spread(axes, of_x, of_y, colour)
        marker = {"marker": "o" if system["augment"] == "none" else "s", "s": 90, "linewidths": 1.4}
        style = {"color": colour, "edgecolors": PAGE_SURFACE, "zorder": 3, "clip_on": False}
        axes.scatter(of_x["mean"], of_y["mean"], **marker, **style)
    _write_names(axes, rows)
    values = "; ".join(f"{row[0]['name']}: {row[1]['mean']:.4g}, {row[2]['mean']:.4g}" for row in rows)
    return as_inline_svg(figure, plain(f"{y_name} against {x_name}. {values}"))


def draw_curves(name: str, curves: Sequence[Sequence[dict[str, Any]]], colour: str, what: str) -> str:
    """The loss or a metric on the validation split over the epochs, one line per seed; "" where no run has it."""
    of_runs = [curve_lines(records, what) for records in curves]
    points = [point for lines in of_runs for line in lines.values() for point in line]
    if not points:
        return ""
    figure, axes = _new_chart(_SMALL_WIDTH, _SMALL_HEIGHT, (36, 22, 8, 20))
    epochs = [epoch for epoch, _ in points]
    _set_range(axes, "x", (min(epochs), max(*epochs, min(epochs) + 1)), integer=True)
    _set_range(axes, "y", _room_around([value for _, value in points], margin=0.08), max_ticks=4)
    for number, (phase, line) in ((number, one) for number, lines in enumerate(of_runs) for one in lines.items()):
        is_trial = _is_trial(phase)
        axes.plot(
            *zip(*line, strict=True),
            color=colour,
            marker="o" if len(line) == 1 else "",
            markersize=5,
            linewidth=1.2 if is_trial else 1 if number else 2,
            linestyle=(0, (3, 3)) if is_trial else "-",
            alpha=0.6 if number else 1,
            clip_on=False,
        )
    last = next(line for lines in of_runs for line in lines.values())[-1][1]
    style: dict[str, Any] = {"xycoords": "figure points", "fontsize": 11}
    shown = plain(cut(name, _MAX_NAME))
    axes.annotate(shown, (4, _SMALL_HEIGHT - 12), color=PAGE_INK, gid="name", parse_math=False, **style)
    axes.annotate(f"{last:.4g}", (_SMALL_WIDTH - 4, _SMALL_HEIGHT - 12), color=PAGE_SOFT, ha="right", **style)
    return as_inline_svg(figure, plain(f"{name}: {what}, at the end {last:.4g}"))


def curve_lines(records: Sequence[dict[str, Any]], what: str) -> dict[str, list[tuple[float, float]]]:
    """Epochs and values of a run by phase, where it has the value.

    A phase continues the epochs of the one before; a trial ("training-...") starts with the first phase.

    >>> log = [{"phase": "training", "epoch": 1, "loss": 2.0}, {"phase": "decay", "epoch": 1, "loss": 1.0}]
    >>> curve_lines(log, "loss")
    {'training': [(1, 2.0)], 'decay': [(2, 1.0)]}
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    starts: dict[str, int] = {}
    last = 0
    for record in records:
        phase, epoch = record.get("phase", "training"), record["epoch"]
        if phase not in starts:
            starts[phase] = 0 if _is_trial(phase) else last
        if not _is_trial(phase):
            last = max(last, starts[phase] + epoch)
        value = record.get("loss") if what == "loss" else record.get("validation", {}).get(what)
        if value is not None:
            lines.setdefault(phase, []).append((starts[phase] + epoch, value))
    return lines


def _is_trial(phase: str) -> bool:
    return phase.startswith("training-")


def _new_chart(width: float, height: float, room: tuple[float, float, float, float]) -> tuple[Any, Any]:
    """A figure in points with room for text at the left, bottom, right and top, in the colours of the page."""
    figure, axes = new_figure(width * _POINT, height * _POINT, dpi=72, layout="none", facecolor="none")
    left, bottom, right, top = room
    axes.set_position((left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height))
    axes.patch.set_visible(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(color=PAGE_LINE, linewidth=1, clip_on=False)
    axes.tick_params(which="both", length=0, labelsize=11, labelcolor=PAGE_SOFT)
    return figure, axes


def _highest(value: tuple[str, str]) -> float:
    """A metric is a percentage."""
    return 100.0 if value[0] == "metrics" else math.inf


def _room_around(
    values: Sequence[float], highest: float = math.inf, *, is_log: bool = False, margin: float = 0.12
) -> tuple[float, float]:
    """The ends of an axis: some room around values, but not below 0 where they are not, and not above ``highest``."""
    low, high = min(values), max(values)
    if is_log:
        room = max((high / low) ** margin, 1.3)
        return low / room, high * room
    room = max(margin * (high - low), 0.005 * abs(high)) or 1.0
    return max(low - room, 0.0) if low >= 0 else low - room, min(high + room, max(high, highest))


def _set_range(
    axes: Any,
    name: Literal["x", "y"],
    ends: tuple[float, float],
    *,
    is_log: bool = False,
    max_ticks: int = 5,
    integer: bool = False,
) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axes.set(**{f"{name}lim": ends})
    axis = axes.xaxis if name == "x" else axes.yaxis
    factor = ends[1] / ends[0] if is_log else 0.0
    # Below a factor of 5, fewer than two of the numbers 1, 2, 5, 10, ... may lie between the ends.
    steps = (1, 2, 5) if factor < 300 else (1,)
    axis.set_major_locator(LogLocator(subs=steps) if factor > 5 else MaxNLocator(max_ticks, integer=integer))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def _value(system: dict[str, Any], which: tuple[str, str]) -> dict[str, Any] | None:
    """A value of a system in the unit of its axis; None where it was not measured."""
    value = system[which[0]].get(which[1])
    if value is None or value["mean"] is None:
        return None
    unit = _AXES.get(which[1], ("", 1.0))[1]
    spread = None if value["spread"] is None else value["spread"] / unit
    return {"mean": value["mean"] / unit, "spread": spread, "values": [one / unit for one in value["values"]]}


def _ends(values: Iterable[dict[str, Any]]) -> list[float]:
    """All numbers that a picture must show: means, seeds and the ends of crosses, unless they are below half a mean."""
    found = []
    for value in values:
        spread = value["spread"] or 0.0
        found += [value["mean"], *value["values"], value["mean"] + spread]
        found += [max(value["mean"] - spread, value["mean"] / 2)]
    return found


def _draw_spread(axes: Any, x: dict[str, Any], y: dict[str, Any], colour: str) -> None:
    if x["spread"] is None or y["spread"] is None:
        return
    style: dict[str, Any] = {"color": colour, "linewidth": 1.2, "alpha": 0.7, "clip_on": False}
    axes.plot(_cross(x, axes.get_xlim()), [y["mean"]] * 2, **style)
    axes.plot([x["mean"]] * 2, _cross(y, axes.get_ylim()), **style)
    axes.scatter(x["values"], y["values"], s=10, color=colour, alpha=0.75, linewidths=0, clip_on=False)


def _cross(value: dict[str, Any], ends: tuple[float, float]) -> tuple[float, float]:
    """The ends of a cross inside the picture: a mean minus its spread has no logarithm where it is below 0."""
    return max(value["mean"] - value["spread"], ends[0]), min(value["mean"] + value["spread"], ends[1])


def _augmentation_steps(rows: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs of neighbouring systems of one recipe with different augmentations."""
    recipes = dict.fromkeys(row[0]["recipe"] for row in rows)
    pairs = [pair for recipe in recipes for pair in pairwise(row for row in rows if row[0]["recipe"] == recipe)]
    # Models of one recipe that differ in other settings have no order.
    return [(one, other) for one, other in pairs if one[0]["augment"] != other[0]["augment"]]


def _write_names(axes: Any, rows: Sequence[Any]) -> None:
    """Names beside the points; where systems are many, only the first of each recipe: lines lead to the others."""
    recipes = [row[0]["recipe"] for row in rows]
    names = [
        plain(cut(row[0]["name"], _MAX_NAME)) if len(rows) <= MANY or recipes.index(recipe) == at else ""
        for at, (row, recipe) in enumerate(zip(rows, recipes, strict=True))
    ]
    pixels = axes.transData.transform([(row[1]["mean"], row[2]["mean"]) for row in rows])
    centres = [(x, _HEIGHT - y) for x, y in pixels.tolist()]
    style: dict[str, Any] = {"fontsize": 11.5, "color": PAGE_INK, "gid": "name", "parse_math": False, "zorder": 5}
    leader = {"arrowstyle": "-", "color": PAGE_SOFT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4}
    for name, place, row in zip(names, place_names(centres, names, _WIDTH, _HEIGHT - 26), rows, strict=True):
        if name:
            axes.annotate(
                name,
                (row[1]["mean"], row[2]["mean"]),
                xytext=(place.x, _HEIGHT - place.y),
                textcoords="figure points",
                ha=place.anchor,
                arrowprops=leader if place.is_far else None,
                **style,
            )
