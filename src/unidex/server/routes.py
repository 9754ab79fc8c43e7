"""The routes: from HTTP to the service and back."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from unidex.server import counters as observing
from unidex.server import schemas
from unidex.server.gate import IS_GONE
from unidex.server.openapi import said
from unidex.server.page_files import read_page
from unidex.server.problems import ProblemError
from unidex.server.service import Service

_bearer = HTTPBearer(auto_error=False, description="A line of the file that --token-file names.")
_encode = msgspec.json.Encoder().encode
LabelId = Annotated[int, Path(alias="id", ge=0, description="The label's id.")]


def _json(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, {"cache-control": "no-store"}, "application/json")


def model_routes(service: Service) -> APIRouter:
    """What anybody may ask the model."""
    router = APIRouter(tags=["model"])

    @router.post("/v1/predict", **said(schemas.PredictAnswer, 422, body=schemas.PredictRequest))
    async def predict(request: Request) -> Response:
        """Predict the labels of texts, best first."""
        gone = request.scope.get(IS_GONE, bool)
        return Response(await service.predict(await request.body(), gone), media_type="application/json")

    @router.post("/v1/explain", **said(schemas.ExplainAnswer, 422, body=schemas.ExplainRequest))
    async def explain(request: Request) -> Response:
        """Say why a text has its labels: what each part of the model gave, which words, which train texts."""
        return _json(await service.explain(await request.body()))

    @router.get("/v1/model", **said(schemas.ModelAnswer))
    async def model() -> Response:
        """Say which model serves, and what it takes."""
        return _json(await service.model())

    return router


def label_routes(service: Service) -> APIRouter:
    """The living labels; only those with a token may change them."""
    router = APIRouter(tags=["labels"])

    def check(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        if service.tokens is None:
            raise ProblemError(403, "labels can only be changed where the service was started with --token-file")
        # Of several, others may have looked at another than we would.
        num_given = len(request.headers.getlist("authorization"))
        if given is None or num_given > 1 or not service.tokens.allow(given.credentials):
            raise ProblemError(
                401,
                "a request must come with a token as Authorization: Bearer TOKEN, but this has "
                + ("several" if num_given > 1 else "none" if given is None else "a wrong one"),
                headers=[("www-authenticate", "Bearer")],
            )

    allowed = [Security(check)]

    @router.get("/v1/labels", **said(schemas.LabelsAnswer, 422))
    async def labels(
        search: Annotated[str, Query(max_length=1000, description="Only labels whose text holds this.")] = "",
        frequency: Annotated[
            schemas.Frequency | None,
            Query(description="Only head (over 100 train texts), torso (10 to 100) or tail labels."),
        ] = None,
        order: Annotated[schemas.Order, Query(description="By falling frequency, by text or by id.")] = "frequency",
        offset: Annotated[int, Query(ge=0, le=1 << 53, description="How many to leave out at the beginning.")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 50,
    ) -> Response:
        """List labels."""
        return _json(await service.labels(search, frequency, order, offset, limit))

    @router.get("/v1/labels/{id}", **said(schemas.LabelRow, 404, 422))
    async def label(label: LabelId) -> Response:
        """Show a label."""
        return _json(await service.label(label))

    @router.get("/v1/labels/{id}/neighbours", **said(schemas.NeighboursAnswer, 404, 422))
    async def neighbours(
        label: LabelId,
        k: Annotated[int, Query(ge=1, description="How many.")] = 10,
    ) -> Response:
        """Show the labels whose vectors are nearest to a label's."""
        return _json(await service.neighbours(label, k))

    @router.post(
        "/v1/labels",
        dependencies=allowed,
        **said(schemas.AddedAnswer, 401, 403, 409, 422, status=201, body=schemas.NewLabels),
    )
    async def add(request: Request) -> Response:
        """Add labels. They are on disk when the answer comes, and predicted from then on."""
        rows = await service.add_labels(await request.body())
        return _json(schemas.AddedAnswer(rows, service.live.title), 201)

    @router.patch(
        "/v1/labels/{id}",
        dependencies=allowed,
        **said(schemas.RenamedAnswer, 401, 403, 404, 422, body=schemas.RenameRequest),
    )
    async def rename(label: LabelId, request: Request) -> Response:
        """Give a label another text."""
        return _json(schemas.RenamedAnswer(await service.rename_label(label, await request.body())))

    @router.delete("/v1/labels/{id}", dependencies=allowed, **said(schemas.RemovedAnswer, 401, 403, 404, 422))
    async def remove(label: LabelId) -> Response:
        """Remove a label: it is never predicted again."""
        return _json(schemas.RemovedAnswer(await service.remove_label(label)))

    @router.post("/v1/reload", dependencies=allowed, **said(schemas.ReloadAnswer, 401, 403, 409))
    async def reload() -> Response:
        """Read the model folder again; the answer comes when its model serves. A damaged folder changes nothing."""
        return _json(schemas.ReloadAnswer(await service.reload()))

    return router


def status_routes(service: Service) -> APIRouter:
    """How the service is."""
    router = APIRouter(tags=["service"])

    @router.get("/health", **said(schemas.StatusAnswer, counted=False))
    async def health() -> Response:
        """Say that the process is alive."""
        return _json(schemas.StatusAnswer("alive"))

    @router.get("/ready", **said(schemas.StatusAnswer, 503, counted=False))
    async def ready() -> Response:
        """Say whether requests should be sent here: not before the model is read, and not after SIGTERM."""
        if not service.is_ready:
            what = "is about to stop" if service.is_draining else "has not read its model yet"
            raise ProblemError(503, f"the service {what}; send requests elsewhere", headers=[("retry-after", "1")])
        return _json(schemas.StatusAnswer("ready"))

    @router.get("/metrics", **said(None, counted=False, media_type="text/plain"))
    async def metrics() -> Response:
        """Show what was counted, for Prometheus."""
        return Response(service.metrics.shown(), media_type=observing.MEDIA_TYPE)

    return router


def page_routes() -> APIRouter:
    """The page and its files."""
    router = APIRouter(include_in_schema=False)
    files = read_page()

    def answer(name: str, request: Request) -> Response:
        if name not in files:
            raise ProblemError(404, "there is no such file of the page")
        headers = request.headers
        status, body, said_headers = files[name].answer(
            headers.get("accept-encoding", ""), headers.get("if-none-match", "")
        )
        return Response(body, status, said_headers)

    @router.get("/")
    async def page(request: Request) -> Response:
        return answer("index.html", request)

    @router.get("/page/{name}")
    async def file(name: str, request: Request) -> Response:
        return answer(name, request)

    return router
