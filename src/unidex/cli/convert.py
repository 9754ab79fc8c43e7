"""``unidex convert``: a data set in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_result
from unidex.cli.shared_options import Data, Json, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def convert(
    data: Data,
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder to write: new or empty.")],
    reading: ReadOptions,
    to: Annotated[
        str,
        typer.Option("--to", metavar="FORMAT", help="xc-raw, pecos, dexml, xclib, jsonl or unidex (mapped arrays)."),
    ],
    as_json: Json = False,
) -> None:
    """Write a data set in another format.

    Texts, labels, relevance, uids and filter pairs are converted; xc-raw, jsonl and unidex keep titles and contents in
    separate fields. The folder is written completely or not at all. A set in the format unidex is mapped from disk, not
    read into memory.

    Example: unidex convert hpo ./hpo-pecos --to pecos

    Example: unidex convert tickets.csv ./tickets --to jsonl
    """
    from unidex.verbs.convert import convert

    done = convert(data, target, to, reading=reading)
    print_result(done, as_json, f"{target}: {', '.join(done['files'])}")
