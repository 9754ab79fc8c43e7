"""Errors as answers: application/problem+json (RFC 9457), with the messages of the command line."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from unidex.errors import IndexUnreachableError

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


class ProblemBody(msgspec.Struct, omit_defaults=True, rename={"kind": "type"}):
    """The body of an error."""

    kind: str  # a link that describes the kind of problem; about:blank if the status is enough
    title: str  # the name of the status
    status: int
    detail: str  # what must hold, what was found, what to do
    field: str | None = None  # the wrong field of the request, if there is one


class ProblemError(Exception):
    """An error as an answer.

    >>> ProblemError(422, "k must be at least 1, but is 0", field="k").body()
    b'{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"k must be at least 1, but is 0","field":"k"}'
    """  # noqa: E501

    def __init__(
        self, status: int, detail: str, *, field: str | None = None, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        # Always one line.
        super().__init__(" ".join(detail.split()))
        self.status = status
        self.field = field
        self.headers = tuple(headers)

    def body(self) -> bytes:
        """Encode the body of the answer."""
        return msgspec.json.encode(
            ProblemBody("about:blank", title_of(self.status), self.status, str(self), self.field)
        )


class ClientLeftError(Exception):
    """The client disconnected before its answer."""


def title_of(status: int) -> str:
    """Return the name of a status as in RFC 9110.

    >>> title_of(413), title_of(422), title_of(404)
    ('Content Too Large', 'Unprocessable Content', 'Not Found')
    """
    # Older Pythons have the names of an older RFC.
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase


def refusal(error: Exception) -> ProblemError:
    """Return the answer to a request that the model refuses; an error about the mode names that field.

    A database that does not answer is no fault of the request; where it is, only the log says.

    >>> refusal(ValueError("mode must be one of the model's heads")).field
    'mode'
    >>> refusal(ValueError("the model has none")).field is None
    True
    """
    if isinstance(error, IndexUnreachableError):
        logger.error("%s", error)
        detail = "the database of the label vectors must answer, but does not; try again soon"
        return ProblemError(503, detail, headers=[("retry-after", "5")])
    return ProblemError(422, str(error), field="mode" if re.search(r"\bmode\b", str(error)) else None)
