"""``unidex convert``: between the field's formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_text
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

    Texts, labels, relevance, uids and filter pairs are kept; titles stay apart from contents in xc-raw, jsonl and
    unidex. The folder appears complete or not at all. A set in the format unidex is mapped from disk, not read.

    Example: unidex convert hpo ./hpo-pecos --to pecos

    Example: unidex convert tickets.csv ./tickets --to jsonl
    """
    from unidex.data.formats import check_target, read, write

    check_target(target, to)
    dataset = read(data, reading)
    write(dataset, target, to)
    files = sorted(str(file.relative_to(target)) for file in target.rglob("*") if file.is_file())
    if as_json:
        done = {"format": to, "folder": str(target), "files": files}
        print_json(
            done | {"num_train": len(dataset.train), "num_test": len(dataset.test), "num_labels": dataset.num_labels}
        )
        return
    print_text(f"{target}: {', '.join(files)}")
