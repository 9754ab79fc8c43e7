"""The verbs as functions: what the command line and the service call."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.config.recipes import load as load_config
from unidex.data.dataset import Dataset, Split
from unidex.data.formats import check_target, read, write
from unidex.data.predictions import read_predictions
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, UnidexError, quoted
from unidex.metrics.bins import Bin
from unidex.metrics.evaluation import Evaluation, places_needed
from unidex.storage.allocator import keep_freed_memory
from unidex.storage.locks import locked
from unidex.topk import PADDING, TopK

if TYPE_CHECKING:
    import torch

    from unidex.model.model import Model
    from unidex.model.searcher import Mode

logger = logging.getLogger(__name__)

_BLOCK = 4096


@dataclass(frozen=True)
class Scores:
    """Metrics of predictions on one split of a data set, in percent.

    Attributes:
        metrics: name such as "P@1" -> percent.
        bins: contribution to P@k of five groups of labels of equal total frequency, at the largest k up to 5.
        classes: the same for head, torso and tail labels.
        num_texts: texts that were scored.
        num_filtered: filter pairs that were taken out of consideration.
    """

    metrics: dict[str, float]
    bins: list[Bin]
    classes: list[Bin]
    num_texts: int
    num_filtered: int

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Scores:
        """What ``as_dict`` gave, as scores again."""
        return cls(
            metrics={name: value for name, value in values.items() if "@" in name},
            bins=[Bin(**group) for group in values["bins"]],
            classes=[Bin(**group) for group in values["classes"]],
            num_texts=values["num_texts"],
            num_filtered=values["filter_pairs"],
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the metrics at the top, the rest below them."""
        return {
            **self.metrics,
            "bins": [asdict(group) for group in self.bins],
            "classes": [asdict(group) for group in self.classes],
            "num_texts": self.num_texts,
            "filter_pairs": self.num_filtered,
        }


def score_topk(topk: TopK, dataset: Dataset, split: Split, *, use_filter: bool = True) -> Scores:
    """Score predictions for the texts of a split; propensities and frequencies are those of the train texts."""
    evaluation = Evaluation(dataset.label_frequencies(), len(dataset.train), dataset.propensity)
    evaluation.add(topk, split.positives, split.filter_pairs if use_filter else None)
    return Scores(
        metrics=evaluation.results(),
        bins=evaluation.bins(5),
        classes=evaluation.classes(5),
        num_texts=evaluation.num_rows,
        num_filtered=int(split.filter_pairs.nnz) if use_filter else 0,
    )


def score_predictions(file: Path, dataset: Dataset, *, split: str = "test", use_filter: bool = True) -> Scores:
    """Score a file of predictions made by any system."""
    texts = _split_of(dataset, split)
    topk = read_predictions(file, dataset, "test" if split == "test" else "train")
    return score_topk(topk, dataset, texts, use_filter=use_filter)


def augment(
    data: Dataset | str | Path,
    out: str | Path,
    method: str = "gandalf",
    settings: Mapping[str, Any] | None = None,
    *,
    to: str = "xc-raw",
    seed: int = 0,
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Write a data set with further training points; the result says what is in it.

    Args:
        data: a data set, or where to read one.
        out: the folder to write, new or empty.
        method: gandalf, glas, random-walk, one-hot, word-dropout or synonyms.
        settings: of the section [augment] of a recipe; for changed copies, ``word_share`` and ``synonyms``.
        to: the format to write.
        seed: the same seed gives the same data set.
        reading: how to read ``data``.
    """
    from unidex.augment.methods import check_settings, make

    check_settings(method, settings or {})
    check_target(Path(out), to)
    dataset = data if isinstance(data, Dataset) else read(data, reading)
    made = make(dataset, method, settings or {}, seed)
    write(made.dataset, Path(out), to)
    return {"folder": str(out), "format": to, "method": method} | made.summary()


def train(
    data: Dataset | str | Path,
    recipe: str | Path = "auto",
    *,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    reading: ReadOptions | None = None,
) -> Model:
    """Train a model on the train texts of a data set, and score it on its test texts where it has some.

    Args:
        data: a data set, or where to read one.
        recipe: name of a recipe or a TOML file.
        out: the model folder to write, or None to keep the model in memory only.
        settings: ``section.key=value`` over the recipe.
        seed: the same seed gives the same model.
        device: "cpu", "cuda" or another of torch's, or "auto".
        resume: go on where an earlier run with the same ``out`` was stopped.
        reading: how to read ``data``.
    """
    model = train_together(
        data, recipe, out=out, settings=settings, seed=seed, device=device, resume=resume, reading=reading
    )
    if model is not None:
        return model
    if out is None:
        raise UnidexError("of several processes only the first has the model; give --out, and the others can read it")
    return load_model(Path(out), device)


def train_together(
    data: Dataset | str | Path,
    recipe: str | Path = "auto",
    *,
    out: str | Path | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    device: str = "auto",
    resume: bool = False,
    reading: ReadOptions | None = None,
) -> Model | None:
    """As `train`; of several processes that torchrun has started, only the first gets the model, the others None."""
    from unidex import distributed
    from unidex.training.log import read_log
    from unidex.training.phases import phases
    from unidex.training.run import Run

    keep_freed_memory()
    config = load_config(recipe, list(settings))
    where = chosen_device(distributed.local_device(device))
    folder = None if out is None else Path(out)
    work = None if folder is None else folder.with_name(f"{folder.name}.training")
    with distributed.process_group(where) as processes:
        # A run that torchrun has begun again goes on where it was. Together: each torchrun counts restarts for itself.
        resume = processes.any(resume or distributed.was_restarted())
        if folder is not None and folder.exists():
            if resume:
                logger.info("%s is finished already: there is nothing to resume", folder)
                return load_model(folder, device) if processes.is_first else None
            raise UnidexError(f"{folder}: the model folder must be new, but exists; name another or remove it")
        if work is not None and work.exists() and not resume:
            if any(work.glob("*/checkpoint-*")):
                raise UnidexError(
                    f"{work}: a run that was stopped lies here; go on with --resume, or remove the folder"
                )
            # Together: nobody may make a new one before all have seen the old one.
            processes.barrier()
            shutil.rmtree(work, ignore_errors=True)
        processes.barrier()
        dataset = data if isinstance(data, Dataset) else read(data, reading)
        if not dataset.train.texts.num_bytes:
            raise DataError(
                f"data set {quoted(dataset.name)} must have texts to train on, but all are empty; one that comes as "
                "sparse features only can be inspected, converted and scored, not trained on"
            )
        run = Run(dataset, config, seed=seed, device=where, folder=work, processes=processes)
        model = run.model(resume=resume)
        if model is None:
            return None
        if len(dataset.test):
            model.metrics["test"] = evaluate(model, dataset).as_dict()
        if folder is not None and work is not None:
            model.log = read_log(work, phases(config))
            model.save(folder)
            for board in work.glob("*/tensorboard"):
                shutil.move(board, folder / "tensorboard" / board.parent.name)
            shutil.rmtree(work, ignore_errors=True)
    return model


def evaluate(model: Model, dataset: Dataset, *, split: str = "test", mode: Mode | None = None, k: int = 100) -> Scores:
    """Score a model on a split of a data set. Labels are matched by uid: either may have some the other has not."""
    texts = _split_of(dataset, split)
    return score_topk(_predicted(model, dataset, texts, mode, k), dataset, texts)


def _predicted(model: Model, dataset: Dataset, texts: Split, mode: Mode | None, k: int) -> TopK:
    """What a model predicts for texts of a data set, by the ids of the data set's labels; those it lacks are hidden."""
    ids_of = _label_ids(model, dataset)
    unknown = np.flatnonzero(ids_of < 0) if (ids_of < 0).any() else None
    places = min(places_needed(texts, k), len(model.labels))
    with progress.task("predicting", len(texts), unit="texts") as advance:
        parts = []
        for start in range(0, len(texts), _BLOCK):
            part = list(texts.texts[start : start + _BLOCK])
            found = model.predict(part, places, mode=mode, forbidden=unknown)
            parts.append(TopK(np.where(found.ids < 0, PADDING, ids_of[found.ids]), found.scores))
            advance(len(part))
    return TopK.concatenate(parts)


def calibrate(
    folder: Path,
    data: Dataset | str | Path,
    *,
    split: str = "test",
    precision: float = 0.9,
    check: bool = False,
    reading: ReadOptions | None = None,
) -> dict[str, Any]:
    """Fit the probabilities of a model folder anew, to texts that it was not trained on; the result says how well.

    Args:
        folder: the model folder.
        data: a data set, or where to read one.
        split: "test" or "train".
        precision: for which precision to look for a threshold.
        check: say how well the probabilities that the model has hold on these texts, and change nothing.
        reading: how to read ``data``.
    """
    from unidex.scoring.calibration_fit import PLACES, Places, calibrated, checked

    dataset = data if isinstance(data, Dataset) else read(data, reading)
    texts = _split_of(dataset, split)
    # Locked from loading to saving: no label that is added meanwhile is lost.
    with nullcontext() if check else locked(folder):
        model = load_model(folder)
        mode = model.config.predict.mode
        if check:
            model.min_probability(0.0)  # a model without probabilities is refused before anything is predicted
        ids_of = _label_ids(model, dataset)
        frequencies = np.zeros(dataset.num_labels, dtype=np.int64)
        frequencies[ids_of[ids_of >= 0]] = model.labels.frequencies[ids_of >= 0]
        topk = _predicted(model, dataset, texts, mode, PLACES)
        places = Places.of(topk, texts.positives, texts.filter_pairs, frequencies)
        if check and model.calibration is not None:
            probabilities = model.calibration.probabilities(places.topk, frequencies)
        else:
            model.calibration, probabilities = calibrated(places, mode=mode, precision=precision)
            model.metrics["calibration"] = model.calibration.summary() | {"data": dataset.name, "split": split}
            model.save(folder)
    found = checked(places, model.calibration, probabilities)
    return {"model": str(folder), "data": dataset.name, "split": split} | found


def chosen_device(name: str) -> torch.device:
    """A torch device by name; "auto" takes a GPU where there is one."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UnidexError(f"--device must be one that this machine has, but {name!r} is not: {error}") from None
    return device


def _split_of(dataset: Dataset, split: str) -> Split:
    if split not in ("train", "test"):
        raise DataError(f"--split must be train or test, but is {quoted(split)}")
    texts = dataset.test if split == "test" else dataset.train
    if len(texts) == 0:
        raise DataError(f"data set {quoted(dataset.name)} must have {split} texts to be scored on, but has none")
    return texts


def _label_ids(model: Model, dataset: Dataset) -> NDArray[np.int64]:
    """For each label of a model its id in a data set, or -1."""
    uids = [dataset.labels.uid(label) for label in range(dataset.num_labels)]
    if uids == model.labels.uids:
        return np.arange(dataset.num_labels)
    number = {uid: label for label, uid in enumerate(uids)}
    found = np.array([number.get(uid, -1) for uid in model.labels.uids], dtype=np.int64)
    if (found < 0).all():
        raise DataError(
            f"the labels of data set {quoted(dataset.name)} must be among the model's, but none is; "
            "is this the data it was trained on?"
        )
    return found


def load_model(folder: Path, device: str = "auto") -> Model:
    """Read a model folder."""
    from unidex.model.model import Model

    return Model.load(folder, str(chosen_device(device)))
