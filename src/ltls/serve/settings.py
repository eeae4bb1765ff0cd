"""What a server serves, and its limits."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..core import settings as declared
from ..core.settings import FLAG, NOTHING, Allowed, Integer, Number, setting, settings

_MODELS = Allowed("a dict of model files by name", lambda value: bool(value))
_TOKEN = Allowed(
    "ASCII characters, and not empty",
    lambda value: isinstance(value, str) and value.isascii() and bool(value.strip()),
)
_TEXTS = Allowed("a tuple of strings", lambda value: isinstance(value, tuple))


@settings
class Settings(declared.Settings):
    """The models of a server, its limits and who may use it.

    Examples
    --------
    >>> from ltls.serve import Settings
    >>> settings = Settings(models={"tickets": "tickets.ltls"}, max_rows=16)
    >>> settings.max_rows, settings.timeout
    (16, 10.0)
    """

    models: Mapping[str, str | os.PathLike[str]] = setting(
        _MODELS, default=None, help="Model files by the names that requests use."
    )
    token: str | None = setting(
        _TOKEN,
        NOTHING,
        default=None,
        help="Bearer token that requests must have, but for the page and the health checks.",
    )
    allowed_hosts: tuple[str, ...] = setting(
        _TEXTS,
        default=(),
        help="A name by which clients address the server, * for any. IP addresses, localhost and "
        "the name of this machine are known; if there is a token, so is any name.",
    )
    cors_origins: tuple[str, ...] = setting(
        _TEXTS, default=(), help="An origin of other pages that may read answers."
    )
    max_body: int = setting(
        Integer(1), default=8 << 20, help="Bytes of a request. More get status 413."
    )
    max_rows: int = setting(
        Integer(1), default=1024, help="Rows of a request. More get status 413."
    )
    max_k: int = setting(Integer(1), default=1000, help="Labels per row. More get status 422.")
    max_labels: int = setting(
        Integer(1),
        default=1 << 17,
        help="Labels of an answer: rows times k, and times 64 if they are explained. More get "
        "status 413.",
    )
    max_concurrency: int = setting(
        Integer(1),
        default=256,
        help="Requests that a worker handles at the same time. More get status 503.",
    )
    timeout: float = setting(
        Number(above=0),
        default=10.0,
        help="Seconds to receive a request (then status 408), to answer it (504), and to send the "
        "answer (then the connection is closed).",
    )
    drain: float = setting(
        Number(above=0), default=30.0, help="Seconds for requests to finish after SIGTERM."
    )
    reload: float = setting(
        Number(0), default=1.0, help="Seconds between looks at the model files; 0 is never."
    )
    verify: bool = setting(FLAG, default=True, help="Verify the checksums of model files.")
    access_log: bool = setting(FLAG, default=True, help="Log every request.")

    def __post_init__(self) -> None:
        self.check()
