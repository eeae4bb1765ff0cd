"""A brute-force oracle for the trellis, in plain Python.

It writes the graph down as a list of edges, finds every source-to-sink path by depth-first search
and computes each quantity from its definition, a sum or a maximum over all paths. It imports
nothing of ``ltls``. Edge scores ``h`` are any sequence of numbers, one per edge; path scores are
exact for integers and correctly rounded for floats (``math.fsum``).

>>> graph = Graph(22)
>>> len(graph.edges), len(graph.paths)
(19, 22)
>>> graph.paths[5], graph.path_states(graph.paths[5])
([1, 5, 8, 18], [1, 1, 0])
"""

import heapq
import math
from functools import cached_property

MINUS_INFINITY = -math.inf
NO_PATH = (-1, MINUS_INFINITY)


def digits(number, base):
    """The digits of a positive number, least significant first. Base 1 knows only the number 1."""
    if base == 1:
        return [number]
    found = []
    while number:
        number, digit = divmod(number, base)
        found.append(digit)
    return found


class Graph:
    """The trellis of ``n_classes`` paths over slices of ``min(width, n_classes)`` states.

    Vertices are integers in topological order: the source 0, then the states slice by slice, then
    the auxiliary vertices, and the sink last. In the drawing the auxiliary vertices stand where one
    more slice would begin, so every vertex between source and sink has a column and a row:
    ``vertex = 1 + column * width + row``. With one class, source and sink are the same vertex.
    """

    def __init__(self, n_classes, width=2):
        self.n_classes = n_classes
        self.width = min(width, n_classes)
        self.digits = digits(n_classes, self.width)
        self.n_slices = len(self.digits) - 1
        self.source = 0
        self.sink = self._vertex(self.n_slices, self.digits[-1]) if self.n_slices else 0

    def _vertex(self, column, row):
        return 1 + column * self.width + row

    @cached_property
    def edges(self):
        """The edges as (tail, head), block by block in the engine's order."""
        if self.n_slices == 0:
            return []
        at, n = self._vertex, self.n_slices
        states, auxiliary = range(self.width), range(self.digits[n])
        edges = [(self.source, at(0, s)) for s in states]
        for i in range(1, n):
            edges += [(at(i - 1, s), at(i, t)) for s in states for t in states]
        edges += [(at(n - 1, s), at(n, a)) for s in states for a in auxiliary]
        edges += [(at(n, a), self.sink) for a in auxiliary]
        for i in range(n):
            edges += [(at(i, s), self.sink) for s in range(self.digits[i])]
        return edges

    @cached_property
    def outgoing(self):
        """For every vertex, the edges that leave it."""
        outgoing = [[] for _ in range(self.sink + 1)]
        for edge, (tail, _) in enumerate(self.edges):
            outgoing[tail].append(edge)
        return outgoing

    # Paths: lists of edges from source to sink.

    @cached_property
    def paths(self):
        """Every path; the index of a path is its id."""
        found = []
        unfinished = [(self.source, [])]
        while unfinished:
            vertex, path = unfinished.pop()
            if vertex == self.sink:
                found.append(path)
            else:
                unfinished += [(self.edges[e][1], [*path, e]) for e in self.outgoing[vertex]]
        found.sort(key=self.path_id)
        assert [self.path_id(path) for path in found] == list(range(self.n_classes))
        return found

    def path_states(self, path):
        """The rows of the vertices between source and sink, an auxiliary vertex included."""
        return [(self.edges[e][1] - 1) % self.width for e in path[:-1]]

    def path_id(self, path):
        """Short paths come first; among paths of one length the states are digits, lowest first."""
        states = self.path_states(path)
        offset = sum(self.digits[i] * self.width**i for i in range(len(states) - 1))
        return offset + sum(state * self.width**i for i, state in enumerate(states))

    def is_path(self, edges):
        """Whether a sequence of integers is a walk along edges from source to sink."""
        vertex = self.source
        for e in edges:
            if not 0 <= e < len(self.edges) or self.edges[e][0] != vertex:
                return False
            vertex = self.edges[e][1]
        return vertex == self.sink

    def random_path(self, rng):
        """A walk from source to sink that takes any way out (``rng``: a ``random.Random``)."""
        vertex, path = self.source, []
        while vertex != self.sink:
            path.append(rng.choice(self.outgoing[vertex]))
            vertex = self.edges[path[-1]][1]
        return path

    # Inference by enumeration.

    def scores(self, h):
        """The score of every path."""
        return [math.fsum([h[e] for e in path]) for path in self.paths]

    def topk(self, h, k):
        """The min(k, C) best (path id, score), ties to the smaller id; then ``NO_PATH``."""
        scores = self.scores(h)
        order = sorted(range(self.n_classes), key=lambda path: (-scores[path], path))
        best = [(p, scores[p]) if scores[p] > MINUS_INFINITY else NO_PATH for p in order]
        return best[:k]

    def viterbi(self, h):
        return self.topk(h, 1)[0]

    def log_partition(self, h):
        return log_sum_exp(self.scores(h))

    def marginals(self, h):
        """For every edge, the probability that a path drawn with weight exp(score) uses it."""
        scores = self.scores(h)
        normalizer = log_sum_exp(scores)
        through = [[] for _ in self.edges]
        if normalizer > MINUS_INFINITY:
            for path, score in zip(self.paths, scores, strict=True):
                for e in path:
                    through[e].append(math.exp(score - normalizer))
        return [math.fsum(probabilities) for probabilities in through]

    # Inference by recursion over the vertices, for graphs with too many paths to enumerate.

    def paths_through_edges(self):
        """For every edge, how many paths use it."""
        to_here = [0] * (self.sink + 1)
        from_here = [0] * (self.sink + 1)
        to_here[self.source] = from_here[self.sink] = 1
        for tail, head in sorted(self.edges):
            to_here[head] += to_here[tail]
        for tail, head in sorted(self.edges, reverse=True):
            from_here[tail] += from_here[head]
        return [to_here[tail] * from_here[head] for tail, head in self.edges]

    def log_partition_recursive(self, h):
        arriving = [[] for _ in range(self.sink + 1)]
        arriving[self.source].append(0.0)
        for vertex, edges in enumerate(self.outgoing):
            here = log_sum_exp(arriving[vertex])
            for e in edges:
                arriving[self.edges[e][1]].append(here + h[e])
        return log_sum_exp(arriving[self.sink])

    def topk_recursive(self, h, k):
        """As ``topk``, with the k best ways to reach each vertex instead of all of them."""

        def rank(way):
            score, path = way
            return -score, len(path), [self.edges[e][0] for e in reversed(path)]

        arriving = [[] for _ in range(self.sink + 1)]
        arriving[self.source].append((0, []))
        for vertex, edges in enumerate(self.outgoing):
            best = heapq.nsmallest(k, arriving[vertex], key=rank)
            arriving[vertex] = best
            for e in edges:
                arriving[self.edges[e][1]] += [(score + h[e], [*path, e]) for score, path in best]
        finite = [(self.path_id(p), s) for s, p in arriving[self.sink] if s > MINUS_INFINITY]
        return finite + [NO_PATH] * (min(k, self.n_classes) - len(finite))

    # Growth.

    @property
    def next_n_classes(self):
        """How many paths one more auxiliary vertex makes, or one more slice if all are there."""
        if self.digits[-1] < self.width - 1:
            return self.n_classes + self.width**self.n_slices
        return self.n_classes + self.width ** (self.n_slices + 1)

    def grow(self):
        """The next larger graph and, for every edge, the edge at the same place in its drawing."""
        larger = Graph(self.next_n_classes, self.width)
        number = {edge: e for e, edge in enumerate(larger.edges)}
        moved = {self.sink: larger.sink}
        edge_map = [number[tail, moved.get(head, head)] for tail, head in self.edges]
        return larger, edge_map


def log_sum_exp(values):
    largest = max(values, default=MINUS_INFINITY)
    if largest == MINUS_INFINITY:
        return MINUS_INFINITY
    return largest + math.log(math.fsum([math.exp(value - largest) for value in values]))
