"""The limits of a request."""

from __future__ import annotations

from dataclasses import dataclass

from unidex.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request, each with the status of its error.

    Attributes:
        text_length: characters per text (422).
        texts: texts per request (422).
        labels: labels per request, to add, to allow or to forbid (422).
        body: bytes per body (413).
        k: labels per text (422).
        concurrent: requests that run or wait; a request counts when its body is complete (429).
        headers: bytes of the address and the headers (431).
        body_seconds: time for a body to arrive (408).

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
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"the limit {name} must be above 0, but is {value}")
