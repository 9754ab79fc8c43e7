"""``unidex compare`` and ``unidex report``: several recipes on one data set, or finished models, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.shared_options import Data, Device, Json, reads_data
from unidex.data.read_options import ReadOptions

Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="FILE",
        help="Show predictions for these texts: one per line, or .jsonl; default: test texts.",
    ),
]
NumTexts = Annotated[int, typer.Option("--num-texts", min=0, help="How many test texts to show predictions for.")]


@reads_data
def compare(
    data: Data,
    recipes: Annotated[
        str,
        typer.Option(
            "--recipes", metavar="A,B,...", help="Recipes (unidex recipes) or TOML files.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder of the comparison.", show_default=False)
    ],
    reading: ReadOptions,
    augment: Annotated[
        str,
        typer.Option(
            "--augment", metavar="none,gandalf,...", help="Combine each recipe with each of these; default: its own."
        ),
    ] = "",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds, from 0.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="[RECIPE:]SECTION.KEY=VALUE",
            help="Change a setting of all recipes, or of one. Repeatable.",
        ),
    ] = None,
    texts: Texts = None,
    num_texts: NumTexts = 4,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train several recipes on a data set, and write the results as tables and one page.

    Runs follow each other, each in its own process, so that time and memory are measured per run. The model of a run is
    DIR/runs/RECIPE-AUGMENT-SEED; its measurements are beside it in a file that ends with .run.json. DIR/table.md,
    DIR/table.json and DIR/report.html contain the runs of this call. unidex report DIR makes a page of all runs in DIR.

    After an interruption the same command continues with the unfinished runs. A run in DIR with other settings or other
    data is refused: give another DIR, or delete the run. If a run fails, the others continue, the tables leave it out,
    the exit code is 1, and the same command tries it again. The log of a run is DIR/work/NAME.log.

    Example: unidex compare hpo --recipes unidec,depsl --seeds 3 --out hpo-compared

    Example: unidex compare shop --recipes unidec,mine.toml --augment none,gandalf --set train.epochs=5 --out compared
    """
    from unidex.verbs.compare import compare, failed_error

    table = compare(
        data,
        _listed(recipes),
        out=out,
        augments=_listed(augment),
        num_seeds=seeds,
        settings=settings or (),
        texts=texts,
        num_texts=num_texts,
        device=device,
        reading=reading,
    )
    print_compared(table, out / "report.html", as_json=as_json)
    if table["failed"]:
        raise failed_error(table)


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


def print_compared(table: dict[str, Any], page: Path, *, as_json: bool) -> None:
    """Print the tables of a comparison and the path of its page."""
    if as_json:
        print_json(table)
        return
    from unidex.report.markdown import cost_rows, metric_rows

    print_table(*metric_rows(table), title=f"{table['title']}; percent on test")
    print_table(*cost_rows(table), title="cost")
    print_text(f"page: {page}")


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]
