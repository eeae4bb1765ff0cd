"""``ltls info``: what a model file contains."""

from __future__ import annotations

import json
from typing import Any

from ..storage.model_file import describe
from .options import Json, ModelFile, Verify
from .terminal import show_facts


def info(
    model: ModelFile,
    as_json: Json = False,
    verify: Verify = True,
) -> None:
    """Show what a model file contains."""
    facts = describe(model, verify=verify)
    facts["parameters"] = {name: _json_value(value) for name, value in facts["parameters"].items()}
    if as_json:
        print(json.dumps(facts))
        return
    if "text" in facts:  # its settings are among the parameters
        facts["text"] = {
            kind: f"{facts['text'][kind]:,}"
            for kind in ("words", "characters")
            if kind in facts["text"]
        }
    for name in ("text", "table", "columns", "parameters"):
        if name in facts:
            given = {key: value for key, value in facts[name].items() if value not in (None, [])}
            facts[name] = ", ".join(f"{key}={value}" for key, value in given.items())
    show_facts(facts)


def _json_value(value: Any) -> Any:
    """Return a parameter as JSON holds it: class weights of unusual labels as text."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
