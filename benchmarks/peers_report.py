"""Tables and the picture of `peers.py`, from rows that are already measured; nothing is run here.

Run: python benchmarks/peers_report.py TABLES.md --picture FILE.svg
draws the picture of tables that were printed before, such as docs/results/quality.md.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unidex.report.pictures import INK, LINE, SOFT, new_figure, save_figure

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
DRAWN = ("P@1", "PSP@1")

# Told apart by shape first, so that print without colour and all eyes can read the picture.
_SHAPES = ("s", "^", "D", "v", "P", "X")
_COLOURS = ("#0d9488", "#f59e0b", "#be3455", "#7c5cbf", "#64748b", "#8a6d3b")
_BEST = "best peer"
_DASHED: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (4, 3))}
_PANELS_A_LINE = 4
_TICKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Task:
    """A data set with the fields that make its texts."""

    name: str
    text: str
    num_train: int
    num_test: int
    num_labels: int


@dataclass(frozen=True)
class Row:
    """What one system has done on one task.

    Attributes:
        system: its name in the table.
        ours: whether it is unidex.
        train_cpu_s: CPU seconds of training, of all threads; for unidex of the whole process.
        features_cpu_s: CPU seconds of making features of the train texts, None where training includes them.
        predict_cpu_ms: CPU milliseconds per text of predicting all test texts at once.
        features_cpu_ms: CPU milliseconds per test text of making features, None where predicting includes them.
        peak_mb: highest resident memory of the training process.
        model_mb: size of the model on disk.
        metrics: name such as "P@1" -> percent, filter pairs applied.
        single_ms: wall milliseconds of predicting one text, median and p99, and its CPU milliseconds on average; None
            where they were not measured.
    """

    system: str
    ours: bool
    train_cpu_s: float
    features_cpu_s: float | None
    predict_cpu_ms: float
    features_cpu_ms: float | None
    peak_mb: float
    model_mb: float
    metrics: dict[str, float]
    single_ms: dict[str, float] | None = None

    @property
    def all_cpu_s(self) -> float:
        """CPU seconds from texts to a model."""
        return self.train_cpu_s + (self.features_cpu_s or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


Results = Sequence[tuple[Task, Sequence[Row]]]


def table(task: Task, rows: Sequence[Row]) -> str:
    """A task's rows in Markdown; the best of each metric in bold, also where several show the same."""
    costs = (
        "train CPU s",
        "features CPU s",
        "predict CPU ms per text",
        "features CPU ms per text",
        "peak MB",
        "model MB",
    )
    best = {metric: max((f"{row.metrics[metric]:.2f}" for row in rows), key=float) for metric in METRICS}
    lines = [
        f"**{task.name}, {task.text}**: {task.num_train:,} train texts, {task.num_labels:,} labels, "
        f"{task.num_test:,} test texts",
        "",
        f"| system | {' | '.join([*costs, *METRICS])} |",
        "|---|" + "---:|" * (len(costs) + len(METRICS)),
    ]

    def line(cells: Sequence[str], metrics: dict[str, float]) -> str:
        shown = [f"{metrics[metric]:.2f}" for metric in METRICS]
        marked = [
            f"**{value}**" if value == best[metric] else value for metric, value in zip(METRICS, shown, strict=True)
        ]
        return f"| {' | '.join([*cells, *marked])} |"

    for row in rows:
        cells = [
            row.system,
            _short(row.train_cpu_s),
            "included" if row.features_cpu_s is None else _short(row.features_cpu_s),
            f"{row.predict_cpu_ms:.3f}",
            "included" if row.features_cpu_ms is None else f"{row.features_cpu_ms:.3f}",
            f"{row.peak_mb:,.0f}",
            f"{row.model_mb:,.0f}",
        ]
        lines.append(line(cells, row.metrics))
    peers = [row.metrics for row in rows if not row.ours]
    if len(peers) > 1:
        highest = {metric: max(metrics[metric] for metrics in peers) for metric in METRICS}
        lines.append(line([_BEST, *[""] * len(costs)], highest))
    for row in rows:
        if row.single_ms is not None:
            lines += ["", f"{row.system}, one text at a time: {_single(row.single_ms)}."]
    return "\n".join(lines) + "\n"


_HEAD = re.compile(r"\*\*(.+), (.+)\*\*: ([\d,]+) train texts, ([\d,]+) labels, ([\d,]+) test texts")


def read_tables(text: str) -> list[tuple[Task, list[Row]]]:
    """The tasks and rows of tables as `table` prints them; a cell that is empty is not a number."""
    found: list[tuple[Task, list[Row]]] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            num_train, num_labels, num_test = (int(number.replace(",", "")) for number in head.groups()[2:])
            found.append((Task(head[1], head[2], num_train, num_test, num_labels), []))
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if not found or len(cells) != 7 + len(METRICS) or cells[0] in ("system", _BEST, "---"):
            continue
        costs = [None if cell == "included" else float(cell.replace(",", "") or math.nan) for cell in cells[1:7]]
        metrics = dict(zip(METRICS, map(float, cells[7:]), strict=True))
        found[-1][1].append(Row(cells[0], cells[0].startswith("unidex"), *costs, metrics))  # type: ignore[arg-type]
    return found


def draw(results: Results, file: Path) -> None:
    """P@1 and PSP@1 against CPU seconds from texts to a model: a column a task, its two metrics one above the other.

    The ground is white, so that the picture reads the same on light and dark pages.
    """
    results = [(task, rows) for task, rows in results if rows]
    if not results:
        raise ValueError("there must be rows to draw, but there are none; name a data set and a system")
    num_lines = -(-len(results) // _PANELS_A_LINE)
    num_columns = -(-len(results) // num_lines)
    width = max(2.35 * num_columns, 6.0)
    figure, axes = new_figure(width, 3.7 * num_lines + 0.6)
    axes.remove()
    panels = figure.subplots(2 * num_lines, num_columns, squeeze=False)
    marks = _marks(results)
    for place in range(num_lines * num_columns):
        line, column = divmod(place, num_columns)
        pair = panels[2 * line : 2 * line + 2, column]
        if place >= len(results):
            for panel in pair:
                panel.remove()
            continue
        _draw_task(pair, *results[place], marks, first=column == 0)
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linestyle="none", label=name, **mark) for name, mark in marks.items()]
    if any(not row.ours for _, rows in results for row in rows):
        handles.append(Line2D([], [], label=_BEST, **_DASHED))
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=_legend_columns([str(handle.get_label()) for handle in handles], width),
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        handletextpad=0.2,
        columnspacing=1.4,
    )
    figure.supxlabel("CPU seconds from texts to a model", color=INK, fontsize=9.5)
    save_figure(figure, file)


def _legend_columns(names: Sequence[str], width: float) -> int:
    """How many names stand side by side: all, where they fit, else as many as the longest allows."""
    inches = [0.4 + 0.07 * len(name) for name in names]
    return len(names) if sum(inches) <= width else max(1, int(width / max(inches)))


def _marks(results: Results) -> dict[str, dict[str, Any]]:
    """The marker of each system, the same in all panels; ours first, large and round."""
    systems = {row.system: row.ours for _, rows in results for row in rows}
    marks: dict[str, dict[str, Any]] = {
        name: {"marker": "o", "markersize": 10 - 1.5 * number, "color": LINE, "markeredgecolor": "white"}
        for number, name in enumerate(name for name, ours in systems.items() if ours)
    }
    # A peer has one shape; it is hollow where characters are among its features.
    kinds: dict[str, int] = {}
    for name in (name for name, ours in systems.items() if not ours):
        peer, _, features = name.partition(", with ")
        kind = kinds.setdefault(peer, len(kinds) % len(_SHAPES))
        mark = {"marker": _SHAPES[kind], "markersize": 7, "color": _COLOURS[kind]}
        marks[name] = mark | ({"fillstyle": "none"} if features else {"markeredgecolor": "none"})
    return marks


def _draw_task(pair: Any, task: Task, rows: Sequence[Row], marks: dict[str, dict[str, Any]], *, first: bool) -> None:
    seconds = [row.all_cpu_s for row in rows]
    low, high = min(seconds) / 1.6, max(seconds) * 1.6
    for panel, metric in zip(pair, DRAWN, strict=True):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color=SOFT, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.tick_params(colors=INK, labelsize=8.5)
        peers = [row.metrics[metric] for row in rows if not row.ours]
        if peers:
            panel.axhline(max(peers), **_DASHED)
        # Ours last, so that no peer hides it.
        for row in sorted(rows, key=lambda row: row.ours):
            panel.plot([row.all_cpu_s], [row.metrics[metric]], linestyle="none", clip_on=False, **marks[row.system])
        panel.margins(y=0.18)
        panel.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])
        panel.set(xscale="log", xlim=(low, high))
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.set_xticks([], minor=True)
        if first:
            panel.set_ylabel(f"{metric}, percent", color=INK, fontsize=9.5)
    pair[0].tick_params(labelbottom=False)
    pair[0].set_title(f"{task.name}\n{task.text}", loc="left", color=INK, fontsize=9.5)


def _short(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"


def _single(found: dict[str, float]) -> str:
    wall = f"{found['median']:.2f} ms in the median and {found['p99']:.2f} ms at the 99th percentile"
    return f"{wall}, {found['cpu']:.2f} CPU ms on average"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    draw(read_tables(options.tables.read_text(encoding="utf-8")), options.picture)
