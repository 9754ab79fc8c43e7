"""The live model: it answers batches, changes its labels, and makes place for another between two batches.

All of it runs in the thread of the batches, apart from reading a folder and listing labels.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from unidex.errors import UnidexError, quoted
from unidex.model.journal import Change
from unidex.model.model import Model
from unidex.model.similar_labels import nearest_labels
from unidex.scoring.layout import Mode
from unidex.server.label_rows import EncodedLabels, label_row, near_row
from unidex.server.micro_batches import Job, Part
from unidex.server.problems import ProblemError, refused
from unidex.server.schemas import Frequency, LabelName, LabelRow, LabelsAnswer, NeighboursAnswer, Order
from unidex.storage.locks import locked

logger = logging.getLogger(__name__)

# Another process may hold the folder for long; the thread does not wait with it.
_LOCK_SECONDS = 0.02


class Asked(NamedTuple):
    """What a request asks for beside its texts."""

    k: int
    mode: Mode | None
    min_probability: float
    allowed: tuple[LabelName, ...] | None
    forbidden: tuple[LabelName, ...] | None


class Live:
    """A model that was read from a folder, and what is kept for answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = Model.load(folder)
        self.name = folder.resolve().name
        self.encoded = EncodedLabels()
        # What is made at first use is made now.
        self.model.predict(["text"], 1)
        self.title_json = msgspec.json.encode(self.title).decode()

    @property
    def version(self) -> str:
        """By which a model is known: the hash of its manifest, shortened."""
        return self.model.version

    @property
    def title(self) -> str:
        """NAME@VERSION."""
        return f"{self.name}@{self.version}"

    @property
    def num_labels(self) -> int:
        """Labels that can be predicted."""
        return self.model.scorer.index.num_labels

    def has(self, label: int) -> bool:
        """Whether an id is of a label that was not removed."""
        return 0 <= label < len(self.model.labels) and not self.model.labels.removed[label]

    def ids_of(self, names: tuple[LabelName, ...] | None, field: str) -> list[int] | None:
        """Ids of labels by uid or id."""
        if names is None:
            return None
        labels, ids = self.model.labels, []
        for name in names:
            label = name if isinstance(name, int) else labels.id_of(name) if name in labels else -1
            if not self.has(label):
                what = "id" if isinstance(name, int) else "uid"
                raise ProblemError(
                    422,
                    f"{field} must name labels of the model, but it has no label with {what} {quoted(name)}",
                    field=field,
                )
            ids.append(label)
        return ids


class Serving:
    """What the thread works with; one model at a time.

    Args:
        live: the first model.
        changed: told when another model serves, or its labels have changed.
    """

    def __init__(self, live: Live, changed: Callable[[Live], None]) -> None:
        self.live = live
        self._changed = changed
        self._journal_seen: tuple[int, ...] = ()
        # Labels are listed in other threads, and may not change meanwhile.
        self._labels_guard = threading.Lock()
        changed(live)

    def before(self) -> None:
        """Take over what other processes have done to the labels."""
        model = self.live.model
        seen = () if model.journal is None else _state_of(model.journal.file)
        if seen == self._journal_seen:
            return
        self._journal_seen = seen
        try:
            with self._labels_guard:
                model.catch_up()
        except UnidexError as error:
            # Predictions go on with the labels that are known; a change of labels meets the same and says so.
            logger.error("changes of labels cannot be read: %s", error)
        self._changed(self.live)

    def answer(self, batch: list[Part]) -> list[Any]:
        """The predictions of each part as JSON. Requests that differ in k alone are searched together."""
        results: list[Any] = [None] * len(batch)
        groups: dict[Any, list[int]] = {}
        for number, (job, _, _) in enumerate(batch):
            live = job.begun_with = job.begun_with or self.live
            asked: Asked = job.asked
            mode = asked.mode or live.model.config.predict.mode
            groups.setdefault((live, mode, asked.allowed, asked.forbidden), []).append(number)
        for (live, mode, allowed, forbidden), numbers in groups.items():
            parts = [batch[number] for number in numbers]
            try:
                found: list[Any] = _predicted(live, mode, allowed, forbidden, parts)
            except ProblemError as error:
                found = [error] * len(parts)
            except UnidexError as error:
                found = [refused(error)] * len(parts)
            for number, result in zip(numbers, found, strict=True):
                results[number] = result
        return results

    def finished(self, job: Job) -> bytes:
        """The whole answer."""
        return f'{{"predictions":[{",".join(job.parts)}],"model":{job.begun_with.title_json}}}'.encode()

    def swap(self, live: Live) -> None:
        """Let another model serve; what was begun with the one before is finished with it."""
        self.live, self._journal_seen = live, ()
        self.before()
        self._changed(live)

    def change(self, change: Change) -> list[LabelRow]:
        """Change labels, on the disk first; the result is their rows, for removed ones as they were."""
        live = self.live
        # The folder is asked for once here; what it costs inside is nothing more.
        with locked(live.folder, wait_seconds=_LOCK_SECONDS), self._labels_guard:
            rows = [] if "remove" not in change else [self._row_of(uid) for uid in change["remove"]]
            ids = live.model.change(change)
            rows = rows or [label_row(live.model.labels, label) for label in ids]
        self._changed(live)
        return rows

    def _row_of(self, uid: str) -> LabelRow:
        labels = self.live.model.labels
        return label_row(labels, labels.id_of(uid))

    def uid_of(self, label: int) -> str:
        """The uid of a label by its id, or a problem 404."""
        return self.row(label).uid

    def row(self, label: int) -> LabelRow:
        """A label by its id, or a problem 404."""
        if not self.live.has(label):
            raise ProblemError(
                404, f"a label must be one of the model's, but it has no label with id {label}", field="id"
            )
        return label_row(self.live.model.labels, label)

    def neighbours(self, label: int, k: int) -> NeighboursAnswer:
        """The labels near a label."""
        row = self.row(label)
        labels, found = self.live.model.labels, nearest_labels(self.live.model, label, k)
        near = zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        return NeighboursAnswer(row, [near_row(labels, other, score) for other, score in near if other >= 0])

    def listed(self, search: str, frequency: Frequency | None, order: Order, offset: int, limit: int) -> LabelsAnswer:
        """A page of labels; for another thread, as it takes long where there are many."""
        with self._labels_guard:
            live = self.live
            labels = live.model.labels
            chosen = labels.chosen(search=search, frequency=frequency, order=order)
            rows = [label_row(labels, label) for label in chosen[offset : offset + limit].tolist()]
        return LabelsAnswer(len(chosen), offset, rows, live.title)


def _state_of(file: Path) -> tuple[int, ...]:
    """By which one sees that a file has changed; nothing where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _predicted(live: Live, mode: Mode, allowed: Any, forbidden: Any, parts: list[Part]) -> list[str | ProblemError]:
    model, labels = live.model, live.model.labels
    some, none = live.ids_of(allowed, "allowed"), live.ids_of(forbidden, "forbidden")
    texts = [text for job, first, last in parts for text in job.texts[first:last]]
    topk = model.predict(texts, max(job.asked.k for job, _, _ in parts), mode=mode, allowed=some, forbidden=none)
    probable = model.probabilities(topk, mode)
    # As many digits as a float32 has; more would be noise.
    ids, scores = topk.ids.tolist(), np.round(topk.scores.astype(np.float64), 6).tolist()
    probabilities = None if probable is None else np.round(probable.astype(np.float64), 6).tolist()
    results: list[str | ProblemError] = []
    row = 0
    for job, first, last in parts:
        k, least = job.asked.k, job.asked.min_probability
        rows = range(row, row + last - first)
        row += last - first
        if least > 0 and probabilities is None:
            results.append(_no_probabilities(model, mode))
            continue
        predicted = live.encoded.predicted
        results.append(
            ",".join(
                predicted(labels, ids[n][:k], scores[n], None if probabilities is None else probabilities[n], least)
                for n in rows
            )
        )
    return results


def _no_probabilities(model: Model, mode: Mode) -> ProblemError:
    try:
        model.min_probability(1.0, mode)
    except UnidexError as error:
        return ProblemError(422, str(error), field="min_probability")
    raise AssertionError("a model that has probabilities for a mode must take a least one")
