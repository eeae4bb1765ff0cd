"""The application and its routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.version import __version__
from .annif import SuggestRequest, project, suggest
from .connection import RequestCounter
from .gate import Gate
from .messages import Answer, RequestError, encoded
from .models import ModelStore, ServedModel
from .monitoring import CONTENT_TYPE, Metrics
from .plain import PredictRequest, predict
from .protocol import HEADER_LENGTH, InferRequest, infer, metadata
from .settings import Settings
from .work import Work

_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(settings: Settings) -> Starlette:
    """Return an ASGI application that serves models.

    Parameters
    ----------
    settings : Settings
        The models, limits and access.

    Returns
    -------
    starlette.applications.Starlette
        It loads the models when it starts, and fails to start if one cannot be loaded.

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
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        models.load()
        if settings.reload:
            models.watch(settings.reload)
        yield
        models.close()
        work.close()

    middleware = [Middleware(Gate, settings=settings, metrics=metrics)]
    if settings.cors_origins:
        cors: dict[str, Any] = {
            "allow_origins": list(settings.cors_origins),
            "allow_methods": ["GET", "POST"],
            "allow_headers": ["Authorization", "Content-Type"],
        }
        middleware.insert(0, Middleware(CORSMiddleware, **cors))
    middleware.insert(0, Middleware(RequestCounter))  # answers of all others are counted, too
    app = Starlette(
        routes=_routes(models, metrics, work),
        middleware=middleware,
        exception_handlers={HTTPException: _error, RequestError: _error},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # redirects would contain the client's Host
    return app


def _routes(models: ModelStore, metrics: Metrics, work: Work) -> list[Route]:
    def named(request: Request) -> ServedModel:
        return models.get(request.path_params["name"], request.path_params.get("version"))

    async def post_predict(request: Request) -> Response:
        return await work.answer(request, partial(predict, models))

    async def post_infer(request: Request) -> Response:
        size = request.headers.get(HEADER_LENGTH)
        return await work.answer(request, partial(infer, named(request), size))

    async def post_suggest(request: Request) -> Response:
        return await work.answer(request, partial(suggest, named(request)))

    async def show_project(request: Request) -> Response:
        return Answer(encoded(project(named(request))))

    async def list_models(_: Request) -> Response:
        return Answer(b"[%s]" % b",".join(model.json for model in models.all()))

    async def show_metrics(_: Request) -> Response:
        return Answer(metrics.text(), media_type=CONTENT_TYPE)

    async def ready(_: Request) -> Response:
        is_ready = bool(models.all())
        return Answer(encoded({"ready": is_ready}), 200 if is_ready else 503)

    async def describe(request: Request) -> Response:
        return Answer(encoded(metadata(named(request))))

    async def model_ready(request: Request) -> Response:
        return Answer(encoded({"name": named(request).name, "ready": True}))

    server = {"name": "ltls", "version": __version__, "extensions": ["binary_tensor_data"]}
    routes = [
        *(Route(path, _page(*file)) for path, file in _PAGE.items()),
        Route("/predict", post_predict, methods=["POST"]),
        Route("/models", list_models),
        Route("/metrics", show_metrics),
        Route("/v1/projects/{name}", show_project),
        Route("/v1/projects/{name}/suggest", post_suggest, methods=["POST"]),
        Route("/v2", _constant(encoded(server))),
        Route("/v2/health/live", _constant(b'{"live":true}')),
        Route("/v2/health/ready", ready),
    ]
    for model in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(f"{model}/infer", post_infer, methods=["POST"]),
            Route(model, describe),
            Route(f"{model}/ready", model_ready),
        ]
    return [*routes, Route("/openapi.json", _constant(encoded(_schema(routes))))]


def _constant(content: bytes, **others: Any) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint with a constant response."""

    async def constant(_: Request) -> Response:
        return Answer(content, **others)

    return constant


def _page(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = files(__package__).joinpath("page", name).read_bytes()
    return _constant(content, headers=_PAGE_HEADERS, media_type=media_type)


def _schema(routes: list[Route]) -> dict[str, Any]:
    """Return the routes and request types as an OpenAPI document."""
    schemas, components = msgspec.json.schema_components(
        (PredictRequest, InferRequest, SuggestRequest), ref_template="#/components/schemas/{name}"
    )
    bodies = dict(zip(("predict", "infer", "suggest"), schemas, strict=True))
    paths = {}
    for route in routes:
        answer: dict[str, Any] = {"responses": {"200": {"description": "The answer."}}}
        paths[route.path] = {"get": answer}
        if schema := bodies.get(route.path.rpartition("/")[2]):
            form = "x-www-form-urlencoded" if route.path.endswith("/suggest") else "json"
            body = {"content": {f"application/{form}": {"schema": schema}}}
            paths[route.path] = {"post": {"requestBody": body, **answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ltls", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }


async def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        message, headers = error.detail, dict(error.headers or {})
        if error.status_code == 404:
            message = "there is no such path; GET /openapi.json lists all paths"
        elif allowed := headers.get("Allow"):
            needed = " or ".join(sorted(allowed.split(", ")))
            message = f"this path takes {needed}, not {request.method}"
        error = RequestError(error.status_code, message, headers)
    assert isinstance(error, RequestError)
    return error.answer()
