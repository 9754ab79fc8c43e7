"""``unidex remember``: new texts with their labels count in a model at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_text
from unidex.cli.predict import ModelFolder
from unidex.cli.shared_options import Json


def remember(
    model: ModelFolder,
    pairs: Annotated[
        Path,
        typer.Argument(
            metavar="PAIRS",
            help='JSON lines with "text" and "labels", plain or gzipped.',
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="NEW", help="The model folder to write, a new one; MODEL itself unless given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let texts whose labels are known count in a model, without training.

    A model with neighbours gives a text also the labels of the train texts that are nearest to it. What is remembered
    stands among them from now on: for a text like it, its labels rise by what neighbours weigh in the model
    (predict.knn in config.toml) at most. What the heads say stays as it is; train anew when much has come in.

    A line of PAIRS is {"text": ..., "labels": [uid, ...]}, or has "title" and perhaps "content" instead of "text". A
    label must be one of the model's: unidex labels list MODEL shows them, unidex labels add MODEL adds some. A text
    that is remembered twice counts twice.

    Models of the recipe auto have neighbours where they paid on its validation split. Any recipe has them with --set
    predict.knn=0.1 --set predict.choose_knn=false.

    Example: unidex remember hpo-model diagnosed.jsonl

    Example: unidex remember hpo-model diagnosed.jsonl --out hpo-model-2 --json
    """
    from unidex.verbs import model_verbs

    done = model_verbs.remember(model, pairs, out)
    if as_json:
        print_json(done)
        return
    print_text(
        f"{done['model']}: {done['num_texts']:,} texts of {done['num_labels']:,} labels remembered, "
        f"{done['total']:,} texts in all"
    )
