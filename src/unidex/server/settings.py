"""How the service runs. It imports little: the parent of the workers stays small."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from unidex.server.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the service runs.

    Attributes:
        folder: the model folder.
        limits: limits of a request.
        token_file: tokens that allow to change labels; without it nobody may.
        log_requests: whether to log every request.
        drain_seconds: how long to continue to answer after SIGTERM, until clients use another server.
        finish_seconds: how long running requests may take after that.
        num_workers: number of processes.
        supervisor: process id of the parent of several workers.
    """

    folder: Path
    limits: Limits = field(default_factory=Limits)
    token_file: Path | None = None
    log_requests: bool = False
    drain_seconds: float = 1.0
    finish_seconds: float = 20.0
    num_workers: int = 1
    supervisor: int = 0
