"""Requests that wait are answered in batches: all of them, in order, each with its own faults."""

import asyncio
import threading
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.waits import PATIENCE, wait_until
from unidex.server import micro_batches
from unidex.server.micro_batches import BATCH_CHARACTERS, BATCH_TEXTS, SHARE_TEXTS, Batches, Job, take
from unidex.server.problems import ProblemError


@given(
    st.lists(
        st.lists(st.integers(0, 100), min_size=1, max_size=80) | st.just([20_000] * 30) | st.just([1] * 600),
        max_size=12,
    )
)
def test_batches_take_every_text_once_in_order_and_starve_nobody(lengths):
    jobs = deque(Job(["x" * length for length in row], number, None, bool) for number, row in enumerate(lengths))
    taken = dict.fromkeys(range(len(jobs)), 0)
    waited = dict.fromkeys(taken, 0)
    while jobs:
        waiting = list(jobs)
        batch = take(jobs)
        assert batch
        assert sum(last - first for _, first, last in batch) <= BATCH_TEXTS
        characters = sum(len(text) + 1 for job, first, last in batch for text in job.texts[first:last])
        assert characters < BATCH_CHARACTERS + 20_001
        for job, first, last in batch:
            assert taken[job.options] == first < last
            taken[job.options] = last
        for job in waiting:
            got = [last - first for other, first, last in batch if other is job]
            waited[job.options] = 0 if got else waited[job.options] + 1
            assert waited[job.options] <= len(waiting)
        small = [job for job in waiting if len(job.texts) <= SHARE_TEXTS]
        if sum(len(job.texts) for job in waiting) <= BATCH_TEXTS and characters < BATCH_CHARACTERS // 2:
            assert all(job.taken == len(job.texts) for job in small)
    assert taken == {number: len(row) for number, row in enumerate(lengths)}


class Echo:
    """Answers each text with itself, and notes the batches; what is asked for may be a fault."""

    def __init__(self):
        self.batches = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def prepare(self):
        pass

    def answer(self, batch):
        self.batches.append([job.texts[first:last] for job, first, last in batch])
        assert self.may_answer.wait(PATIENCE)
        if any(job.options == "all" for job, _, _ in batch):
            raise RuntimeError("the whole batch")
        return [
            ProblemError(422, "own") if job.options == "own" else job.texts[first:last] for job, first, last in batch
        ]

    def finish(self, job):
        return [text for part in job.parts for text in part]


def test_batches_gather_and_deliver_and_keep_faults_apart():
    async def main():
        echo = Echo()
        batches = Batches(echo, asyncio.get_running_loop())
        assert await batches.submit(["a"], None, bool) == ["a"]
        echo.may_answer.clear()
        first = batches.submit(["first"], None, bool)
        wait_until(lambda: len(echo.batches) == 2)
        futures = [batches.submit([str(number)], None, bool) for number in range(20)]
        wrong = batches.submit(["x"], "own", bool)
        gone = batches.submit(["gone"], None, lambda: True)
        echo.may_answer.set()
        assert await first == ["first"]
        assert await asyncio.gather(*futures) == [[str(number)] for number in range(20)]
        with pytest.raises(ProblemError, match="own"):
            await wrong
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert len(echo.batches) == 3, "requests that waited were not taken together"
        assert ["gone"] not in [texts for batch in echo.batches for texts in batch]
        with pytest.raises(RuntimeError, match="the whole batch"):
            await batches.submit(["x"] * 1000, "all", bool)
        many = [str(number) for number in range(700)]
        assert await batches.submit(many, None, bool) == many
        assert await batches.call(lambda: threading.current_thread().name) == "model"
        with pytest.raises(ZeroDivisionError):
            await batches.call(lambda: 1 // 0)
        batches.stop()

    asyncio.run(main())


def test_a_lone_client_is_not_made_to_wait_for_company(monkeypatch):
    monkeypatch.setattr(micro_batches, "WAIT_SECONDS", 3600)

    async def main():
        batches = Batches(Echo(), asyncio.get_running_loop())
        for _ in range(200):
            await asyncio.wait_for(batches.submit(["a"], None, bool), PATIENCE)
        batches.stop()

    asyncio.run(main())


def test_a_client_does_not_wait_for_others_that_have_left(monkeypatch):
    monkeypatch.setattr(micro_batches, "WAIT_SECONDS", 3600)

    async def main():
        echo = Echo()
        batches = Batches(echo, asyncio.get_running_loop())
        echo.may_answer.clear()
        first = batches.submit(["first"], None, bool)
        wait_until(lambda: len(echo.batches) == 1)
        together = [batches.submit([str(number)], None, bool) for number in range(20)]
        echo.may_answer.set()
        await asyncio.gather(first, *together)
        assert len(echo.batches) == 2
        assert await asyncio.wait_for(batches.submit(["alone"], None, bool), PATIENCE) == ["alone"]
        batches.stop()

    asyncio.run(main())


def test_the_last_request_of_a_group_starts_the_batch(monkeypatch):
    monkeypatch.setattr(micro_batches, "WAIT_SECONDS", 3600)

    async def main():
        echo = Echo()
        batches = Batches(echo, asyncio.get_running_loop())
        echo.may_answer.clear()
        first = batches.submit(["first"], None, bool)
        wait_until(lambda: len(echo.batches) == 1)
        together = [batches.submit([str(number)], None, bool) for number in range(20)]
        echo.may_answer.set()
        await asyncio.gather(first, *together)
        monkeypatch.setattr(micro_batches, "GAP_SECONDS", 3600)
        again = [batches.submit([str(number)], None, bool) for number in range(19)]
        wait_until(lambda: batches._awaited == 20)
        again.append(batches.submit(["last"], None, bool))
        await asyncio.wait_for(asyncio.gather(*again), PATIENCE)
        assert [len(batch) for batch in echo.batches] == [1, 20, 20]
        # What is called does not wait for the others.
        waiting = batches.submit(["alone"], None, bool)
        wait_until(lambda: batches._awaited == 20)
        assert await asyncio.wait_for(batches.call(lambda: "called"), PATIENCE) == "called"
        batches.stop()
        assert await asyncio.wait_for(waiting, PATIENCE) == ["alone"]

    asyncio.run(main())


def test_a_queue_of_disconnected_clients_is_reported_as_empty():
    async def main():
        echo, seen = Echo(), []
        batches = Batches(echo, asyncio.get_running_loop(), lambda *numbers: seen.append(numbers))
        futures = [batches.submit(["x"] * 1000, None, lambda: True) for _ in range(3)]
        for future in futures:
            with pytest.raises(asyncio.CancelledError):
                await future
        batches.stop()
        return echo.batches, seen

    answered, seen = asyncio.run(main())
    assert answered == []
    assert seen[-1] == (0, 0)
