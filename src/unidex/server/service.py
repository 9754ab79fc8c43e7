"""What the service does, for the event loop: predict, explain, labels, reload. HTTP is not said here."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from unidex.errors import DataError, ModelError, UnidexError, quoted
from unidex.model.explanation import explain
from unidex.model.journal import Change
from unidex.server import request_bodies as reading
from unidex.server.counters import Metrics
from unidex.server.live_model import Asked, Live, Serving
from unidex.server.micro_batches import Batches
from unidex.server.problems import ClientLeftError, ProblemError, refused
from unidex.server.schemas import (
    ExplainAnswer,
    ExplainRequest,
    Frequency,
    LabelRow,
    LabelsAnswer,
    LimitsShown,
    Mode,
    ModelAnswer,
    NeighboursAnswer,
    NewLabels,
    Order,
    PredictRequest,
    RenameRequest,
)
from unidex.server.security import Tokens
from unidex.server.settings import Settings
from unidex.storage.locks import LockedError

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Another process may hold the folder for as long as labels are taught; a client is told sooner.
LOCK_SECONDS = 3.0
_LOCK_PAUSE_SECONDS = 0.05


class Service:
    """One model behind one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.tokens = None if settings.token_file is None else Tokens.read(settings.token_file)
        self.metrics = Metrics()
        self.failure: UnidexError | None = None  # why the first model could not be read
        self.is_draining = False
        self._serving: Serving | None = None
        self._batches: Batches | None = None
        self._reload: asyncio.Task[str] | None = None

    async def start(self) -> None:
        """Read the model and begin to answer."""
        live = await asyncio.to_thread(Live, self.settings.folder)
        self._serving = Serving(live, self._tell)
        self._batches = Batches(self._serving, asyncio.get_running_loop(), self.metrics.batch)

    def stop(self) -> None:
        """Finish what waits, and answer no more."""
        if self._batches is not None:
            self._batches.stop()

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered and should be sent here."""
        return self._batches is not None and not self.is_draining

    @property
    def live(self) -> Live:
        """The model that serves."""
        if self._serving is None:
            raise _not_ready()
        return self._serving.live

    async def predict(self, body: bytes, is_gone: Callable[[], bool]) -> bytes:
        """The answer to POST /v1/predict. This is the way that must be quick."""
        request = await reading.read(PredictRequest, body)
        texts = reading.texts_of(request, self.limits)
        if self._batches is None:
            raise _not_ready()
        asked = Asked(
            request.k,
            request.mode,
            request.min_probability,
            None if request.allowed is None else tuple(request.allowed),
            None if request.forbidden is None else tuple(request.forbidden),
        )
        if not texts:
            # Nothing to wait for; yet the answer names the model.
            return await self._call(lambda: b'{"predictions":[],"model":%s}' % self.live.title_json.encode())
        future = self._batches.submit(texts, asked, is_gone)
        try:
            answer: bytes = await future
        except asyncio.CancelledError:
            if future.cancelled() and is_gone():
                raise ClientLeftError from None
            raise
        return answer

    async def explain(self, body: bytes) -> ExplainAnswer:
        """The answer to POST /v1/explain."""
        request = await reading.read(ExplainRequest, body)
        reading.check_text(request.text, "text", self.limits)
        reading.check_k(request.k, self.limits)
        if request.labels is not None and len(request.labels) > self.limits.k:
            raise ProblemError(
                422, f"labels must have at most {self.limits.k} entries, but has {len(request.labels)}", field="labels"
            )

        def explained() -> ExplainAnswer:
            live = self.live
            names = None if request.labels is None else tuple(request.labels)
            labels = live.ids_of(names, "labels")
            try:
                reasons = explain(live.model, request.text, k=request.k, labels=labels, mode=request.mode)
            except UnidexError as error:
                raise refused(error) from None
            return ExplainAnswer([reason.as_dict() for reason in reasons], live.title)  # type: ignore[misc]

        return await self._call(explained)

    async def model(self) -> ModelAnswer:
        """The answer to GET /v1/model."""
        await self._call(lambda: None)
        live, limits = self.live, self.limits
        model = live.model
        modes: list[Mode] = [mode for mode in ("dual", "classifier") if getattr(model.config.heads, mode)]
        calibration = model.scorer.calibration
        return ModelAnswer(
            model=live.title,
            name=live.name,
            version=live.version,
            num_labels=live.num_labels,
            num_train=int(model.metrics.get("data", {}).get("num_train", 0)),
            recipe=model.config.recipe,
            modes=["both", *modes] if len(modes) > 1 else modes,
            calibrated=calibration is not None,
            thresholds=None if calibration is None else calibration.as_dict()["thresholds"],
            keeps_texts=model.scorer.knn is not None and model.scorer.knn.snippets is not None,
            writable=self.tokens is not None,
            limits=LimitsShown(limits.text_length, limits.texts, limits.body, limits.k, limits.concurrent),
        )

    async def labels(
        self, search: str, frequency: Frequency | None, order: Order, offset: int, limit: int
    ) -> LabelsAnswer:
        """A page of labels."""
        await self._call(lambda: None)
        assert self._serving is not None
        return await asyncio.to_thread(self._serving.listed, search, frequency, order, offset, limit)

    async def label(self, label: int) -> LabelRow:
        """One label."""
        return await self._in_thread(lambda serving: serving.row(label))

    async def neighbours(self, label: int, k: int) -> NeighboursAnswer:
        """The labels near one."""
        reading.check_k(k, self.limits)
        return await self._in_thread(lambda serving: serving.neighbours(label, k))

    async def add_labels(self, body: bytes) -> list[LabelRow]:
        """Add labels; they are on the disk afterwards."""
        labels = reading.new_labels(await reading.read(NewLabels, body), self.limits)
        new = [{"uid": label.text if label.uid is None else label.uid, "text": label.text} for label in labels]

        def change(serving: Serving) -> Change:
            there = next((label["uid"] for label in new if label["uid"] in serving.live.model.labels), None)
            if there is not None:
                raise ProblemError(
                    409, f"uids of labels must differ, but there is already {quoted(there)}", field="uid"
                )
            return {"add": new}

        return await self._change("add", change)

    async def rename_label(self, label: int, body: bytes) -> LabelRow:
        """Give a label another text."""
        request = await reading.read(RenameRequest, body)
        reading.check_text(request.text, "text", self.limits)
        rows = await self._change(
            "rename", lambda serving: {"rename": {"uid": serving.uid_of(label), "text": request.text}}
        )
        return rows[0]

    async def remove_label(self, label: int) -> LabelRow:
        """Never predict a label again; the result is what it was."""
        rows = await self._change("remove", lambda serving: {"remove": [serving.uid_of(label)]})
        return rows[0]

    async def reload(self, *, only_if_new: bool = False, tell_others: bool = True) -> str:
        """Read the folder again, and swap its model in between two batches; the old one stays where it cannot be read.

        Args:
            only_if_new: do nothing where the folder still holds the model that serves.
            tell_others: let the other workers do the same.
        """
        if self._reload is None or self._reload.done():
            self._reload = asyncio.get_running_loop().create_task(self._read_again(only_if_new))
        # Whoever asks meanwhile gets the same; one who leaves takes it from nobody.
        title = await asyncio.shield(self._reload)
        if tell_others and self.settings.supervisor and os.getppid() == self.settings.supervisor:
            os.kill(self.settings.supervisor, signal.SIGHUP)
        return title

    async def _read_again(self, only_if_new: bool) -> str:
        live = self.live
        journal = live.model.journal
        if only_if_new and journal is not None and journal.is_current():
            return live.title
        started = time.monotonic()
        try:
            new = await asyncio.to_thread(Live, self.settings.folder)
        except UnidexError as error:
            self.metrics.reloaded("failed")
            logger.error("the model was not replaced, %s serves on: %s", live.title, error)
            raise ProblemError(409, f"{self.told(error)}; {live.title} serves on") from None
        except Exception:
            # A folder that others have made can be whole by its manifest and yet be no model.
            self.metrics.reloaded("failed")
            logger.exception("the model was not replaced, %s serves on", live.title)
            raise ProblemError(
                409,
                f"{live.name}: the folder must hold a model, but cannot be read as one; the service's log says more; "
                f"{live.title} serves on",
            ) from None
        await self._in_thread(lambda serving: serving.swap(new))
        self.metrics.reloaded("done")
        logger.info(
            "%s serves instead of %s; reading it took %.1f s", new.title, live.title, time.monotonic() - started
        )
        return new.title

    async def _change(self, kind: str, change: Callable[[Serving], Change]) -> list[LabelRow]:
        deadline = time.monotonic() + LOCK_SECONDS
        replaced = False
        while True:
            try:
                rows = await self._in_thread(lambda serving: serving.change(change(serving)))
            except LockedError as error:
                if time.monotonic() > deadline:
                    raise ProblemError(503, self.told(error), headers=[("retry-after", "5")]) from None
                await asyncio.sleep(_LOCK_PAUSE_SECONDS)
            except DataError as error:
                raise ProblemError(422, str(error)) from None
            except ModelError as error:
                journal = self.live.model.journal
                if replaced or journal is None or journal.is_current():
                    logger.error("labels were not changed: %s", error)
                    raise ProblemError(503, self.told(error)) from None
                # The folder holds another model by now: its labels are meant.
                replaced = True
                await self.reload(only_if_new=True)
            else:
                self.metrics.changed(kind, len(rows))
                return rows

    def told(self, error: UnidexError) -> str:
        """What an error says to a client: the model folder by its name, not where on this machine it is."""
        said, folder = str(error), self.settings.folder
        for place in (folder, folder.absolute(), folder.resolve()):
            for path, name in ((place, folder.resolve().name), (place.parent, "its parent folder")):
                # What has no separator is a name already.
                if "/" in str(path).strip("/"):
                    said = said.replace(str(path), name)
        return said

    def _tell(self, live: Live) -> None:
        self.metrics.serves(live.name, live.version, live.num_labels)

    async def _in_thread(self, function: Callable[[Serving], T]) -> T:
        if self._serving is None:
            raise _not_ready()
        serving = self._serving
        return await self._call(lambda: function(serving))

    async def _call(self, function: Callable[[], T]) -> T:
        if self._batches is None:
            raise _not_ready()
        return await self._batches.call(function)


def _not_ready() -> ProblemError:
    return ProblemError(
        503, "the model must be read before it answers, and is not yet; try again soon", headers=[("retry-after", "1")]
    )
