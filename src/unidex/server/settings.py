"""How the service runs, and the limits of a request. It imports little: the parent of the workers stays small."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from unidex.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request, each with the status of its error.

    >>> Limits(k=0)
    Traceback (most recent call last):
    unidex.errors.ConfigError: the limit k must be above 0, but is 0
    """

    text_length: int = 20_000  # characters per text (422)
    texts: int = 1024  # texts per request (422)
    labels: int = 10_000  # labels per request, to add, to allow or to forbid (422)
    body: int = 16 << 20  # bytes per body (413)
    k: int = 100  # labels per text (422)
    concurrent: int = 256  # requests that run or wait; a request counts when its body is complete (429)
    headers: int = 64 << 10  # bytes of the address and the headers (431)
    body_seconds: float = 30.0  # time for a body to arrive (408)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"the limit {name} must be above 0, but is {value}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the service runs."""

    folder: Path
    limits: Limits = field(default_factory=Limits)
    token_file: Path | None = None  # tokens that allow to change labels; without it nobody may
    log_requests: bool = False
    drain_seconds: float = 1.0  # how long to continue to answer after SIGTERM, until clients use another server
    finish_seconds: float = 20.0  # how long running requests may take after that
    num_workers: int = 1
    supervisor: int = 0  # process id of the parent of several workers
