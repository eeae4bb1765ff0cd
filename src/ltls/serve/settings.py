"""What a server serves, and its limits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The models of a server, its limits and who may use it.

    Parameters
    ----------
    models : dict of str to Path
        Model files by the names that requests use.
    token : str or None, default=None
        Requests must carry this bearer token. The health checks and the page itself are open.
    cors_origins : tuple of str, default=()
        Origins of other pages that may read answers, such as ``"https://example.org"``.
    max_body : int, default=8388608
        Bytes of a request. Larger ones get status 413.
    max_rows : int, default=1024
        Rows of a request. More get status 413.
    max_k : int, default=1000
        Labels per row. More get status 422.
    max_concurrency : int, default=256
        Requests that a worker handles at the same time. More get status 503.
    timeout : float, default=10.0
        Seconds to receive a request (then status 408), and to answer it (then 504).
    drain : float, default=30.0
        Seconds that requests have to finish after SIGTERM.
    reload : float, default=1.0
        Seconds between looks at the model files; 0 never reloads them.
    verify : bool, default=True
        Verify the checksums of model files when they are loaded.
    access_log : bool, default=True
        Log every request.

    Examples
    --------
    >>> from ltls.serve import Settings
    >>> settings = Settings(models={"tickets": "tickets.ltls"}, max_rows=16)
    >>> settings.models["tickets"].name, settings.timeout
    ('tickets.ltls', 10.0)
    """

    models: Mapping[str, Path]
    token: str | None = None
    cors_origins: tuple[str, ...] = ()
    max_body: int = 8 << 20
    max_rows: int = 1024
    max_k: int = 1000
    max_concurrency: int = 256
    timeout: float = 10.0
    drain: float = 30.0
    reload: float = 1.0
    verify: bool = True
    access_log: bool = True

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models must have at least one model file, got none")
        for name in ("max_body", "max_rows", "max_k", "max_concurrency"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("timeout", "drain"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 seconds, got {getattr(self, name)}")
        if not 0 <= self.reload < float("inf"):
            raise ValueError(f"reload must be at least 0 seconds, got {self.reload}")
        if self.token is not None and not (self.token.isascii() and self.token.strip()):
            raise ValueError("token must be ASCII characters, and not empty")
        paths = {name: Path(path) for name, path in self.models.items()}
        object.__setattr__(self, "models", paths)


def model_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """Return model files by name: that of the file, without ``.ltls``."""
    named: dict[str, Path] = {}
    for path in map(Path, paths):
        name = path.name.removesuffix(".ltls")
        if name in named:
            raise ValueError(f"models must have different file names, got {named[name]} and {path}")
        named[name] = path
    return named
