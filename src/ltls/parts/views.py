"""Views: clusterings of the labels.

A view has clusters of about a hundred similar labels, trellises that find clusters, and label
weights that distinguish the labels of a cluster. If there are few clusters, each also has a linear
classifier against all others. The score of a label in a view is

    −max(0, 1 − s)³ + weight · p − cluster_weight · max(0, 1 − c)³

where s is the output of the label's classifier, p the score of its cluster in the trellises of the
view (log p(cluster) for one label per row), and c the output of the cluster's classifier. Several
views, which differ in the random starts of the clustering, are combined as log Σ exp(score): a
label that is hard to tell from its siblings in one view may be easy to tell in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ..core import _engine
from ..core.arrays import Floats, Ints, Tensors, threads
from ..core.declarations import Described
from ..core.settings import AUTO, FLAG, Integer, Settings, setting, settings
from ..features.rows import Rows
from .base import PartExplanation, Sizes, register_part
from .label_weights import LabelWeightPart, LabelWeights
from .trellises import TrellisPart

_CLUSTERS = 4  # clusters of a view that are searched for candidates
# Weights to try for the trellises and for the clusters' classifiers; the default first.
_ALONE = ((1.0, 0.0), (0.5, 0.0), (0.75, 0.0), (1.5, 0.0), (2.0, 0.0))
_TOGETHER = ((0.5, 0.5), (0.25, 0.75), (0.1, 1.0))
MOST_CLUSTERS = 1 << 14  # that may have weights


@settings
class Views(Settings):
    """How many views a model has, and how large their clusters are."""

    n_views: int | str = setting(
        Integer(1, 64),
        AUTO,
        default=AUTO,
        help="Number of clusterings. More of them are more accurate, but larger and slower.",
    )
    cluster_size: int | str = setting(
        Integer(2), AUTO, default=AUTO, help='Mean number of labels in a cluster. "auto" is 100.'
    )
    cluster_weights: bool | str = setting(
        FLAG,
        AUTO,
        default=AUTO,
        help="Train a linear classifier for every cluster against all others. Held-out rows "
        'decide whether the classifiers are kept. "auto" trains them if labels have at least 4 '
        "rows on average and rows × clusters is at most 2²⁵ (with one label per row: 10 rows and "
        "2²³).",
    )


class View(NamedTuple):
    """A clustering: trellises over clusters, which are buckets of labels, and label weights.

    `cluster_weights`, unless None, are the weights of clusters instead of labels.
    """

    trellises: TrellisPart
    label_weights: LabelWeightPart
    cluster_weights: LabelWeightPart | None = None

    def pruned(self, density: float) -> View:
        """Return the view with the largest weights only, a fraction `density` of them."""
        clusters = self.cluster_weights
        return View(
            self.trellises.pruned(density),
            self.label_weights.pruned(density),
            None if clusters is None else clusters.pruned(density),
        )


@register_part
@dataclass(frozen=True, eq=False)
class ViewPart:
    """One or several views, and the weights of their trellises and clusters' classifiers."""

    name: ClassVar[str] = "views"
    settings: ClassVar[type[Settings]] = Views
    keeps_threshold: ClassVar[bool] = True

    views: tuple[View, ...]
    weight: float = _ALONE[0][0]
    cluster_weight: float = 0.0

    @property
    def has_more(self) -> bool:
        """Whether clusters have classifiers, which take time and space."""
        return self.cluster_weight > 0

    def trellis_parts(self) -> list[TrellisPart]:
        """Return the trellises, one part per view."""
        return [view.trellises for view in self.views]

    # Prediction

    def _predictor(self, view: View, k: int) -> _engine.Predictor:
        sizes = np.sort(view.trellises.sizes_of_paths)[-_CLUSTERS:]
        n_trellises = len(view.trellises.codebooks)
        n_candidates = min(n_trellises * int(sizes.sum()), view.trellises.n_labels)
        clusters = view.cluster_weights if self.cluster_weight else None
        return view.trellises.predictor(
            min(k, n_candidates),
            _CLUSTERS,
            label_weights=view.label_weights.vectors.engine,
            weight=self.weight / n_trellises,
            n_candidates=n_candidates,
            cluster_weights=None if clusters is None else clusters.vectors.engine,
            # It is added to the score of the first trellis, which is already weighted.
            cluster_weight=self.cluster_weight * n_trellises / self.weight,
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
        """Yield the part with other weights, to choose from on held-out rows."""
        tried = _ALONE if self.views[0].cluster_weights is None else _ALONE + _TOGETHER
        for weight, of_clusters in tried:
            if (weight, of_clusters) != (self.weight, self.cluster_weight):
                yield replace(self, weight=weight, cluster_weight=of_clusters)

    def smaller(self) -> Iterator[ViewPart]:
        """Yield the part with fewer and fewer views."""
        for n_views in range(len(self.views) - 1, 0, -1):
            yield replace(self, views=self.views[:n_views])

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
        parts = [trellises, view.label_weights.explain(rows, label)]
        if view.cluster_weights is not None and self.cluster_weight:
            path = int(view.trellises.codebooks[0].path_of([label])[0])
            of_cluster = view.cluster_weights.explain(rows, path).times(self.cluster_weight)
            parts.append(replace(of_cluster, name="cluster weights"))
        formula = "the sum of the scores of its parts"
        return PartExplanation.of_sum(f"view {number + 1}", parts, formula)

    # Training

    @classmethod
    def fit(cls, given: Views, context: Any) -> ViewPart:
        """Train label weights for the clusters of trellises that are already trained."""
        trellises, wanted = context.trellis_parts(), context.plan.label_weights
        lists = [clusters_of(each) for each in trellises]
        weights = LabelWeightPart.fit_clusters(wanted, context, lists)
        clusters: list[LabelWeightPart | None] = [None] * len(trellises)
        if given.cluster_weights:
            clusters = [_train_cluster_weights(each, wanted, context) for each in trellises]
        return cls(tuple(map(View, trellises, weights, clusters)))

    def finish(self, context: Any) -> ViewPart:
        """Return the views after training on the held-out rows, too.

        Cluster weights that were not chosen on held-out rows are left out.
        """
        views = []
        for view, trellises in zip(self.views, context.trellis_parts(), strict=False):
            clusters = view.cluster_weights if self.cluster_weight else None
            clusters = None if clusters is None else clusters.finish(context)
            views.append(View(trellises, view.label_weights.finish(context), clusters))
        return replace(self, views=tuple(views))

    def grow(self, n_labels: int, n_new_columns: int) -> ViewPart:
        """Return the views with label weights for more labels and features."""
        views = []
        for view in self.views:
            clusters = view.cluster_weights
            if clusters is not None:
                clusters = clusters.grow(clusters.vectors.n_labels, n_new_columns)
            label_weights = view.label_weights.grow(n_labels, n_new_columns)
            views.append(View(view.trellises, label_weights, clusters))
        return replace(self, views=tuple(views))

    def learn(self, context: Any) -> ViewPart:
        """Return the views after a further batch, which the trellises have learned already."""
        views = []
        for view, trellises in zip(self.views, context.trellis_parts(), strict=True):
            weights = view.label_weights.learn_clusters(context, *clusters_of(trellises))
            clusters = view.cluster_weights
            if clusters is not None:
                clusters = clusters.learn_groups(context, _paths_of(trellises))
            views.append(View(trellises, weights, clusters))
        return replace(self, views=tuple(views))

    def pruned(self, density: float) -> ViewPart:
        """Return the part with the largest weights only, a fraction `density` of them."""
        return replace(self, views=tuple(view.pruned(density) for view in self.views))

    # Files

    def state(self) -> tuple[dict[str, Any], Tensors]:
        """Return a JSON description and tensors."""
        described: dict[str, Any] = {"weight": self.weight, "n_views": len(self.views)}
        if self.cluster_weight:
            described["cluster_weight"] = self.cluster_weight
        tensors: Tensors = {}
        for number, view in enumerate(self.views):
            own: dict[str, Any] = {}
            for name, part in view._asdict().items():
                if part is not None and (name != "cluster_weights" or self.cluster_weight):
                    own[name], theirs = part.state()
                    tensors |= {f"{number}.{name}.{key}": each for key, each in theirs.items()}
            described[str(number)] = own
        return described, tensors

    @classmethod
    def from_state(cls, section: Described, sizes: Sizes, memory: Any = None) -> ViewPart:
        """Restore views from their `state`."""
        views = []
        weight = section.number("weight", 0.01, 1e6)
        has_clusters = section.has("cluster_weight")
        of_clusters = section.number("cluster_weight", 0.01, 1e6) if has_clusters else 0.0
        for number in range(section.integer("n_views", 1, 64)):
            own = section.section(str(number))
            trellises = TrellisPart.from_state(own.section("trellises"), sizes)
            if not trellises.shares_paths:
                raise ValueError("the trellises of a view must have buckets of labels")
            weights = LabelWeightPart.from_state(own.section("label_weights"), sizes)
            clusters = None
            if of_clusters:
                n_clusters = trellises.trellis.n_classes
                if n_clusters > MOST_CLUSTERS:
                    raise ValueError(f"at most {MOST_CLUSTERS} clusters have weights")
                theirs = replace(sizes, n_labels=n_clusters)
                clusters = LabelWeightPart.from_state(own.section("cluster_weights"), theirs)
            views.append(View(trellises, weights, clusters))
        shapes = {
            (each.trellis.n_classes, each.trellis.width, each.loss.name, len(each.codebooks))
            for each, *_ in views
        }
        if len(shapes) != 1:
            raise ValueError("the trellises of all views must have the same shape and loss")
        return cls(tuple(views), weight, of_clusters)

    def describe(self) -> dict[str, Any]:
        """Return facts for ``ltls info``."""
        n_labels = self.views[0].trellises.n_labels
        trellises = self.views[0].trellises.describe()
        return {
            "views": len(self.views),
            "cluster_size": round(n_labels / max(trellises["paths"], 1)),
            **trellises,
            "label_weights": _n_weights([view.label_weights for view in self.views]),
            "cluster_weights": _n_weights([view.cluster_weights for view in self.views]),
        }


def _n_weights(parts: list[LabelWeightPart | None]) -> int:
    return sum(len(part.vectors.values) for part in parts if part is not None)


def _paths_of(trellises: TrellisPart) -> Ints:
    """Return the cluster of every label."""
    paths: Ints = trellises.codebooks[0].path_of(np.arange(trellises.n_labels))
    return paths


def _train_cluster_weights(
    trellises: TrellisPart, given: LabelWeights, context: Any
) -> LabelWeightPart:
    """Train classifiers of clusters, each against all others."""
    n_clusters = trellises.trellis.n_classes
    one = np.array([0, n_clusters]), np.arange(n_clusters)
    return LabelWeightPart.fit_clusters(given, context, [one], _paths_of(trellises))[0]


def clusters_of(trellises: TrellisPart) -> tuple[Ints, Ints]:
    """Return the clusters of a view: pointers, and labels ordered by cluster."""
    paths = _paths_of(trellises)
    sizes = np.bincount(paths, minlength=trellises.trellis.n_classes)
    return np.concatenate([[0], np.cumsum(sizes)]), np.argsort(paths, kind="stable")


def similar_clusters(
    vectors: Any, n_clusters: int, seeds: Sequence[int], n_jobs: int | None = None
) -> Ints:
    """Assign every label to a cluster of similar labels, once per seed; shape (n_seeds, n_labels).

    Balanced spherical 2-means splits the labels in two, then each half again, until there are
    `n_clusters` parts. The sizes of clusters differ by at most one label. Different random starts
    give different clusters. The result does not depend on the number of threads.

    Parameters
    ----------
    vectors : array or sparse matrix of shape (n_labels, n_dimensions)
        Vectors of unit length; similar labels have similar vectors.
    n_clusters : int
        From 1 to n_labels.
    seeds : sequence of int
        Seeds of the random starts.
    n_jobs : int or None
    """
    sparse = csr_array(vectors)
    clusters = np.empty((len(seeds), sparse.shape[0]), np.int64)
    _engine.similar_buckets(
        sparse.indptr.astype(np.int64),
        sparse.indices.astype(np.int64),
        sparse.data.astype(np.float32),
        sparse.shape[1],
        np.array(seeds, np.uint64),
        clusters,
        n_buckets=n_clusters,
        n_jobs=threads(n_jobs),
    )
    return clusters
