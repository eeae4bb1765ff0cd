"""``ltls info``: what a model file contains."""

from __future__ import annotations

import json
from typing import Any

from ..io.files import check_model_file
from .options import Json, ModelFile, Verify
from .output import show_facts


def info(model: ModelFile, as_json: Json = False, verify: Verify = True) -> None:
    """Show what a model file contains.

    Prints the labels, features and parts of the model, the size of the file, what the model was
    trained on, and the parameters.
    """
    check_model_file(model)
    from ..storage.model_file import describe  # slow; not needed to reject wrong options

    facts = describe(model, verify=verify)
    facts["parameters"] = {name: _plain(value) for name, value in facts["parameters"].items()}
    if as_json:
        print(json.dumps(facts, default=str))
    else:
        show_facts(facts)


def _plain(value: Any) -> Any:
    """Return a parameter in a JSON-serializable form; groups of settings become dicts."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value.get_params(deep=False) if hasattr(value, "get_params") else value
