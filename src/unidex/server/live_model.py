"""The model of the service: it predicts batches, changes its labels, and is replaced between two batches.

All of it runs in the model thread, except loading a folder and listing labels.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from unidex.errors import DataError, ModelError, UnidexError
from unidex.model.journal import Change
from unidex.model.label_rules import matching_labels
from unidex.model.label_set import LabelRow
from unidex.model.model import Model
from unidex.model.similar_labels import SimilarLabel
from unidex.server.micro_batches import Job, Part
from unidex.server.problems import ProblemError, refusal
from unidex.server.schemas import LabelName, LabelsAnswer, Prediction, PredictRequest
from unidex.storage.locks import locked
from unidex.storage.mapped import in_memory
from unidex.verbs.labels import change_labels, list_labels, similar_labels
from unidex.verbs.predict import checked_language, predict_labels

logger = logging.getLogger(__name__)

# Another process may hold the folder for long; the model thread does not wait for it.
_LOCK_SECONDS = 0.02
_NUM_EXAMPLES = 4
_encode = msgspec.json.Encoder().encode


class LiveModel:
    """A model that was loaded from a folder, with its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = folder.resolve().name
        try:
            with in_memory():
                self.model = Model.load(folder)
            # The first prediction builds caches, and shows whether the parts fit: before the first request.
            predict_labels(self.model, ["text"], 1)
        except UnidexError:
            raise
        except Exception:
            # A folder can match its manifest and still not be a model.
            logger.exception("The model could not be loaded.")
            raise ModelError(
                f"{self.name}: the folder must contain a model, but cannot be read as one; the log has the error"
            ) from None

    @property
    def title(self) -> str:
        """NAME@VERSION; the version is the shortened hash of the manifest."""
        return f"{self.name}@{self.model.version}"

    @cached_property
    def title_json(self) -> bytes:
        """The title as JSON: a model is loaded in one version."""
        return _encode(self.title)

    @property
    def num_labels(self) -> int:
        """The number of labels that can be predicted."""
        return self.model.scorer.index.num_labels

    @property
    def about(self) -> str:
        """The title and the number of labels."""
        return f"{self.title} ({self.num_labels:,} labels)"

    @cached_property
    def examples(self) -> list[str]:
        """A few texts to try: beginnings of train texts if the model keeps them, or else texts of labels."""
        knn, labels = self.model.scorer.knn, self.model.labels
        texts = labels.texts if knn is None or knn.snippets is None else knn.snippets
        found = [texts[place].strip() for place in range(0, len(texts), max(1, len(texts) // _NUM_EXAMPLES))]
        return list(dict.fromkeys(filter(None, found)))[:_NUM_EXAMPLES]

    def find_language(self, language: str) -> str:
        """Return a language in which labels have names, or raise a problem 422."""
        try:
            return checked_language(self.model, language) if language else ""
        except DataError as error:
            raise ProblemError(422, str(error), field="language") from None

    def choose_labels(self, rules: Sequence[LabelName] | None, field: str) -> list[int] | None:
        """Return the ids of labels by uid, id or rule, or raise a problem 422 for the field."""
        try:
            return None if rules is None else matching_labels(self.model.labels, rules, field)
        except DataError as error:
            raise ProblemError(422, str(error), field=field) from None

    def find_labels(self, names: Sequence[LabelName] | None, field: str) -> list[int] | None:
        """Return the ids of labels by uid or id, or raise a problem 422 for the field."""
        try:
            return None if names is None else self.model.labels.ids_of(names, field)
        except DataError as error:
            raise ProblemError(422, str(error), field=field) from None

    def predict(self, parts: list[Part]) -> list[bytes | ProblemError]:
        """Predict parts that differ in what is shown of the same candidates alone: one JSON fragment per part."""
        options: PredictRequest = parts[0][0].options
        allowed = self.choose_labels(options.allowed, "allowed")
        forbidden = self.choose_labels(options.forbidden, "forbidden")
        texts = [text for job, first, last in parts for text in job.texts[first:last]]
        max_k = max(job.options.k for job, _, _ in parts)
        predictions = predict_labels(self.model, texts, max_k, mode=options.mode, allowed=allowed, forbidden=forbidden)
        results: list[bytes | ProblemError] = []
        known, start = predictions.known, 0
        for job, first, last in parts:
            request: PredictRequest = job.options
            numbers = range(start, start := start + last - first)
            try:
                # 0 asks for nothing, of a model without a calibration too.
                asked = request.min_probability
                minimum = self.model.min_probability(asked, request.mode) if asked else None
                language = self.find_language(request.language) if request.language else ""
            except ProblemError as error:
                results.append(error)
            except UnidexError as error:
                results.append(ProblemError(422, str(error), field="min_probability"))
            else:
                specific = request.most_specific
                if specific is None:
                    specific = self.model.config.predict.most_specific
                rows = [
                    Prediction(
                        predictions.row(number, request.k, minimum, language=language, most_specific=specific),
                        None if known is None else known[number],
                    )
                    for number in numbers
                ]
                results.append(_encode(rows)[1:-1])
        return results


class ModelHost:
    """Holds the live model for the model thread, and calls ``notify`` when the model or its labels changed."""

    def __init__(self, live: LiveModel, notify: Callable[[LiveModel], None]) -> None:
        self.live = live
        self._notify = notify
        self._journal_state: tuple[int, ...] = ()
        # Other threads list labels, which must not change meanwhile.
        self._labels_guard = threading.Lock()
        notify(live)

    def prepare(self) -> None:
        """Apply changes of labels that other processes wrote to the journal."""
        model = self.live.model
        state = () if model.journal is None else model.journal.state()
        if state == self._journal_state:
            return
        self._journal_state = state
        try:
            with self._labels_guard:
                model.catch_up()
        except UnidexError as error:
            # Predictions continue with the known labels; a change of labels meets the same error and reports it.
            logger.error("Changes of labels cannot be read: %s", error)
        self._notify(self.live)

    def answer(self, batch: list[Part]) -> list[Any]:
        """Predict each part, as JSON. Requests that differ in k and minimum probability alone are searched together."""
        results: list[Any] = [None] * len(batch)
        groups: dict[Any, list[int]] = {}
        for number, (job, _, _) in enumerate(batch):
            live = job.owner = job.owner or self.live
            options: PredictRequest = job.options
            mode = options.mode or live.model.config.predict.mode
            groups.setdefault((live, mode, options.allowed, options.forbidden), []).append(number)
        for (live, *_), numbers in groups.items():
            parts = [batch[number] for number in numbers]
            try:
                found: list[Any] = live.predict(parts)
            except ProblemError as error:
                found = [error] * len(parts)
            except UnidexError as error:
                found = [refusal(error)] * len(parts)
            for number, result in zip(numbers, found, strict=True):
                results[number] = result
        return results

    def finish(self, job: Job) -> bytes:
        """Join the parts of a job into the whole answer."""
        return b'{"predictions":[%s],"model":%s}' % (b",".join(job.parts), job.owner.title_json)

    def replace(self, live: LiveModel) -> None:
        """Replace the model; jobs that started with the former one finish with it."""
        self.live, self._journal_state = live, ()
        self.prepare()
        self._notify(live)

    def change(self, change: Change) -> list[LabelRow]:
        """Change labels, on the disk first; the result is their rows, for removed ones as they were."""
        live = self.live
        with locked(live.folder, wait_seconds=_LOCK_SECONDS), self._labels_guard:
            rows = change_labels(live.model, change)
        self._notify(live)
        return rows

    def row(self, label: int, language: str = "") -> LabelRow:
        """Return a label by its id, or raise a problem 404."""
        if not self.live.model.labels.has_id(label):
            raise ProblemError(
                404, f"a label must be one of the model's, but it has no label with id {label}", field="id"
            )
        return self.live.model.labels.row(label, language)

    def similar(self, label: int, k: int) -> tuple[LabelRow, list[SimilarLabel]]:
        """Return a label and the labels similar to it."""
        return self.row(label), similar_labels(self.live.model, label, k)

    def list_labels(self, search: str, offset: int, limit: int, **options: Any) -> LabelsAnswer:
        """List one page of labels; runs in another thread, as it takes long for many labels."""
        with self._labels_guard:
            live = self.live
            rows, total = list_labels(live.model, search, limit, offset=offset, **options)
        return LabelsAnswer(total, offset, rows, live.title)
