"""``unidex evaluate``: every metric of a model on a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from unidex.cli.output import print_result
from unidex.cli.shared_options import Data, Json, ModelFolder, ModeOption, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def evaluate(
    model: ModelFolder,
    data: Data,
    reading: ReadOptions,
    split: Annotated[str, typer.Option("--split", help="The texts to predict: test or train.")] = "test",
    mode: ModeOption = None,
    as_json: Json = False,
) -> None:
    """Score a model on a data set.

    Metrics are in percent; filter pairs are removed from the predictions before the cut at k.

    Examples: unidex evaluate hpo-model hpo; unidex evaluate model ./shop --mode dual --json
    """
    from unidex.cli.score import print_scores
    from unidex.data.formats import read
    from unidex.verbs.evaluate import evaluate
    from unidex.verbs.models import load_model

    scores = evaluate(load_model(model), read(data, reading), split=split, mode=mode)  # type: ignore[arg-type]
    print_result(scores.as_dict(), as_json, lambda: print_scores(scores))
