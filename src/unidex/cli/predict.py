"""``unidex predict``: labels for texts."""

from __future__ import annotations

from typing import Annotated

import typer

from unidex.cli.output import print_json, print_text
from unidex.cli.shared_options import ModelFolder, ModeOption


def predict(
    model: ModelFolder,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="One text per line, or .jsonl; - is standard input.")
    ] = "-",
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")] = False,
) -> None:
    """Predict the labels of texts.

    With --json, a line is {"text": ..., "known": 0.75, "labels": [{"id": 17, "uid": ..., "text": ..., "score": ...,
    "frequency": "tail"}, ...]}; known is the share of the text's words that the model knows, frequency is head,
    torso or tail. If the model is calibrated (docs/how-to/calibrate.md), a label has "probability" too.

    Examples: unidex predict hpo-model diseases.txt -k 3; echo "Marfan syndrome" | unidex predict hpo-model
    """
    from unidex.verbs.models import load_model
    from unidex.verbs.predict import predict_rows
    from unidex.verbs.text_files import read_texts

    for row in predict_rows(load_model(model), read_texts(file), k, mode, min_probability):
        if as_json:
            print_json(row)
            continue
        print_text(row["text"] + ("" if row["known"] != 0 else "  (no known words)"))
        for label in row["labels"]:
            likely = f"  {label['probability']:4.0%}" if "probability" in label else ""
            print_text(f"  {label['score']:7.4f}{likely}  {label['text'] or label['uid']}")
