"""Micro-batches: one thread owns the model and predicts the texts of concurrent requests together.

A batch takes a share of every waiting request, so that a request of a thousand texts delays no other. It starts when
as many requests wait as were answered last, or when no more arrive: a single client does not wait.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from unidex.server.live_model import ModelHost

T = TypeVar("T")
BATCH_TEXTS = 256
BATCH_CHARACTERS = 200_000
# The share of one request before all others have had as much.
SHARE_TEXTS = 32
SHARE_CHARACTERS = 40_000
# For further requests while they arrive, and between two that arrive.
WAIT_SECONDS, GAP_SECONDS = 0.002, 0.0003
_STOP_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits for the results of its texts."""

    texts: Sequence[str]
    options: Any  # the other fields of the request; the batches do not use them
    future: asyncio.Future[Any]  # receives the answer
    is_gone: Callable[[], bool]  # whether the client disconnected; called in the model thread
    taken: int = 0  # number of texts taken so far
    parts: list[Any] = field(default_factory=list)  # results so far
    owner: Any = None  # the model that answered the first part, and answers the others too


Part = tuple[Job, int, int]  # a job, and the first and the end place of some of its texts


def take(jobs: deque[Job], *, texts: int = BATCH_TEXTS, characters: int = BATCH_CHARACTERS) -> list[Part]:
    """Take the next batch; finished jobs leave the queue, unfinished ones move to its end.

    Every job gets up to its share first; then the newest job fills the rest, then the one before it. The last text of a
    job may exceed the characters that are left.

    >>> jobs = deque(Job(["x"] * count, None, None, bool) for count in (300, 1, 40))
    >>> [(first, last) for _, first, last in take(jobs)]
    [(0, 215), (0, 1), (0, 40)]
    >>> [(first, last) for _, first, last in take(jobs)]
    [(215, 300)]
    """
    chosen: list[tuple[Job, int]] = []
    for job in jobs:
        if texts <= 0 or characters <= 0:
            break
        chosen.append((job, job.taken))
        used = _take_from(job, min(SHARE_TEXTS, texts), min(SHARE_CHARACTERS, characters))
        texts, characters = texts - used[0], characters - used[1]
    for job, _ in reversed(chosen):
        if job.taken < len(job.texts):
            used = _take_from(job, texts, characters)
            texts, characters = texts - used[0], characters - used[1]
    for _ in chosen:
        jobs.popleft()
    jobs.extend(job for job, _ in chosen if job.taken < len(job.texts))
    return [(job, first, job.taken) for job, first in chosen]


def _take_from(job: Job, texts: int, characters: int) -> tuple[int, int]:
    """Take texts of a job within both limits; return the numbers of texts and characters."""
    num_texts = num_characters = 0
    for text in itertools.islice(job.texts, job.taken, None):
        if num_texts >= texts or num_characters >= characters:
            break
        num_texts += 1
        num_characters += len(text) + 1
    job.taken += num_texts
    return num_texts, num_characters


class Batches:
    """The model thread and its queue. ``submit`` and ``call`` are for the event loop.

    ``observe`` is called with the number of texts of every batch, and the number of requests still waiting.
    """

    def __init__(
        self, worker: ModelHost, loop: asyncio.AbstractEventLoop, observe: Callable[[int, int], None] | None = None
    ) -> None:
        self._worker, self._loop, self._observe = worker, loop, observe
        self._jobs: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._stopped = False
        self._awaited = 1  # number of waiting requests that wakes the model thread
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, texts: Sequence[str], options: Any, is_gone: Callable[[], bool]) -> asyncio.Future[Any]:
        """Return the future answer to texts; it is cancelled if the client disconnects before its turn."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._add(self._jobs, Job(texts, options, future, is_gone))
        return future

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Return the future result of a function that runs in the model thread, before further batches."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._add(self._calls, (function, future))
        return future

    def stop(self) -> None:
        """End the thread when the queue is empty, and wait for it."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(_STOP_SECONDS)

    def _add(self, queue: deque[Any], entry: Any) -> None:
        with self._changed:
            queue.append(entry)
            if self._calls or len(self._jobs) >= self._awaited:
                self._changed.notify()

    def _run(self) -> None:
        company = 0
        while True:
            with self._changed:
                if not self._wait_for_work():
                    return
                self._wait_for_company(company)
                call = self._calls.popleft() if self._calls else None
                batch = [] if call else self._next_batch()
                num_waiting = len(self._jobs)
            if call is not None:
                self._perform(*call)
                continue
            # An empty batch counts too: the queue is shorter if all of its clients disconnected.
            if self._observe is not None:
                self._observe(sum(last - first for _, first, last in batch), num_waiting)
            company = self._work(batch) if batch else 0

    def _wait_for_work(self) -> bool:
        while not (self._jobs or self._calls):
            if self._stopped:
                return False
            self._changed.wait()
        return True

    def _wait_for_company(self, company: int) -> None:
        # Clients that were answered together ask again together, and two batches of half the size would take longer
        # than this wait. Requests of clients that ask at times of their own do not follow at once.
        deadline = time.monotonic() + WAIT_SECONDS
        number = 0
        # The last request wakes this thread, not each of them: that costs more than to parse one.
        self._awaited = company
        while number < len(self._jobs) < company and not (self._calls or self._stopped) and time.monotonic() < deadline:
            number = len(self._jobs)
            self._changed.wait(GAP_SECONDS)
        self._awaited = 1

    def _next_batch(self) -> list[Part]:
        gone = [job for job in self._jobs if job.future.cancelled() or job.is_gone()]
        for job in gone:
            self._jobs.remove(job)
            self._loop.call_soon_threadsafe(job.future.cancel)
        return take(self._jobs)

    def _perform(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            self._worker.prepare()
            result = function()
        except Exception as error:
            result = error
        self._loop.call_soon_threadsafe(_deliver, [(future, result)])

    def _work(self, batch: list[Part]) -> int:
        """Answer a batch; the number of requests that the next one can expect."""
        try:
            self._worker.prepare()
            results = self._worker.answer(batch)
        except Exception as error:
            results = [error] * len(batch)
        ready: list[tuple[asyncio.Future[Any], Any]] = []
        for (job, _, last), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                ready.append((job.future, result))
                with self._changed:
                    if job in self._jobs:
                        self._jobs.remove(job)
                continue
            job.parts.append(result)
            if last == len(job.texts):
                ready.append((job.future, self._worker.finish(job)))
        # A client that gets its answer is likely to ask again, beside the new ones. Counted before the answers go out:
        # a client that asks again at once must not count twice, or a single one would wait.
        company = len(ready) + len(self._jobs)
        self._loop.call_soon_threadsafe(_deliver, ready)
        return company


def _deliver(ready: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in ready:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
