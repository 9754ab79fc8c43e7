"""A picture of a label and similar labels."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from unidex.data.summary import HEAD_ABOVE, TAIL_BELOW
from unidex.metrics.bins import CLASSES
from unidex.report.pictures import INK, LINE, new_figure, save_figure

# Told apart by eyes that do not see red and green, and in print without colour by their lightness.
_COLOURS = dict(zip(CLASSES, (LINE, "#0d9488", "#f59e0b"), strict=True))
_MEANING = dict(
    zip(
        CLASSES,
        (f"more than {HEAD_ABOVE} train texts", f"{TAIL_BELOW} to {HEAD_ABOVE}", f"fewer than {TAIL_BELOW}"),
        strict=True,
    )
)
_MAX_DRAWN = 24  # more lines cannot be told apart
_WIDTH, _ROW, _RADIUS = 10.0, 0.62, 2.0  # inches


def draw_similar(found: dict[str, Any], file: Path) -> None:
    """A label in the middle, similar labels around it, clockwise from the top right by strength.

    The higher its score, the wider the line of a similar label; the colour tells head, torso and tail labels apart.
    """
    similar = found["similar"][:_MAX_DRAWN]
    num_right = (len(similar) + 1) // 2
    height = max(3.4, _ROW * num_right + 1.9)
    figure, axes = new_figure(_WIDTH, height)
    # One unit is one inch, so that a text's place and size fit together.
    figure.set_layout_engine("none")
    axes.set_position([0, 0, 1, 1])
    axes.set(xlim=(-_WIDTH / 2, _WIDTH / 2), ylim=(-height / 2, height / 2))
    axes.set_axis_off()
    strongest = max((row["score"] for row in similar), default=1.0)
    for place, row in enumerate(similar):
        x, y = _place(place, num_right, len(similar))
        colour, share = _COLOURS[row["frequency"]], max(row["score"], 0.0) / max(strongest, 1e-9)
        axes.plot([0, x], [0, y], color=colour, linewidth=0.8 + 9 * share, alpha=0.35, solid_capstyle="round")
        axes.scatter([x], [y], s=110, color=colour, edgecolors="white", linewidths=1.5, zorder=3)
        _write_row(axes, x, y, row, percent=found["by"] == "texts")
    label = found["label"]
    axes.text(
        *(0, 0, _wrapped(_name(label), 22, 3)),
        parse_math=False,
        **{"ha": "center", "va": "center", "color": "white", "fontsize": 11, "fontweight": "bold", "zorder": 4},
        bbox={"boxstyle": "round,pad=0.7", "facecolor": INK, "edgecolor": _COLOURS[label["frequency"]], "linewidth": 3},
    )
    _write_frame(axes, found, len(similar), height)
    save_figure(figure, file)


def _place(place: int, num_right: int, count: int) -> tuple[float, float]:
    """The place of a similar label: down the right half of an ellipse, then up the left; rows at even heights.

    Even heights rather than even angles: no text meets another, however many there are.
    """
    right = place < num_right
    num_rows = num_right if right else count - num_right
    row = place if right else count - 1 - place
    y = _ROW * ((num_rows - 1) / 2 - row)
    # The ends of the ellipse stay apart, so that left and right do not meet there.
    x = _RADIUS * np.sqrt(1 - (y / (_ROW * max(num_right, 1) * 0.55)) ** 2)
    return float(x if right else -x), float(y)


def _write_row(axes: Any, x: float, y: float, row: dict[str, Any], *, percent: bool) -> None:
    side = 1 if x > 0 else -1
    score = f"{row['score']:.0%}" if percent else f"{row['score']:.2f}"
    style: dict[str, Any] = {"ha": "left" if side > 0 else "right", "color": INK}
    lines = _wrapped(_name(row), 34, 2)
    axes.text(x + 0.17 * side, y + 0.03, lines, va="bottom", fontsize=9.5, parse_math=False, **style)
    count = f"{row['num_texts']:,} text" + ("s" if row["num_texts"] != 1 else "")
    axes.text(x + 0.17 * side, y - 0.01, f"{score}  ({count})", va="top", fontsize=8, alpha=0.7, **style)


def _write_frame(axes: Any, found: dict[str, Any], num_drawn: int, height: float) -> None:
    label = found["label"]
    left, top = -_WIDTH / 2 + 0.3, height / 2 - 0.3
    name = textwrap.shorten(_name(label), 60, placeholder=" ...")
    if found["by"] == "texts":
        title, meaning = f"{found['name']}: labels that occur with {name}", _of_texts(label["num_texts"])
    else:
        title, meaning = f"{found['name']}: labels nearest to {name}", "score of the model's vectors"
    more = len(found["similar"]) - num_drawn
    meaning += f"; {more:,} more are not drawn" if more else ""
    axes.text(left, top, title, va="top", fontsize=12, color=INK, parse_math=False)
    axes.text(left, top - 0.26, meaning, va="top", fontsize=9, color=INK, alpha=0.7)
    for (kind, colour), away in zip(_COLOURS.items(), (0, 2.35, 3.75), strict=True):
        x, y = left + 0.07 + away, -height / 2 + 0.3
        axes.scatter([x], [y], s=60, color=colour)
        axes.text(x + 0.14, y, f"{kind}: {_MEANING[kind]}", va="center", fontsize=8.5, color=INK)


def _of_texts(count: int) -> str:
    if not count:
        return "no train text has it"
    return f"share of its {count:,} train texts that have them too" if count > 1 else "they are on its one train text"


def _name(row: dict[str, Any]) -> str:
    return " ".join(str(row["text"] or row["uid"]).split())


def _wrapped(text: str, width: int, max_lines: int) -> str:
    return "\n".join(textwrap.wrap(text, width, max_lines=max_lines, placeholder=" ..."))
