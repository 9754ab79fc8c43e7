"""``labels``: list, add, remove, rename and teach the labels of a model, and find similar labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unidex.data.dataset import positives_of
from unidex.data.files import lines
from unidex.data.formats import BUILT_IN, read
from unidex.data.formats.label_files import read_labels
from unidex.data.formats.skos import is_vocabulary
from unidex.data.formats.table_files import kind_of
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError
from unidex.model import journal
from unidex.model.label_set import LabelRow, Order
from unidex.verbs.models import load_model, model_to_change
from unidex.verbs.text_files import read_new_labels, read_pairs

if TYPE_CHECKING:
    from unidex.model.model import Model
    from unidex.model.similar_labels import SimilarLabel


def list_labels(
    model: Model,
    search: str = "",
    limit: int = 20,
    *,
    offset: int = 0,
    order: Order = "frequency",
    frequency: str | None = None,
    language: str = "",
) -> tuple[list[LabelRow], int]:
    """List one page of the labels that have ``search`` in a text, or as uid or notation, and count all of them."""
    chosen = model.labels.select(search=search, frequency=frequency, order=order)
    return [model.labels.row(label, language) for label in chosen[offset : offset + limit].tolist()], len(chosen)


def read_rules(given: Sequence[str] | None) -> list[str] | None:
    """Rules for labels: each is given as it is, or is a file of them.

    A file has one rule per line, or is a table of labels or a vocabulary, whose uids count.
    """
    if given is None:
        return None
    rules: list[str] = []
    for entry in given:
        file = Path(entry)
        if not _is_file(file):
            rules.append(entry)
        elif is_vocabulary(file) or kind_of(file) is not None:
            labels = read_labels(file, ReadOptions())
            rules += [labels.uid(label) for label in range(len(labels))]
        else:
            rules += [line.strip() for _, line in lines(file) if line.strip()]
    return rules


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # too long for the name of a file


def set_rules(
    folder: Path,
    allowed: Sequence[str] | None = None,
    forbidden: Sequence[str] | None = None,
    most_specific: bool | None = None,
) -> dict[str, Any]:
    """Store rules in a model folder, which hold for every prediction; the result is the rules that hold now.

    What is None stays as it is; an empty list takes rules away.
    """
    if (allowed, forbidden, most_specific) == (None, None, None):
        return _rules_of(load_model(folder))
    with model_to_change(folder) as model:
        model.set_rules(read_rules(allowed), read_rules(forbidden), most_specific)
    return _rules_of(model)


def _rules_of(model: Model) -> dict[str, Any]:
    predict = model.config.predict
    _, hidden = model.choose_labels()
    return {
        "allowed": predict.allowed,
        "forbidden": predict.forbidden,
        "most_specific": predict.most_specific,
        "num_labels": int((~model.labels.removed).sum()) - (0 if hidden is None else _num_living(model, hidden)),
    }


def _num_living(model: Model, labels: Any) -> int:
    """How many of these labels are not removed."""
    return int((~model.labels.removed[labels]).sum())


def similar_labels(model: Model, label: int, k: int = 10) -> list[SimilarLabel]:
    """Return the labels whose vectors are nearest to the vectors of a label, with their scores."""
    from unidex.model.similar_labels import nearest_labels, similar_rows

    return similar_rows(model.labels, nearest_labels(model, label, k))


def find_similar(
    source: str | Path, label: str, k: int = 10, *, plot: Path | None = None, reading: ReadOptions | None = None
) -> dict[str, Any]:
    """Find the labels similar to a label: by train texts in a data set, by vectors in a model folder.

    The result is ``{"name", "by": "texts" or "vectors", "label": {...}, "similar": [{..., "score"}]}``.
    """
    from unidex.model.similar_labels import similar_in_data, similar_in_model

    folder = Path(source)
    if str(source) != BUILT_IN and any((folder / name).is_file() for name in ("manifest.json", "encoder.safetensors")):
        (reading or ReadOptions()).refuse_others((), "a model folder")
        found = similar_in_model(folder.resolve().name, load_model(folder), label, k)
    else:
        found = similar_in_data(read(source, reading), label, k)
    if plot is not None:
        from unidex.report.label_picture import draw_similar

        draw_similar(found, plot)
        found["plot"] = str(plot)
    return found


def change_labels(model: Model, change: journal.Change) -> list[LabelRow]:
    """Change the labels of a model and of its folder; the result is their rows, for removed ones as they were."""
    removed = [model.labels.row(model.labels.id_of(uid)) for uid in change.get("remove", ())]
    ids = model.change(change)
    return removed or [model.labels.row(label) for label in ids]


def add_labels(
    folder: Path, texts: Sequence[str], file: Path | None = None, reading: ReadOptions | None = None
) -> list[LabelRow]:
    """Add labels to a model folder, by text or from a file; they are on the disk when this returns."""
    if file is None:
        (reading or ReadOptions()).refuse_others((), "labels without --file")
    new: list[dict[str, Any]] = [{"uid": text, "text": text} for text in texts]
    new += [] if file is None else read_new_labels(file, reading)
    if not new:
        raise DataError("there must be at least one label to add, but none is given; name texts or --file")
    return change_labels(load_model(folder), {"add": new})


def remove_labels(folder: Path, uids: Sequence[str]) -> list[LabelRow]:
    """Remove labels from a model folder."""
    return change_labels(load_model(folder), {"remove": list(uids)})


def rename_label(folder: Path, uid: str, text: str) -> LabelRow:
    """Give a label of a model folder another text."""
    return change_labels(load_model(folder), {"rename": {"uid": uid, "text": text}})[0]


def teach_texts(folder: Path, uid: str, texts: Sequence[str]) -> dict[str, int]:
    """Fine-tune one label of a model folder on texts that have it; the result counts them."""
    from unidex.model.incremental import teach

    with model_to_change(folder) as model:
        return teach(model, texts, positives_of([[model.labels.id_of(uid)]] * len(texts), len(model.labels)))


def teach_labels(
    folder: Path, file: Path, out: Path | None = None, reading: ReadOptions | None = None
) -> dict[str, Any]:
    """Fine-tune labels of a model folder, or of a copy of it, on new texts; the result counts them."""
    from unidex.model.incremental import teach

    with model_to_change(folder, out) as model:
        counts = teach(model, *read_pairs(model, file, reading))
    return {"model": str(out or folder)} | counts
