"""Micro-batches: requests that come at the same time are worked on together, by the one thread that touches the model.

A batch takes a share of every request that waits, so that a request of a thousand texts holds up no other. It begins
when as many requests are there as were lately, or after two milliseconds: a lone client does not wait.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
BATCH_TEXTS = 256
BATCH_CHARACTERS = 200_000
# What a request gets of a batch before all others have had as much.
SHARE_TEXTS = 32
SHARE_CHARACTERS = 40_000
WAIT_SECONDS = 0.002
_STOP_SECONDS = 10.0


class Job:
    """A request that waits for the results of its texts.

    Attributes:
        texts: its texts.
        asked: what else it asks for; the batches do not look into it.
        future: where its answer goes.
        is_gone: whether the client has left; asked in the thread.
        taken: how many of its texts were taken so far.
        parts: the results so far.
        begun_with: whatever answers it began with; the rest of it is for the same to answer.
    """

    __slots__ = ("asked", "begun_with", "future", "is_gone", "parts", "taken", "texts")

    def __init__(
        self, texts: Sequence[str], asked: Any, future: asyncio.Future[Any], is_gone: Callable[[], bool]
    ) -> None:
        self.texts, self.asked, self.future, self.is_gone = texts, asked, future, is_gone
        self.taken = 0
        self.parts: list[Any] = []
        self.begun_with: Any = None


Part = tuple[Job, int, int]  # the texts of a job from the first number to before the second


class Answering(Protocol):
    """What the thread works with. All of it runs there."""

    def before(self) -> None:
        """Called before every batch and every call: what others have changed is taken over here."""

    def answer(self, batch: list[Part]) -> list[Any]:
        """One result a part; an exception among them fails that job alone."""

    def finished(self, job: Job) -> Any:
        """What the client gets, when all parts are there."""


def take(jobs: deque[Job], *, texts: int = BATCH_TEXTS, characters: int = BATCH_CHARACTERS) -> list[Part]:
    """The next batch; jobs of which nothing is left leave the queue, the others go behind those that had nothing.

    First every job gets up to its share, then the last to come gets what is left, and so on: it is likely short, and
    soon out of the way. A text that is longer than what is left goes along.

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
        used = _take_from(job, texts, characters)
        texts, characters = texts - used[0], characters - used[1]
    for _ in chosen:
        jobs.popleft()
    jobs.extend(job for job, _ in chosen if job.taken < len(job.texts))
    return [(job, first, job.taken) for job, first in chosen]


def _take_from(job: Job, texts: int, characters: int) -> tuple[int, int]:
    """Take up to so many texts of a job; how many, and how many characters they have."""
    num_texts = num_characters = 0
    for text in itertools.islice(job.texts, job.taken, None):
        if num_texts >= texts or num_characters >= characters:
            break
        num_texts += 1
        num_characters += len(text) + 1
    job.taken += num_texts
    return num_texts, num_characters


class Batches:
    """The thread, and the queue before it. ``submit`` and ``call`` are for the event loop.

    Args:
        answering: what the thread works with.
        loop: where results go.
        seen: told the number of texts of every batch, and how many requests are left waiting.
    """

    def __init__(
        self, answering: Answering, loop: asyncio.AbstractEventLoop, seen: Callable[[int, int], None] | None = None
    ) -> None:
        self._answering, self._loop, self._seen = answering, loop, seen
        self._jobs: deque[Job] = deque()
        self._calls: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def submit(self, texts: Sequence[str], asked: Any, is_gone: Callable[[], bool]) -> asyncio.Future[Any]:
        """The answer to texts; a client that has gone before its turn is not worked for, and its future cancelled."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._add(self._jobs, Job(texts, asked, future, is_gone))
        return future

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """The result of a function that runs in the thread, before further batches."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._add(self._calls, (function, future))
        return future

    def stop(self) -> None:
        """Let the thread end when the queue is empty, and wait for it."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(_STOP_SECONDS)

    def _add(self, queue: deque[Any], entry: Any) -> None:
        with self._changed:
            queue.append(entry)
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
            elif batch:
                if self._seen is not None:
                    self._seen(sum(last - first for _, first, last in batch), num_waiting)
                company = self._work(batch)

    def _wait_for_work(self) -> bool:
        while not (self._jobs or self._calls):
            if self._stopped:
                return False
            self._changed.wait()
        return True

    def _wait_for_company(self, company: int) -> None:
        # A batch costs little more than one text: two of half the size would take longer than this wait.
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self._jobs) < company and not self._calls and not self._stopped:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _next_batch(self) -> list[Part]:
        gone = [job for job in self._jobs if job.future.cancelled() or job.is_gone()]
        for job in gone:
            self._jobs.remove(job)
        if gone:
            self._loop.call_soon_threadsafe(_cancel, [job.future for job in gone])
        return take(self._jobs)

    def _perform(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            self._answering.before()
            result = function()
        except Exception as error:
            result = error
        self._loop.call_soon_threadsafe(_deliver, [(future, result)])

    def _work(self, batch: list[Part]) -> int:
        """Answer a batch; the number of requests that the next one can expect."""
        try:
            self._answering.before()
            results = self._answering.answer(batch)
        except Exception as error:
            results = [error] * len(batch)
        ready: list[tuple[asyncio.Future[Any], Any]] = []
        for (job, _, last), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                ready.append((job.future, result))
                self._drop(job)
                continue
            job.parts.append(result)
            if last == len(job.texts):
                ready.append((job.future, self._answering.finished(job)))
        # A client that gets its answer is likely to ask again, beside those that came meanwhile. Counted before the
        # answers go out: a client that asks again at once must not count twice, or a lone one would wait.
        company = len(ready) + len(self._jobs)
        self._loop.call_soon_threadsafe(_deliver, ready)
        return company

    def _drop(self, job: Job) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)


def _deliver(ready: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in ready:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _cancel(futures: list[asyncio.Future[Any]]) -> None:
    for future in futures:
        future.cancel()
