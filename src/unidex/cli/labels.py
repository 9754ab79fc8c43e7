"""``unidex labels``: the living labels of a model, and labels similar to a label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unidex.cli.output import print_json, print_result, print_table, print_text
from unidex.cli.shared_options import (
    AllowedOption,
    ForbiddenOption,
    Json,
    LanguageOption,
    ModelFolder,
    MostSpecificOption,
    NewFolder,
    PairsFile,
    add_verb,
    picture,
    reads_data,
    reads_labels,
    reads_pairs,
)
from unidex.data.read_options import ReadOptions

if TYPE_CHECKING:
    from unidex.model.label_set import LabelRow

app = typer.Typer(
    no_args_is_help=True,
    help="List, add, remove, rename and teach the labels of a model; set rules for them; find similar labels.",
)


def list_labels(
    model: ModelFolder,
    search: Annotated[
        str, typer.Option("--search", help="Only labels with this in a text, or that have this uid or notation.")
    ] = "",
    order: Annotated[str, typer.Option("--order", metavar="ORDER", help="frequency, text or id.")] = "frequency",
    frequency: Annotated[
        str | None, typer.Option("--frequency", metavar="CLASS", help="Only head, torso or tail labels.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of labels.")] = 20,
    language: LanguageOption = "",
    as_json: Json = False,
) -> None:
    """List labels with their number of train texts: head (more than 100), torso (10 to 100) or tail.

    Example: unidex labels list hpo-model --search seizure

    Example: unidex labels list hpo-model --frequency tail --order text
    """
    from unidex.verbs.labels import list_labels
    from unidex.verbs.models import load_model
    from unidex.verbs.predict import checked_language

    found = load_model(model)
    tag = checked_language(found, language)
    rows, total = list_labels(found, search, limit, order=order, frequency=frequency, language=tag)  # type: ignore[arg-type]
    if as_json:
        print_json({"total": total, "labels": _plain(rows)})
        return
    code = ("notation",) if found.labels.has_notations else ()
    print_table(
        (*code, "label", "uid", "id", "frequency", "train texts"),
        [
            (*(row.notation for _ in code), row.text, row.uid, row.id, row.frequency, f"{row.num_texts:,}")
            for row in rows
        ],
    )
    if total > len(rows):
        print_text(f"... {total - len(rows):,} more; --limit shows them")


@reads_labels
def add(
    model: ModelFolder,
    reading: ReadOptions,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT...", help="Texts of the new labels.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="A table of labels (uid and text), a vocabulary, or one text per line."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels without training: the model predicts them by their text at once.

    The command writes them to the model's journal of changes; they are on the disk when it ends.

    A table has a column text and optionally uid; without, the text of a label is its uid. Further texts are in a column
    texts (separated by |), in columns such as text_de, or in further rows with the same uid. A vocabulary in SKOS adds
    its concepts with all their labels (docs/how-to/vocabularies.md).

    Example: unidex labels add hpo-model "Blue fingernails after exercise"

    Example: unidex labels add hpo-model --file new-phenotypes.csv --column uid=code --column text=phenotype
    """
    from unidex.verbs.labels import add_labels

    added = add_labels(model, texts or [], file, reading)
    rows = [(row.text, row.uid, row.id) for row in added]
    print_result({"added": _plain(added)}, as_json, lambda: print_table(("label", "uid", "id"), rows))


def rules(
    model: ModelFolder,
    allowed: AllowedOption = None,
    forbidden: ForbiddenOption = None,
    most_specific: MostSpecificOption = None,
    clear: Annotated[bool, typer.Option("--clear", help="Take all rules away first.")] = False,
    as_json: Json = False,
) -> None:
    """Store rules that hold for every prediction of a model, or show them.

    A rule is a uid, uid=PATTERN or group=PATTERN; * in a pattern stands for any characters. Groups are the schemes,
    collections and types of a vocabulary; the last part of a name is enough. Without options, the rules are shown.

    Example: unidex labels rules model --allowed group=Descriptor --forbidden too-general.txt --most-specific

    Example: unidex labels rules model --clear
    """
    from unidex.verbs.labels import set_rules

    if clear:
        allowed, forbidden, most_specific = allowed or [], forbidden or [], bool(most_specific)
    found = set_rules(model, allowed, forbidden, most_specific)
    print_result(found, as_json, lambda: _print_rules(found))


def _print_rules(found: dict[str, Any]) -> None:
    rows = [(kind, rule) for kind in ("allowed", "forbidden") for rule in found[kind]]
    if found["most_specific"]:
        rows.append(("most specific", "a label is dropped if a narrower one is predicted"))
    if rows:
        print_table(("rule", "labels"), rows)
    print_text(f"{found['num_labels']:,} labels can be predicted" + ("" if rows else "; there are no rules"))


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
for verb in (add, remove, rename, rules, teach, similar):
    add_verb(app, verb.__name__, verb)
add_verb(app, "neighbours", similar, hidden=True)  # the former name, for one release
