"""The short way of plain predictions, without a task, a scope and messages for each.

A prediction whose request arrives in one piece, with the headers that ordinary clients send, goes to the model at once,
and its answer is written when it is there. All else takes the whole way through uvicorn and the gate: requests that
are not plain, that a limit refuses or that are wrong, and all of them while the service stops.
"""

from __future__ import annotations

import asyncio
import re
import time
from functools import lru_cache, partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from unidex.server.gate import Gate

_MAX_HEAD = 2048
_HEAD = re.compile(rb"POST /v1/predict HTTP/1\.1\r\n((?:[A-Za-z0-9-]+: ?[\x21-\x7e][\x20-\x7e]*\r\n)+)")
# Those that change neither where a body ends nor what becomes of the connection.
_PLAIN = frozenset(
    b"accept accept-encoding accept-language connection content-length content-type host origin referer "
    b"traceparent tracestate user-agent".split()
)
_PLAIN_BEGINNINGS = (b"x-", b"sec-")


@lru_cache(maxsize=1024)
def body_length(head: bytes) -> int:
    r"""The length of the body that follows the head of a request; -1 where the request is not plain.

    >>> body_length(b"POST /v1/predict HTTP/1.1\r\nHost: here\r\nContent-Length: 12\r\n")
    12
    >>> body_length(b"POST /v1/predict HTTP/1.1\r\nHost: here\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n")
    -1
    """
    found = _HEAD.fullmatch(head)
    if found is None:
        return -1
    headers: dict[bytes, bytes] = {}
    for line in found[1].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in headers or not (name in _PLAIN or name.startswith(_PLAIN_BEGINNINGS)):
            return -1
        headers[name] = value.strip(b" ")
    length = headers.get(b"content-length", b"")
    stays = headers.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return int(length) if b"host" in headers and stays and length.isdigit() and len(length) < 10 else -1


class _NoEvent:
    def set(self) -> None:
        """Nobody waits for it."""


class _Answering:
    """A plain prediction in place of uvicorn's own record of a request that is answered."""

    message_event = _NoEvent()

    def __init__(self) -> None:
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True  # uvicorn unsets it when it stops


class PlainPredictions(HttpToolsProtocol):
    """A connection of uvicorn that answers plain predictions by itself."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_reading = False  # whether a request has begun and is not whole
        self._is_lost = False

    def on_message_begin(self) -> None:
        """A request has begun that takes the whole way."""
        self._is_reading = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """Such a request is whole."""
        self._is_reading = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._is_lost = True
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A piece has arrived: a plain prediction, or anything else."""
        if not self._predict(data):
            super().data_received(data)

    def _predict(self, data: bytes) -> bool:
        """Start a plain prediction; False where this is none."""
        is_busy = self.cycle is not None and not self.cycle.response_complete
        gate = self.app
        if is_busy or self._is_reading or self.flow.write_paused or not isinstance(gate, Gate):
            return False
        end = data.find(b"\r\n\r\n", 0, _MAX_HEAD)
        if end < 0 or end > gate.service.limits.headers or self.transport.is_closing():
            return False
        if len(data) - end - 4 != body_length(data[: end + 2]):
            return False
        started = time.perf_counter()
        future = gate.start(data[end + 4 :], lambda: self._is_lost)
        if future is None:
            return False
        self._unset_keepalive_if_required()
        cycle: Any = _Answering()
        self.cycle = cycle
        future.add_done_callback(partial(self._answer, gate, cycle, started))
        return True

    def _answer(self, gate: Gate, cycle: _Answering, started: float, future: asyncio.Future[bytes]) -> None:
        answer = gate.finish(future, started)
        stays = cycle.keep_alive and not gate.service.is_draining
        if answer is not None and not self.transport.is_closing():
            status, headers, body = answer
            headers = [*self.server_state.default_headers, *headers]
            head = b"".join([b"%s: %s\r\n" % header for header in headers])
            last = b"" if stays else b"connection: close\r\n"
            self.transport.write(
                b"%s%s%scontent-length: %d\r\n\r\n%s" % (STATUS_LINE[status], head, last, len(body), body)
            )
        cycle.response_complete = True
        if not stays:
            self.transport.close()
        self.on_response_complete()
