"""``unidex remember``: new texts with their labels count in the kNN part of a model at once."""

from __future__ import annotations

from unidex.cli.output import print_result
from unidex.cli.shared_options import Json, ModelFolder, NewFolder, PairsFile, reads_pairs
from unidex.data.read_options import ReadOptions


@reads_pairs
def remember(
    model: ModelFolder, pairs: PairsFile, reading: ReadOptions, out: NewFolder = None, as_json: Json = False
) -> None:
    """Add texts with known labels to the kNN part of a model, without training.

    The kNN part gives a text the labels of the train texts that are nearest to it. A remembered text counts as a train
    text from now on: it raises the score of its labels for similar texts, at most by the kNN weight of the model
    (predict.knn in config.toml). The heads do not change; train again after many new texts.

    PAIRS is read as unidex train reads a table, with the columns of the training unless --column names others. A line
    of JSON is {"text": ..., "labels": [uid, ...]}, or has "title" and "content" instead of "text". Labels are uids. The
    model must have them: unidex labels list MODEL shows them, unidex labels add MODEL adds new ones. A text
    that is remembered twice counts twice.

    A model of the recipe auto has a kNN part where that raised the validation score. Any recipe has one with --set
    predict.knn=0.1 --set predict.choose_knn=false.

    Example: unidex remember hpo-model diagnosed.jsonl

    Example: unidex remember hpo-model diagnosed.jsonl --out hpo-model-2 --json
    """
    from unidex.verbs.remember import remember

    done = remember(model, pairs, out, reading)
    print_result(
        done,
        as_json,
        f"{done['model']}: {done['num_texts']:,} texts of {done['num_labels']:,} labels remembered, "
        f"{done['total']:,} texts in all",
    )
