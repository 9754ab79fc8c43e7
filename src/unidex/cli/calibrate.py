"""``unidex calibrate``: probabilities that mean something, fitted to texts whose labels are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_json, print_table, print_text
from unidex.cli.predict import ModelFolder
from unidex.cli.shared_options import Data, Json, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def calibrate(
    model: ModelFolder,
    data: Data,
    reading: ReadOptions,
    split: Annotated[
        str, typer.Option("--split", help="The texts to fit to: test or train; never those of training.")
    ] = "test",
    precision: Annotated[
        float, typer.Option("--precision", help="Also find the threshold that gives labels of this precision.")
    ] = 0.9,
    check: Annotated[
        bool, typer.Option("--check", help="Say how well the probabilities that MODEL has hold, and change nothing.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the reliability (.png, .svg, .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fit the probabilities of a model anew, and find thresholds for them.

    A probability says how likely a predicted label is right, by its score, its place and whether it is a head, torso
    or tail label. A model that was trained with a validation split has probabilities already; fit them anew where the
    texts to come are unlike those, or after labels were taught. The texts must not be those the model was trained on.

    The expected calibration error is how far probabilities are from the share of labels that are right, over the first
    5 labels of each text: before (scores cut to 0..1) and after. Each half of the texts is judged by a fit to the other
    half; what is kept in MODEL is fitted to all of them. With --check, the probabilities are those that MODEL has, and
    what its thresholds leave on these texts is shown.

    Example: unidex calibrate hpo-model new-diseases.jsonl --split train

    Example: unidex calibrate hpo-model hpo --precision 0.8 --plot reliability.svg
    """
    from unidex.verbs.pipeline import calibrate

    found = calibrate(model, data, split=split, precision=precision, check=check, reading=reading)
    if plot is not None:
        from unidex.report.reliability_diagram import draw_reliability

        draw_reliability(found, plot)
        found["plot"] = str(plot)
    if as_json:
        print_json(found)
        return
    _print(found, None if check else f"precision-{precision:g}")


def _print(found: dict[str, Any], asked: str | None) -> None:
    print_text(
        f"{found['num_texts']:,} texts: expected calibration error {found['ece_before']:.4f} before, "
        f"{found['ece_after']:.4f} after"
    )
    print_table(
        ("threshold", "probability", "precision", "recall", "F1"),
        [
            (name, f"{row['probability']:.4f}", *(f"{100 * row[part]:.2f}" for part in ("precision", "recall", "f1")))
            for name, row in found["thresholds"].items()
        ],
        title=f"labels of at least this probability, of the first {found['num_places']}",
    )
    print_table(
        ("labels", "places", "mean probability", "share right"),
        [
            (row["name"], f"{row['num_places']:,}", f"{row['probability']:.4f}", f"{row['share']:.4f}")
            for row in found["groups"]
        ],
        title="what is said and what is right",
    )
    if asked is not None and asked not in found["thresholds"]:
        print_text(f"note: no threshold reaches {asked.removeprefix('precision-')} precision; ask for less")
    if "plot" in found:
        print_text(f"picture: {found['plot']}")
    print_text(f"model: {found['model']}")
