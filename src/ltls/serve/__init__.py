"""An HTTP server for models: the Open Inference Protocol, plain JSON, and a page to try models.

``ltls serve model.ltls`` runs it. `create_app` returns the application for another ASGI server.
Requires Starlette, uvicorn, msgspec and prometheus_client: ``pip install 'ltls[serve]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from .app import create_app

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":  # settings alone need no Starlette
        from .app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
