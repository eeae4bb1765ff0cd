"""Oracles for the parts of a model: their definitions in NumPy, one row and one label at a time.

Nothing of ``ltls`` is imported. Where the engine promises exact sums, numbers are rounded here as
it documents, so that results are equal bit for bit; everything else is float64.
"""

import math

import numpy as np
from reference import log_sum_exp

LARGEST_INTEGER, LARGEST_TOTAL = np.float32(16384), np.float32(1e7)


def scored_rows(X, intercept=False, unit_length=False):
    """Rows as they are scored, float32: scaled to unit length if asked for, the intercept last."""
    rows = np.array(X.toarray() if hasattr(X, "toarray") else X, np.float32)
    if unit_length:
        squares = (rows.astype(np.float64) ** 2).sum(axis=1, keepdims=True)
        inverse = 1 / np.sqrt(np.where(squares > 0, squares, 1))
        rows = rows * inverse.astype(np.float32)
    return np.column_stack([rows, np.ones(len(rows), np.float32)]) if intercept else rows


# Sparse vectors


def integers_of(row):
    """A row as integers, and what they are multiplied by."""
    largest = np.abs(row).max(initial=0)
    if largest == 0:
        return np.zeros(len(row), np.int64), np.float32(1)
    total = np.cumsum(np.abs(row), dtype=np.float32)[-1]  # in order
    scale = min(LARGEST_INTEGER / largest, LARGEST_TOTAL / total)
    return np.rint(row * scale).astype(np.int64), np.float32(1) / scale


def inner_products(rows, values, scales):
    """Inner products of rows with int8 vectors, (n_rows, n_vectors): exact sums, then scaled."""
    found = np.empty((len(rows), len(values)), np.float32)
    for row, out in zip(rows, found, strict=True):
        integers, unit = integers_of(row)
        out[:] = (values.astype(np.int64) @ integers).astype(np.float32) * (unit * scales)
    return found


def largest(products, k):
    """The ids and values of the k largest products above 0, ties to the smaller id; −1 and 0."""
    ids = np.full((len(products), k), -1)
    values = np.zeros((len(products), k), np.float32)
    for row, own in enumerate(products):
        order = [i for i in np.lexsort((np.arange(len(own)), -own)) if own[i] > 0][:k]
        ids[row, : len(order)], values[row, : len(order)] = order, own[order]
    return ids, values


# Neighbours


def cosines_of(row, stored):
    """Cosines of a row, rounded to integers, with rows of int8; 0 if one has no features."""
    integers, _ = integers_of(row)
    lengths = np.linalg.norm(stored.astype(float), axis=1) * np.linalg.norm(integers.astype(float))
    return stored.astype(np.int64) @ integers / np.where(lengths > 0, lengths, 1)


def votes_of(nearest, cosines, label_lists):
    """(label, share) of the rows that vote with cosine³, most first; ties to the smaller label."""
    votes = {}
    for row, cosine in zip(nearest, cosines, strict=True):
        for label in label_lists[row] if row >= 0 else ():
            votes[label] = votes.get(label, np.float32(0)) + cosine * cosine * cosine
    total = np.float32(0)
    for label in sorted(votes):
        total += votes[label]
    ranked = sorted(votes, key=lambda label: (-votes[label], label))
    return [(label, votes[label] / total) for label in ranked]


# Trellises


def edge_scores_to_decode(graph, h):
    """For the logistic loss log σ(h), and for early exits the best of every block they lack."""
    g = [-math.log1p(math.exp(-score)) for score in h]
    best = {}  # of the edges into each column
    for score, (_, head) in zip(g, graph.edges, strict=True):
        if head != graph.sink:
            column = (head - 1) // graph.width
            best[column] = max(score, best.get(column, -math.inf))
    for edge, (tail, head) in enumerate(graph.edges):
        if head == graph.sink:
            first = (tail - 1) // graph.width + 1
            g[edge] += sum(best[column] for column in range(first, graph.n_slices + 1))
    return g


def path_scores(graph, h, loss):
    """The score of every path: a log-probability for softmax, a sum of log σ(h) for logistic."""
    scores = graph.scores(edge_scores_to_decode(graph, h) if loss == "logistic" else h)
    shift = log_sum_exp(scores) if loss == "softmax" else 0
    return np.array([score - shift for score in scores])


# Label weights


def separating_weights(x, signs, weights, cost, start):
    """The minimum of ½ ‖w − start‖² + cost · Σ weight · max(0, 1 − sign · x·w)²."""

    def objective(w):
        gap = np.maximum(0, 1 - signs * (x @ w))
        return 0.5 * ((w - start) ** 2).sum() + cost * (weights * gap**2).sum()

    w = start
    for _ in range(100):  # Newton's steps: the objective is quadratic between margins of 1
        gap = np.maximum(0, 1 - signs * (x @ w))
        gradient = w - start - 2 * cost * x.T @ (weights * gap * signs)
        if np.abs(gradient).max() < 1e-9 * (1 + np.abs(w).max()):
            return w
        used = x * np.sqrt(2 * cost * weights * (gap > 0))[:, None]
        step = np.linalg.solve(np.eye(len(w)) + used.T @ used, -gradient)
        length = 1.0
        while objective(w + length * step) > objective(w) and length > 1e-9:
            length /= 2
        w = w + length * step
    raise AssertionError("no minimum was found")


# Memory


def kept_rows(label_lists, keys, counts, capacity, first_late, late_rows):
    """The rows that a stratified sample keeps: those of the lowest ranks within a rarest label."""
    strata = [min(row, key=lambda c: (counts[c], c)) if row else -1 for row in label_lists]
    n_late = len({label for label in strata if label >= first_late})
    quota = max(1, min(late_rows, capacity // (2 * n_late))) if n_late else 1
    places = []
    for row, (label, key) in enumerate(zip(strata, keys, strict=True)):
        siblings = zip(strata, keys, strict=True)
        rank = sum(other == label and other_key < key for other, other_key in siblings)
        if label >= first_late:
            rank = max(rank - quota + 1, 0)
        places.append((rank, key, row))
    return {row for _, _, row in sorted(places)[:capacity]}
