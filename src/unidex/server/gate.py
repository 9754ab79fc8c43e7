"""The way in: reads bodies within their limits, counts requests, and makes an answer of whatever goes wrong.

It is plain ASGI. Routes that must be quick are answered here, all others by the application behind it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from unidex.server.problems import MEDIA_TYPE, ClientLeftError, ProblemError
from unidex.server.security import HEADERS

if TYPE_CHECKING:
    from unidex.server.service import Service

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Quick = Callable[[bytes, Callable[[], bool]], Awaitable[bytes]]
# Where the protocol tells whether the client has left (unidex.server.protocol).
IS_GONE = "unidex.is_gone"
RETRY_SECONDS = 1
# How many whole bodies may be half read at once; the memory they take is so bounded.
_BODIES_AT_ONCE = 16
# A client that sends too much is heard out for a while: if the connection were cut, it could not read why.
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 1 << 22
_JSON = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    *HEADERS,
]
_PROBLEM = [(b"content-type", MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), *HEADERS]
_REASONS = {401: "token", 403: "token", 408: "body_seconds", 413: "body", 429: "concurrent"}


class Gate:
    """The service as ASGI.

    Args:
        app: answers what is not answered here.
        service: whose limits hold; its predictions are answered here.
    """

    def __init__(self, app: App, service: Service) -> None:
        self.service = service
        self._app, self._limits, self._metrics = app, service.limits, service.metrics
        self._quick: dict[tuple[str, str], Quick] = {("POST", "/v1/predict"): service.predict}
        self._running = 0
        self._half_read = 0  # bytes of bodies that are not whole yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the start and the end of the service are for the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        try:
            status, headers, body = await self._answer(scope, receive)
        except ClientLeftError:
            return
        except ProblemError as problem:
            status, headers, body = problem.status, _PROBLEM, problem.body()
            if problem.headers:
                headers = [*headers, *((name.encode(), value.encode()) for name, value in problem.headers)]
        except Exception:
            # The answer tells an id, the log tells the rest.
            number = secrets.token_hex(6)
            logger.exception("a fault of ours, %s, in %s %s", number, scope["method"], route_of(scope))
            fault = ProblemError(500, f"a fault of ours, not of your request; the service's log has it as {number}")
            status, headers, body = 500, _PROBLEM, fault.body()
        route = route_of(scope)
        seconds = time.perf_counter() - started
        self._metrics.answered(route, status, seconds)
        if status in _REASONS:
            self._metrics.rejected(_REASONS[status])
        if self.service.settings.log_requests:
            logger.info("%s %s %d %.1f ms", scope["method"], route, status, 1000 * seconds)
        await self._send(status, headers, body, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        body = await self._body(scope, receive)
        path = scope["path"]
        if not path.startswith("/v1/"):
            return await self._from_app(scope, body)
        # Only now: a client that is slow to ask takes nobody's place.
        if self._running >= self._limits.concurrent:
            raise ProblemError(
                429,
                f"at most {self._limits.concurrent} requests are worked on at once, and so many are; try again soon",
                headers=[("retry-after", str(RETRY_SECONDS))],
            )
        self._running += 1
        try:
            quick = self._quick.get((scope["method"], path))
            if quick is None:
                return await self._from_app(scope, body)
            scope["route_path"] = path
            return 200, _JSON, await quick(body, scope.get(IS_GONE, _never))
        finally:
            self._running -= 1

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limits = self._limits
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > limits.body:
                raise self._too_large(f"{int(value):,}")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeftError
                    part = message.get("body", b"")
                    if not parts and not message.get("more_body"):
                        if len(part) > limits.body:
                            raise self._too_large("more")
                        return bytes(part)
                    parts.append(part)
                    size += len(part)
                    self._half_read += len(part)
                    if size > limits.body:
                        raise self._too_large("more")
                    if not message.get("more_body"):
                        return b"".join(parts)
                    if self._half_read > _BODIES_AT_ONCE * limits.body:
                        raise ProblemError(
                            429,
                            "the bodies that are being read must fit in memory together, but do not; try again soon",
                            headers=[("retry-after", str(RETRY_SECONDS)), ("connection", "close")],
                        )
        except TimeoutError:
            raise ProblemError(
                408,
                f"the body must be there within {limits.body_seconds:g} s, but is not; send it faster or less of it",
                headers=[("connection", "close")],
            ) from None
        finally:
            self._half_read -= size

    def _too_large(self, found: str) -> ProblemError:
        return ProblemError(
            413,
            f"the body must have at most {self._limits.body:,} bytes, but has {found}; send several requests",
            headers=[("connection", "close")],
        )

    async def _from_app(self, scope: Scope, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """The whole answer of the application: nothing is sent before its place is free for another request."""
        status = 500
        headers: list[tuple[bytes, bytes]] = []
        parts: list[bytes] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers.extend(pair for pair in message["headers"] if pair[0] != b"content-length")
            else:
                parts.append(message.get("body", b""))

        if scope["method"] == "HEAD":
            # As GET; whoever sends the answer leaves the body out.
            inner = {**scope, "method": "GET"}
            await self._app(inner, receive, send)
            scope["route"] = inner.get("route")
        else:
            await self._app(scope, receive, send)
        return status, headers + HEADERS, b"".join(parts)

    async def _send(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes, receive: Receive, send: Send
    ) -> None:
        headers = [*headers, (b"content-length", str(len(body)).encode())] if status != 304 else headers
        if self.service.is_draining:
            # Whoever has a connection open finds out from the answer, not from a connection that is cut.
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if status in (408, 413):
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await _linger(receive)
            body = b""
        await send({"type": "http.response.body", "body": body})

    def measure(self) -> None:
        """Tell the metrics how many requests are there now."""
        self._metrics.running(self._running)


def route_of(scope: Scope) -> str:
    """The route of a request as the description has it; never what a client wrote."""
    found = scope.get("route_path")
    return found if isinstance(found, str) else getattr(scope.get("route"), "path", "none")


def _never() -> bool:
    return False


async def _linger(receive: Receive) -> None:
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            left = _LINGER_BYTES
            while left > 0:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return
                left -= len(message["body"])
    except TimeoutError:
        return
