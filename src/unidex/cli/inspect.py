"""``unidex inspect``: the contents of a data set, and problems in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_result, print_table, print_text
from unidex.cli.shared_options import Data, Json, picture, reads_data
from unidex.data.read_options import ReadOptions


@reads_data
def inspect(
    data: Data,
    reading: ReadOptions,
    as_json: Json = False,
    plot: Annotated[Path | None, picture("Draw the label-frequency curve")] = None,
    examples: Annotated[int, typer.Option("--examples", min=0, help="How many example texts to show.")] = 3,
) -> None:
    """Show the contents of a data set, and problems in it.

    Counts, label frequencies, test texts that are also train texts, texts that are labels themselves, and examples.
    A line that starts with "note:" names a problem to check before training.

    Example: unidex inspect hpo

    Example: unidex inspect tickets.csv --column labels=queue --plot labels.png
    """
    from unidex.verbs.inspect import inspect

    found = inspect(data, num_examples=examples, plot=plot, reading=reading)
    print_result(found, as_json, lambda: _print(found))


def _print(found: dict[str, Any]) -> None:
    def both(name: str) -> str:
        return f"{found[f'{name}_train']:,} / {found[f'{name}_test']:,}"

    split = f", test {found['labels_per_text_test']:.2f}" if found["num_test"] else ""
    classes = " / ".join(f"{found[f'share_of_{name}_labels']:.1%}" for name in ("head", "torso", "tail"))
    own = [
        f"{found[f'texts_that_are_labels_{name}']:,} ({found[f'texts_that_are_labels_filtered_{name}']:,})"
        for name in ("train", "test")
    ]
    rows: list[tuple[str, object]] = [
        ("texts, train / test", f"{found['num_train']:,} / {found['num_test']:,}"),
        ("labels", f"{found['num_labels']:,}"),
        ("labels per text", f"train {found['labels_per_text']:.2f}{split}"),
        ("train texts per label", f"mean {found['texts_per_label']:.2f}, maximum {found['max_texts_per_label']:,}"),
        ("words per text / per label", f"{found['words_per_text']:.1f} / {found['words_per_label']:.1f}"),
        ("head / torso / tail labels (>100, 10-100, <10 texts)", classes),
        ("labels never in train", f"{found['labels_never_in_train']:,}"),
        ("texts without labels, train / test", both("texts_without_labels")),
        ("test texts that are in train", f"{found['test_texts_in_train']:,}"),
        ("texts that are labels, train / test (filtered)", " / ".join(own)),
        ("filter pairs, train / test", both("filter_pairs")),
        ("relevance", "graded" if found["graded_relevance"] else "all 1"),
        ("propensity constants A, B", f"{found['propensity_a']:g}, {found['propensity_b']:g}"),
    ]
    print_table(("property", found["name"]), rows)
    for example in found["examples"]:
        labels = " | ".join(label["text"] or f"label {label['id']}" for label in example["labels"][:5])
        more = f" | ... {len(example['labels']) - 5} more" if len(example["labels"]) > 5 else ""
        print_text(f"{_shortened(example['text'])}\n    -> {_shortened(labels)}{more}")
    for warning in found["warnings"]:
        print_text(f"note: {warning}")
    if "plot" in found:
        print_text(f"picture: {found['plot']}")


def _shortened(text: str, limit: int = 110) -> str:
    # Control characters in a user's data must not reach the terminal.
    text = " ".join("".join(mark if mark.isprintable() else " " for mark in text[: 4 * limit]).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
