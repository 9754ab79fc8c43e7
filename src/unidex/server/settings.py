"""How the service runs; light, so that the process that starts the workers stays small."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from unidex.server.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the service runs.

    Attributes:
        folder: the model folder.
        limits: of requests.
        token_file: tokens of those who may change labels; nobody may where there is none.
        log_requests: whether every answer is logged.
        drain_seconds: how long to go on answering after SIGTERM, so that nobody finds a closed door.
        finish_seconds: how long requests may take to finish after that.
        num_workers: processes that serve.
        supervisor: the process that started the workers, where there are several.
    """

    folder: Path
    limits: Limits = field(default_factory=Limits)
    token_file: Path | None = None
    log_requests: bool = False
    drain_seconds: float = 1.0
    finish_seconds: float = 20.0
    num_workers: int = 1
    supervisor: int = 0
