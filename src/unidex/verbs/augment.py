"""``augment``: a data set with further training points."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats import check_target, read, write
from unidex.data.read_options import ReadOptions


def augment(
    data: Dataset | str | Path,
    out: str | Path,
    method: str = "gandalf",
    settings: Mapping[str, Any] | None = None,
    *,
    to: str = "xc-raw",
    seed: int = 0,
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Write a data set with further training points; the result summarises it.

    ``settings`` are those of the section [augment] of a recipe; for changed copies, ``word_share`` and ``synonyms``.
    """
    from unidex.augment.methods import check_settings, make

    check_settings(method, settings or {})
    check_target(Path(out), to)
    dataset = data if isinstance(data, Dataset) else read(data, reading)
    made = make(dataset, method, settings or {}, seed)
    write(made.dataset, Path(out), to)
    return {"folder": str(out), "format": to, "method": method} | made.summary()
