"""The verbs of the service for the event loop: predict, explain, labels, reload. It knows nothing of HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from unidex.data.concepts import checked_term, language_tag
from unidex.errors import DataError, IndexUnreachableError, ModelError, UnidexError, quoted
from unidex.model.explanation import explain
from unidex.model.journal import Change
from unidex.model.label_set import Frequency, LabelRow, Order
from unidex.model.similar_labels import SimilarLabel
from unidex.scoring.layout import Mode
from unidex.server.counters import Metrics
from unidex.server.live_model import LiveModel, ModelHost
from unidex.server.micro_batches import Batches
from unidex.server.problems import ClientLeftError, ProblemError, refusal
from unidex.server.request_bodies import (
    SMALL_BODY,
    check_entries,
    check_k,
    check_text,
    decode,
    read_new_labels,
    read_request,
    texts_of,
)
from unidex.server.schemas import (
    ExplainAnswer,
    ExplainRequest,
    LabelsAnswer,
    ModelAnswer,
    NewLabel,
    NewLabels,
    PredictRequest,
    RenameRequest,
    RequestLimits,
    TaughtAnswer,
    TeachRequest,
)
from unidex.server.security import Tokens
from unidex.server.settings import Settings
from unidex.server.table_upload import TableOptions, answer_table
from unidex.storage.locks import LockedError
from unidex.storage.mapped import in_memory
from unidex.verbs.labels import teach_texts

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Another process may hold the folder while it teaches labels; a client gets its answer sooner.
LOCK_SECONDS = 3.0
_LOCK_PAUSE_SECONDS = 0.05


class Service:
    """One model behind one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.tokens = None if settings.token_file is None else Tokens.read(settings.token_file)
        self.metrics = Metrics()
        self.failure: UnidexError | None = None  # the error of the first model
        self.is_draining = False
        self._started: tuple[ModelHost, Batches] | None = None
        self._reload: asyncio.Task[str] | None = None
        self._teaching = asyncio.Lock()

    async def start(self) -> None:
        """Load the model and start to answer."""
        live = await asyncio.to_thread(LiveModel, self.settings.folder)
        metrics = self.metrics
        host = ModelHost(live, lambda live: metrics.serves(live.name, live.model.version, live.num_labels))
        self._started = host, Batches(host, asyncio.get_running_loop(), metrics.batch)

    def stop(self) -> None:
        """Finish the waiting requests and stop."""
        if self._started is not None:
            self._started[1].stop()

    @property
    def is_ready(self) -> bool:
        """Whether clients should send requests here."""
        return self._started is not None and not self.is_draining

    @property
    def live(self) -> LiveModel:
        """The live model."""
        return self._running()[0].live

    def _running(self) -> tuple[ModelHost, Batches]:
        if self._started is None:
            raise ProblemError(
                503,
                "the model must be loaded before it answers, and is not yet; try again soon",
                headers=[("retry-after", "1")],
            )
        return self._started

    def start_prediction(self, body: bytes, is_gone: Callable[[], bool]) -> asyncio.Future[bytes] | None:
        """The future answer to a small body of POST /v1/predict; None for a large one, which takes long to read."""
        if len(body) > SMALL_BODY:
            return None
        request = decode(PredictRequest, body)
        return self._running()[1].submit(texts_of(request, self.limits), request, is_gone)

    async def predict(self, body: bytes, is_gone: Callable[[], bool]) -> bytes:
        """Answer POST /v1/predict. This path must be fast."""
        request = await read_request(PredictRequest, body)
        texts = texts_of(request, self.limits)
        future = self._running()[1].submit(texts, request, is_gone)
        try:
            answer: bytes = await future
        except asyncio.CancelledError:
            if future.cancelled() and is_gone():
                raise ClientLeftError from None
            raise
        return answer

    async def predict_table(self, body: bytes, options: TableOptions) -> bytes:
        """Predict the texts of an uploaded table; the result is a table. Other requests are answered in between."""
        check_k(options.k, self.limits)
        live, loop = self.live, asyncio.get_running_loop()
        if options.min_probability:
            try:
                live.model.min_probability(options.min_probability, options.mode)
            except UnidexError as error:
                raise ProblemError(422, str(error), field="min_probability") from None

        def run(function: Callable[[], T]) -> T:
            return asyncio.run_coroutine_threadsafe(self._call(lambda host: function()), loop).result()

        return await asyncio.to_thread(answer_table, live.model, body, options, self.limits, run)

    async def explain(self, body: bytes) -> ExplainAnswer:
        """Answer POST /v1/explain."""
        request = await read_request(ExplainRequest, body)
        check_text(request.text, "text", self.limits)
        check_k(request.k, self.limits)
        check_entries(request.labels, "labels", self.limits.k)

        def answer(host: ModelHost) -> ExplainAnswer:
            live = host.live
            labels = live.find_labels(request.labels, "labels")
            try:
                found = explain(live.model, request.text, k=request.k, labels=labels, mode=request.mode)
            except UnidexError as error:
                raise refusal(error) from None
            return ExplainAnswer([reason.as_dict() for reason in found], live.title)  # type: ignore[misc]

        return await self._call(answer)

    async def model(self) -> ModelAnswer:
        """Answer GET /v1/model."""
        await self._call(lambda host: None)
        live, limits = self.live, self.limits
        model = live.model
        modes: list[Mode] = [mode for mode in ("dual", "classifier") if getattr(model.config.heads, mode)]
        calibration = model.scorer.calibration
        return ModelAnswer(
            model=live.title,
            name=live.name,
            version=model.version,
            num_labels=live.num_labels,
            num_train=int(model.metrics.get("data", {}).get("num_train", 0)),
            recipe=model.config.recipe,
            modes=["both", *modes] if len(modes) > 1 else modes,
            calibrated=calibration is not None,
            thresholds=None if calibration is None else calibration.as_dict()["thresholds"],
            languages=model.labels.languages,
            keeps_texts=model.scorer.knn is not None and model.scorer.knn.snippets is not None,
            writable=self.tokens is not None,
            examples=live.examples,
            limits=RequestLimits(limits.text_length, limits.texts, limits.body, limits.k, limits.concurrent),
        )

    async def labels(
        self, search: str, frequency: Frequency | None, order: Order, offset: int, limit: int, language: str = ""
    ) -> LabelsAnswer:
        """List one page of labels."""
        # The model thread applies changes of other processes first.
        host = await self._call(lambda host: host)
        options = {"order": order, "frequency": frequency, "language": host.live.find_language(language)}
        return await asyncio.to_thread(host.list_labels, search, offset, limit, **options)

    async def label(self, label: int, language: str = "") -> LabelRow:
        """Return one label."""
        return await self._call(lambda host: host.row(label, host.live.find_language(language)))

    async def similar(self, label: int, k: int) -> tuple[LabelRow, list[SimilarLabel]]:
        """Return a label and the labels similar to it."""
        check_k(k, self.limits)
        return await self._call(lambda host: host.similar(label, k))

    async def add_labels(self, body: bytes) -> list[LabelRow]:
        """Add labels; they are on the disk when this returns."""
        labels = read_new_labels(await read_request(NewLabels, body), self.limits)
        try:
            new = [_addition(label) for label in labels]
        except DataError as error:
            raise ProblemError(422, str(error), field="texts") from None

        def change(host: ModelHost) -> Change:
            known = next((label["uid"] for label in new if label["uid"] in host.live.model.labels), None)
            if known is not None:
                raise ProblemError(
                    409, f"uids of labels must differ, but there is already {quoted(known)}", field="uid"
                )
            return {"add": new}

        return await self._change("add", change)

    async def rename_label(self, label: int, body: bytes) -> LabelRow:
        """Give a label another text."""
        request = await read_request(RenameRequest, body)
        check_text(request.text, "text", self.limits)
        rows = await self._change("rename", lambda host: {"rename": {"uid": host.row(label).uid, "text": request.text}})
        return rows[0]

    async def teach_label(self, label: int, body: bytes) -> TaughtAnswer:
        """Teach a label with texts, in the model folder, and load the folder again; predictions continue meanwhile."""
        request = await read_request(TeachRequest, body)
        check_entries(request.texts, "texts", self.limits.texts, "; send several requests")
        for text in request.texts:
            check_text(text, "texts", self.limits)
        uid = (await self.label(label)).uid
        # One at a time: each loads a model of its own.
        async with self._teaching:
            try:
                with in_memory():
                    await asyncio.to_thread(teach_texts, self.settings.folder, uid, request.texts)
            except LockedError as error:
                raise ProblemError(503, self.describe(error), headers=[("retry-after", "5")]) from None
        await self.reload(only_if_new=True)
        journal = self.live.model.journal
        if journal is not None and not journal.is_current():
            # That reload had started before the folder was saved.
            await self.reload(only_if_new=True)
        self.metrics.changes.labels("teach").inc()
        row = await self._call(lambda host: host.live.model.labels.row(host.live.model.labels.id_of(uid)))
        return TaughtAnswer(row, len(request.texts), self.live.title)

    async def remove_label(self, label: int) -> LabelRow:
        """Remove a label; the result is its row before."""
        rows = await self._change("remove", lambda host: {"remove": [host.row(label).uid]})
        return rows[0]

    async def reload(self, *, only_if_new: bool = False, tell_others: bool = True) -> str:
        """Load the folder again and replace the model between two batches; the live model stays if that fails."""
        if self._reload is None or self._reload.done():
            self._reload = asyncio.get_running_loop().create_task(self._load_again(only_if_new))
        # Concurrent requests share one reload, which continues if a client disconnects.
        title = await asyncio.shield(self._reload)
        if tell_others and self.settings.supervisor and os.getppid() == self.settings.supervisor:
            os.kill(self.settings.supervisor, signal.SIGHUP)
        return title

    async def _load_again(self, only_if_new: bool) -> str:
        live = self.live
        journal = live.model.journal
        if only_if_new and journal is not None and journal.is_current():
            return live.title
        started = time.monotonic()
        try:
            new = await asyncio.to_thread(LiveModel, self.settings.folder)
        except UnidexError as error:
            self.metrics.reloads.labels("failed").inc()
            logger.error("The model was not replaced, %s continues to serve: %s", live.title, error)
            raise ProblemError(409, f"{self.describe(error)}; {live.title} continues to serve") from None
        await self._call(lambda host: host.replace(new))
        self.metrics.reloads.labels("done").inc()
        logger.info("%s replaced %s; loading took %.1f s.", new.title, live.title, time.monotonic() - started)
        return new.title

    async def _change(self, kind: str, change: Callable[[ModelHost], Change]) -> list[LabelRow]:
        deadline = time.monotonic() + LOCK_SECONDS
        replaced = False
        while True:
            try:
                rows = await self._call(lambda host: host.change(change(host)))
            except LockedError as error:
                if time.monotonic() > deadline:
                    raise ProblemError(503, self.describe(error), headers=[("retry-after", "5")]) from None
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            except (DataError, IndexUnreachableError) as error:
                raise refusal(error) from None
            except ModelError as error:
                journal = self.live.model.journal
                if replaced or journal is None or journal.is_current():
                    logger.error("Labels were not changed: %s", error)
                    raise ProblemError(503, self.describe(error)) from None
                # The folder has another model now: change its labels.
                replaced = True
                await self.reload(only_if_new=True)
            else:
                self.metrics.changes.labels(kind).inc(len(rows))
                return rows

    def describe(self, error: UnidexError) -> str:
        """Return the message of an error for a client, with the name of the model folder instead of its path."""
        message, folder = str(error), self.settings.folder
        for place in (folder, folder.absolute(), folder.resolve()):
            for path, name in ((place, folder.resolve().name), (place.parent, "its parent folder")):
                # A path without a separator is a name already.
                if "/" in str(path).strip("/"):
                    message = message.replace(str(path), name)
        return message

    async def _call(self, function: Callable[[ModelHost], T]) -> T:
        """Call a function in the model thread."""
        host, batches = self._running()
        return await batches.call(lambda: function(host))


def _addition(label: NewLabel) -> dict[str, Any]:
    """A label as the journal has it; fields that are empty are left out."""
    fields = {
        "language": language_tag(label.language),
        "texts": [msgspec.to_builtins(checked_term(entry)) for entry in label.texts],
        **{name: getattr(label, name) for name in ("notation", "broader", "related", "groups")},
    }
    uid = label.text if label.uid is None else label.uid
    return {"uid": uid, "text": label.text} | {name: value for name, value in fields.items() if value}
