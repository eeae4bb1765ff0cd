"""A reference for training: plain NumPy, one row at a time, over a list of all paths.

Every path comes from ``reference.Graph``, none from the engine, and nothing of ``ltls`` is
imported. Weights and scores are float32; the sums of the average, and whatever has no effect on
the weights, are float64. Labels are the integers 0, 1, …; a row's labels are a list of
them, which has one element where the learner is multi-class.

The paths of 22 labels are known, so that the first step of the separation loss moves the edges of
the label's path and of path 0, the best negative where all paths score 0, but not those of both:

>>> learner = ReferenceLearner(22, n_features=1, loss="separation", optimizer="sgd",
...                            learning_rate=1, paths=range(22), fit_intercept=False)
>>> learner.fit([[1]], [[5]]).coef.ravel().astype(int).tolist()
[-1, 1, -1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 1]
>>> learner.graph.paths[5], learner.graph.paths[0]
([1, 5, 8, 18], [0, 2, 17])
"""

import heapq
import math

import numpy as np
from reference import Graph

NO_PATH = -1


class ReferenceLearner:
    """Trains the weights that the classifier must have.

    Parameters
    ----------
    n_classes, width
        Those of the trellis. There may be fewer labels than paths.
    paths
        The path of every label; without it, labels take their paths online by the ranking rule.
    hint
        The path that a label takes where the ranking rule allows several: when all of the best
        paths are taken, or when several free ones are best up to rounding.
    closeness
        Relative difference of scores that counts as rounding.
    batch_size
        Mini-batch size.
    rounding
        A random generator that perturbs the last bit of the marginals of softmax.
    """

    def __init__(
        self,
        n_classes,
        n_features,
        width=2,
        *,
        loss="softmax",
        multilabel=False,
        paths=None,
        ranking_multiplier=1,
        hint=None,
        closeness=0.0,
        rounding=None,
        optimizer="adagrad",
        learning_rate=0.3,
        average=False,
        l1=0.0,
        fit_intercept=True,
        batch_size=1,
    ):
        self.graph = Graph(n_classes, width)
        self.n_features = n_features
        self.loss = {
            "separation": self.separation,
            "softmax": self.softmax,
            "logistic": self.logistic,
        }[loss]
        self.multilabel = multilabel
        self.ranking = paths is None
        self.paths = np.full(n_classes, NO_PATH) if paths is None else np.array(paths)
        self.ranking_multiplier = ranking_multiplier
        self.hint = hint
        self.closeness = closeness
        self.rounding = rounding
        self.optimizer = optimizer
        self.learning_rate = np.float32(learning_rate)
        self.average = average
        self.l1 = np.float32(l1)
        self.fit_intercept = fit_intercept
        self.batch_size = batch_size

        n_edges = len(self.graph.edges)
        shape = n_features + 1, n_edges  # the last row is the intercept
        self.weights = np.zeros(shape, np.float32)
        self.squared_gradients = np.full(shape, 0.3, np.float32)
        self.steps_by_time = np.zeros(shape, np.float64)
        self.step = 1
        self.open_choices = []  # labels that might have taken any free path
        self.n_epochs = 0
        self.loss_curve = []

        self.uses = np.zeros((n_classes, n_edges), bool)
        longest = max(map(len, self.graph.paths))
        self.nth_edges = np.full((longest, n_classes), n_edges)  # n_edges: the path has ended
        for path, edges in enumerate(self.graph.paths):
            self.uses[path, edges] = True
            self.nth_edges[: len(edges), path] = edges
        self.exits = {}  # early exit edge → its slice
        self.blocks = [[] for _ in range(self.graph.n_slices + 1)]
        for edge, (tail, head) in enumerate(self.graph.edges):
            if head != self.graph.sink:
                self.blocks[self.column(head)].append(edge)
            elif self.column(tail) < self.graph.n_slices:
                self.exits[edge] = self.column(tail)

    def column(self, vertex):
        return (vertex - 1) // self.graph.width

    # Scores.

    def features(self, x):
        """The numbers of the features of x that are not 0, and their values; the intercept last."""
        x = np.append(np.asarray(x, np.float32), np.float32(self.fit_intercept))
        present = np.flatnonzero(x)
        return present, x[present]

    def edge_scores(self, features, weights):
        present, values = features
        return (values[:, None] * weights[present]).sum(axis=0, dtype=np.float32)

    def path_scores(self, h):
        """The score of every path, added up from source to sink."""
        scores = np.zeros(self.graph.n_classes, np.float32)
        for edges in self.nth_edges:
            scores += np.append(h, np.float32(0))[edges]
        return scores

    def best_first(self, h):
        """All paths, ties to the smaller one.

        Of two paths with the same end, the better one is that with the better score where they
        meet, before rounding.
        """
        scores = self.path_scores(h)
        if len(set(scores.tolist())) == len(scores):
            return np.argsort(-scores)

        def rank(way):
            score, path = way
            return -score, len(path), [self.graph.edges[e][0] for e in reversed(path)]

        arriving = [[] for _ in range(self.graph.sink + 1)]
        arriving[self.graph.source].append([(np.float32(0), [])])
        for vertex, edges in enumerate(self.graph.outgoing):
            ways = list(heapq.merge(*arriving[vertex], key=rank))
            for e in edges:
                onward = [(score + h[e], [*path, e]) for score, path in ways]
                arriving[self.graph.edges[e][1]].append(onward)
        return np.array([self.graph.path_id(path) for _, path in ways])

    def log_partition(self, h):
        scores = self.path_scores(h).astype(float)
        return scores.max() + np.log(np.exp(scores - scores.max()).sum())

    # The online assignment.

    def assign(self, label, h):
        """The label takes the first free path among the m best."""
        n_classes = self.graph.n_classes
        taken = set(self.paths[self.paths != NO_PATH].tolist())
        m = min(len(taken) + 2, self.ranking_multiplier * math.ceil(math.log2(n_classes)))
        ranked = self.best_first(h).tolist()
        free = [path for path in ranked if path not in taken]
        if taken.issuperset(ranked[: max(m, 1)]):
            self.open_choices.append(label)
            choice = free
        else:
            scores = self.path_scores(h)
            least = scores[free[0]] - self.closeness * np.abs(scores).max()
            choice = (
                [path for path in free if scores[path] >= least] if self.closeness else free[:1]
            )
        hint = None if self.hint is None else self.hint(label)
        self.paths[label] = hint if hint in choice else choice[0]

    # The losses: (h, positive paths) → (loss, step).

    def separation(self, h, positive):
        negatives = [path for path in self.best_first(h) if path not in positive]
        if not positive or not negatives:
            return 0.0, np.zeros_like(h)
        scores = self.path_scores(h)
        worst = min(positive, key=lambda path: (scores[path], path))
        best = negatives[0]
        violation = scores[best] + np.float32(1) - scores[worst]
        if violation < 0 or (self.multilabel and violation == 0):
            return 0.0, np.zeros_like(h)
        return violation, self.uses[worst].astype(np.float32) - self.uses[best]

    def softmax(self, h, positive):
        if not positive:
            return 0.0, np.zeros_like(h)
        scores = self.path_scores(h).astype(float)
        log_partition = self.log_partition(h)
        marginals = np.exp(scores - log_partition) @ self.uses
        if self.rounding is not None:
            marginals += self.rounding.choice([-(2.0**-24), 2.0**-24], len(marginals))
        step = self.uses[positive].mean(axis=0) - marginals
        return log_partition - scores[positive].mean(), step.astype(np.float32)

    def logistic(self, h, positive):
        target = self.uses[positive].any(axis=0)
        loss = -log_sigmoid(np.where(target, h, -h)).sum()
        return loss, (target - np.exp(log_sigmoid(h))).astype(np.float32)

    # Training.

    def fit(self, X, labels, weights=None, epochs=1):
        """As many epochs over the examples, in their order."""
        weights = np.ones(len(labels)) if weights is None else weights
        for _ in range(epochs):
            examples = [
                (x, sorted(some), np.float32(weight))
                for x, some, weight in zip(X, labels, weights, strict=True)
            ]
            losses = []
            for first in range(0, len(examples), self.batch_size):
                steps = [
                    self.gradient_of(*some) for some in examples[first : first + self.batch_size]
                ]
                for loss, *step in steps:
                    losses.append(loss)
                    self.apply(*step)
            counted = [
                weight != 0 and (len(some) > 0 or self.loss == self.logistic)
                for some, weight in zip(labels, weights, strict=True)
            ]
            self.loss_curve.append(sum(losses) / max(sum(counted), 1))
            self.n_epochs += 1
        return self

    def gradient_of(self, x, labels, weight):
        """The loss of one row times its weight, its features, and its step."""
        if not weight:
            return 0.0, None, None
        features = self.features(x)
        thresholded = self.l1 > 0 and self.n_epochs > 0
        weights = soft_threshold(self.weights, self.l1) if thresholded else self.weights
        h = self.edge_scores(features, weights)
        if self.ranking:
            for label in labels:
                if self.paths[label] == NO_PATH:
                    self.assign(label, h)
        loss, step = self.loss(h, self.paths[labels].tolist())
        for first in range(0, len(step), 16):  # the engine skips blocks of tiny steps
            if np.abs(step[first : first + 16]).max() < 1e-3:
                step[first : first + 16] = 0
        return float(weight) * float(loss), features, weight * step

    def apply(self, features, step):
        """The step of one example."""
        if step is not None:
            self.move(features, step)
        self.step += 1

    def move(self, features, step):
        """One step of the weights of these features."""
        present, values = features
        gradient = values[:, None] * step
        move = self.learning_rate * gradient
        if self.optimizer == "adagrad":
            self.squared_gradients[present] += gradient**2
            move /= np.sqrt(self.squared_gradients[present])
        self.weights[present] += move
        self.steps_by_time[present] += self.step * move.astype(np.float64)

    # Results.

    @property
    def learned(self):
        weights = self.weights
        if self.average:
            weights = (weights - self.steps_by_time / self.step).astype(np.float32)
        return soft_threshold(weights, self.l1)

    @property
    def coef(self):
        return self.learned[:-1].T

    @property
    def intercept(self):
        return self.learned[-1]

    def decode(self, h):
        """The scores of all paths that rank labels: log-probabilities where the loss has them."""
        if self.loss == self.softmax:
            return self.path_scores(h) - np.float32(self.log_partition(h))
        if self.loss == self.logistic:
            g = log_sigmoid(h)
            best_of_block = [g[block].max() for block in self.blocks]
            for edge, at in self.exits.items():
                g[edge] += sum(best_of_block[at + 1 :])
            return self.path_scores(g.astype(np.float32))
        return self.path_scores(h)

    def label_scores(self, X):
        """(N, labels); a label without a path scores −inf."""
        edge_scores = [self.edge_scores(self.features(x), self.learned) for x in X]
        scores = np.array([self.decode(h) for h in edge_scores])[:, self.paths]
        return np.where(self.paths == NO_PATH, np.float32(-np.inf), scores)

    def topk(self, X, k):
        """(labels, scores) of the k best, ties to the smaller path."""
        scores = self.label_scores(X)
        labels = np.array([np.lexsort((self.paths, -row)) for row in scores])[:, :k]
        return labels, np.take_along_axis(scores, labels, axis=1)


def soft_threshold(weights, l1):
    return np.sign(weights) * np.maximum(np.abs(weights) - l1, np.float32(0))


def log_sigmoid(h):
    return -np.logaddexp(0, -h.astype(np.float64))


def class_weights(labels, n_classes, class_weight):
    """The weight of every example: the mean over its labels, 1 without labels."""
    if class_weight == "balanced":
        count = np.bincount(np.concatenate(labels).astype(int), minlength=n_classes)
        class_weight = len(labels) / (n_classes * count)
    return np.array([np.mean([class_weight[c] for c in some]) if some else 1.0 for some in labels])
