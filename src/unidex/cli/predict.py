"""``unidex predict``: labels for texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_result, print_text
from unidex.cli.shared_options import (
    AllowedOption,
    ForbiddenOption,
    LanguageOption,
    ModelFolder,
    ModeOption,
    MostSpecificOption,
    reads_texts,
)
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, quoted


@reads_texts
def predict(
    model: ModelFolder,
    reading: ReadOptions,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="A table (.csv, .tsv, .jsonl, .parquet, .xlsx), or a file of one text per line; - is standard input.",
            show_default="-",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels per text.")] = 5,
    mode: ModeOption = None,
    min_probability: Annotated[
        str | None,
        typer.Option(
            "--min-probability",
            metavar="P",
            help="Minimum probability of a label: a number, or a threshold of the model such as best-f1.",
        ),
    ] = None,
    language: LanguageOption = "",
    allowed: AllowedOption = None,
    forbidden: ForbiddenOption = None,
    most_specific: MostSpecificOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="TABLE",
            help="Write a table (.csv, .tsv, .jsonl, .parquet, .xlsx): the columns of FILE, then the labels.",
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="One row per label in TABLE, instead of one row per text.")
    ] = False,
    document: Annotated[
        bool, typer.Option("--document", help="Each FILE is one text; there may be many of them.")
    ] = False,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help="Predict partition by partition into the folder --out: local (this process) or ray (extra ray).",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes of --engine ray; 0: one per core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Predict the labels of texts.

    A table is read as unidex train reads it, with the columns of the training unless --column names others. With --out,
    TABLE has all columns of FILE, then label_1, uid_1, probability_1, label_2 and so on. Files of any size are
    predicted block by block.

    With --json, a line is {"text": ..., "known": 0.75, "labels": [{"id": 17, "uid": ..., "text": ..., "score": ...,
    "frequency": "tail"}, ...]}; known is the share of the text's words that the model knows, frequency is head,
    torso or tail. If the model is calibrated (docs/how-to/calibrate.md), a label has "probability" too; if it has a
    notation, "notation". A blank text has no labels.

    With --engine, FILE are tables or folders of tables, and --out is a folder with one file per partition. The same
    command continues an interrupted run (docs/how-to/bulk.md).

    Example: unidex predict hpo-model texts.parquet --out labels --engine ray

    Example: unidex predict hpo-model new.csv --out new-labels.xlsx -k 3 --min-probability 0.2

    Example: unidex predict model new.csv --language de --allowed group=Descriptor --most-specific

    Example: unidex predict hpo-model --document letters/*.txt

    Example: echo "Marfan syndrome" | unidex predict hpo-model
    """
    from unidex.data.formats.table_writers import check_target
    from unidex.data.formats.text_source import open_texts
    from unidex.verbs.labels import read_rules
    from unidex.verbs.models import load_model
    from unidex.verbs.predict import LabelOptions, predict_rows
    from unidex.verbs.predict_table import predict_table

    names = files or ["-"]
    _check_no_text(names)
    if long and out is None:
        raise DataError("--long is about the table of --out, but there is no --out; add it, or leave --long out")
    if engine is not None:
        from unidex.verbs.bulk import BulkJob, predict_bulk

        if out is None:
            raise DataError("--engine needs a folder for the results; name it with --out")
        ending = (
            ".parquet" if any(Path(name).suffix == ".parquet" or Path(name).is_dir() for name in names) else ".jsonl"
        )
        job = BulkJob(str(model.resolve()), str(out.resolve()), ending, reading, k, mode, min_probability, long)
        done = predict_bulk(job, names, engine, workers)
        print_result(done, as_json, f"{out}: {done['num_texts']:,} texts, {done['num_labels']:,} labels")
        return
    if out is not None:
        check_target(out)
        if any(Path(name).resolve() == out.resolve() for name in names if name != "-"):
            raise DataError("--out must not be the file that is read; name another", file=out)
    options = LabelOptions(language, read_rules(allowed), read_rules(forbidden), most_specific)
    found = load_model(model)
    with open_texts(names, replace(reading, trained=found.table_form), documents=document) as source:
        if out is not None:
            done = predict_table(found, source, out, k, mode, min_probability, options=options, long=long)
            print_result(done, as_json, f"{out}: {done['num_texts']:,} texts, {done['num_labels']:,} labels")
            return
        shown = iter(names)
        for row in predict_rows(found, source.texts(), k, mode, min_probability, options):
            if document:
                row = {"file": next(shown)} | {name: row[name] for name in ("known", "labels")}
            if as_json:
                print_json(row)
                continue
            unknown = "  (no known words)" if row["known"] == 0 and row["labels"] else ""
            print_text((row["file"] if document else row["text"]) + unknown)
            for label in row["labels"]:
                likely = f"  {label['probability']:4.0%}" if "probability" in label else ""
                code = f"{label['notation']}  " if "notation" in label else ""
                uri = f"  <{label['uid']}>" if "://" in label["uid"] else ""
                print_text(f"  {label['score']:7.4f}{likely}  {code}{label['text'] or label['uid']}{uri}")


def _check_no_text(names: list[str]) -> None:
    """Refuse a text where a file is meant, before the model is read."""
    for name in names:
        try:
            is_text = " " in name.strip() and not Path(name).exists()
        except OSError:  # too long for the name of a file
            is_text = True
        if is_text:
            raise DataError(
                f"FILE must be a file, but there is none called {quoted(name)}; "
                "a text itself goes through standard input: echo TEXT | unidex predict MODEL"
            )
