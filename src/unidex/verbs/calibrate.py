"""``calibrate``: fit the probabilities of a model to texts whose labels are known."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from unidex.data.dataset import Dataset
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError
from unidex.verbs.evaluate import predict_split
from unidex.verbs.judgement import judge, read_for
from unidex.verbs.models import load_model, model_to_change

# A fit to fewer texts would be worse than the fit of the training that it replaces.
MIN_FIT = 50


def calibrate(
    folder: Path,
    data: Dataset | str | Path,
    *,
    split: str | None = None,
    precision: float = 0.9,
    check: bool = False,
    plot: Path | None = None,
    reading: ReadOptions | None = None,
    with_train_texts: bool = False,
) -> dict[str, Any]:
    """Fit the probabilities of a model folder to texts that it was not trained on; the result tells how well they hold.

    The texts are those of `unidex.verbs.judgement.judge`. With ``check``, the probabilities that the model has are
    measured, and nothing changes. ``precision`` asks for a threshold, ``plot`` names the file of a reliability diagram.
    """
    from unidex.scoring.calibration_fit import MIN_TEXTS, PLACES, Places, fit_calibration, measure_calibration

    with nullcontext(load_model(folder)) if check else model_to_change(folder) as model:
        mode = model.config.predict.mode
        if check:
            model.min_probability(0.0)  # a model without probabilities is refused before anything is predicted
        dataset = data if isinstance(data, Dataset) else read_for(model, data, reading)
        judged = judge(model, dataset, split=split, with_train_texts=with_train_texts)
        texts = judged.split
        _refuse_few(len(texts), MIN_TEXTS if check else MIN_FIT)
        topk = predict_split(model, texts, mode, PLACES)
        words = model.known_words
        familiarity, of_random = (None, None) if words is None else words.familiarities(list(texts.texts))
        places = Places.of(topk, texts.positives, texts.filter_pairs, judged.frequencies_L, familiarity)
        if check and model.scorer.calibration is not None:
            probabilities = places.probabilities(model.scorer.calibration)
        else:
            model.scorer.calibration, probabilities = fit_calibration(
                places, mode=mode, precision=precision, random_M=of_random
            )
            model.metrics["calibration"] = model.scorer.calibration.summary() | {"data": dataset.name}
    found = {"model": str(folder), "data": dataset.name, "num_left_out": judged.num_left_out}
    found |= {"num_unknown_labels": judged.num_unknown_labels, "num_unknown_pairs": judged.num_unknown_pairs}
    found |= measure_calibration(places, model.scorer.calibration, probabilities)
    if plot is not None:
        from unidex.report.pictures import draw_reliability

        draw_reliability(found, plot)
        found["plot"] = str(plot)
    return found


def _refuse_few(num_texts: int, minimum: int) -> None:
    if num_texts < minimum:
        raise DataError(
            f"probabilities need at least {minimum} texts that the model was not trained on, but there are "
            f"{num_texts}; take more"
        )
