"""``report``: the page of a comparison, for models that are finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.errors import ModelError, quoted
from unidex.verbs.comparison.mistakes import find_mistakes
from unidex.verbs.comparison.records import data_record, model_record, record_file
from unidex.verbs.comparison.result import NUM_TEXTS, count_of, make_page, make_table, write_file
from unidex.verbs.comparison.samples import find_samples
from unidex.verbs.evaluate import evaluate
from unidex.verbs.models import load_model


def report(
    models: Sequence[Path],
    *,
    out: Path,
    data: str | Path | None = None,
    texts: Path | None = None,
    num_texts: int = NUM_TEXTS,
    device: str = "auto",
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Write the page of a comparison for finished models of one data set; the result is its table.

    ``models`` are model folders, or folders of comparisons with their finished runs. The data set is read to score
    models without scores, and to show ``num_texts`` of its test texts unless there is a file of ``texts``.
    """
    if not models:
        raise ModelError("there must be at least one model folder, but there is none")
    if len({folder.resolve() for folder in models}) < len(models):
        raise ModelError("each model folder must be named only once, but one is named twice")
    if data is None:
        (reading or ReadOptions()).refuse_others((), "models without --data")
    dataset = None if data is None else read(data, reading)
    about = {} if dataset is None else data_record(dataset)
    folders = [folder for given in models for folder in models_in(given)]
    records = [_scored(model_record(folder), dataset, about, device) for folder in folders]
    about = about or max((record["data"] for record in records), key=len)
    for record in records:
        _check_data(record, about)
    samples = find_samples(dataset, texts, num_texts)
    table = make_table(f"{about['name'] or 'no name'}: {count_of(len(records), 'model')}", about, records, [], "")
    write_file(out, make_page(table, records, samples, device))
    return table


def models_in(folder: Path) -> list[Path]:
    """Return a model folder itself, or the models of the finished runs of a comparison."""
    runs = folder / "runs"
    if not runs.is_dir() or (folder / "manifest.json").exists():
        return [folder]
    found = [model for model in runs.iterdir() if model.is_dir() and record_file(model).exists()]
    if not found:
        raise ModelError(f"{folder}: a comparison must have a finished run, but has none")
    return sorted(found, key=_recipe_first)


def _recipe_first(model: Path) -> tuple[str, bool, str]:
    """Sort by recipe, the one without augmentation first."""
    recipe, augment = model.name, "none"
    try:
        record = json.loads(record_file(model).read_text(encoding="utf-8"))
        recipe, augment = str(record["recipe"]), str(record["augment"])
    except (OSError, ValueError, LookupError, TypeError):
        pass  # reading the record raises the error
    return recipe, augment != "none", model.name


def _scored(record: dict[str, Any], dataset: Dataset | None, about: dict[str, Any], device: str) -> dict[str, Any]:
    """Return a record with test scores: its own, or new ones on the data set."""
    is_scored = record["data"]["fingerprint"] is not None and record["test"] is not None
    if is_scored and (dataset is None or "mistakes" in record):
        return record
    if dataset is not None:
        model = load_model(Path(record["folder"]), device)
        found = record | {"mistakes": find_mistakes(model, dataset)}
        if is_scored:
            return found
        return found | {"test": evaluate(model, dataset, with_train_texts=True).as_dict(), "data": about}
    if record["test"] is None:
        raise ModelError(f"{record['folder']}: the model must have been scored on test texts, but was not; give --data")
    return record


def _check_data(record: dict[str, Any], about: dict[str, Any]) -> None:
    own = record["data"]
    known = [key for key in ("fingerprint", "name", "num_train") if None not in (own.get(key), about.get(key))]
    # The name is only the name of a folder: prefer the fingerprint.
    sign = "fingerprint" if "fingerprint" in known else None
    if any(own[key] != about[key] for key in ([sign] if sign else known)):
        raise ModelError(
            f"{record['folder']}: models in one report must be of one data set, but this one is of "
            f"{quoted(own['name'])} ({own['num_train']:,} train texts) and not of {quoted(about['name'])}"
        )
