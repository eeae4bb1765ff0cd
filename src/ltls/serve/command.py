"""``ltls serve``: the command line of the server."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .settings import Settings, model_names

TOKEN_VARIABLE = "LTLS_SERVE_TOKEN"
_DEFAULTS = Settings(models={"": Path()})


def serve(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Model files, by ltls train.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with a bearer token that requests must have; else ${TOKEN_VARIABLE}.",
            show_default="none",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a page that may use the server.", show_default="none"),
    ] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = _DEFAULTS.max_body,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = _DEFAULTS.max_rows,
    max_k: Annotated[int, typer.Option(min=1, help="Labels per row.")] = _DEFAULTS.max_k,
    max_concurrency: Annotated[
        int, typer.Option(min=1, help="Requests that a worker handles at the same time.")
    ] = _DEFAULTS.max_concurrency,
    timeout: Annotated[
        float, typer.Option(help="Seconds to receive a request, and to answer it.")
    ] = _DEFAULTS.timeout,
    drain: Annotated[
        float, typer.Option(help="Seconds for requests to finish after SIGTERM.")
    ] = _DEFAULTS.drain,
    reload: Annotated[
        float, typer.Option(help="Seconds between looks at the model files; 0 is never.")
    ] = _DEFAULTS.reload,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the checksums of the weights.")
    ] = True,
    access_log: Annotated[
        bool, typer.Option("--access-log/--no-access-log", help="Log every request.")
    ] = True,
    log_level: Annotated[
        str, typer.Option(help="debug, info, warning or error.", metavar="LEVEL")
    ] = "info",
) -> None:
    """Serve models over HTTP, with a page to try them.

    Speaks the Open Inference Protocol (/v2/...), and plain JSON at /predict. The page at / is for
    trying the models. A model file that is replaced is reloaded. Logs are JSON lines on standard
    error. SIGTERM ends the server when all requests that have begun are answered.
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise ValueError("ltls serve needs FastAPI and uvicorn: pip install 'ltls[serve]'")
    if log_level not in ("debug", "info", "warning", "error"):
        raise ValueError(f"--log-level must be debug, info, warning or error, got {log_level}")
    settings = Settings(
        models=model_names(models),
        token=_token(token_file),
        cors_origins=tuple(cors_origin or ()),
        max_body=max_body,
        max_rows=max_rows,
        max_k=max_k,
        max_concurrency=max_concurrency,
        timeout=timeout,
        drain=drain,
        reload=reload,
        verify=verify,
        access_log=access_log,
    )
    from ..storage.model_file import load_model
    from .running import run

    for path in settings.models.values():  # an error is one line here, not that of a worker
        load_model(path, mmap=True, verify=False)
    _check_address(host, port)
    run(settings, host, port, workers, log_level)


def _check_address(host: str, port: int) -> None:
    """Raise an error if nobody can listen there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --host "
            "and --port"
        ) from None


def _token(path: Path | None) -> str | None:
    """Return the bearer token from a file or the environment: command lines can be read by all."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    return path.read_text("utf-8").strip()
