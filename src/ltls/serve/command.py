"""``ltls serve``: the command line of the server."""

from __future__ import annotations

import inspect
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.settings import ParameterError
from ..io.files import check_model_file
from .settings import Settings

TOKEN_VARIABLE = "LTLS_SERVE_TOKEN"
_NEEDED = ("starlette", "uvicorn", "msgspec", "prometheus_client")
_LEVELS = ("debug", "info", "warning", "error")


def serve(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Model files, written by ltls train.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help=f"File with a bearer token that requests must have; otherwise ${TOKEN_VARIABLE}.",
            show_default="none",
        ),
    ] = None,
    log_level: Annotated[
        str, typer.Option(help=f"{', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}.", metavar="LEVEL")
    ] = "info",
    **options: Any,
) -> None:
    """Serve models over HTTP, with a page to try them.

    Supports the Open Inference Protocol (/v2/...) and plain JSON at /predict, and has a page at /
    to try the models. Replaced model files are reloaded. Logs are JSON lines on standard error. On
    SIGTERM, the server answers the requests in progress and exits.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"ltls serve needs {', '.join(missing)}: pip install 'ltls[serve]'")
    if log_level not in _LEVELS:
        raise ValueError(f"--log-level must be one of {', '.join(_LEVELS)}, got {log_level}")
    for path in models:
        check_model_file(path)
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    given["allowed_hosts"] += (host,)
    named = _by_name(models)
    try:
        settings = Settings(models=named, token=_token(token_file), **given)
    except ParameterError as error:
        raise ValueError(f"--{error.parameter.replace('_', '-')} {error.reason}") from None
    from ..storage.model_file import load_model
    from .running import run

    for path in named.values():  # report errors in one line here, not in a worker
        load_model(path, mmap=True, verify=False)
    run(settings, host, port, workers, log_level)


def _options() -> list[inspect.Parameter]:
    """Return the settings as options; those with several values may be repeated."""
    found = []
    for name, default, _, text in Settings.declared():
        if name in ("models", "token"):
            continue
        words = name.replace("_", "-")
        kind: Any = type(default)
        option = f"--{words}"
        if kind is bool:
            option += f"/--no-{words}"
        elif kind is tuple:
            option, kind, default = option.removesuffix("s"), list[str], []
        default = typer.Option(default, option, help=text)
        keyword = inspect.Parameter.KEYWORD_ONLY
        found.append(inspect.Parameter(name, keyword, default=default, annotation=kind))
    return found


def _by_name(paths: list[Path]) -> dict[str, Path]:
    """Return model files by name: the file name without ``.ltls``."""
    named: dict[str, Path] = {}
    for path in paths:
        name = path.name.removesuffix(".ltls")
        if name in named:
            raise ValueError(f"models must have different file names, got {named[name]} and {path}")
        named[name] = path
    return named


def _token(path: Path | None) -> str | None:
    """Return the bearer token from a file or the environment; command lines are public."""
    token = os.environ.get(TOKEN_VARIABLE) if path is None else path.read_text("utf-8").strip()
    if token is not None and not token.strip():
        raise ValueError(f"the token in {path or TOKEN_VARIABLE} must not be empty")
    return token


_signature = inspect.signature(serve, eval_str=True)
_parameters = [*_signature.parameters.values()][:-1] + _options()
serve.__signature__ = _signature.replace(parameters=_parameters)  # type: ignore[attr-defined]
serve.__annotations__ = {each.name: each.annotation for each in _parameters}
