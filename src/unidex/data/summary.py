"""Counts and shares of a data set, and warnings of likely mistakes in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unidex import progress
from unidex.data.dataset import Dataset, Split
from unidex.data.texts import Texts
from unidex.errors import quoted
from unidex.sparse_rows import row_of_entries

HEAD_ABOVE, TAIL_BELOW = 100, 10
_FEW = 50  # train texts below which a model is a toy
_UNIQUE = 0.9  # labels per text above which labels that occur once are most likely a mistake


def summarise(dataset: Dataset, *, num_examples: int = 3) -> dict[str, Any]:
    """Counts, shares and examples of a data set.

    >>> from scipy import sparse
    >>> from unidex.data.dataset import Labels, Split
    >>> train = Split.of(Texts.of(["red shoe", "hat"]), sparse.csr_array(np.array([[1.0, 0.0], [1.0, 1.0]])))
    >>> found = summarise(Dataset("shop", Labels(Texts.of(["shoe", "hat"])), train))
    >>> found["num_train"], found["labels_per_text"], found["texts_that_are_labels_train"]
    (2, 1.5, 1)
    """
    train, test = dataset.train, dataset.test
    frequencies = dataset.label_frequencies()
    with progress.task("counting", 6) as advance:
        found: dict[str, Any] = {
            "name": dataset.name,
            "num_train": len(train),
            "num_test": len(test),
            "num_labels": dataset.num_labels,
            "labels_per_text": _ratio(train.positives.nnz, len(train)),
            "labels_per_text_test": _ratio(test.positives.nnz, len(test)),
            "texts_per_label": _ratio(train.positives.nnz, dataset.num_labels),
            "max_texts_per_label": int(frequencies.max(initial=0)),
            "graded_relevance": bool(np.any(train.positives.data != 1) or np.any(test.positives.data != 1)),
            "filter_pairs_train": int(train.filter_pairs.nnz),
            "filter_pairs_test": int(test.filter_pairs.nnz),
            "propensity_a": dataset.propensity.a,
            "propensity_b": dataset.propensity.b,
        }
        advance(1)
        found["words_per_text"] = _words(train.texts)
        advance(1)
        found["words_per_label"] = _words(dataset.labels.texts)
        advance(1)
        found |= {
            "share_of_head_labels": _share(frequencies > HEAD_ABOVE),
            "share_of_torso_labels": _share((frequencies <= HEAD_ABOVE) & (frequencies >= TAIL_BELOW)),
            "share_of_tail_labels": _share(frequencies < TAIL_BELOW),
            "labels_never_in_train": int((frequencies == 0).sum()),
            "texts_without_labels_train": _rows_without(train),
            "texts_without_labels_test": _rows_without(test),
            "empty_texts_train": int((train.texts.lengths() == 0).sum()),
            "empty_texts_test": int((test.texts.lengths() == 0).sum()),
            "empty_label_texts": int((dataset.labels.texts.lengths() == 0).sum()),
        }
        in_train = {text for text in train.texts if text}
        found["test_texts_in_train"] = sum(1 for text in test.texts if text in in_train)
        del in_train
        advance(1)
        titles = [title for title, _ in dataset.labels.texts.fields()]
        for name, split in (("train", train), ("test", test)):
            own, covered = _own_labels(split, titles)
            found[f"texts_that_are_labels_{name}"] = own
            found[f"texts_that_are_labels_filtered_{name}"] = covered
        advance(1)
        if dataset.unknown_labels:
            found["unknown_labels"] = dict(dataset.unknown_labels)
        found["examples"] = _examples(dataset, num_examples)
        found["warnings"] = warnings_of(found)
        advance(1)
    return found


def warnings_of(found: dict[str, Any]) -> list[str]:
    """Likely mistakes that a user should check."""
    warnings = []
    if found["num_test"] and found["test_texts_in_train"]:
        share = found["test_texts_in_train"] / found["num_test"]
        warnings.append(
            f"{found['test_texts_in_train']} test texts ({share:.1%}) are train texts too: test scores may be too high"
        )
    own = found["texts_that_are_labels_train"] + found["texts_that_are_labels_test"]
    covered = found["texts_that_are_labels_filtered_train"] + found["texts_that_are_labels_filtered_test"]
    if own > covered and found["filter_pairs_train"] + found["filter_pairs_test"] > 0:
        warnings.append(f"{own - covered} of {own} texts that are labels have no filter pair for themselves")
    elif own > 0.05 * (found["num_train"] + found["num_test"]) and covered == 0:
        warnings.append(f"{own} texts are labels themselves and there are no filter pairs: is a text its own answer?")
    if found["labels_never_in_train"]:
        warnings.append(
            f"{found['labels_never_in_train']} labels have no train text: only their own text can find them"
        )
    without = {name: found[f"texts_without_labels_{name}"] for name in ("train", "test")}
    warnings.extend(f"{count} {name} texts have no label" for name, count in without.items() if count)
    if found["empty_label_texts"]:
        warnings.append(f"{found['empty_label_texts']} labels have no text: they cannot be found by their text")
    return warnings


def cautions(dataset: Dataset) -> list[str]:
    """What makes a model of this data worth little; cheap, so that every training can say it."""
    train, frequencies = dataset.train, dataset.label_frequencies()
    num_train, num_used = len(train), int((frequencies > 0).sum())
    found = []
    if num_train < _FEW:
        found.append(
            f"There are only {num_train} train texts: the model can learn little, and its scores mean little. "
            "Have some hundred at least."
        )
    if num_used == 1:
        name = quoted(dataset.labels.uid(int(frequencies.argmax())))
        found.append(
            f"All labelled texts have the same label, {name}: every text will get it. Is this the column of the labels "
            "(--column labels=NAME)?"
        )
    elif num_train >= _FEW and num_used > _UNIQUE * num_train and int(frequencies.max()) == 1:
        found.append(
            "Every label has only one train text. Are the column of the labels (--column labels=NAME) and their "
            "separator (--separator) right?"
        )
    blank = int((train.texts.lengths() == 0).sum())
    without = _rows_without(train)
    if blank and train.features is None:
        found.append(f"{blank:,} of {num_train:,} train texts are empty: drop these rows, they teach nothing right.")
    if without:
        found.append(f"{without:,} of {num_train:,} train texts have no label.")
    return found


def _words(texts: Texts) -> float:
    return _ratio(sum(len(text.split()) for text in texts), len(texts))


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


def _share(chosen: NDArray[np.bool_]) -> float:
    return _ratio(int(chosen.sum()), len(chosen))


def _rows_without(split: Split) -> int:
    return int((np.diff(split.positives.indptr) == 0).sum())


def _own_labels(split: Split, label_titles: list[str]) -> tuple[int, int]:
    """How many texts have the title of a label, and how many of those have such a label as a filter pair."""
    number = {title: place for place, title in enumerate(dict.fromkeys(filter(None, label_titles)))}
    own = np.array([number.get(title, -1) for title, _ in split.texts.fields()], dtype=np.int64)
    # Labels may share a title: a filter pair for any of them covers the text.
    number_of_label = np.array([number.get(title, -1) for title in label_titles], dtype=np.int64)
    row_of_pair = row_of_entries(split.filter_pairs)
    covering = (own[row_of_pair] >= 0) & (number_of_label[split.filter_pairs.indices] == own[row_of_pair])
    return int((own >= 0).sum()), len(np.unique(row_of_pair[covering]))


def _examples(dataset: Dataset, count: int) -> list[dict[str, Any]]:
    rows: Sequence[int] = np.linspace(0, len(dataset.train) - 1, min(count, len(dataset.train))).astype(int).tolist()
    starts = dataset.train.positives.indptr
    return [
        {
            "text": dataset.train.texts[row],
            "labels": [
                {"id": label, "text": dataset.labels.texts[label]}
                for label in dataset.train.positives.indices[starts[row] : starts[row + 1]].tolist()
            ],
        }
        for row in rows
    ]
