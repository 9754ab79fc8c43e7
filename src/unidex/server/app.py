"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from unidex import __version__
from unidex.errors import UnidexError, quoted
from unidex.server.gate import Gate
from unidex.server.openapi import make_document
from unidex.server.problems import MEDIA_TYPE, ProblemError
from unidex.server.routes import label_routes, model_routes, page_routes, status_routes
from unidex.server.service import Service
from unidex.server.settings import Settings


def create_app(
    settings: Settings,
    *,
    on_start: Callable[[], None] | None = None,
    on_ready: Callable[[Service], None] | None = None,
    on_failure: Callable[[], None] | None = None,
) -> Gate:
    """Make the service; it loads the model after its start, while /health answers already.

    ``on_start`` is called in the event loop. If the model cannot be loaded, ``service.failure`` has the error.
    """
    service = Service(settings)

    async def load() -> None:
        try:
            await service.start()
        except UnidexError as error:
            service.failure = error
            if on_failure is not None:
                on_failure()
        else:
            if on_ready is not None:
                on_ready(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if on_start is not None:
            on_start()
        task = asyncio.create_task(load())
        yield
        task.cancel()
        await asyncio.to_thread(service.stop)

    document: dict[str, Any] = {}
    routers = [model_routes(service), label_routes(service), status_routes(service), page_routes(document)]
    app = FastAPI(
        title="unidex",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,  # page_routes answers with the document, as a route that is counted
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=_handlers(routers, service),
    )
    for router in routers:
        app.include_router(router)
    document |= make_document(app, settings.limits)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return Gate(app, service)


def _handlers(routers: list[APIRouter], service: Service) -> dict[Any, Any]:
    def problem_of(request: Request, error: Exception) -> ProblemError:
        if isinstance(error, ProblemError):
            return error
        if isinstance(error, UnidexError):
            return ProblemError(422, service.describe(error))
        if isinstance(error, RequestValidationError):
            first = error.errors()[0]
            field = str(first["loc"][-1])
            must = str(first["msg"]).replace("Input should be", f"{field} must be")
            must = must.replace("String should", f"{field} must")
            return ProblemError(422, f"{must}, but is {quoted(first.get('input'))}", field=field)
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return ProblemError(404, "there is nothing at this address; GET /v1/openapi.json lists the routes")
        if error.status_code == 405:
            methods = ", ".join(_methods_at(routers, request))
            rule = f"the method must be one of {methods} here, but is {quoted(request.method)}"
            return ProblemError(405, rule, headers=[("allow", methods)])
        return ProblemError(error.status_code, str(error.detail))

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(request, error)
        headers = {"cache-control": "no-store"} | dict(problem.headers)
        return Response(problem.body(), problem.status, headers, MEDIA_TYPE)

    return dict.fromkeys((ProblemError, UnidexError, RequestValidationError, HTTPException), answer)


def _methods_at(routers: list[APIRouter], request: Request) -> list[str]:
    """Return all methods of an address; the framework names the methods of one route only."""
    found: set[str] = set()
    for route in (route for router in routers for route in router.routes):
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found | {"HEAD"} if "GET" in found else found or {"GET", "HEAD"})
