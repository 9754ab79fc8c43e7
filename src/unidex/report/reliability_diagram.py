"""A picture of probabilities against the share that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.report.pictures import INK, LINE, SOFT, new_figure, save_figure

_BEFORE = "#f59e0b"


def draw_reliability(found: dict[str, Any], file: Path) -> None:
    """Share of labels that are right against their probability, before and after calibration; the diagonal is ideal.

    The area of a point grows with its number of labels.
    """
    figure, axes = new_figure(5.6, 5.2)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    max_places = max((part["num_places"] for bins in found["bins"].values() for part in bins), default=1)
    for name, colour, marker in (("before", _BEFORE, "s"), ("after", LINE, "o")):
        bins = found["bins"][name]
        predicted, right = ([part[what] for part in bins] for what in ("probability", "share"))
        axes.plot(predicted, right, color=colour, linewidth=1.4, alpha=0.8)
        sizes = [14 + 160 * part["num_places"] / max_places for part in bins]
        axes.scatter(
            *(predicted, right, sizes, colour),
            **{"marker": marker, "edgecolors": "white", "linewidths": 0.8, "zorder": 3, "clip_on": False},
            label=f"{name}: error {found[f'ece_{name}']:.3f}",
        )
    for threshold in found["thresholds"].values():
        axes.axvline(threshold["probability"], color=SOFT, linewidth=1.4, zorder=0)
    for name, threshold in found["thresholds"].items():
        axes.annotate(
            name,
            (threshold["probability"], 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-3, -4),
            textcoords="offset points",
            **{"rotation": 90, "va": "top", "ha": "right", "fontsize": 8, "color": INK},
        )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share that is right")
    axes.set_aspect("equal")
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    axes.set_title(f"{found['data']}: {found['num_texts']:,} texts", loc="left", color=INK, fontsize=11)
    save_figure(figure, file)
