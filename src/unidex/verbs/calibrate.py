"""``calibrate``: fit the probabilities of a model to texts whose labels are known."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from unidex.data.dataset import Dataset
from unidex.data.formats import read
from unidex.data.read_options import ReadOptions
from unidex.features.known_words import KnownWords
from unidex.verbs.evaluate import match_labels, predict_split
from unidex.verbs.models import load_model, model_to_change
from unidex.verbs.score import find_split


def calibrate(
    folder: Path,
    data: Dataset | str | Path,
    *,
    split: str = "test",
    precision: float = 0.9,
    check: bool = False,
    plot: Path | None = None,
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Fit the probabilities of a model folder to held-out texts; the result tells how well they hold.

    With ``check``, the probabilities that the model has are measured, and nothing changes. ``precision`` asks for a
    threshold, ``plot`` names a file for the reliability diagram.
    """
    from unidex.scoring.calibration_fit import PLACES, Places, fit_calibration, measure_calibration

    dataset = data if isinstance(data, Dataset) else read(data, reading)
    texts = find_split(dataset, split)
    with nullcontext(load_model(folder)) if check else model_to_change(folder) as model:
        mode = model.config.predict.mode
        if check:
            model.min_probability(0.0)  # a model without probabilities is refused before anything is predicted
        ids_of = match_labels(model, dataset)
        frequencies = np.zeros(dataset.num_labels, dtype=np.int64)
        frequencies[ids_of[ids_of >= 0]] = model.labels.frequencies[ids_of >= 0]
        topk = predict_split(model, dataset, texts, mode, PLACES)
        words = KnownWords.of(model.network.encoder, model.labels.texts)
        familiarity, of_random = (None, None) if words is None else words.familiarities(list(texts.texts))
        places = Places.of(topk, texts.positives, texts.filter_pairs, frequencies, familiarity)
        if check and model.scorer.calibration is not None:
            probabilities = places.probabilities(model.scorer.calibration)
        else:
            model.scorer.calibration, probabilities = fit_calibration(
                places, mode=mode, precision=precision, random_M=of_random
            )
            model.metrics["calibration"] = model.scorer.calibration.summary() | {"data": dataset.name, "split": split}
    found = {"model": str(folder), "data": dataset.name, "split": split}
    found |= measure_calibration(places, model.scorer.calibration, probabilities)
    if plot is not None:
        from unidex.report.pictures import draw_reliability

        draw_reliability(found, plot)
        found["plot"] = str(plot)
    return found
