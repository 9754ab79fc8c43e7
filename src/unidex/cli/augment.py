"""``unidex augment``: a data set with further training points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_result
from unidex.cli.shared_options import Data, Json, flag, reads_data, with_flags
from unidex.data.read_options import ReadOptions

# name -> default, meaning. A flag is None unless given: config/augment.py owns the defaults, --help only shows them.
_FLAGS: dict[str, tuple[Any, str]] = {
    "delta": (0.1, "gandalf, glas: leave out targets up to this value."),
    "max_targets": (0, "Maximum targets per label text, the highest first; 0 for all."),
    "points": ("union", "union: texts and label texts; labels: label texts alone; uniform: equal numbers of both."),
    "label_share": (1.0, "Share of the labels that become points."),
    "pick": ("random", "How these labels are chosen: random or tail-first."),
    "walk_length": (400, "random-walk: hops from each label."),
    "walk_restart": (0.8, "random-walk: probability to restart at the label."),
    "walk_max_labels": (10, "random-walk: labels to keep, most visited first."),
    "walk_verbose": (500, "random-walk: leave out labels with more texts than this."),
    "word_share": (0.1, "word-dropout, synonyms: share of the words to change."),
    "synonyms": (
        "wordllama",
        "synonyms: a file of lines 'word synonym synonym', wordllama for the nearest words by its vectors, or "
        "mlm:MODEL for what a masked language model (a folder or hub name) expects in a word's place.",
    ),
}


@reads_data
@with_flags(
    {
        name: flag(
            *(name, None, meaning, type(default) | None),
            show_default=str(default),
            metavar="FILE" if name == "synonyms" else None,
        )
        for name, (default, meaning) in _FLAGS.items()
    },
    "settings",
    lambda flags: {name: value for name, value in flags.items() if value is not None},
)
def augment(
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write: new or empty.", show_default=False)
    ],
    reading: ReadOptions,
    settings: dict[str, Any],
    method: Annotated[
        str, typer.Option("--method", help="gandalf, glas, random-walk, one-hot, word-dropout or synonyms.")
    ] = "gandalf",
    no_self_label: Annotated[
        bool, typer.Option("--no-self-label", help="Do not give a label text its own label as a target.")
    ] = False,
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help="xc-raw, pecos, dexml, xclib, jsonl or unidex.")
    ] = "xc-raw",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same data set.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a data set with further training points, for any tool that reads its format.

    Label texts become train texts after the original ones. Their positives are the labels that occur together with them
    on train texts; the relevance of a positive is its soft target (target_rel in xc-raw). word-dropout and synonyms add
    a changed copy of every train text instead. Test texts, labels and filter pairs do not change. Score with the
    original data set: label frequencies, and so propensities, are right only there.

    Example: unidex augment hpo --out ./hpo-gandalf

    Example: unidex augment hpo --out ./hpo-tail --label-share 0.5 --pick tail-first --max-targets 20 --to pecos
    """
    from unidex.verbs.augment import augment

    settings |= {"self_label": False} if no_self_label else {}
    done = augment(data, out, method, settings, to=to, seed=seed, reading=reading)
    what = "changed copies" if method in ("word-dropout", "synonyms") else "label texts"
    counts = f"{done['num_texts']} texts and {done['num_points']} {what}, {done['mean_targets']:.2f} targets each"
    print_result(done, as_json, f"{out}: {counts}")
