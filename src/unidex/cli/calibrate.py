"""``unidex calibrate``: fit the probabilities of a model to texts whose labels are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_result, print_table, print_text
from unidex.cli.shared_options import Data, Json, ModelFolder, SplitOption, WithTrainTexts, judges_data, picture
from unidex.data.read_options import ReadOptions


@judges_data
def calibrate(
    model: ModelFolder,
    data: Data,
    reading: ReadOptions,
    split: SplitOption = None,
    precision: Annotated[float, typer.Option("--precision", help="Also find the threshold for this precision.")] = 0.9,
    check: Annotated[
        bool, typer.Option("--check", help="Measure the probabilities of MODEL on these texts; change nothing.")
    ] = False,
    with_train_texts: WithTrainTexts = False,
    plot: Annotated[Path | None, picture("Draw the reliability diagram")] = None,
    as_json: Json = False,
) -> None:
    """Fit the probabilities of a model, and find thresholds for them.

    A probability tells how likely a predicted label is right, given its score, its rank and its frequency class (head,
    torso or tail). A model that was trained with a validation split has probabilities already. Fit them again when new
    texts differ from the validation split, or after unidex labels teach. Texts that the model was trained on are left
    out. There must be at least 50 others.

    The expected calibration error compares probabilities with the share of right labels, over the first 5 labels of
    each text: before (scores clipped to 0..1) and after. Each half of the texts is measured with a fit to the other
    half; MODEL gets the fit to all of them. With --check, the command measures the probabilities and thresholds that
    MODEL has.

    Example: unidex calibrate hpo-model new-diseases.csv

    Example: unidex calibrate hpo-model hpo --precision 0.8 --plot reliability.svg
    """
    from unidex.verbs.calibrate import calibrate

    found = calibrate(
        model,
        data,
        split=split,
        precision=precision,
        check=check,
        plot=plot,
        reading=reading,
        with_train_texts=with_train_texts,
    )
    print_result(found, as_json, lambda: _print(found, None if check else f"precision-{precision:g}"))


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
        title="mean probability and share of right labels",
    )
    if asked is not None and asked not in found["thresholds"]:
        print_text(f"note: no threshold reaches precision {asked.removeprefix('precision-')}; ask for a lower one")
    if "plot" in found:
        print_text(f"picture: {found['plot']}")
    print_text(f"model: {found['model']}")
