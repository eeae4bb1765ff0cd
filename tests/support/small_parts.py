"""Small parts of models, with random numbers whose sums are exact, and rows for them.

Values of rows and weights are small multiples of powers of 2, so that many scores are equal and
none are rounded.
"""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array, hstack

from ltls import RandomCodebook, TableCodebook, Trellis
from ltls.core.declarations import Described
from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.parts.base import Sizes
from ltls.parts.edge_weights import Weights, aligned, padded
from ltls.parts.label_weights import LabelWeightPart
from ltls.parts.memory import StoredRows
from ltls.parts.neighbours import Coordinates, NeighbourPart
from ltls.parts.propensity import PropensityPart
from ltls.parts.prototypes import PrototypePart
from ltls.parts.sparse_labels import SparseLabels
from ltls.parts.trellises import TrellisPart
from ltls.parts.views import View, ViewPart
from ltls.structure.codebook import BucketCodebook
from ltls.structure.losses import LOSSES

N_LABELS, N_FEATURES = 30, 8
SEEDS = st.integers(0, 2**32 - 1)
SIZES = Sizes(N_LABELS, N_FEATURES + 1, intercept=True, unit_length=False, multilabel=True)


def integer_matrix(rng, n_rows=5, n_features=N_FEATURES, density=0.5):
    """Values from −2 to 2 of which the largest is 2, so that rounding to 14 bits is exact."""
    shape = (n_rows, n_features)
    X = rng.integers(-2, 3, shape) * (rng.random(shape) < density)
    X[:, 0] = 2
    return X.astype(np.float32)


def make_rows(rng, n_rows=5, n_features=N_FEATURES, sparse=True, intercept=True):
    X = integer_matrix(rng, n_rows, n_features)
    return Rows(csr_array(X) if sparse else X, intercept, False)


def with_more_columns(rows, n):
    """The same rows after features were added before the last one, that of all others."""
    zeros = csr_array((len(rows), n), dtype=np.float32)
    return rows.like(hstack([rows.X[:, :-1], zeros, rows.X[:, [-1]]], "csr"))


def every(n_rows, n_labels=N_LABELS):
    """All labels, for every row."""
    return np.tile(np.arange(n_labels), (n_rows, 1))


def codebooks_of(kind, n_paths, n_labels, n_trellises, rng):
    """Codebooks whose labels have paths of their own, some of which are free, or share them."""
    if kind == "random":
        return [RandomCodebook(n_paths, int(rng.integers(99))) for _ in range(n_trellises)]
    if kind == "table":
        return [TableCodebook(n_paths, rng.permutation(n_paths)[:n_labels])
                for _ in range(n_trellises)]  # fmt: skip
    return [BucketCodebook(n_paths, rng.integers(0, n_paths, n_labels)) for _ in range(n_trellises)]


def trellis_part(
    rng, kind="table", n_labels=N_LABELS, n_paths=None, width=3, loss="softmax", n_trellises=2,
    n_features=N_FEATURES, intercept=True, exact=True,
):  # fmt: skip
    usual = {"random": n_labels, "table": n_labels + 3, "buckets": max(n_labels // 3, 1)}
    trellis = Trellis(n_paths or usual[kind], width)
    books = codebooks_of(kind, trellis.n_classes, n_labels, n_trellises, rng)
    shape = (n_features + intercept, n_trellises, trellis.n_edges)
    W = np.zeros((*shape[:2], padded(trellis.n_edges)), np.float32)
    W[..., : trellis.n_edges] = rng.integers(-1, 2, shape) if exact else rng.normal(size=shape)
    values = aligned(W.reshape(len(W), -1))
    weights = Weights(values, None, trellis.n_edges, n_trellises, intercept, False)
    return TrellisPart(trellis, books, LOSSES[loss], weights, n_labels)


def sparse_labels(rng, n_labels=N_LABELS, n_columns=N_FEATURES + 1, scale=0.25):
    """Vectors of which features have no label, few, many or all: the engine treats them apart."""
    has = rng.random((n_columns, n_labels)) < rng.choice([0, 0.05, 0.5, 1], (n_columns, 1))
    labels = [np.flatnonzero(row) for row in has]
    ptr = np.concatenate([[0], np.cumsum([len(each) for each in labels])])
    ids = np.concatenate(labels).astype(np.uint16 if n_labels <= 2**16 else np.uint32)
    values = rng.integers(-3, 4, ptr[-1]).astype(np.int8)
    return SparseLabels(ptr, ids, values, np.full(n_labels, scale, np.float32), True)


def label_weight_part(rng, **sizes):
    return LabelWeightPart(sparse_labels(rng, **sizes))


def prototype_part(rng, n_labels=N_LABELS, n_columns=N_FEATURES + 1):
    vectors = sparse_labels(rng, n_labels, n_columns, 0.0625)
    return PrototypePart(vectors, rng.integers(0, 9, n_labels), n_columns)


def stored_rows(rng, n_rows=40, n_labels=N_LABELS, multilabel=True, sparse=True, placed=None):
    rows = make_rows(rng, n_rows, sparse=sparse)
    rows = rows if placed is None else placed(rows)
    per_row = rng.integers(0, 4, n_rows) if multilabel else np.ones(n_rows, int)
    lists = [rng.permutation(n_labels)[:n] for n in per_row]
    ptr, labels = np.concatenate([[0], np.cumsum(per_row)]), np.concatenate(lists)
    counts = np.bincount(labels, minlength=n_labels)
    examples = Examples(rows, ptr, labels, None, True)
    return StoredRows.of(examples, n_rows, counts, n_labels)


def neighbour_part(rng, n_neighbors=6, dense=False):
    rows = stored_rows(rng, sparse=not dense)
    return NeighbourPart(rows, N_LABELS, N_FEATURES + 1, True, dense, n_neighbors)


def coordinate_part(rng, n_neighbors=6, n_axes=3):
    """Neighbours that are compared in a few coordinates."""
    mean = rng.normal(size=N_FEATURES).astype(np.float32)
    axes = rng.uniform(-1, 1, (N_FEATURES, n_axes)).astype(np.float16)
    coordinates = Coordinates(mean, axes)
    rows = stored_rows(rng, placed=coordinates)
    return NeighbourPart(rows, N_LABELS, N_FEATURES + 1, True, True, n_neighbors, coordinates)


def propensity_part(rng):
    return PropensityPart.of(rng.integers(0, 50, N_LABELS), 100)


def view_part(rng, n_views=2, n_trellises=1, loss="softmax", n_labels=N_LABELS, cluster_weight=0.0):
    views = []
    for _ in range(n_views):
        trellises = trellis_part(rng, "buckets", n_labels, loss=loss, n_trellises=n_trellises)
        weights, clusters = label_weight_part(rng, n_labels=n_labels), None
        if cluster_weight:
            clusters = label_weight_part(rng, n_labels=trellises.trellis.n_classes)
        views.append(View(trellises, weights, clusters))
    return ViewPart(tuple(views), 0.5, cluster_weight)


EVERY_PART = {
    "trellises": trellis_part,
    "random codebooks": lambda rng: trellis_part(rng, "random", loss="logistic"),
    "one trellis": lambda rng: trellis_part(rng, n_trellises=1, loss="separation"),
    "shared paths": lambda rng: trellis_part(rng, "buckets"),
    "pruned trellises": lambda rng: trellis_part(rng).pruned(0.5),
    "label weights": label_weight_part,
    "prototypes": prototype_part,
    "neighbours": neighbour_part,
    "neighbours, by coordinates": coordinate_part,
    "propensity": propensity_part,
    "one view": lambda rng: view_part(rng, 1, 2),
    "views": view_part,
    "views, several labels": lambda rng: view_part(rng, loss="logistic"),
    "views, cluster weights": lambda rng: view_part(rng, 2, 2, cluster_weight=0.7),
}


def section_of(description, tensors, verify=True):
    """A section of a file that has this description and these tensors."""
    return Described(description, {name: lambda t=t: t for name, t in tensors.items()}, "", verify)


def restored(part, state=None):
    """The part that its state, or another one, describes."""
    memory = getattr(part, "memory", None)
    section = section_of(*(state or part.state()))
    found = type(part).from_state(section, SIZES, memory)
    section.check_all_read()
    section.check_all_taken()
    return found
