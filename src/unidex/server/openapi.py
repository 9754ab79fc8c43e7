"""The OpenAPI document, made from the types that decode requests and encode answers."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from unidex import __version__
from unidex.server import schemas
from unidex.server.problems import MEDIA_TYPE, ProblemBody, title_of
from unidex.server.settings import Limits

_BYTES = "application/octet-stream"
_REF = "#/components/schemas/{name}"
_RETRY = {"retry-after": {"description": "Seconds to wait before another try.", "schema": {"type": "integer"}}}
_WHEN = {
    400: "The body is not JSON, or the request is not HTTP.",
    401: "No token, or a wrong one.",
    403: "The service was started without --token-file.",
    404: "There is no such label.",
    408: "The body did not arrive in time.",
    409: "A label with that uid exists; for a reload, the folder cannot be read.",
    413: "The body is too large.",
    422: "A field is wrong; the answer names it.",
    429: "Too many requests at once.",
    431: "The headers are too large.",
    500: "An internal error; the log has it under the number in the answer.",
    503: "The model is not loaded yet, another process holds its folder, or the database of its index does not answer.",
}
_TYPES = [
    ProblemBody,
    *(
        found
        for found in vars(schemas).values()
        if isinstance(found, type) and issubclass(found, msgspec.Struct) and found is not msgspec.Struct
    ),
]


def describe(
    answer: type | None,
    *problems: int,
    status: int = 200,
    body: type | None = None,
    counted: bool = True,
    media_type: str = "application/json",
) -> dict[str, Any]:
    """Describe a route for a decorator of FastAPI: its answer (None for text or bytes), its problems, its body.

    ``problems`` are statuses beside the common ones; ``counted`` says that the limit of concurrent requests holds.
    """
    statuses = {*problems, 400, 408, 413, 431, 500}
    if counted:
        statuses |= {429, 503}
    schema = {"type": "string"} if answer is None else _ref(answer)
    responses: dict[int | str, Any] = {status: {"content": {media_type: {"schema": schema}}}}
    for number in sorted(statuses):
        responses[number] = {"description": _WHEN[number], "content": {MEDIA_TYPE: {"schema": _ref(ProblemBody)}}}
        if number in (429, 503):
            responses[number]["headers"] = _RETRY
    taken = None
    if body is bytes:
        taken = {"required": True, "content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}
    elif body is not None:
        taken = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return {
        "status_code": status,
        "responses": responses,
        "openapi_extra": {"requestBody": taken} if taken else None,
    }


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": _REF.format(name="Problem" if kind is ProblemBody else kind.__name__)}


def make_document(app: FastAPI, limits: Limits) -> dict[str, Any]:
    """Make the document, with the limits of this service."""
    made: dict[str, Any] = get_openapi(
        title="unidex",
        version=__version__,
        summary="Match a text to the right few of thousands to a hundred million labels.",
        routes=app.routes,
    )
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REF)
    components["Problem"] = components.pop("ProblemBody")
    made.setdefault("components", {})["schemas"] = components
    for operations in made["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if not answer.get("description") or answer["description"] == "Successful Response":
                    answer["description"] = title_of(int(status))
    _add_limits(components, limits)
    for operations in made["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "k":
                    parameter["schema"]["maximum"] = limits.k
    return made


def _add_limits(components: dict[str, Any], limits: Limits) -> None:
    """Add rules that the types cannot express: limits of the operator, and rules about two fields."""

    def of(kind: type, field: str) -> dict[str, Any]:
        found: dict[str, Any] = components[kind.__name__]["properties"][field]
        choices = found.get("anyOf")
        return next(choice for choice in choices if choice.get("type") != "null") if choices else found

    predict, explain = schemas.PredictRequest, schemas.ExplainRequest
    texts = [(predict, "text"), (explain, "text"), (schemas.RenameRequest, "text")]
    texts += [(kind, field) for kind in (schemas.NewLabel, schemas.NewLabels) for field in ("text", "uid")]
    for kind, field in texts:
        of(kind, field).update(maxLength=limits.text_length)
    for kind in (predict, schemas.TeachRequest):
        of(kind, "texts")["items"] |= {"maxLength": limits.text_length}
    for kind in (predict, explain):
        of(kind, "k").update(maximum=limits.k)
    for kind, field, maximum in (
        (predict, "texts", limits.texts),
        (schemas.TeachRequest, "texts", limits.texts),
        (predict, "allowed", limits.labels),
        (predict, "forbidden", limits.labels),
        (schemas.NewLabels, "labels", limits.labels),
        (explain, "labels", limits.k),
    ):
        of(kind, field).update(maxItems=maximum)
    components["PredictRequest"]["oneOf"] = [{"required": ["texts"]}, {"required": ["text"]}]
    components["NewLabels"]["oneOf"] = [{"required": ["text"]}, {"required": ["labels"]}]
    components["NewLabels"]["dependentRequired"] = {"uid": ["text"]}
