"""What one client may ask of the service, and for how long it may take to ask."""

from __future__ import annotations

from dataclasses import dataclass

from unidex.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on a request; each has its own answer when it is passed.

    Attributes:
        text_length: characters of a text (422).
        texts: texts of a request (422).
        labels: labels that a request names, to add, to allow or to forbid (422).
        body: bytes of a request's body (413).
        k: labels a text (422).
        concurrent: requests that are worked on or wait for it; one counts when its body is complete (429).
        headers: bytes of a request's first line and headers (431).
        header_seconds: until the headers of a request are there; the connection is closed.
        body_seconds: until the body is there (408).
        answer_seconds: until a client has read its answer; the connection is cut.

    >>> Limits(k=50).k
    50
    >>> Limits(k=0)
    Traceback (most recent call last):
    unidex.errors.ConfigError: the limit k must be above 0, but is 0
    """

    text_length: int = 20_000
    texts: int = 1024
    labels: int = 10_000
    body: int = 16 << 20
    k: int = 100
    concurrent: int = 256
    headers: int = 64 << 10
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    answer_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"the limit {name} must be above 0, but is {value}")
