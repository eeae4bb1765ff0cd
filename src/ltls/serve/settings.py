"""The settings of a server: models, limits and access."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..core.settings import (
    FLAG,
    NOTHING,
    Allowed,
    Declared,
    Integer,
    Number,
    setting,
    settings,
)

_MODELS = Allowed("a dict of model files by name", lambda value: bool(value))
_TOKEN = Allowed(
    "a non-empty ASCII string",
    lambda value: isinstance(value, str) and value.isascii() and bool(value.strip()),
)
_TEXTS = Allowed("a tuple of strings", lambda value: isinstance(value, tuple))


@settings
class Settings(Declared):
    """The models of a server, its limits, and access to it.

    Examples
    --------
    >>> from ltls.serve import Settings
    >>> settings = Settings(models={"tickets": "tickets.ltls"}, max_rows=16)
    >>> settings.max_rows, settings.timeout
    (16, 10.0)
    """

    models: Mapping[str, str | os.PathLike[str]] = setting(
        _MODELS, default=None, help="Model files by name. At least one is required."
    )
    token: str | None = setting(
        _TOKEN,
        NOTHING,
        default=None,
        help="Bearer token that requests must have, except for the page and the health checks.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        _TEXTS,
        default=(),
        help="A host name that clients may use, * for any. IP addresses, localhost and the "
        "name of this machine are always allowed; with a token, all names are.",
    )
    cors_origins: tuple[str, ...] = setting(
        _TEXTS, default=(), help="An origin whose pages may read responses (CORS)."
    )
    max_body: int = setting(
        Integer(1),
        default=8 << 20,
        help="Maximum size of a request in bytes; larger ones get status 413.",
    )
    max_rows: int = setting(
        Integer(1), default=1024, help="Maximum number of rows per request; more get status 413."
    )
    max_k: int = setting(
        Integer(1), default=1000, help="Maximum number of labels per row; more get status 422."
    )
    max_labels: int = setting(
        Integer(1),
        default=1 << 17,
        help="Maximum number of labels in a response (rows times k, and times 64 if "
        "explained); more get status 413.",
    )
    max_concurrency: int = setting(
        Integer(1),
        default=256,
        help="Maximum number of concurrent requests per worker; more get status 503.",
    )
    timeout: float = setting(
        Number(above=0),
        default=10.0,
        help="Maximum seconds to receive a request (then status 408), to answer it (504), and "
        "to send the response (then the connection is closed).",
    )
    drain: float = setting(
        Number(above=0), default=30.0, help="Maximum seconds for requests to finish after SIGTERM."
    )
    reload: float = setting(
        Number(0),
        default=1.0,
        help="Seconds between checks for replaced model files; 0 disables them.",
    )
    verify: bool = setting(FLAG, default=True, help="Verify the checksums of model files.")
    access_log: bool = setting(FLAG, default=True, help="Log every request.")

    def __post_init__(self) -> None:
        self.check()
