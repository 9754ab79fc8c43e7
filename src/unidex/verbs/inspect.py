"""``inspect``: the contents of a data set, and faults in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.data.summary import summarise


def inspect(
    data: str | Path, *, num_examples: int = 3, plot: Path | None = None, reading: ReadOptions | None = None
) -> dict[str, Any]:
    """Summarise a data set; ``plot`` is a file for the picture of label frequencies."""
    dataset = read(data, reading)
    summary = summarise(dataset, num_examples=num_examples)
    if plot is not None:
        from unidex.report.pictures import draw_label_frequencies

        draw_label_frequencies(dataset.name, dataset.label_frequencies(), plot)
        summary["plot"] = str(plot)
    return summary
