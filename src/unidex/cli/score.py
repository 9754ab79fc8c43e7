"""``unidex evaluate`` and ``unidex score``: every metric, of a model or of predictions by any system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unidex.cli.output import print_note, print_result, print_table
from unidex.cli.shared_options import (
    Data,
    Json,
    ModelFolder,
    ModeOption,
    SplitOption,
    WithTrainTexts,
    judges_data,
    reads_data,
)
from unidex.data.read_options import ReadOptions
from unidex.metrics import LIMIT

if TYPE_CHECKING:
    from unidex.verbs.score import Scores


Limit = Annotated[
    int, typer.Option("--limit", help="Labels per text that count in the averages over documents, subjects and pairs.")
]


def _in_words(scores: Scores) -> str:
    found = scores.metrics
    any_hit = f", and {found['hits@5']:.0f} of 100 have a right one among the first five" if "hits@5" in found else ""
    return f"The first label is right for {found.get('P@1', 0.0):.0f} of 100 texts{any_hit}."


@reads_data
def score(
    predictions: Annotated[
        Path, typer.Argument(metavar="PREDICTIONS", help="JSON lines, .npz (CSR scores) or .npy (ranked ids).")
    ],
    data: Data,
    reading: ReadOptions,
    as_json: Json = False,
    no_filter: Annotated[
        bool, typer.Option("--no-filter", help="Keep the filter pairs of DATA in the predictions.")
    ] = False,
    split: Annotated[str, typer.Option("--split", help="The texts that were predicted: test or train.")] = "test",
    limit: Limit = LIMIT,
) -> None:
    """Score predictions made by any system against a data set.

    PREDICTIONS has one row per text of the split, in the same order. In JSON lines a row is {"labels": [ids or uids,
    best first], "scores": [...]}; "scores" is optional. Metrics are in percent. Filter pairs are removed from the
    predictions before the cut at k unless --no-filter is given.

    Example: unidex score predictions.jsonl hpo

    Example: unidex score pecos.npz ./shop --json
    """
    from unidex.data.formats import read
    from unidex.verbs.score import score_predictions

    results = score_predictions(predictions, read(data, reading), split=split, use_filter=not no_filter, limit=limit)
    print_result(results.as_dict(), as_json, lambda: _print_with_averages(results))


@judges_data
def evaluate(
    model: ModelFolder,
    data: Data,
    reading: ReadOptions,
    split: SplitOption = None,
    mode: ModeOption = None,
    with_train_texts: WithTrainTexts = False,
    limit: Limit = LIMIT,
    hierarchy: Annotated[
        bool, typer.Option("--hierarchy", help="Add hP, hR and hF1, which credit broader labels of a vocabulary.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score a model on a data set: on its test texts, or on all texts of a table.

    Texts that the model was trained on are left out and counted. Labels that it does not know count as misses. Label
    frequencies and propensities are those of the training. A table is read with the columns of the training, unless
    --column names others. Metrics are in percent; filter pairs are removed from the predictions before the cut at k.

    Examples: unidex evaluate hpo-model hpo; unidex evaluate model new.csv; unidex evaluate model ./shop --mode dual
    """
    from unidex.verbs.evaluate import evaluate
    from unidex.verbs.judgement import read_for
    from unidex.verbs.models import load_model

    found = load_model(model)
    dataset = read_for(found, data, reading)
    asked = None if (reading.propensity_a, reading.propensity_b) == (None, None) else dataset.propensity
    scores = evaluate(
        found,
        dataset,
        split=split,
        mode=mode,  # type: ignore[arg-type]
        limit=limit,
        with_train_texts=with_train_texts,
        propensity=asked,
        hierarchy=hierarchy,
    )
    print_result(scores.as_dict(), as_json, lambda: _print_with_averages(scores))


def print_scores(scores: Scores) -> None:
    """Print a sentence, the metrics as a table with one row per metric, then the share of groups of labels."""
    print_note(_in_words(scores))
    ks = sorted({int(name.partition("@")[2]) for name in scores.metrics})
    by_metric: dict[str, dict[int, float]] = {}
    for name, value in scores.metrics.items():
        metric, _, k = name.partition("@")
        by_metric.setdefault(metric, {})[int(k)] = value
    rows = [[metric, *(f"{at[k]:.2f}" if k in at else "" for k in ks)] for metric, at in by_metric.items()]
    title = f"{scores.num_texts:,} texts, percent, {scores.num_filtered:,} filter pairs"
    print_table(["metric", *(f"@{k}" for k in ks)], rows, title=title)
    groups = [
        [group.name, f"{group.num_labels:,}", f"{group.mean_frequency:.1f}", f"{group.contribution:.2f}"]
        for group in (*scores.bins, *scores.classes)
    ]
    print_table(
        ["labels by train frequency", "labels", "mean texts", "share of P@5"], groups, title="contribution to P@5"
    )


def _print_with_averages(scores: Scores) -> None:
    from unidex.metrics.averages import KINDS

    print_scores(scores)
    found = scores.averages
    rows = [
        [kind.replace("_", " "), *(f"{found[kind][name]:.2f}" for name in ("precision", "recall", "F1"))]
        for kind in KINDS
    ]
    title = f"averages over the first {found['limit']} labels of each text; NDCG {found['NDCG']:.2f}"
    print_table(["average", "precision", "recall", "F1"], rows, title=title)
