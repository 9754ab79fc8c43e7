"""Load on the service: clients on connections that stay open, in a process that costs little beside the service.

Requests are made before the clock runs, an answer is looked at no further than needed, and of other libraries none is
imported but uvloop, where it is there. ``benchmarks/serving.py`` starts it.
"""

import asyncio
import json
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

_LOOK_SECONDS = 0.05
_CONNECT_SECONDS = 10.0
_KEPT_FAULTS = 5


@dataclass(frozen=True)
class Spec:
    """What to ask for, and how.

    Attributes:
        address: host and port.
        texts: sent one after the other, again from the first after the last.
        texts_a_request: of each request.
        concurrency: connections; each sends its next request when the last was answered.
        requests: ends after so many; None where something else ends it.
        seconds: ends after so long.
        rate: requests a second, sent at fixed times whatever was answered; None sends as fast as answers come.
        k: labels a text.
    """

    address: tuple[str, int]
    texts: list[str]
    texts_a_request: int = 1
    concurrency: int = 64
    requests: int | None = None
    seconds: float | None = None
    rate: float | None = None
    k: int = 5


@dataclass
class Seen:
    """What came back. Latencies count from when a request was due, not from when a connection was free for it."""

    requests: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latency_ms: dict[str, float] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


def requests_of(spec: Spec) -> list[bytes]:
    """The requests as they go over the wire: as many as show every text once."""
    count = max(1, -(-len(spec.texts) // spec.texts_a_request))
    made = []
    for number in range(count):
        first = number * spec.texts_a_request
        texts = [spec.texts[(first + place) % len(spec.texts)] for place in range(spec.texts_a_request)]
        body = json.dumps({"texts": texts, "k": spec.k}).encode()
        head = f"POST /v1/predict HTTP/1.1\r\nhost: {spec.address[0]}\r\ncontent-type: application/json\r\n"
        made.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return made


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: "Load") -> None:
        self._load = load
        self._buffer = b""
        self._needed = 0  # bytes of an answer whose head is there
        self.due: float | None = None  # when the request was due that is not answered yet

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is there."""
        self._transport = transport
        self._load.is_free(self)

    def ask(self, request: bytes, due: float) -> None:
        """Send a request."""
        self.due = due
        self._transport.write(request)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        self._buffer = self._buffer + data if self._buffer else data
        if not self._needed:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            start = head.find(b"content-length:")
            self._needed = end + 4 + int(head[start + 15 :].split(b"\r\n", 1)[0])
        if len(self._buffer) < self._needed:
            return
        answer, self._buffer, self._needed = self._buffer[: self._needed], self._buffer[self._needed :], 0
        due, self.due = self.due, None
        assert due is not None
        closes = b"connection: close" in answer[:512].lower()
        self._load.was_answered(answer, due)
        if closes:
            # The service is about to stop, and says so: no failure.
            self.close()
        else:
            self._load.is_free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended; a request that waits has failed."""
        if self.due is not None:
            self._load.has_failed(f"the connection was lost: {exc or 'closed'}")
            self.due = None
        self._load.was_closed(self)


class Load:
    """All connections together."""

    def __init__(self, spec: Spec, stop: Event | None) -> None:
        self.spec, self._stop = spec, stop
        self.seen = Seen()
        self._requests = requests_of(spec)
        self._latencies: list[float] = []
        self._models: set[bytes] = set()
        self._sent = 0
        self._idle: deque[Client] = deque()
        self._late: deque[float] = deque()  # due times of requests that no connection was free for
        self._clients: set[Client] = set()
        self._ended = False
        self._all_answered = asyncio.Event()

    def is_free(self, client: Client) -> None:
        """A connection can take a request."""
        self._clients.add(client)
        if self.spec.rate is None and not self._ended:
            self._send(client, time.perf_counter())
        elif self._late:
            self._send(client, self._late.popleft())
        else:
            self._idle.append(client)
            self._look()

    def _send(self, client: Client, due: float) -> None:
        client.ask(self._requests[self._sent % len(self._requests)], due)
        self._sent += 1
        if self._sent == self.spec.requests:
            self._ended = True

    def was_answered(self, answer: bytes, due: float) -> None:
        """An answer is there as a whole."""
        self._latencies.append(time.perf_counter() - due)
        if answer.startswith(b"HTTP/1.1 200 ") and b'{"predictions":[{' in answer:
            self.seen.requests += 1
            self._models.add(answer[answer.rfind(b'"model":"') + 9 : -2])
        else:
            self.has_failed(answer[:300].decode(errors="replace"))

    def has_failed(self, why: str) -> None:
        """A request got no answer, or another than 200."""
        self.seen.failed += 1
        if len(self.seen.faults) < _KEPT_FAULTS:
            self.seen.faults.append(why)

    def was_closed(self, client: Client) -> None:
        """A connection has ended; another takes its place while requests are sent."""
        self._clients.discard(client)
        if client in self._idle:
            self._idle.remove(client)
        if not self._ended:
            self._again = asyncio.get_running_loop().create_task(self._connect())
        self._look()

    def _look(self) -> None:
        if self._ended and not self._late and all(client.due is None for client in self._clients):
            self._all_answered.set()

    async def _connect(self) -> None:
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                await asyncio.get_running_loop().create_connection(lambda: Client(self), *self.spec.address)
                return
            except OSError as error:
                if time.monotonic() > deadline or self._ended:
                    self.has_failed(f"no connection: {error}")
                    return
                await asyncio.sleep(_LOOK_SECONDS)

    async def run(self) -> Seen:
        """Ask until the end that the spec or the event sets."""
        started, used = time.perf_counter(), time.process_time()
        for _ in range(self.spec.concurrency):
            await self._connect()
        if self.spec.rate is not None:
            await self._at_a_rate(self.spec.rate)
        deadline = started + (float("inf") if self.spec.seconds is None else self.spec.seconds)
        while not self._ended:
            if (self._stop is not None and self._stop.is_set()) or time.perf_counter() >= deadline:
                self._ended = True
            else:
                await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, deadline - time.perf_counter())))
        self._look()
        await asyncio.wait_for(self._all_answered.wait(), 60)
        self.seen.seconds = time.perf_counter() - started
        self.seen.cpu_seconds = time.process_time() - used
        self.seen.latency_ms = percentiles(self._latencies)
        self.seen.models = sorted(model.decode() for model in self._models)
        for client in list(self._clients):
            client.close()
        return self.seen

    async def _at_a_rate(self, rate: float) -> None:
        seconds = self.spec.seconds if self.spec.seconds is not None else float("inf")
        count = self.spec.requests if self.spec.requests is not None else float("inf")
        start = time.perf_counter()
        number = 0
        while number < count and number / rate < seconds:
            due = start + number / rate
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            number += 1
            if self._idle:
                self._send(self._idle.popleft(), due)
            else:
                self._late.append(due)
                # Let answers come in.
                await asyncio.sleep(0)
        self._ended = True


def percentiles(latencies: list[float]) -> dict[str, float]:
    """p50, p90, p99 and the highest, in ms."""
    if not latencies:
        return {}
    ordered = sorted(latencies)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in shares.items()}


def run(spec: Spec, results: Connection, stop: Event | None = None) -> None:
    """The whole of the process: what was seen goes to the connection, as a dictionary."""

    async def main() -> dict[str, Any]:
        return asdict(await Load(spec, stop).run())

    try:
        from uvloop import new_event_loop
    except ImportError:
        new_event_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        results.send(runner.run(main()))
