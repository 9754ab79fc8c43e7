"""The routes of the service."""

from __future__ import annotations

from pathlib import Path as Folder
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.staticfiles import StaticFiles

from unidex.model.label_set import Frequency, LabelRow, Order
from unidex.scoring.layout import Mode
from unidex.server import schemas
from unidex.server.counters import MEDIA_TYPE
from unidex.server.openapi import describe
from unidex.server.problems import ProblemError
from unidex.server.service import Service
from unidex.server.table_upload import TableKind, TableOptions

_bearer = HTTPBearer(auto_error=False, description="A line of the file that --token-file names.")
_encode = msgspec.json.Encoder().encode
_BYTES = "application/octet-stream"
LabelId = Annotated[int, Path(alias="id", ge=0, description="The id of the label.")]
Language = Annotated[
    str, Query(max_length=100, description="Language of label texts, such as de; default: their own texts.")
]
NumSimilar = Annotated[int, Query(alias="k", ge=1, description="Number of similar labels.")]


def _json(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, {"cache-control": "no-store"}, "application/json")


def model_routes(service: Service) -> APIRouter:
    """Routes that ask the model; everybody may use them."""
    router = APIRouter(tags=["model"])

    @router.post("/v1/predict", **describe(schemas.PredictAnswer, 422, body=schemas.PredictRequest))
    async def predict(request: Request) -> Response:
        """Predict the labels of texts, best first."""
        # For the document; the gate answers before.
        return Response(await service.predict(await request.body(), bool), media_type="application/json")

    @router.post("/v1/predict/table", **describe(None, 422, media_type=_BYTES, body=bytes))
    async def predict_table(
        request: Request,
        source: Annotated[TableKind, Query(description="The kind of the table in the body.")] = "csv",
        target: Annotated[TableKind, Query(description="The kind of the table in the answer.")] = "csv",
        column: Annotated[
            str | None, Query(max_length=1000, description="The column of the texts; default: that of the training.")
        ] = None,
        k: Annotated[int, Query(ge=1, description="Labels per text.")] = 5,
        mode: Annotated[Mode | None, Query(description="Heads that count; default: the mode of the model.")] = None,
        min_probability: Annotated[float, Query(ge=0, le=1, description="Minimum probability of a label.")] = 0.0,
        most_specific: Annotated[bool | None, Query(description="Drop a label if a narrower one is predicted.")] = None,
        language: Language = "",
    ) -> Response:
        """Predict the texts of a table, which is the body; the answer has all its columns, then the labels."""
        options = TableOptions(
            source=source,
            target=target,
            column=column,
            k=k,
            mode=mode,
            min_probability=min_probability,
            most_specific=most_specific,
            language=language,
        )
        table = await service.predict_table(await request.body(), options)
        headers = {"cache-control": "no-store", "content-disposition": f'attachment; filename="labels.{target}"'}
        return Response(table, headers=headers, media_type=_BYTES)

    @router.post("/v1/explain", **describe(schemas.ExplainAnswer, 422, body=schemas.ExplainRequest))
    async def explain(request: Request) -> Response:
        """Explain why a text has its labels: parts of the score, attribution to words, train texts."""
        return _json(await service.explain(await request.body()))

    @router.get("/v1/model", **describe(schemas.ModelAnswer))
    async def model() -> Response:
        """Describe the live model and the limits of a request."""
        return _json(await service.model())

    return router


def label_routes(service: Service) -> APIRouter:
    """Routes of the living labels; changing them needs a token."""
    router = APIRouter(tags=["labels"])

    def check(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> None:
        if service.tokens is None:
            raise ProblemError(403, "labels can be changed only if the service was started with --token-file")
        # Of several tokens, a proxy may have checked another one.
        num_given = len(request.headers.getlist("authorization"))
        if given is None or num_given > 1 or not service.tokens.allow(given.credentials):
            raise ProblemError(
                401,
                "a request must come with a token as Authorization: Bearer TOKEN, but this has "
                + ("several" if num_given > 1 else "none" if given is None else "a wrong one"),
                headers=[("www-authenticate", "Bearer")],
            )

    allowed = [Security(check)]

    @router.get("/v1/labels", **describe(schemas.LabelsAnswer, 422))
    async def labels(
        search: Annotated[str, Query(max_length=1000, description="Only labels whose text contains this.")] = "",
        frequency: Annotated[
            Frequency | None,
            Query(description="Only head (over 100 train texts), torso (10 to 100) or tail labels."),
        ] = None,
        order: Annotated[Order, Query(description="Most frequent first, by text or by id.")] = "frequency",
        offset: Annotated[int, Query(ge=0, le=1 << 53, description="Number of labels to skip.")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of labels.")] = 50,
        language: Language = "",
    ) -> Response:
        """List labels."""
        return _json(await service.labels(search, frequency, order, offset, limit, language))

    @router.get("/v1/labels/{id}", **describe(LabelRow, 404, 422))
    async def label(label: LabelId, language: Language = "") -> Response:
        """Show a label."""
        return _json(await service.label(label, language))

    @router.get("/v1/labels/{id}/similar", **describe(schemas.SimilarAnswer, 404, 422))
    async def similar(label: LabelId, k: NumSimilar = 10) -> Response:
        """Show the labels with the nearest vectors."""
        return _json(schemas.SimilarAnswer(*await service.similar(label, k)))

    @router.get("/v1/labels/{id}/neighbours", deprecated=True, **describe(schemas.NeighboursAnswer, 404, 422))
    async def neighbours(label: LabelId, k: NumSimilar = 10) -> Response:
        """Show similar labels; the former name of /v1/labels/{id}/similar, for one release."""
        return _json(schemas.NeighboursAnswer(*await service.similar(label, k)))

    @router.post(
        "/v1/labels",
        dependencies=allowed,
        **describe(schemas.AddedAnswer, 401, 403, 409, 422, status=201, body=schemas.NewLabels),
    )
    async def add(request: Request) -> Response:
        """Add labels. They are on disk before the answer, and predicted from then on."""
        rows = await service.add_labels(await request.body())
        return _json(schemas.AddedAnswer(rows, service.live.title), 201)

    @router.patch(
        "/v1/labels/{id}",
        dependencies=allowed,
        **describe(schemas.RenamedAnswer, 401, 403, 404, 422, body=schemas.RenameRequest),
    )
    async def rename(label: LabelId, request: Request) -> Response:
        """Give a label another text."""
        return _json(schemas.RenamedAnswer(await service.rename_label(label, await request.body())))

    @router.post(
        "/v1/labels/{id}/teach",
        dependencies=allowed,
        **describe(schemas.TaughtAnswer, 401, 403, 404, 409, 422, body=schemas.TeachRequest),
    )
    async def teach(label: LabelId, request: Request) -> Response:
        """Teach a label with texts that have it. The model folder is saved and loaded again before the answer."""
        return _json(await service.teach_label(label, await request.body()))

    @router.delete("/v1/labels/{id}", dependencies=allowed, **describe(schemas.RemovedAnswer, 401, 403, 404, 422))
    async def remove(label: LabelId) -> Response:
        """Remove a label: it is never predicted again."""
        return _json(schemas.RemovedAnswer(await service.remove_label(label)))

    @router.post("/v1/reload", dependencies=allowed, **describe(schemas.ReloadAnswer, 401, 403, 409))
    async def reload() -> Response:
        """Load the model folder again, then answer. A damaged folder changes nothing."""
        return _json(schemas.ReloadAnswer(await service.reload()))

    return router


def status_routes(service: Service) -> APIRouter:
    """Routes of the state of the service."""
    router = APIRouter(tags=["service"])

    @router.get("/health", **describe(schemas.StatusAnswer, counted=False))
    async def health() -> Response:
        """Tell that the process is alive."""
        return _json(schemas.StatusAnswer("alive"))

    @router.get("/ready", **describe(schemas.StatusAnswer, 503, counted=False))
    async def ready() -> Response:
        """Tell whether to send requests here: not before the model is loaded, and not after SIGTERM."""
        if not service.is_ready:
            state = "is about to stop" if service.is_draining else "has not loaded its model yet"
            raise ProblemError(503, f"the service {state}; send requests elsewhere", headers=[("retry-after", "1")])
        return _json(schemas.StatusAnswer("ready"))

    @router.get("/metrics", **describe(None, counted=False, media_type="text/plain"))
    async def metrics() -> Response:
        """Show the metrics for Prometheus."""
        return Response(service.metrics.render(), media_type=MEDIA_TYPE)

    return router


def page_routes(document: dict[str, Any]) -> APIRouter:
    """Routes of the page, of the OpenAPI document and of the page that shows it."""
    router = APIRouter(include_in_schema=False)
    files = StaticFiles(directory=Folder(__file__).with_name("page"))

    @router.get("/v1/openapi.json")
    async def openapi() -> Response:
        return Response(_encode(document), media_type="application/json")

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        return await file(request, "api.html")

    @router.get("/")
    @router.get("/page/{name}")
    async def file(request: Request, name: str = "index.html") -> Response:
        answer = await files.get_response(name, request.scope)
        # A browser asks each time, usually gets 304, and sees a new release at once.
        answer.headers["cache-control"] = "no-cache"
        return answer

    return router
