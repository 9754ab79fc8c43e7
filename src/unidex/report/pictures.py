"""Pictures, drawn with matplotlib: figures in one style, written to a file or placed in a page as SVG."""

from __future__ import annotations

import io
import re
import warnings
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex.data.summary import HEAD_ABOVE, TAIL_BELOW
from unidex.errors import UnidexError

INK, LINE, SOFT, _BEFORE = "#1d2433", "#2563eb", "#d7deea", "#f59e0b"
# The colours of pictures in a page, as its light theme has them. In the page they become its variables (report.css).
SERIES = ("#1f5fae", "#c26a00", "#0b7d74", "#a8326b", "#6246a8", "#5d7a12", "#8a4b2d", "#4b5563")
PAGE_INK, PAGE_SOFT, PAGE_LINE, PAGE_SURFACE = "#1b1d20", "#5a5f66", "#e2e2dc", "#ffffff"
_NAMES = ("ink", "soft", "line", "surface", *(f"c{number}" for number in range(len(SERIES))))
_VARIABLES = dict(
    zip((PAGE_INK, PAGE_SOFT, PAGE_LINE, PAGE_SURFACE, *SERIES), (f"var(--{name})" for name in _NAMES), strict=True)
)


def new_figure(width: float = 7.0, height: float = 4.2, **options: Any) -> tuple[Any, Any]:
    """An empty figure, in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **{"layout": "constrained"} | options)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=SOFT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK)
    return figure, axes


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure in the format of its file name."""
    try:
        _save(figure, file, dpi=160)
    except (OSError, ValueError) as error:
        raise UnidexError(f"{file}: the picture cannot be written ({error}); name a .png, .svg or .pdf file") from None


def as_inline_svg(figure: Any, title: str) -> str:
    """A figure as SVG inside a page; ``title`` is for people who cannot see it.

    Fonts and sizes of text are left to the page's style sheet. The gid "name" of an artist becomes its class.
    """
    out = io.StringIO()
    # The salt makes ids of shapes unique in the page, and the same in every run.
    _save(figure, out, salt=title, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = out.getvalue()
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None
    body = svg[svg.index(">", box.end()) + 1 :]
    # Text of users is escaped, so that none of these patterns matches inside it.
    body = re.sub(r"<!--.*?-->|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="(name)?[^"]*">', lambda group: '<g class="name">' if group[1] else "<g>", body)
    body = re.sub(r' style="([^"]*)"', _as_attributes, body).replace("xlink:href", "href")
    return f'<svg {box[0]} role="img" class="picture"><title>{escape(title)}</title>{body}'


def _as_attributes(style: re.Match[str]) -> str:
    """A style as attributes, with the page's colours by name."""
    pairs = [pair.split(": ", 1) for pair in style[1].split("; ") if not pair.startswith("font")]
    return "".join(f' {key}="{_VARIABLES.get(value, value)}"' for key, value in pairs)


def _save(figure: Any, target: Any, *, salt: str = "unidex", **options: Any) -> None:
    import matplotlib

    # Text in an SVG stays text: it can be searched, and the viewer's fonts may have letters that ours lack.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(target, **options)


def draw_label_frequencies(name: str, frequencies: NDArray[np.int64], file: Path) -> None:
    """The label-frequency curve: train texts per label, most frequent first, on logarithmic axes."""
    figure, axes = new_figure()
    seen = np.sort(frequencies[frequencies > 0])[::-1]
    axes.fill_between(np.arange(1, len(seen) + 1), seen, 0.8, color=LINE, alpha=0.12, linewidth=0)
    axes.plot(np.arange(1, len(seen) + 1), seen, color=LINE, linewidth=1.8)
    for bound, what in ((HEAD_ABOVE, f"head: more than {HEAD_ABOVE}"), (TAIL_BELOW, f"torso: at least {TAIL_BELOW}")):
        axes.axhline(bound, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        # At the right edge, where most curves are far below the line; the box is for the others.
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
    axes.set_title(f"{name}: {len(frequencies):,} labels{unseen}", loc="left", color=INK, fontsize=11, parse_math=False)
    save_figure(figure, file)


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
    for name, threshold in found["thresholds"].items():
        x = threshold["probability"]
        axes.axvline(x, color=SOFT, linewidth=1.4, zorder=0)
        # Where curves are far away: above them at the left, below them and above the legend at the right.
        y, va = (1.0, "top") if x < 0.5 else (0.16, "bottom")
        style = {"rotation": 90, "va": va, "ha": "right", "fontsize": 8, "color": INK}
        axes.annotate(name, (x, y), xytext=(-3, -4), textcoords="offset points", **style)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share that is right")
    axes.set_aspect("equal")
    axes.legend(loc="lower right", frameon=False, labelcolor=INK)
    axes.set_title(f"{found['data']}: {found['num_texts']:,} texts", loc="left", color=INK, fontsize=11)
    save_figure(figure, file)
