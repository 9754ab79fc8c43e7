"""Texts that a model is judged on: which of them count, and what the model knows of their labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from unidex.data.dataset import Dataset, Propensity, Split
from unidex.data.formats import read
from unidex.data.growing_texts import GrowingTexts, Numbers
from unidex.data.read_options import ReadOptions
from unidex.errors import DataError, quoted
from unidex.verbs.score import find_split

if TYPE_CHECKING:
    from unidex.model.model import Model

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Judgement:
    """Texts with their labels by the ids of a model; labels that it does not know come after its own.

    Attributes:
        split: the texts that count.
        frequencies_L: number of train texts of the model per label; 0 for a label that it does not know.
        num_train: number of train texts of the model.
        propensity: the constants of its training data.
        num_left_out: train texts of the model among the texts, which do not count; None if that cannot be seen.
        num_unknown_labels: labels of the texts that the model does not know.
        num_unknown_pairs: their pairs, each of which is a miss.
    """

    split: Split
    frequencies_L: NDArray[np.int64]
    num_train: int
    propensity: Propensity
    num_left_out: int | None
    num_unknown_labels: int
    num_unknown_pairs: int


def read_for(model: Model, source: str | Path, options: ReadOptions | None = None) -> Dataset:
    """Read a data set for judging a model; a table is read with the columns and the separator of the training."""
    return read(source, replace(options or ReadOptions(whole=True), trained=model.table_form))


def judge(
    model: Model,
    dataset: Dataset,
    *,
    split: str | None = None,
    with_train_texts: bool = False,
    propensity: Propensity | None = None,
) -> Judgement:
    """Prepare texts of a data set for judging a model: its test texts, or all texts if it has no test texts.

    Args:
        model: the model.
        dataset: labels are matched by uid.
        split: "test" or "train" for one part of the data set.
        with_train_texts: count texts that the model was trained on too.
        propensity: constants other than those of the training data.
    """
    texts, num_left_out = _without_train_texts(model, find_split(dataset, split), keep=with_train_texts)
    ids_of, num_unknown = _match_labels(model, dataset)
    num_labels = len(model.labels) + num_unknown
    texts = _with_ids(texts, ids_of, num_labels)
    columns = texts.positives.indices
    unknown = columns[~_is_known(model, columns)]
    if len(columns) and len(unknown) == len(columns):
        raise DataError(
            f"the labels of data set {quoted(dataset.name)} must be among the model's, but none is; "
            "is this the data it was trained on?"
        )
    if len(unknown):
        num_labels = len(np.unique(unknown))
        message = "%s %s unknown to the model: %s of %s pairs, which count as misses."
        what = "label is" if num_labels == 1 else "labels are"
        _logger.warning(message, f"{num_labels:,}", what, f"{len(unknown):,}", f"{len(columns):,}")
    about = model.metrics.get("data", {})
    constants = about.get("propensity")
    return Judgement(
        texts,
        np.pad(model.labels.frequencies, (0, num_unknown)) if num_unknown else model.labels.frequencies,
        int(about.get("num_train", len(dataset.train))),
        propensity or (dataset.propensity if constants is None else Propensity(**constants)),
        num_left_out,
        len(np.unique(unknown)),
        len(unknown),
    )


def _without_train_texts(model: Model, texts: Split, *, keep: bool) -> tuple[Split, int | None]:
    """The texts that the model was not trained on, and how many others there were."""
    if model.train_texts is None:
        if not keep:
            _logger.warning(
                "Whether train texts are among these texts cannot be seen: this model was made before models "
                "remembered them. Scores on train texts are too high."
            )
        return texts, None
    is_train = model.train_texts.contains(texts.texts)
    count = int(is_train.sum())
    if count == 0 or keep:
        if count:
            message = "%s of %s texts are train texts of the model. They count: scores on them are too high."
            _logger.warning(message, f"{count:,}", f"{len(texts):,}")
        return texts, 0
    if count == len(texts):
        raise DataError(
            f"a model must be judged on texts that it was not trained on, but all {count:,} are train texts; "
            "take others, or count them with --with-train-texts"
        )
    message = "%s of %s texts are train texts of the model and are left out; --with-train-texts counts them."
    _logger.warning(message, f"{count:,}", f"{len(texts):,}")
    return texts.take(np.flatnonzero(~is_train)), count


def _match_labels(model: Model, dataset: Dataset) -> tuple[NDArray[np.int64] | None, int]:
    """The id in the model of each label of a data set, further ids for those it does not have, and their number.

    None for ids that are the same.
    """
    known = model.labels
    uids = GrowingTexts(Numbers(dataset.num_labels) if dataset.labels.uids is None else dataset.labels.uids)
    if uids == known.uids:
        return None, 0
    ids = known.find_ids(uids)
    is_unknown = ids < 0
    num_unknown = int(is_unknown.sum())
    ids[is_unknown] = len(known) + np.arange(num_unknown)
    return ids, num_unknown


def _with_ids(texts: Split, ids: NDArray[np.int64] | None, num_labels: int) -> Split:
    if ids is None:
        return texts

    def renamed(pairs: sparse.csr_array) -> sparse.csr_array:
        return sparse.csr_array((pairs.data, ids[pairs.indices], pairs.indptr), shape=(pairs.shape[0], num_labels))

    return Split.of(texts.texts, renamed(texts.positives), renamed(texts.filter_pairs), texts.uids, texts.features)


def _is_known(model: Model, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    inside = ids < len(model.labels)
    known: NDArray[np.bool_] = inside & ~model.labels.removed[np.where(inside, ids, 0)]
    return known
