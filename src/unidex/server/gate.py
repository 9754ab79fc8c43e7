"""The outermost ASGI application: checks requests, reads bodies within limits, counts, and turns errors into answers.

It answers predictions itself, because they must be fast, and passes all other requests to FastAPI.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from unidex.server.problems import MEDIA_TYPE, ClientLeftError, ProblemError

if TYPE_CHECKING:
    from unidex.server.service import Service

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
_PREDICT = "/v1/predict"
_JSON: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_PROBLEM: Headers = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store")]
_CLOSE = [("connection", "close")]
_REASONS = {401: "token", 403: "token", 408: "body_seconds", 413: "body", 429: "concurrent"}
# Most clients read no answer before they have sent the whole body, and lose it if the connection is cut meanwhile. The
# rest of a refused body is therefore read and discarded, up to this size and time.
_DISCARD_BYTES = 1 << 27
_DISCARD_SECONDS = 30.0
_LATE_SECONDS = 2.0  # for a body that has used up its time already
_WATCH_AFTER_SECONDS = 0.02


class Gate:
    """The service as an ASGI application; ``app`` answers everything except predictions."""

    def __init__(self, app: App, service: Service) -> None:
        self.service = service
        self._app, self._limits, self._metrics = app, service.limits, service.metrics
        self._running = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request; startup and shutdown go to the inner application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            status, headers, body = await self._answer(scope, receive)
        except ClientLeftError:
            return
        except Exception as error:
            status, headers, body = _answer_to(error, scope["method"], route_of(scope))
        self._count(scope["method"], route_of(scope), status, time.perf_counter() - started)
        try:
            await self._send(scope, status, headers, body, receive, send)
        except RuntimeError as error:
            # uvloop raises this when the connection ended after an earlier request of the same client.
            if "handler is closed" not in str(error):
                raise

    def start(self, body: bytes, is_gone: Callable[[], bool]) -> asyncio.Future[bytes] | None:
        """Start a prediction whose request is plain; None where it must take the whole way, as to be refused."""
        is_free = self._running < self._limits.concurrent and len(body) <= self._limits.body
        if not (is_free and self.service.is_ready):
            return None
        try:
            future = self.service.start_prediction(body, is_gone)
        except ProblemError:
            return None
        if future is not None:
            self._running += 1
            self._metrics.running.inc()
        return future

    def finish(self, future: asyncio.Future[bytes], started: float) -> tuple[int, Headers, bytes] | None:
        """The answer of a prediction that ``start`` began; None for a client that is gone."""
        self._running -= 1
        self._metrics.running.dec()
        if future.cancelled():
            return None
        error = future.exception()
        found = (200, _JSON, future.result()) if error is None else _answer_to(error, "POST", _PREDICT)
        self._count("POST", _PREDICT, found[0], time.perf_counter() - started)
        return found

    def _count(self, method: str, route: str, status: int, seconds: float) -> None:
        self._metrics.answered(route, status, seconds)
        if status in _REASONS:
            self._metrics.rejected.labels(_REASONS[status]).inc()
        if self.service.settings.log_requests:
            logger.info("%s %s %d %.1f ms", method, route, status, 1000 * seconds)

    async def _answer(self, scope: Message, receive: Receive) -> tuple[int, Headers, bytes]:
        self._check_headers(scope)
        body = await self._read_body(scope, receive)
        path = scope["path"]
        if not path.startswith("/v1/"):
            return await self._from_app(scope, body)
        # Counted only when the body is complete: a slow client takes no place.
        if self._running >= self._limits.concurrent:
            rule = f"at most {self._limits.concurrent} requests may run at once, and as many do; try again soon"
            raise ProblemError(429, rule, headers=[("retry-after", "1")])
        self._running += 1
        self._metrics.running.inc()
        try:
            if (scope["method"], path) != ("POST", _PREDICT):
                return await self._from_app(scope, body)
            scope["route_path"] = path
            with _Watch(receive) as watch:
                return 200, _JSON, await self.service.predict(body, watch.is_gone)
        finally:
            self._running -= 1
            self._metrics.running.dec()

    def _check_headers(self, scope: Message) -> None:
        """Refuse what uvicorn lets through, and what proxies might read otherwise."""
        names = [name for name, _ in scope["headers"]]
        num_hosts = names.count(b"host")
        if num_hosts > 1 or (num_hosts == 0 and scope.get("http_version") == "1.1"):
            raise ProblemError(400, f"a request must have one Host header, but has {num_hosts}", headers=_CLOSE)
        if b"upgrade" in names and (b"transfer-encoding" in names or b"content-length" in names):
            rule = "a request with a body must stay HTTP/1.1, but this has an Upgrade header"
            raise ProblemError(400, rule, headers=_CLOSE)
        size = len(scope.get("raw_path", b"")) + len(scope.get("query_string", b""))
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._limits.headers:
            scope["has_unread_body"] = True
            raise ProblemError(
                431,
                f"the address and the headers of a request must have at most {self._limits.headers:,} bytes together, "
                f"but have {size:,}; send fewer or shorter ones",
                headers=_CLOSE,
            )

    async def _read_body(self, scope: Message, receive: Receive) -> bytes:
        limits = self._limits
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limits.body:
                scope["has_unread_body"] = True
                raise self._too_large(f"{int(value):,}")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeftError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limits.body:
                        scope["has_unread_body"] = message.get("more_body", False)
                        raise self._too_large("more")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            scope["has_unread_body"] = True
            rule = f"the body must arrive within {limits.body_seconds:g} s, but did not; send it faster, or send less"
            raise ProblemError(408, rule, headers=_CLOSE) from None

    def _too_large(self, size: str) -> ProblemError:
        rule = f"the body must have at most {self._limits.body:,} bytes, but has {size}; send several requests"
        return ProblemError(413, rule, headers=_CLOSE)

    async def _from_app(self, scope: Message, body: bytes) -> tuple[int, Headers, bytes]:
        """Collect the whole answer of the inner application, so that a slow reader takes no place."""
        status = 500
        headers: Headers = []
        parts: list[bytes] = []

        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            # There is no second message: the client may be gone, but its answer is collected anyway.
            return messages.pop() if messages else await asyncio.get_running_loop().create_future()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.extend(pair for pair in message["headers"] if pair[0] != b"content-length")
            else:
                parts.append(message.get("body", b""))

        # HEAD is answered as GET; uvicorn leaves the body out.
        inner = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._app(inner, receive, send)
        scope["route"] = inner.get("route")
        return status, headers, b"".join(parts)

    async def _send(
        self, scope: Message, status: int, headers: Headers, body: bytes, receive: Receive, send: Send
    ) -> None:
        headers = [*headers, (b"content-length", str(len(body)).encode())] if status != 304 else headers
        # Uvicorn reads no further requests after an Upgrade header. A draining service ends its connections.
        if self.service.is_draining or any(name == b"upgrade" for name, _ in scope["headers"]):
            headers = [*headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope.get("has_unread_body"):
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await _discard(receive, _LATE_SECONDS if status == 408 else _DISCARD_SECONDS)
            body = b""
        await send({"type": "http.response.body", "body": body})


class _Watch:
    """Notices that a client disconnects, after a while: most answers are sooner, and a task per request costs time."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left: asyncio.Future[Message] | None = None

    def __enter__(self) -> _Watch:
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._start)
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        if self._left is not None:
            self._left.cancel()

    def _start(self) -> None:
        # All of the body is read: the next message is the disconnect.
        self._left = asyncio.ensure_future(self._receive())

    def is_gone(self) -> bool:
        return self._left is not None and self._left.done()


def _answer_to(error: BaseException, method: str, route: str) -> tuple[int, Headers, bytes]:
    """Status, headers and body for a request that failed."""
    if isinstance(error, ProblemError):
        own = [(name.encode(), value.encode()) for name, value in error.headers]
        return error.status, _PROBLEM + own, error.body()
    # The answer has a number; the log has the details under it.
    number = secrets.token_hex(6)
    logger.error("Internal error %s in %s %s", number, method, route, exc_info=error)
    detail = f"an internal error, not a fault of your request; the log of the service has it as {number}"
    return 500, _PROBLEM, ProblemError(500, detail).body()


def route_of(scope: Message) -> str:
    """Return the route of a request as OpenAPI has it; never the address that a client sent."""
    found = scope.get("route_path")
    return found if isinstance(found, str) else getattr(scope.get("route"), "path", "none")


async def _discard(receive: Receive, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            left = _DISCARD_BYTES
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
                left -= len(message["body"])
    except TimeoutError:
        return
