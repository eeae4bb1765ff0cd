"""Names used by older files: every file that was ever written stays readable."""

from __future__ import annotations

from typing import Any

# Estimator parameters that were renamed, old to new.
_RENAMED_PARAMETERS = {"rescore": "embedding_dim"}


def current_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's parameters under their present names."""
    current = {_RENAMED_PARAMETERS.get(name, name): value for name, value in parameters.items()}
    if current.get("embedding_dim") == "auto":  # before there were label weights
        current["embedding_dim"] = 0
    return current
