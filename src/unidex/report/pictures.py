"""Pictures, drawn with matplotlib where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.summary import HEAD_ABOVE, TAIL_BELOW, frequency_curve
from unidex.errors import MissingExtraError, UnidexError

INK, LINE, SOFT = "#1d2433", "#2563eb", "#d7deea"


def new_figure(width: float = 7.0, height: float = 4.2) -> tuple[Any, Any]:
    """An empty figure and its axes in the house's style."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("a picture", "plots") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=SOFT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK)
    return figure, axes


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure in the form that its file name asks for."""
    try:
        figure.savefig(file, dpi=160)
    except (OSError, ValueError) as error:
        raise UnidexError(f"{file}: the picture cannot be written ({error}); name a .png, .svg or .pdf file") from None


def draw_label_frequencies(name: str, frequencies: NDArray[np.int64], file: Path) -> None:
    """The label-frequency curve: train texts of each label, most frequent first, on logarithmic axes."""
    figure, axes = new_figure()
    curve = frequency_curve(frequencies)
    seen = curve[curve > 0]
    axes.fill_between(np.arange(1, len(seen) + 1), seen, 0.8, color=LINE, alpha=0.12, linewidth=0)
    axes.plot(np.arange(1, len(seen) + 1), seen, color=LINE, linewidth=1.8)
    for bound, what in ((HEAD_ABOVE, f"head: more than {HEAD_ABOVE}"), (TAIL_BELOW, f"torso: at least {TAIL_BELOW}")):
        axes.axhline(bound, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        # At the right edge, where most curves have long fallen below the line; the box is for those that have not.
        axes.annotate(
            what,
            (1, bound),
            xycoords=axes.get_yaxis_transform(),
            xytext=(-4, 3),
            textcoords="offset points",
            ha="right",
            color=INK,
            fontsize=8.5,
            bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.5, "linewidth": 0},
        )
    axes.set(xscale="log", yscale="log", xlabel="label, most frequent first", ylabel="train texts")
    axes.set_ylim(bottom=0.8)
    axes.set_xlim(left=1)
    never = int((frequencies == 0).sum())
    unseen = f", {never:,} never in train" if never else ""
    axes.set_title(f"{name}: {len(frequencies):,} labels{unseen}", loc="left", color=INK, fontsize=11)
    save_figure(figure, file)
