"""A size budget: which parts and views a model keeps if not all of them fit into its file.

Fewer weights of all parts, or all weights of fewer parts? Held-out rows say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..model.examples import Examples
from ..model.fitted import Provenance
from ..model.model import Model
from ..parts.base import can
from ..storage.model_file import SavedModel, within_budget

_OPTIONAL = ("neighbours", "prototypes")  # in the order in which they are left out
_TOP = 5


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
        return within_budget(SavedModel(model, {}, provenance, {}), budget)

    model = replace(model, memory=getattr(model.part("neighbours"), "memory", None))
    best, most = model, -np.inf
    for smaller in _ever_smaller(model, needed):
        try:
            fits = pruned(smaller)
        except ValueError:  # not even the fewest weights fit
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
            pairs = zip(model.parts, model.weights, strict=True)
            kept = [(part, weight) for part, weight in pairs if part.name != name]
            parts, weights = zip(*kept, strict=True)
            model = replace(model, parts=parts, weights=weights)
            yield model
    views = model.part("views")
    while views is not None and "views" not in needed and len(views.views) > 1:
        views = replace(views, views=views.views[:-1])
        model = model.with_parts([views if part.name == "views" else part for part in model.parts])
        yield model


def _unpruned(part: Any, whole: Any) -> Any:
    """Return a part with all of its weights, in the variant that was chosen."""
    return replace(whole, weight=part.weight) if can(part, "variants") else whole


def _quality(model: Model, examples: Examples, n_jobs: int | None) -> float:
    """Return P@1 + recall@5."""
    ids, _ = model.topk(examples.rows, _TOP, n_jobs)
    hits = examples.contains(ids)
    n_true = np.clip(np.diff(examples.indptr), 1, _TOP)
    return float((hits[:, 0] + hits.sum(axis=1) / n_true).mean())
