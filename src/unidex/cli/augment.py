"""``unidex augment``: a data set with further training points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unidex.cli.output import print_json, print_text
from unidex.cli.shared_options import Data, Json, reads_data
from unidex.data.read_options import ReadOptions


# A flag is None unless given: config/augment.py owns the defaults, and --help only shows them.
@reads_data
def augment(
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder to write: new or empty.", show_default=False)
    ],
    reading: ReadOptions,
    method: Annotated[
        str, typer.Option("--method", help="gandalf, glas, random-walk, one-hot, word-dropout or synonyms.")
    ] = "gandalf",
    delta: Annotated[
        float | None,
        typer.Option("--delta", show_default="0.1", help="gandalf, glas: leave out targets up to this value."),
    ] = None,
    max_targets: Annotated[
        int | None,
        typer.Option(
            "--max-targets", show_default="0", help="Maximum targets per label text, the highest first; 0 for all."
        ),
    ] = None,
    no_self_label: Annotated[
        bool, typer.Option("--no-self-label", help="Do not give a label text its own label as a target.")
    ] = False,
    points: Annotated[
        str | None,
        typer.Option(
            "--points",
            show_default="union",
            help="union: texts and label texts; labels: label texts alone; uniform: equal numbers of both.",
        ),
    ] = None,
    label_share: Annotated[
        float | None, typer.Option("--label-share", show_default="1.0", help="Share of the labels that become points.")
    ] = None,
    pick: Annotated[
        str | None,
        typer.Option("--pick", show_default="random", help="How these labels are chosen: random or tail-first."),
    ] = None,
    walk_length: Annotated[
        int | None, typer.Option("--walk-length", show_default="400", help="random-walk: hops from each label.")
    ] = None,
    walk_restart: Annotated[
        float | None,
        typer.Option("--walk-restart", show_default="0.8", help="random-walk: probability to restart at the label."),
    ] = None,
    walk_max_labels: Annotated[
        int | None,
        typer.Option("--walk-max-labels", show_default="10", help="random-walk: labels to keep, most visited first."),
    ] = None,
    walk_verbose: Annotated[
        int | None,
        typer.Option(
            "--walk-verbose", show_default="500", help="random-walk: leave out labels with more texts than this."
        ),
    ] = None,
    word_share: Annotated[
        float | None,
        typer.Option("--word-share", show_default="0.1", help="word-dropout, synonyms: share of the words to change."),
    ] = None,
    synonyms: Annotated[
        str | None,
        typer.Option(
            "--synonyms",
            show_default="wordllama",
            metavar="FILE",
            help="synonyms: a file of lines 'word synonym synonym', or wordllama for the nearest words by its vectors.",
        ),
    ] = None,
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

    flags = {
        "delta": delta,
        "max_targets": max_targets,
        "self_label": False if no_self_label else None,
        "points": points,
        "label_share": label_share,
        "pick": pick,
        "walk_length": walk_length,
        "walk_restart": walk_restart,
        "walk_max_labels": walk_max_labels,
        "walk_verbose": walk_verbose,
        "word_share": word_share,
        "synonyms": synonyms,
    }
    given = {name: value for name, value in flags.items() if value is not None}
    done = augment(data, out, method, given, to=to, seed=seed, reading=reading)
    if as_json:
        print_json(done)
        return
    what = "changed copies" if method in ("word-dropout", "synonyms") else "label texts"
    print_text(
        f"{out}: {done['num_texts']} texts and {done['num_points']} {what}, {done['mean_targets']:.2f} targets each"
    )
