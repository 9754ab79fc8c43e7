"""``unidex labels``: the living label set of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.options import Json
from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.predict import ModelFolder

app = typer.Typer(no_args_is_help=True, help="List, add and remove the labels of a model.")


@app.command("list")
def list_labels(
    model: ModelFolder,
    search: Annotated[str, typer.Option("--search", help="Only labels whose text holds this.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List labels with their number of train texts, most frequent first.

    Example: unidex labels list hpo-model --search seizure
    """
    from unidex.pipeline import listed_labels

    rows, total = listed_labels(model, search, limit)
    if as_json:
        print_json({"total": total, "labels": rows})
        return
    print_table(("label", "uid", "id", "train texts"), [(r["text"], r["uid"], r["id"], r["frequency"]) for r in rows])
    if total > len(rows):
        print_text(f"... {total - len(rows):,} more; --limit shows them")


@app.command("add")
def add(
    model: ModelFolder,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts of the new labels.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help='Labels a line: text, or .jsonl {"uid", "text"}.')
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels without training: they are found by their text at once.

    Example: unidex labels add hpo-model "Blue fingernails after exercise"
    """
    from unidex.pipeline import add_labels

    added = add_labels(model, texts or [], file)
    if as_json:
        print_json({"added": added})
        return
    print_table(("label", "uid", "id"), [(row["text"], row["uid"], row["id"]) for row in added])


@app.command("remove")
def remove(
    model: ModelFolder,
    uids: Annotated[list[str], typer.Argument(metavar="UID...", help="Uids of the labels to remove.")],
    as_json: Json = False,
) -> None:
    """Remove labels: they are never predicted again.

    Example: unidex labels remove hpo-model HP:0001250
    """
    from unidex.pipeline import remove_labels

    removed = remove_labels(model, uids)
    if as_json:
        print_json({"removed": removed})
        return
    print_text(f"removed {len(removed)}: {', '.join(row['uid'] for row in removed)}")
