"""Views: clusterings of the labels.

A view has clusters of similar labels, about a hundred to a cluster, trellises that find clusters,
and label weights that tell the labels of a cluster apart. The score of a label in a view is
−max(0, 1 − s)³ + weight · b, where s is the output of its classifier among its siblings, and b what
the view's trellises say of its cluster: log p(cluster) for one label per row. Several views, which
differ in the random starts of the clustering, add up as log Σ exp(score): a label that one view
hides among too similar siblings is found by another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, threads
from ..core.declarations import Described
from ..core.settings import AUTO, Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .label_weights import LabelWeightPart
from .trellises import TrellisPart

_CLUSTERS = 4  # of a view that are searched for candidates
_WEIGHTS = (1.0, 0.5, 0.75, 1.5, 2.0)  # of the trellises, the usual one first


@settings
class Views(Settings):
    """How many views a model has, and how large their clusters are."""

    n_views: int | str = setting(
        Integer(1, 64),
        AUTO,
        default=AUTO,
        help="Number of clusterings. More are more accurate, larger and slower.",
    )
    cluster_size: int | str = setting(
        Integer(2), AUTO, default=AUTO, help='Labels of a cluster, on average; "auto" is about 100.'
    )


class View(NamedTuple):
    """A clustering: trellises over clusters, which are buckets of labels, and label weights."""

    trellises: TrellisPart
    label_weights: LabelWeightPart


@register_part
@dataclass(frozen=True, eq=False)
class ViewPart:
    """One or several views, and the weight of their trellises."""

    name: ClassVar[str] = "views"
    settings: ClassVar[type[Settings]] = Views
    keeps_threshold: ClassVar[bool] = True

    views: tuple[View, ...]
    weight: float = _WEIGHTS[0]

    def trellis_parts(self) -> list[TrellisPart]:
        """Return the trellises, one part per view."""
        return [view.trellises for view in self.views]

    # Prediction

    def _predictor(self, view: View, k: int) -> _engine.Predictor:
        sizes = np.sort(view.trellises.sizes_of_paths)[-_CLUSTERS:]
        n_trellises = len(view.trellises.codebooks)
        n_candidates = min(n_trellises * int(sizes.sum()), view.trellises.n_labels)
        return view.trellises.predictor(
            min(k, n_candidates),
            _CLUSTERS,
            view.label_weights.vectors.engine,
            self.weight / n_trellises,
            n_candidates,
        )

    def candidates(self, rows: Rows, n: int, n_jobs: int | None) -> Ints:
        """Return the n best labels of every view."""
        found = []
        for view in self.views:
            predictor = self._predictor(view, n)
            ids = np.empty((len(rows), predictor.k), np.int64)
            scores = np.empty(ids.shape, np.float32)
            predictor.predict(rows.engine, 0, ids, scores, threads(n_jobs))
            found.append(ids)
        return np.concatenate(found, axis=1)

    def score(self, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        """Return the scores of labels, an array like `ids`."""
        total = self._score_of(self.views[0], rows, ids, n_jobs)
        for view in self.views[1:]:
            _engine.add_exponentials(self._score_of(view, rows, ids, n_jobs), total)
        return total

    def _score_of(self, view: View, rows: Rows, ids: Ints, n_jobs: int | None) -> Floats:
        scores = np.empty(ids.shape, np.float32)
        self._predictor(view, 1).score(rows.engine, 0, ids, scores, threads(n_jobs))
        return scores

    def variants(self) -> Iterator[ViewPart]:
        """Yield the part with other weights of the trellises, for the choice on held-out rows."""
        for weight in _WEIGHTS[1:]:
            yield replace(self, weight=weight)

    def explain(self, rows: Rows, label: int) -> PartExplanation:
        """Return what every feature of the only row adds to the score of a label.

        Contributions of views are weighted by their shares of the sum of exp(score).
        """
        each = [
            self._explain_view(number, view, rows, label) for number, view in enumerate(self.views)
        ]
        if len(each) == 1:
            return each[0]
        scores = np.array([view.score for view in each])
        total = float(np.logaddexp.reduce(scores))
        shares = np.exp(scores - total)
        weighted = zip(shares.tolist(), each, strict=True)
        pairs = [(share * view.contributions, share * view.intercept) for share, view in weighted]
        return PartExplanation(
            self.name,
            each[0].features,
            np.sum([contributions for contributions, _ in pairs], axis=0),
            float(sum(intercept for _, intercept in pairs)),
            total,
            "log of the sum of exp(score) over all views",
            {f"share of view {n + 1}": share for n, share in enumerate(shares.tolist())},
            parts=each,
        )

    def _explain_view(self, number: int, view: View, rows: Rows, label: int) -> PartExplanation:
        n_trellises = len(view.trellises.codebooks)
        trellises = view.trellises.explain(rows, label).times(self.weight / n_trellises)
        label_weights = view.label_weights.explain(rows, label)
        return PartExplanation(
            f"view {number + 1}",
            trellises.features,
            trellises.contributions + label_weights.contributions,
            trellises.intercept + label_weights.intercept,
            trellises.score + label_weights.score,
            "the sum of the trellises' and the label weights' scores",
            parts=[trellises, label_weights],
            additive=True,
        )

    # Training

    @classmethod
    def fit(cls, given: Views, context: Any) -> ViewPart:
        """Train label weights for the clusters of trellises that are trained already."""
        trellises = context.trellis_parts()
        clusters = [clusters_of(each) for each in trellises]
        weights = LabelWeightPart.fit_clusters(context.plan.label_weights, context, clusters)
        return cls(tuple(map(View, trellises, weights)))

    def finish(self, context: Any) -> ViewPart:
        """Return the views after training on the held-out rows, too."""
        weights = [view.label_weights.finish(context) for view in self.views]
        return replace(self, views=tuple(map(View, context.trellis_parts(), weights)))

    def grow(self, n_labels: int, n_new_columns: int) -> ViewPart:
        """Return the views with label weights for more labels and features."""
        views = [
            View(view.trellises, view.label_weights.grow(n_labels, n_new_columns))
            for view in self.views
        ]
        return replace(self, views=tuple(views))

    def learn(self, context: Any) -> ViewPart:
        """Return the views after a further batch, which the trellises have learned already."""
        views = []
        for view, trellises in zip(self.views, context.trellis_parts(), strict=True):
            weights = view.label_weights.learn_clusters(context, *clusters_of(trellises))
            views.append(View(trellises, weights))
        return replace(self, views=tuple(views))

    def pruned(self, density: float) -> ViewPart:
        """Return the part with the largest weights only, a fraction `density` of them."""
        views = [
            View(view.trellises.pruned(density), view.label_weights.pruned(density))
            for view in self.views
        ]
        return replace(self, views=tuple(views))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        described: dict[str, Any] = {"weight": self.weight, "n_views": len(self.views)}
        tensors: Tensors = {}
        for number, view in enumerate(self.views):
            own: dict[str, Any] = {}
            for part in view:
                own[part.name], theirs = part.state()
                tensors |= {f"{number}.{part.name}.{name}": each for name, each in theirs.items()}
            described[str(number)] = own
        return described, tensors

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> ViewPart:
        """Restore views from their `state`."""
        views = []
        for number in range(section.integer("n_views", 1, 64)):
            own = section.section(str(number))
            trellises = TrellisPart.from_state(own.section("trellises"), sizes)
            if not trellises.shares_paths:
                raise ValueError("the trellises of a view must have buckets of labels")
            weights = LabelWeightPart.from_state(own.section("label_weights"), sizes)
            views.append(View(trellises, weights))
        shapes = {
            (each.trellis.n_classes, each.trellis.width, each.loss.name, len(each.codebooks))
            for each, _ in views
        }
        if len(shapes) != 1:
            raise ValueError("the trellises of all views must have the same shape and loss")
        return cls(tuple(views), section.number("weight", 0, 1e6))

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        n_labels = self.views[0].trellises.n_labels
        trellises = self.views[0].trellises.describe()
        return {
            "views": len(self.views),
            "cluster_size": round(n_labels / max(trellises["paths"], 1)),
            **trellises,
            "label_weights": sum(len(view.label_weights.vectors.values) for view in self.views),
        }


def clusters_of(trellises: TrellisPart) -> tuple[Ints, Ints]:
    """Return the clusters of a view: pointers, and the labels of one cluster after the other."""
    paths = trellises.codebooks[0].path_of(np.arange(trellises.n_labels))
    sizes = np.bincount(paths, minlength=trellises.trellis.n_classes)
    return np.concatenate([[0], np.cumsum(sizes)]), np.argsort(paths, kind="stable")
