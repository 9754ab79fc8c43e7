"""``unidex labels``: the living labels of a model, and labels similar to a label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unidex.cli.output import print_json, print_result, print_table, print_text
from unidex.cli.shared_options import (
    Json,
    ModelFolder,
    NewFolder,
    PairsFile,
    add_verb,
    picture,
    reads_data,
    reads_pairs,
    reads_texts,
)
from unidex.data.read_options import ReadOptions

if TYPE_CHECKING:
    from unidex.model.label_set import LabelRow

app = typer.Typer(
    no_args_is_help=True, help="List, add, remove, rename and teach the labels of a model; find similar labels."
)


def list_labels(
    model: ModelFolder,
    search: Annotated[
        str, typer.Option("--search", help="Only labels whose text contains this, or that have this uid.")
    ] = "",
    order: Annotated[str, typer.Option("--order", metavar="ORDER", help="frequency, text or id.")] = "frequency",
    frequency: Annotated[
        str | None, typer.Option("--frequency", metavar="CLASS", help="Only head, torso or tail labels.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of labels.")] = 20,
    as_json: Json = False,
) -> None:
    """List labels with their number of train texts: head (more than 100), torso (10 to 100) or tail.

    Example: unidex labels list hpo-model --search seizure

    Example: unidex labels list hpo-model --frequency tail --order text
    """
    from unidex.verbs.labels import list_labels
    from unidex.verbs.models import load_model

    rows, total = list_labels(load_model(model), search, limit, order=order, frequency=frequency)  # type: ignore[arg-type]
    if as_json:
        print_json({"total": total, "labels": _plain(rows)})
        return
    print_table(
        ("label", "uid", "id", "frequency", "train texts"),
        [(row.text, row.uid, row.id, row.frequency, f"{row.num_texts:,}") for row in rows],
    )
    if total > len(rows):
        print_text(f"... {total - len(rows):,} more; --limit shows them")


@reads_texts
def add(
    model: ModelFolder,
    reading: ReadOptions,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts of the new labels.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A table of labels (uid and text), or one text per line."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels without training: the model predicts them by their text at once.

    The command writes them to the model's journal of changes; they are on the disk when it ends.

    A table has a column text and optionally uid; without, the text of a label is its uid.

    Example: unidex labels add hpo-model "Blue fingernails after exercise"

    Example: unidex labels add hpo-model --file new-phenotypes.csv --column uid=code --column text=phenotype
    """
    from unidex.verbs.labels import add_labels

    added = add_labels(model, texts or [], file, reading)
    rows = [(row.text, row.uid, row.id) for row in added]
    print_result({"added": _plain(added)}, as_json, lambda: print_table(("label", "uid", "id"), rows))


def remove(
    model: ModelFolder,
    uids: Annotated[list[str], typer.Argument(metavar="UID...", help="Uids of the labels to remove.")],
    as_json: Json = False,
) -> None:
    """Remove labels: the model never predicts them again.

    Example: unidex labels remove hpo-model HP:0001250
    """
    from unidex.verbs.labels import remove_labels

    removed = remove_labels(model, uids)
    line = f"removed {len(removed)}: {', '.join(row.uid for row in removed)}"
    print_result({"removed": _plain(removed)}, as_json, line)


def rename(
    model: ModelFolder,
    uid: Annotated[str, typer.Argument(metavar="UID", help="Uid of the label.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Its new text.")],
    as_json: Json = False,
) -> None:
    """Give a label another text: the model finds it by the new text at once, and keeps its classifier.

    Example: unidex labels rename hpo-model HP:0001250 "Epileptic seizure"
    """
    from unidex.verbs.labels import rename_label

    renamed = rename_label(model, uid, text)
    print_result({"renamed": _plain(renamed)}, as_json, f"renamed {renamed.uid}: {renamed.text}")


@reads_pairs
def teach(
    model: ModelFolder, pairs: PairsFile, reading: ReadOptions, out: NewFolder = None, as_json: Json = False
) -> None:
    """Fine-tune labels on new texts in seconds, without forgetting the rest.

    The vectors of the labels in PAIRS move towards their texts, and away from texts of other labels that they would
    match. Encoders and all other labels do not change. A model with a kNN part remembers the texts too.

    PAIRS is read as unidex train reads a table, with the columns of the training unless --column names others. A line
    of JSON is {"text": ..., "labels": [uid, ...]}, or has "title" and "content" instead of "text". Labels are uids. The
    model must have them: unidex labels list MODEL shows them, unidex labels add MODEL adds new ones.

    Example: unidex labels teach hpo-model diagnosed.jsonl

    Example: unidex labels teach hpo-model diagnosed.jsonl --out hpo-model-2 --json
    """
    from unidex.verbs.labels import teach_labels

    done = teach_labels(model, pairs, out, reading)
    print_result(
        done,
        as_json,
        f"{done['model']}: {done['num_labels']:,} labels taught with {done['num_pairs']:,} pairs of "
        f"{done['num_texts']:,} texts, against {done['num_replayed']:,} others",
    )


@reads_data
def similar(
    source: Annotated[
        str,
        typer.Argument(metavar="MODEL_OR_DATA", help="A model folder, or a data set: a folder, a file or 'hpo'."),
    ],
    label: Annotated[
        str, typer.Argument(metavar="LABEL", help="The uid of a label, its text, or a unique part of it.")
    ],
    reading: ReadOptions,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of similar labels.")] = 10,
    plot: Annotated[Path | None, picture("Draw them around the label")] = None,
    as_json: Json = False,
) -> None:
    """Show the labels similar to a label.

    In a data set: labels that occur with it on train texts; the score is the share of its texts that have both. In a
    model: labels with the nearest vectors, by both heads with the model's fusion weights.

    Example: unidex labels similar hpo Arachnodactyly --plot arachnodactyly.svg
    """
    from unidex.verbs.labels import find_similar

    found = find_similar(source, label, k, plot=plot, reading=reading)
    print_result(found, as_json, lambda: _print_similar(found))


def _print_similar(found: dict[str, Any]) -> None:
    label = found["label"]
    name, count = label["text"] or label["uid"], label["num_texts"]
    meaning = (
        f"share of its {count:,} train texts that have both" if found["by"] == "texts" else "by the model's vectors"
    )
    rows = [
        (row["text"] or row["uid"], row["uid"], row["id"], f"{row['num_texts']:,}", f"{row['score']:.4f}")
        for row in found["similar"]
    ]
    print_table(
        ("label", "uid", "id", "train texts", "score"),
        rows,
        title=f"{name} ({label['uid']}), {label['frequency']}: {meaning}",
    )
    if not rows:
        print_text("note: no train text has this label" if not count else "note: no other label is similar")
    if "plot" in found:
        print_text(f"picture: {found['plot']}")


def _plain(rows: list[LabelRow] | LabelRow) -> Any:
    import msgspec

    return msgspec.to_builtins(rows)


add_verb(app, "list", list_labels)
for verb in (add, remove, rename, teach, similar):
    add_verb(app, verb.__name__, verb)
add_verb(app, "neighbours", similar, hidden=True)  # the former name, for one release
