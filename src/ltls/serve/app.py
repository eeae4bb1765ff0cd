"""The application: routes and what they need."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ..core.version import __version__
from .answers import Receive, Scope, Send
from .direct import Direct
from .errors import RequestError, error_answer
from .gate import Gate
from .metrics import CONTENT_TYPE, Metrics
from .models import ModelStore
from .plain import Plain, PredictRequest
from .protocol import Protocol
from .settings import Settings
from .work import Work

_PAGE = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
_MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Application(FastAPI):
    """FastAPI; requests pass the gate first, and those for predictions do not reach it."""

    entrance: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the start and the end of the server."""
        if self.entrance is not None and scope["type"] == "http":
            await self.entrance(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> FastAPI:
    """Return an ASGI application that serves models.

    Parameters
    ----------
    settings : Settings

    Returns
    -------
    fastapi.FastAPI
        Models are loaded when it starts. A file that cannot be loaded stops it then.

    Examples
    --------
    >>> from ltls.serve import Settings, create_app
    >>> app = create_app(Settings(models={"tickets": "tickets.ltls"}))
    >>> sorted(route.path for route in app.routes)[:3]
    ['/', '/metrics', '/models']
    """
    metrics, work = Metrics(), Work(settings)
    models = ModelStore(settings.models, settings.verify, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        models.load()
        watch = asyncio.create_task(_watch(models, settings.reload)) if settings.reload else None
        yield
        if watch is not None:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
        work.close()
        gate.close()

    # The pages of FastAPI that show its schema load scripts from elsewhere.
    app = Application(
        title="ltls", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    plain, protocol = Plain(settings, models, work), Protocol(settings, models, work)
    app.add_api_route(
        "/predict",
        plain.predict,
        methods=["POST"],
        response_model=None,
        openapi_extra={"requestBody": {"content": {"application/json": {"schema": _schema()}}}},
    )

    _add_protocol(app, protocol)

    @app.get("/models")
    async def list_models() -> list[dict[str, Any]]:
        """List the models and what they take."""
        return [model.description() for model in models.all()]

    @app.get("/metrics", response_model=None)
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    for path, name in _PAGE.items():
        app.add_api_route(path, _page(name), include_in_schema=False, response_model=None)
    app.add_exception_handler(RequestError, _request_error)
    app.add_exception_handler(HTTPException, _http_error)
    inner = Direct(functools.partial(FastAPI.__call__, app), plain, protocol)
    gate = Gate(inner, settings, metrics)
    app.entrance = gate
    if settings.cors_origins:
        app.entrance = CORSMiddleware(
            app.entrance,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _add_protocol(app: FastAPI, protocol: Protocol) -> None:
    def add(path: str, endpoint: Callable[..., Any], method: str = "GET") -> None:
        app.add_api_route(path, endpoint, methods=[method], response_model=None)

    for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        add(f"{model}/infer", protocol.infer, "POST")
        add(model, protocol.model)
        add(f"{model}/ready", protocol.model_ready)
    add("/v2", protocol.server)
    add("/v2/health/live", protocol.live)
    add("/v2/health/ready", protocol.ready)


async def _watch(models: ModelStore, seconds: float) -> None:
    """Reload models whose files were replaced, for as long as the server runs."""
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(models.reload)


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = PredictRequest.model_json_schema()
    definitions = schema.pop("$defs", {})
    text = json.dumps(schema)
    for name, definition in definitions.items():  # an endpoint has no place for definitions
        text = text.replace(json.dumps({"$ref": f"#/$defs/{name}"}), json.dumps(definition))
    inlined: dict[str, Any] = json.loads(text)
    return inlined


def _page(name: str) -> Callable[[], Any]:
    content = files(__package__).joinpath("page", name).read_bytes()
    media_type = _MEDIA[name.rpartition(".")[2]]

    async def page() -> Response:
        return Response(content, headers=_PAGE_HEADERS, media_type=media_type)

    return page


async def _request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_answer(error).response()


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return error_answer(RequestError(error.status_code, str(error.detail), headers)).response()
