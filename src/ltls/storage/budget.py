"""A size budget: which weights, parts and views a model keeps if not all of them fit into its file.

Fewer weights of all parts, or all weights of fewer parts? In training, held-out rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..features.front_ends import FrontEnd
from ..model.examples import Examples
from ..model.fitted import Fitted, Provenance
from ..model.model import Model
from ..parts.base import can, has
from .model_file import encoded

_OPTIONAL = ("neighbours", "prototypes")  # in the order in which they are left out
_TOP = 5
_STEP, _FEWEST = 0.8, 0.001  # of the weights: how a budget is met


def within_budget(fitted: Fitted, parameters: dict[str, Any], budget: int) -> Model:
    """Return a model with the largest weights only, so many that its file fits into a budget.

    The weights of all parts decrease in the same proportion. A model that fits stays as it is.
    """
    model, fraction = fitted.model, 1.0
    smaller, size = model, _size(fitted, parameters)
    while size > budget and (fraction := fraction * _STEP) >= _FEWEST:
        parts = [part.pruned(fraction) if can(part, "pruned") else part for part in model.parts]
        kept = next((part.memory for part in parts if has([part], "needs_memory")), None)
        smaller = model.with_parts(parts, memory=model.memory if kept is None else kept)
        size = _size(replace(fitted, model=smaller), parameters)
    if size > budget:
        raise ValueError(
            f"size_budget of {budget:,} bytes is too small: the smallest model of "
            f"{model.columns.n_features:,} features and {len(model.labels):,} labels takes "
            f"{size:,}; use a larger budget or {_fewer_features(model.front_end)}"
        )
    return smaller


def check_front_end(front_end: FrontEnd, budget: int) -> None:
    """Raise an error if what turns inputs into features takes more than a budget."""
    size = sum(tensor.nbytes for tensor in front_end.state()[1].values())
    if size > budget:
        raise ValueError(
            f"size_budget of {budget:,} bytes is too small: the vocabulary alone takes {size:,}; "
            f"use a larger budget or {_fewer_features(front_end)}"
        )


def _fewer_features(front_end: FrontEnd) -> str:
    """Return how to get a smaller model, as it is called in Python and at the terminal."""
    name = front_end.name
    if name == "features":
        return "fewer features"
    return (
        "fewer n-grams: features.min_df=2 or more, a smaller features.max_features, or "
        "features.n_features=16384, which stores none (--set features.min_df=2 at the terminal)"
    )


def _size(fitted: Fitted, parameters: dict[str, Any]) -> int:
    """Return how large the file of a model is without what is only for further training."""
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
    """Return the model, or the one with fewer parts or views that is best within a budget.

    Parameters
    ----------
    model : Model
        Not trained on the examples.
    budget : int
        Bytes of the model file.
    provenance : Provenance
    needed : set of str
        Parts that are not left out, and "views" if none of them is.
    examples : Examples
        Held-out rows.
    choose : callable
        Chooses the weights of a model anew.
    n_jobs : int or None
    """

    def pruned(model: Model) -> Model:
        return within_budget(Fitted(model, provenance), {}, budget)

    model = replace(model, memory=getattr(model.part("neighbours"), "memory", None))
    best, most = model, -np.inf
    for smaller in _ever_smaller(model, needed):
        try:
            fits = pruned(smaller)
        except ValueError:  # not even the fewest weights fit, of this one or of all
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
    for name in _OPTIONAL:
        if model.part(name) is not None and name not in needed:
            model = _without(model, name)
            yield model
    views = model.part("views")
    while views is not None and "views" not in needed and len(views.views) > 1:
        views = replace(views, views=views.views[:-1])
        model = model.with_parts([views if part.name == "views" else part for part in model.parts])
        yield model


def _without(model: Model, name: str) -> Model:
    return model.keeping(lambda part: part.name != name)


def _unpruned(part: Any, whole: Any) -> Any:
    """Return a part with all of its weights, in the variant that was chosen."""
    if not can(part, "variants"):
        return whole
    numbers = {name: each for name, each in vars(part).items() if isinstance(each, float)}
    return replace(whole, **numbers)


def _quality(model: Model, examples: Examples, n_jobs: int | None) -> float:
    """Return P@1 + recall@5."""
    ids, _ = model.topk(examples.rows, _TOP, n_jobs)
    hits = examples.contains(ids)
    n_true = np.clip(np.diff(examples.indptr), 1, _TOP)
    return float((hits[:, 0] + hits.sum(axis=1) / n_true).mean())
