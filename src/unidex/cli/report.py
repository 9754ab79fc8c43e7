"""``unidex report``: the page of a comparison, for finished models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.compare import NumTexts, Texts, print_compared
from unidex.cli.shared_options import Device, Json, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def report(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...", help="Model folders of one data set, or folders of unidex compare.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The page to write.", show_default=False)],
    reading: ReadOptions,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="The data set: to score models again, and to show test texts."),
    ] = None,
    texts: Texts = None,
    num_texts: NumTexts = 4,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write tables and pictures of finished models as one page.

    Runs of unidex compare that differ only in the seed become one row with mean and standard deviation; every other
    model has its own row. For a model of unidex train, peak memory and CPU time are unknown, and the scores are the
    ones from its training; with --data it is scored again.

    Example: unidex report compared --data hpo --out all.html

    Example: unidex report first second --texts examples.txt --out two.html
    """
    from unidex.verbs.report import report

    table = report(models, out=out, data=data, texts=texts, num_texts=num_texts, device=device, reading=reading)
    print_compared(table, out, as_json=as_json)
