"""``ltls info``: what a model file holds."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from .terminal import show_facts
from .options import Json, ModelFile, plain


def info(
    model: ModelFile,
    as_json: Json = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check all weights for damage.")
    ] = True,
) -> None:
    """Say what a model file holds, and whether it is whole."""
    from ..storage.model_file import describe

    facts = describe(model, verify=verify)
    # As text where JSON has no such kind: class weights of labels that are tuples or bytes.
    facts["parameters"] = {name: _plain(value) for name, value in facts["parameters"].items()}
    if as_json:
        print(json.dumps(facts))
        return
    if "text" in facts:  # its settings are among the parameters
        facts["text"] = {kind: f"{facts['text'][kind]:,}" for kind in ("words", "characters")
                         if kind in facts["text"]}  # fmt: skip
    for name in ("text", "columns", "parameters"):
        if name in facts:
            said = {key: value for key, value in facts[name].items() if value not in (None, [])}
            facts[name] = ", ".join(f"{key}={value}" for key, value in said.items())
    show_facts(facts)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else plain(value)
