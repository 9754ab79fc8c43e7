"""``unidex serve``: the service and its page."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from unidex.cli.output import print_text
from unidex.cli.predict import ModelFolder
from unidex.errors import MissingExtraError

_LIMITS = "Limits"


def _limit(name: str, help_text: str) -> Any:
    return typer.Option(name, min=1, help=help_text, rich_help_panel=_LIMITS)


def serve(
    model: ModelFolder,
    host: Annotated[str, typer.Option("--host", help="The address to listen at; 0.0.0.0 is all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that serve.")] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Tokens, one a line, of those who may change labels; else nobody may."
        ),
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log a line for every request.")] = False,
    drain_seconds: Annotated[
        float, typer.Option("--drain-seconds", min=0, help="How long to go on answering after SIGTERM.")
    ] = 1.0,
    text_length: Annotated[int, _limit("--max-text-length", "Characters a text.")] = 20_000,
    texts: Annotated[int, _limit("--max-texts", "Texts a request.")] = 1024,
    body: Annotated[int, _limit("--max-body", "Bytes of a request's body.")] = 16 << 20,
    k: Annotated[int, _limit("--max-k", "Labels a text.")] = 100,
    concurrent: Annotated[int, _limit("--max-concurrent", "Requests at once, for each worker.")] = 256,
) -> None:
    """Serve a model over HTTP, with a page to try it.

    SIGTERM finishes the requests that are there and leaves; SIGHUP reads the model folder again and swaps the new model
    in while requests are answered.

    Example: unidex serve hpo-model --token-file tokens.txt
    """
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if find_spec(name) is None]
    if missing:
        raise MissingExtraError("serve", "serve")
    from unidex.server.limits import Limits
    from unidex.server.runner import run
    from unidex.server.settings import Settings

    limits = Limits(text_length=text_length, texts=texts, body=body, k=k, concurrent=concurrent)
    settings = Settings(
        folder=model,
        limits=limits,
        token_file=token_file,
        log_requests=log_requests,
        drain_seconds=drain_seconds,
        num_workers=workers,
    )
    run(settings, host, port, _say)


def _say(line: str) -> None:
    print_text(line)
    # Whoever waits for the line reads it from a pipe.
    sys.stdout.flush()
