"""``unidex serve``: the service and its page."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_text
from unidex.cli.shared_options import ModelFolder
from unidex.errors import MissingExtraError


def _limit(name: str, help_text: str) -> Any:
    return typer.Option(name, min=1, help=help_text, rich_help_panel="Limits")


def serve(
    model: ModelFolder,
    host: Annotated[str, typer.Option("--host", help="Address to listen at; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of processes that serve.")] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="One token per line; a token allows to change labels. Default: none."
        ),
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log one line per request.")] = False,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", min=0, help="How long to continue to answer after SIGTERM.")
    ] = 1.0,
    text_length: Annotated[int, _limit("--max-text-length", "Characters per text.")] = 20_000,
    texts: Annotated[int, _limit("--max-texts", "Texts per request.")] = 1024,
    body: Annotated[int, _limit("--max-body", "Bytes per request body.")] = 16 << 20,
    k: Annotated[int, _limit("--max-k", "Labels per text.")] = 100,
    concurrent: Annotated[int, _limit("--max-concurrent", "Concurrent requests per worker.")] = 256,
) -> None:
    """Serve a model over HTTP, with a page to try it.

    SIGTERM finishes the current requests and exits. SIGHUP reads the model folder again and replaces the model while
    requests are answered.

    Example: unidex serve hpo-model --token-file tokens.txt
    """
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise MissingExtraError("serve", "serve")
    from unidex.server.runner import run
    from unidex.server.settings import Limits, Settings

    limits = Limits(text_length=text_length, texts=texts, body=body, k=k, concurrent=concurrent)
    settings = Settings(
        folder=model,
        limits=limits,
        token_file=token_file,
        log_requests=log_requests,
        drain_seconds=drain_seconds,
        num_workers=workers,
    )
    run(settings, host, port, _announce)


def _announce(line: str) -> None:
    print_text(line)
    # A program that waits for the line reads it from a pipe.
    sys.stdout.flush()
