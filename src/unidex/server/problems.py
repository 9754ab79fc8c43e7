"""Errors as answers: application/problem+json (RFC 9457), in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

MEDIA_TYPE = "application/problem+json"


class ProblemBody(msgspec.Struct, omit_defaults=True, rename={"kind": "type"}):
    """What an answer that is an error holds.

    Attributes:
        kind: a link to what this kind of problem is; about:blank where the status says all.
        title: the name of the status.
        status: the status of the answer.
        detail: what must hold, but what was found; what to do.
        field: the field of the request at fault, where one is.
    """

    kind: str
    title: str
    status: int
    detail: str
    field: str | None = None


class ProblemError(Exception):
    """An answer that is an error.

    >>> ProblemError(422, "k must be at least 1, but is 0", field="k").body()
    b'{"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"k must be at least 1, but is 0","field":"k"}'
    """  # noqa: E501

    def __init__(
        self, status: int, detail: str, *, field: str | None = None, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        # One line, whatever stands in it.
        super().__init__(" ".join(detail.split()))
        self.status = status
        self.field = field
        self.headers = tuple(headers)

    def body(self) -> bytes:
        """The answer's body."""
        return msgspec.json.encode(
            ProblemBody("about:blank", title_of(self.status), self.status, str(self), self.field)
        )


class ClientLeftError(Exception):
    """There is nobody to answer."""


def title_of(status: int) -> str:
    """The name of a status, as RFC 9110 has it.

    >>> title_of(413), title_of(422), title_of(404)
    ('Content Too Large', 'Unprocessable Content', 'Not Found')
    """
    # Older Pythons have the names of the RFC before.
    return {413: "Content Too Large", 422: "Unprocessable Content"}.get(status) or HTTPStatus(status).phrase


def refused(error: Exception) -> ProblemError:
    """The answer to a request that a model cannot do; what it says of the mode is said of that field.

    >>> refused(ValueError("mode must be one of the model's heads")).field
    'mode'
    >>> refused(ValueError("the model has none")).field is None
    True
    """
    return ProblemError(422, str(error), field="mode" if re.search(r"\bmode\b", str(error)) else None)
