"""HTTP on a connection: uvicorn's, with an end to clients that are slow to ask or to read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NoReturn

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from unidex.server.gate import IS_GONE
from unidex.server.limits import Limits
from unidex.server.problems import MEDIA_TYPE, ProblemError
from unidex.server.security import HEADERS

_STRICT = b"".join(name + b": " + value + b"\r\n" for name, value in [*HEADERS, (b"cache-control", b"no-store")])
# A client that is refused may still be sending: if the connection were cut at once, it could not read why.
_LINGER_SECONDS = 1.0
# An empty line, and the marks between a header's name and its value.
_HEADER_MARKS = 4


class _RefusedError(Exception):
    """A request is not to be read further; the connection has noted what to answer."""


class Connection(HttpToolsProtocol):
    """One connection. Until its headers are there, a request has a deadline and a size; an answer, until it is read.

    The parser is strict: lengths that contradict each other and lines that others might read otherwise are refused.
    """

    def __init__(self, limits: Limits, **settings: Any) -> None:
        super().__init__(**settings)
        self._limits = limits
        self._ask_deadline: asyncio.TimerHandle | None = None
        self._read_deadline: asyncio.TimerHandle | None = None
        self._num_bytes = 0  # since there was anything of use: whole headers, or part of a body
        self._num_header_bytes = 0  # of the headers of a request, and of the trailers behind its body
        self._has_headers = False
        self._cycles: deque[Any] = deque()  # requests that are not answered yet, and perhaps some that are
        self._is_refused = False
        self._fault = 400, "a request must be HTTP/1.1, but this is not; look at the address and the client"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; the clock runs."""
        super().connection_made(transport)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        for deadline in (self._ask_deadline, self._read_deadline):
            if deadline is not None:
                deadline.cancel()
        super().connection_lost(exc)
        self._leave()

    def data_received(self, data: bytes) -> None:
        """Part of a request."""
        if self._is_refused:
            return
        if self._ask_deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_headers()
        self._num_bytes += len(data)
        super().data_received(data)
        # A line without an end is nothing to the parser yet.
        if self._num_bytes > self._limits.headers and not self._is_gone():
            self._refuse(*self._too_long())

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._num_header_bytes, self._has_headers = 0, False
        self.scope[IS_GONE] = self._is_gone  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """Part of an address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer, which is none: whoever stands before this service has not looked at it."""
        self._count(len(name) + len(value) + _HEADER_MARKS)
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The headers of a request are there."""
        self._num_bytes, self._has_headers = 0, True
        self._check_headers()
        if self._ask_deadline is not None:
            self._ask_deadline.cancel()
            self._ask_deadline = None
        super().on_headers_complete()
        while self._cycles and self._cycles[0].response_complete:
            self._cycles.popleft()
        self._cycles.append(self.cycle)
        if self.parser.should_upgrade():
            # To the parser, all that follows is of another protocol.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Part of a body."""
        self._num_bytes = 0
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, in the form of all problems."""
        self._refuse(*self._fault)

    def pause_writing(self) -> None:
        """The client does not read: it may take its time, but not for ever."""
        super().pause_writing()
        self._read_deadline = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def timeout_keep_alive_handler(self) -> None:
        """The client has not asked again: the connection ends, with what it has not read too."""
        super().timeout_keep_alive_handler()
        if self._read_deadline is None:
            self._read_deadline = self.loop.call_later(self._limits.answer_seconds, self.transport.abort)

    def _expect_headers(self) -> None:
        self._num_bytes = 0
        self._ask_deadline = self.loop.call_later(self._limits.header_seconds, self.transport.abort)

    def _is_gone(self) -> bool:
        return self._is_refused or self.transport.is_closing()

    def _leave(self) -> None:
        """Nobody waits for an answer any more, be it to the last request or to one before it."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._cycles.clear()

    def _count(self, num_bytes: int) -> None:
        self._num_header_bytes += num_bytes
        if self._num_header_bytes > self._limits.headers:
            self._fail(*self._too_long())

    def _too_long(self) -> tuple[int, str]:
        return 431, (
            f"the address and the headers of a request must have at most {self._limits.headers:,} bytes together, "
            "but have more; send fewer or shorter ones"
        )

    def _check_headers(self) -> None:
        names = [name for name, _ in self.headers]
        num_hosts = names.count(b"host")
        if num_hosts > 1 or (num_hosts == 0 and self.parser.get_http_version() == "1.1"):
            self._fail(400, f"a request must have one Host header, but has {num_hosts}; look at the client")
        if self.parser.should_upgrade() and (b"transfer-encoding" in names or b"content-length" in names):
            # The parser would leave the body out.
            self._fail(400, "a request with a body must stay HTTP/1.1, but this has an Upgrade header; leave it out")

    def _fail(self, status: int, detail: str) -> NoReturn:
        self._fault = status, detail
        raise _RefusedError

    def _refuse(self, status: int, detail: str) -> None:
        body = ProblemError(status, detail).body()
        head = f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + _STRICT + b"\r\n" + body)
        self.transport.write_eof()
        self._is_refused = True
        self._leave()
        if self._ask_deadline is not None:
            self._ask_deadline.cancel()
        self._ask_deadline = self.loop.call_later(_LINGER_SECONDS, self.transport.abort)
