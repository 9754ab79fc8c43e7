"""``convert``: a data set in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unidex.data.formats import check_target, read, write
from unidex.data.read_options import ReadOptions


def convert(data: str | Path, target: Path, to: str, *, reading: ReadOptions | None = None) -> dict[str, Any]:
    """Write a data set in another format; the result lists the files and counts the texts."""
    check_target(target, to)
    dataset = read(data, reading)
    write(dataset, target, to)
    return {
        "format": to,
        "folder": str(target),
        "files": sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file()),
        "num_train": len(dataset.train),
        "num_test": len(dataset.test),
        "num_labels": dataset.num_labels,
    }
