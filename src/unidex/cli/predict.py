"""``unidex predict``: labels for texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_text

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.", show_default=False)]


def predict(
    model: ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts: one a line, or .jsonl; - is standard input.")
    ] = "-",
    k: Annotated[int, typer.Option("-k", min=1, help="Labels a text.")] = 5,
    mode: Annotated[
        str | None, typer.Option("--mode", help="dual, classifier or both; the recipe's unless given.")
    ] = None,
    min_probability: Annotated[
        str | None,
        typer.Option(
            "--min-probability",
            metavar="P",
            help="Leave out labels that are less likely right: a number, or a threshold of the model such as best-f1.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a text.")] = False,
) -> None:
    """Predict the labels of texts.

    With --json, a line is {"text": ..., "labels": [{"id": 17, "uid": ..., "text": ..., "score": ...,
    "frequency": "tail"}, ...]}; frequency is head, torso or tail. Where the model has probabilities
    (docs/how-to/calibrate.md), a label has "probability" too.

    Examples: unidex predict hpo-model diseases.txt -k 3; echo "Marfan syndrome" | unidex predict hpo-model
    """
    from unidex.verbs.model_verbs import predicted_lines

    for row in predicted_lines(model, file, k, mode, min_probability):
        if as_json:
            print_json(row)
            continue
        print_text(row["text"])
        for label in row["labels"]:
            likely = f"  {label['probability']:4.0%}" if "probability" in label else ""
            print_text(f"  {label['score']:7.4f}{likely}  {label['text'] or label['uid']}")
