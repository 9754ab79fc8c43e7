"""``unidex labels``: the living label set of a model, and what stands near a label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.help_texts import add_verb
from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.predict import ModelFolder
from unidex.cli.shared_options import Json, reads_data
from unidex.data.read_options import ReadOptions

app = typer.Typer(
    no_args_is_help=True, help="List, add, remove, rename and teach the labels of a model; show those near a label."
)


def list_labels(
    model: ModelFolder,
    search: Annotated[
        str, typer.Option("--search", help="Only labels whose text holds this, or whose uid it is.")
    ] = "",
    order: Annotated[str, typer.Option("--order", metavar="ORDER", help="frequency, text or id.")] = "frequency",
    frequency: Annotated[
        str | None, typer.Option("--frequency", metavar="CLASS", help="Only head, torso or tail labels.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List labels with their number of train texts: head (more than 100), torso (10 to 100) or tail.

    Example: unidex labels list hpo-model --search seizure

    Example: unidex labels list hpo-model --frequency tail --order text
    """
    from unidex.verbs.model_verbs import listed_labels

    rows, total = listed_labels(model, search, limit, order=order, frequency=frequency)
    if as_json:
        print_json({"total": total, "labels": rows})
        return
    print_table(
        ("label", "uid", "id", "frequency", "train texts"),
        [(r["text"], r["uid"], r["id"], r["frequency"], f"{r['num_texts']:,}") for r in rows],
    )
    if total > len(rows):
        print_text(f"... {total - len(rows):,} more; --limit shows them")


def add(
    model: ModelFolder,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts of the new labels.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help='Labels a line: text, or .jsonl {"uid", "text"}.')
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels without training: they are found by their text at once.

    They are kept in the model's journal of changes, on the disk when the command ends.

    Example: unidex labels add hpo-model "Blue fingernails after exercise"
    """
    from unidex.verbs.model_verbs import add_labels

    added = add_labels(model, texts or [], file)
    if as_json:
        print_json({"added": added})
        return
    print_table(("label", "uid", "id"), [(row["text"], row["uid"], row["id"]) for row in added])


def remove(
    model: ModelFolder,
    uids: Annotated[list[str], typer.Argument(metavar="UID...", help="Uids of the labels to remove.")],
    as_json: Json = False,
) -> None:
    """Remove labels: they are never predicted again.

    Example: unidex labels remove hpo-model HP:0001250
    """
    from unidex.verbs.model_verbs import remove_labels

    removed = remove_labels(model, uids)
    if as_json:
        print_json({"removed": removed})
        return
    print_text(f"removed {len(removed)}: {', '.join(row['uid'] for row in removed)}")


def rename(
    model: ModelFolder,
    uid: Annotated[str, typer.Argument(metavar="UID", help="Uid of the label.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    as_json: Json = False,
) -> None:
    """Give a label another text: it is found by that at once. What it has learned from train texts stays.

    Example: unidex labels rename hpo-model HP:0001250 "Epileptic seizure"
    """
    from unidex.verbs.model_verbs import rename_label

    renamed = rename_label(model, uid, text)
    if as_json:
        print_json({"renamed": renamed})
        return
    print_text(f"renamed {renamed['uid']}: {renamed['text']}")


def teach(
    model: ModelFolder,
    pairs: Annotated[
        Path,
        typer.Argument(
            metavar="PAIRS", help='JSON lines with "text" and "labels", plain or gzipped.', show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="NEW", help="The model folder to write, a new one; MODEL itself unless given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let labels learn from new texts, in seconds, without forgetting the rest.

    The vectors of the labels that PAIRS names turn towards their texts, and away from texts of others that they would
    take. Encoders and all other labels stay as they are. A model with neighbours remembers the texts too.

    A line of PAIRS is {"text": ..., "labels": [uid, ...]}, or has "title" and perhaps "content" instead of "text". A
    label must be one of the model's: unidex labels list MODEL shows them, unidex labels add MODEL adds some.

    Example: unidex labels teach hpo-model diagnosed.jsonl

    Example: unidex labels teach hpo-model diagnosed.jsonl --out hpo-model-2 --json
    """
    from unidex.verbs import model_verbs

    done = model_verbs.teach(model, pairs, out)
    if as_json:
        print_json(done)
        return
    print_text(
        f"{done['model']}: {done['num_labels']:,} labels taught by {done['num_pairs']:,} pairs of "
        f"{done['num_texts']:,} texts, held against {done['num_replayed']:,} others"
    )


@reads_data
def neighbours(
    source: Annotated[
        str,
        typer.Argument(metavar="MODEL_OR_DATA", help="A model folder, or a data set: a folder, a file or 'hpo'."),
    ],
    label: Annotated[str, typer.Argument(metavar="LABEL", help="A label's uid, its text, or a part no other has.")],
    reading: ReadOptions,
    k: Annotated[int, typer.Option("-k", min=1, help="How many neighbours.")] = 10,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw them around the label (.png, .svg, .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the labels nearest to a label.

    In a data set, those that come with it on train texts: the score is the share of its texts that have both. In a
    model, those whose vectors are nearest, by both heads as the model weighs them.

    Example: unidex labels neighbours hpo Arachnodactyly --plot arachnodactyly.svg
    """
    from unidex.verbs.model_verbs import label_neighbours

    found = label_neighbours(source, label, k, reading=reading)
    if plot is not None:
        from unidex.report.label_picture import draw_neighbours

        draw_neighbours(found, plot)
        found["plot"] = str(plot)
    if as_json:
        print_json(found)
        return
    _print_neighbours(found)


def _print_neighbours(found: dict[str, Any]) -> None:
    label = found["label"]
    name, count = label["text"] or label["uid"], label["num_texts"]
    meaning = (
        f"share of its {count:,} train texts that have both" if found["by"] == "texts" else "by the model's vectors"
    )
    rows = [
        (row["text"] or row["uid"], row["uid"], row["id"], f"{row['num_texts']:,}", f"{row['score']:.4f}")
        for row in found["neighbours"]
    ]
    print_table(
        ("label", "uid", "id", "train texts", "score"),
        rows,
        title=f"{name} ({label['uid']}), {label['frequency']}: {meaning}",
    )
    if not rows:
        print_text("note: no train text has it" if not count else "note: no other label stands near it")
    if "plot" in found:
        print_text(f"picture: {found['plot']}")


add_verb(app, "list", list_labels)
add_verb(app, "add", add)
add_verb(app, "remove", remove)
add_verb(app, "rename", rename)
add_verb(app, "teach", teach)
add_verb(app, "neighbours", neighbours)
