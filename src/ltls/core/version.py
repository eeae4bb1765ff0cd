"""The version of the installed package."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ltls")
except PackageNotFoundError:  # run from source without the compiled engine
    __version__ = "0+source"
