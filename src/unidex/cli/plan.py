"""``unidex plan``: memory, disk and time of a training before it runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.shared_options import Data, Json, Settings, reads_data
from unidex.data.read_options import ReadOptions
from unidex.errors import ConfigError


@reads_data
def plan(
    data: Data,
    reading: ReadOptions,
    recipe: Annotated[str, typer.Option("--recipe", help="A recipe (unidex recipes) or a TOML file.")] = "auto",
    settings: Settings = None,
    texts: Annotated[
        int | None, typer.Option("--texts", min=1, help="Plan for so many train texts like these.")
    ] = None,
    dim: Annotated[int | None, typer.Option("--dim", min=1, help="Numbers per vector, instead of encoder.dim.")] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Processes; the result is that of each.")] = 1,
    out: Annotated[
        Path, typer.Option("--out", metavar="MODEL", help="Where the model folder will be, for the free disk.")
    ] = Path(),
    time: Annotated[
        bool, typer.Option("--time/--no-time", help="Train a few steps on a sample, to know the time.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Show the memory, disk and CPU time of every phase of a training before it runs.

    Sizes come from formulas, times from a few seconds of training on a sample. Memory is what the system cannot take
    back; mapped files use what is left. unidex train makes the same check and refuses a run that cannot fit.

    --labels takes a number too: the plan is then that of a set like DATA with so many labels.

    Example: unidex plan hpo

    Example: unidex plan catalogue.parquet --labels 100000000 --texts 20000000 --dim 64 --processes 16
    """
    from unidex.verbs.plan import gigabytes, refusal
    from unidex.verbs.plan import plan as make_plan

    number = None
    with suppress(ValueError):
        number = int(str(reading.labels))
    if number is not None:
        if number < 1:
            raise ConfigError(f"--labels must be at least 1, but is {number}")
        reading = replace(reading, labels=None)
    found = make_plan(
        data,
        recipe,
        settings=settings or (),
        num_labels=number,
        num_texts=texts,
        dim=dim,
        processes=processes,
        out=out,
        reading=reading,
        measures_time=time,
    )
    if as_json:
        print_json(found.as_dict())
        return
    rows = [
        (
            name,
            gigabytes(need.total_memory),
            max(need.memory, key=lambda term: need.memory[term]),
            gigabytes(need.total_disk),
            f"{found.seconds[name]:,.1f}" if name in found.seconds else "",
        )
        for name, need in found.phases.items()
    ]
    seconds = "" if found.cpu_seconds is None else f"{found.cpu_seconds:,.0f}"
    rows.append(("whole run", gigabytes(found.memory), "", gigabytes(found.disk), seconds))
    print_table(("phase", "memory", "largest part", "disk", "CPU seconds"), rows)
    available = f"{gigabytes(found.memory_available)} of memory and {gigabytes(found.disk_free)} of disk are available"
    print_text(f"It fits: {available}." if found.fits else f"It does not fit: {refusal(found)}.")
