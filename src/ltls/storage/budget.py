"""A size budget: which weights, parts and views a model keeps if its file must be smaller.

In training, held-out rows decide between fewer weights in all parts and fewer parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..features.front_ends import FrontEnd
from ..model.examples import Examples
from ..model.fitted import Fitted, Provenance
from ..model.model import Model
from .model_file import encoded

_TOP = 5
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_STEP, _FEWEST = 0.8, 0.001  # of the weights: factor per step, and smallest fraction


def n_bytes(size: Any) -> int | None:
    """Return a size such as "5MB" in bytes, None if it is not a size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B)\s*", str(size).upper())
    if not match or match[2] not in _UNITS:
        return None
    found = float(match[1]) * _UNITS[match[2]]
    return int(found) if 1 <= found < np.inf else None


def within_budget(fitted: Fitted, parameters: dict[str, Any], budget: int) -> Model:
    """Return a model with as many of the largest weights as fit into the budget.

    All parts are pruned to the same fraction. A model that fits is returned unchanged.
    """
    model, fraction = fitted.model, 1.0
    smaller, size = model, _size(fitted, parameters)
    while size > budget and (fraction := fraction * _STEP) >= _FEWEST:
        parts = [part.pruned(fraction) if hasattr(part, "pruned") else part for part in model.parts]
        kept = _needed_rows(parts)
        smaller = model.with_parts(parts, memory=model.memory if kept is None else kept)
        size = _size(replace(fitted, model=smaller), parameters)
    if size > budget:
        raise ValueError(
            f"a size_budget of {budget:,} bytes is too small: the smallest model with "
            f"{model.columns.n_features:,} features and {len(model.labels):,} labels takes "
            f"{size:,}; use a larger budget, or train again with {model.front_end.settings.fewer}"
        )
    return smaller


def check_front_end(front_end: FrontEnd, budget: int) -> None:
    """Raise an error if the front end alone exceeds the budget."""
    size = sum(tensor.nbytes for tensor in front_end.state()[1].values())
    if size > budget:
        raise ValueError(
            f"a size_budget of {budget:,} bytes is too small: the vocabulary alone takes {size:,}; "
            f"use a larger budget, or train again with {front_end.settings.fewer}"
        )


def _size(fitted: Fitted, parameters: dict[str, Any]) -> int:
    """Return the size of a model's file without the sections for further training."""
    model = fitted.model
    memory = model.memory if model.needs_memory else None
    return len(encoded(Fitted(replace(model, memory=memory), fitted.provenance), parameters))


def affordable(
    model: Model,
    budget: int,
    provenance: Provenance,
    needed: set[str],
    examples: Examples,
    choose: Callable[[Model], Model],
    n_jobs: int | None,
) -> Model:
    """Return the model, or a variant with fewer parts or views that is best within a budget.

    Parameters
    ----------
    model : Model
        Not trained on the examples.
    budget : int
        Bytes of the model file.
    provenance : Provenance
    needed : set of str
        Parts that must be kept as they are.
    examples : Examples
        Held-out rows.
    choose : callable
        Chooses new weights for a model.
    n_jobs : int or None
    """

    def pruned(model: Model) -> Model:
        return within_budget(Fitted(model, provenance), {}, budget)

    model = replace(model, memory=_needed_rows(model.parts))
    best, most = model, -np.inf
    for smaller in _ever_smaller(model, needed):
        try:
            fits = pruned(smaller)
        except ValueError:  # even the fewest weights do not fit
            best = smaller if most == -np.inf else best
            continue
        if fits is model:
            return model
        chosen = choose(smaller) if fits is smaller else choose(fits)
        quality = _quality(chosen, examples, n_jobs)
        if quality > most:
            unpruned = [_unpruned(part, smaller.part(part.name)) for part in chosen.parts]
            best, most = chosen.with_parts(unpruned), quality
        if fits is smaller:
            break
    return best


def _ever_smaller(model: Model, needed: set[str]) -> Iterator[Model]:
    yield model
    given = [part for part in model.parts if part.name not in needed]
    # Stored rows, which take the most space, are the first to be left out.
    for part in sorted(given, key=lambda part: not getattr(part, "needs_memory", False)):
        if hasattr(part, "grid"):
            model = _without(model, part.name)
            yield model
    for part in given:
        for smaller in part.smaller() if hasattr(part, "smaller") else ():
            parts = [smaller if each.name == part.name else each for each in model.parts]
            model = model.with_parts(parts)
            yield model


def _without(model: Model, name: str) -> Model:
    return model.keeping(lambda part: part.name != name)


def _needed_rows(parts: Iterable[Any]) -> Any:
    """Return the training rows that a part needs, None if none needs any."""
    return next((part.memory for part in parts if getattr(part, "needs_memory", False)), None)


def _unpruned(part: Any, whole: Any) -> Any:
    """Return a part with all of its weights, in the variant that was chosen."""
    if not hasattr(part, "variants"):
        return whole
    numbers = {name: each for name, each in vars(part).items() if isinstance(each, float)}
    return replace(whole, **numbers)


def _quality(model: Model, examples: Examples, n_jobs: int | None) -> float:
    """Return P@1 + recall@5."""
    ids, _ = model.topk(examples.rows, _TOP, n_jobs)
    hits = examples.contains(ids)
    n_true = np.clip(np.diff(examples.indptr), 1, _TOP)
    return float((hits[:, 0] + hits.sum(axis=1) / n_true).mean())
