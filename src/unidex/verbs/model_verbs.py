"""The verbs on a model folder: predict, explain, and what changes its labels and what it knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex.data.formats import BUILT_IN, read
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, UnidexError, quoted
from unidex.storage.locks import locked
from unidex.verbs.pipeline import load_model

if TYPE_CHECKING:
    pass


def predicted_lines(
    folder: Path, file: str, k: int, mode: str | None, min_probability: str | float | None = None
) -> Iterator[dict[str, Any]]:
    """Predictions for the texts of a file, or of standard input where it is "-"."""
    from unidex.verbs import living

    if mode not in (None, "both", "dual", "classifier"):
        raise DataError(f"--mode must be both, dual or classifier, but is {quoted(mode)}")
    texts = (line.rstrip("\r\n") for line in sys.stdin) if file == "-" else living.texts_in(Path(file))
    yield from living.predicted_rows(load_model(folder), texts, k, mode, min_probability)  # type: ignore[arg-type]


def explained(
    folder: Path,
    text: str,
    *,
    k: int = 5,
    labels: Sequence[str | int] | None = None,
    mode: str | None = None,
    num_texts: int = 3,
) -> list[dict[str, Any]]:
    """Why a text is given its k best labels, or those named by uid or id, as plain values."""
    from unidex.model.explanation import explain

    reasons = explain(load_model(folder), text, k=k, labels=labels, mode=mode, num_texts=num_texts)  # type: ignore[arg-type]
    return [reason.as_dict() for reason in reasons]


def listed_labels(
    folder: Path, search: str = "", limit: int = 20, *, order: str = "frequency", frequency: str | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Labels of a model in an order, and how many there are."""
    from unidex.verbs import living

    return living.list_labels(load_model(folder), search, limit, order=order, frequency=frequency)  # type: ignore[arg-type]


def label_neighbours(
    source: str | Path, label: str, k: int = 10, *, reading: ReadOptions | None = None
) -> dict[str, Any]:
    """The labels nearest to a label: by train texts in a data set, by vectors in a model folder."""
    from unidex.model import similar_labels as neighbourhood

    folder = Path(source)
    if str(source) != BUILT_IN and any((folder / name).is_file() for name in ("manifest.json", "encoder.safetensors")):
        (reading or ReadOptions()).refuse_others((), "a model folder")
        return neighbourhood.neighbours_in_model(folder.resolve().name, load_model(folder), label, k)
    return neighbourhood.neighbours_in_data(read(source, reading), label, k)


def add_labels(folder: Path, texts: list[str], file: Path | None) -> list[dict[str, Any]]:
    """Add labels to a model folder; they are on the disk when this returns."""
    from unidex.model import journal as changes
    from unidex.verbs import living

    model = load_model(folder)
    ids = model.change(changes.add(*living.new_labels(texts, file)))
    return [living.label_row(model, label) for label in ids]


def remove_labels(folder: Path, uids: list[str]) -> list[dict[str, Any]]:
    """Remove labels from a model folder."""
    from unidex.verbs import living

    model = load_model(folder)
    return [living.label_row(model, label) for label in model.change({"remove": uids})]


def rename_label(folder: Path, uid: str, text: str) -> dict[str, Any]:
    """Give a label of a model folder another text."""
    from unidex.verbs import living

    model = load_model(folder)
    (label,) = model.change({"rename": {"uid": uid, "text": text}})
    return living.label_row(model, label)


def remember(folder: Path, file: Path, out: Path | None = None) -> dict[str, Any]:
    """Let new texts with their labels count in a model folder, or in a copy of it; the result says how many."""
    from unidex.verbs import living

    if out is not None and out.exists():
        raise UnidexError(f"{out}: the model folder must be new, but exists; name another or remove it")
    target = out or folder
    # Locked from loading to saving: no label that is added meanwhile is lost.
    with locked(folder) if out is None else nullcontext():
        model = load_model(folder)
        done = living.remember(model, file)
        model.save(target)
    return {"model": str(target)} | done


def teach(folder: Path, file: Path, out: Path | None = None) -> dict[str, Any]:
    """Let a model folder, or a copy of it, learn new pairs of texts and labels; the result says how many."""
    from unidex.model import incremental as teaching
    from unidex.verbs import living

    if out is not None and out.exists():
        raise UnidexError(f"{out}: the model folder must be new, but exists; name another or remove it")
    target = out or folder
    # Locked from loading to saving: no label that is added meanwhile is lost.
    with locked(folder) if out is None else nullcontext():
        model = load_model(folder)
        done = teaching.teach(model, *living.pairs_in(model, file))
        model.save(target)
    return {"model": str(target)} | done
