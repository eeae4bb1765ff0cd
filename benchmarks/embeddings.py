"""Dense rows, such as embeddings: the defaults beside what one would use otherwise.

    python -m benchmarks.embeddings                    all methods that are installed
    python -m benchmarks.embeddings --methods ltls     once more, and keep what is stored of others

Rows are truncated SVDs of TF-IDF vectors with 256 dimensions, and the raw pixels of omniglot, all
of unit length, kept below build/embeddings. contents_100k has 100,000 labels: `python -m
benchmarks.debian_contents build/contents` makes it, and `python -m benchmarks.debian_packages
build/contents` maintainers and lemmas. Every method trains on the first label of a row. The linear
softmax has the learning rate and the number of epochs that are best on a tenth of the training
rows, once; its seconds are those of the final training alone. hnswlib, usearch and faiss find the
20 nearest rows with the settings of their tutorials. Rows vote for their labels, and how much
nearer ones count is tuned on training rows. Seconds and µs are processor time, MB those of a model
of float32 numbers, of ltls those of its file, of an index those of the index.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier
from ltls.metrics import precision_at_k, recall_at_k

SETS = ("icd10cm", "debsrc", "wordnet_hyper", "omniglot", "contents_100k", "maintainers", "lemmas")
RAW = ("omniglot",)
SIZE = 256
N_NEIGHBORS = 20
RATES, MOST_EPOCHS, PATIENCE, BATCH = (1e-2, 3e-2, 1e-1), 30, 3, 256
MOST_CELLS = {"logistic regression": 10**8, "linear softmax": 10**9}  # rows × labels: more are days
MOST_TEST_ROWS = 5000
BLOCK = 1024  # rows that are predicted at a time
TEMPERATURES, TUNING_ROWS = (0.01, 0.03, 0.1, 0.3, 1.0), 1000  # of the votes of neighbours

Vectors = Any  # float32 array, a row of unit length for every row
Topk = Callable[[Vectors], Any]
Search = Callable[[Vectors], tuple[Any, Any]]  # the nearest training rows, -1 for none, and cosines


def files_of(name: str) -> list[Path] | None:
    """Return the files of the training and test rows, None if they are not there."""
    folders = (machine.data_folder(), machine.BUILD / "contents")
    return next(filter(None, (datasets.find(folder, name) for folder in folders)), None)


def embedded(name: str) -> tuple[Vectors, Any, Vectors, Any]:
    """Return vectors and labels of the training rows, and those of test rows as an indicator."""
    files = files_of(name)
    if files is None:
        raise SystemExit(f"{name} is not in the folder that LTLS_DATA names, nor in build/contents")
    path = machine.BUILD / "embeddings" / f"{name}.npz"
    X, Y, X_test, Y_test = datasets.load(files)
    if not path.exists():
        if name in RAW:
            vectors = [part.toarray() for part in (X, X_test)]
        else:
            weights = TfidfTransformer(sublinear_tf=False).fit(X)
            svd = TruncatedSVD(SIZE, random_state=0).fit(weights.transform(X))
            vectors = [svd.transform(weights.transform(part)) for part in (X, X_test)]
        path.parent.mkdir(parents=True, exist_ok=True)
        unit = [normalize(part).astype(np.float32) for part in vectors]
        np.savez(path, train=unit[0], test=unit[1])
    labelled = np.diff(Y.indptr) > 0
    with np.load(path) as stored:
        return stored["train"][labelled], Y.indices[Y.indptr[:-1][labelled]], stored["test"], Y_test


# Methods: each trains, and returns the function of the five best labels and its bytes


def ltls(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Train with the defaults."""
    model = LTLSClassifier(random_state=0, n_jobs=-1).fit(X, y)
    return lambda rows: model.predict_topk(rows, 5)[0], machine.saved_bytes(model)


def by_scores(scores: Callable[[Vectors], Any], n_bytes: int) -> tuple[Topk, int]:
    """Return the best columns of dense scores, a block of rows at a time."""

    def topk(rows: Vectors) -> Any:
        found = []
        for first in range(0, len(rows), BLOCK):
            block = scores(rows[first : first + BLOCK])
            part = np.argpartition(-block, 5, axis=1)[:, :5]
            order = np.argsort(-np.take_along_axis(block, part, axis=1), axis=1, kind="stable")
            found.append(np.take_along_axis(part, order, axis=1))
        return np.concatenate(found)

    return topk, n_bytes


def nearest_centroid(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Compare a row with the mean row of every label, by the cosine."""
    ones = np.ones(len(y), np.float32)
    indicator = sp.csr_matrix((ones, (y, np.arange(len(y)))), (n_labels, len(y)))
    centroids = normalize(indicator @ X).astype(np.float32)
    return by_scores(lambda rows: rows @ centroids.T, centroids.nbytes)


def elected(y: Any, nearest: Any, cosines: Any, temperature: float) -> Any:
    """Return the five labels that neighbours vote for, each with the weight exp(cosine / T)."""
    labels, absent = y[nearest], nearest < 0
    cosines = np.where(absent, -np.inf, cosines)
    weights = np.exp((cosines - cosines.max(axis=1, keepdims=True, initial=-1)) / temperature)
    same = labels[:, :, None] == labels[:, None, :]
    votes = (same * weights[:, None, :]).sum(axis=2)
    votes[np.triu(same & ~absent[:, :, None], 1).any(axis=1) | absent] = -1  # the first one counts
    order = np.argsort(-votes, axis=1, kind="stable")[:, :5]
    best, counts = (np.take_along_axis(each, order, axis=1) for each in (labels, votes))
    return np.where(counts < 0, -1, best)


def by_votes(search: Search, X: Vectors, y: Any, n_bytes: int) -> tuple[Topk, int]:
    """Let the nearest training rows vote; how much nearer ones count is tuned on training rows."""
    rows = np.random.default_rng(0).permutation(len(X))[:TUNING_ROWS]
    nearest, cosines = search(X[rows])
    others = np.where(nearest == rows[:, None], -1, nearest)  # a row does not vote for itself

    def precision(temperature: float) -> float:
        return float((elected(y, others, cosines, temperature)[:, 0] == y[rows]).mean())

    best = max(TEMPERATURES, key=precision)

    def topk(rows: Vectors) -> Any:
        blocks = (rows[first : first + BLOCK] for first in range(0, len(rows), BLOCK))
        return np.concatenate([elected(y, *search(block), best) for block in blocks])

    return topk, n_bytes


def neighbours(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Find the nearest rows by comparing all."""

    def search(rows: Vectors) -> tuple[Any, Any]:
        cosines = rows @ X.T
        nearest = np.argpartition(-cosines, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
        return nearest, np.take_along_axis(cosines, nearest, axis=1)

    return by_votes(search, X, y, X.nbytes)


def hnswlib(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Find the nearest rows in a graph of neighbours."""
    from hnswlib import Index

    index = Index("cosine", X.shape[1])
    index.init_index(len(X), M=16, ef_construction=200, random_seed=0)
    index.add_items(X)
    index.set_ef(50)

    def search(rows: Vectors) -> tuple[Any, Any]:
        nearest, distances = index.knn_query(rows, N_NEIGHBORS)
        return nearest.astype(np.int64), 1 - distances

    return by_votes(search, X, y, index.index_file_size())


def usearch(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Find the nearest rows in a graph of neighbours, of vectors in half precision."""
    from usearch.index import Index

    index = Index(ndim=X.shape[1], metric="cos", dtype="f16")
    index.add(np.arange(len(X)), X)

    def search(rows: Vectors) -> tuple[Any, Any]:
        matches = index.search(rows, N_NEIGHBORS)
        return matches.keys.astype(np.int64), 1 - matches.distances

    return by_votes(search, X, y, index.serialized_length)


def faiss(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Find the nearest rows in the 16 nearest of 4√n clusters, of vectors of 8-bit numbers."""
    import faiss as library

    lists = f"IVF{4 * math.isqrt(len(X))},SQ8"
    index = library.index_factory(X.shape[1], lists, library.METRIC_INNER_PRODUCT)
    index.train(X)
    index.add(X)
    index.nprobe = 16

    def search(rows: Vectors) -> tuple[Any, Any]:
        cosines, nearest = index.search(rows, N_NEIGHBORS)
        return nearest, cosines

    return by_votes(search, X, y, len(library.serialize_index(index)))


def softmax_epochs(X: Vectors, y: Any, n_labels: int, rate: float) -> Any:
    """Yield a linear layer after every epoch of Adam."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layer = nn.Linear(X.shape[1], n_labels)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(layer.parameters(), lr=rate)
    rows, labels = torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))
    while True:
        for some in torch.randperm(len(rows)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(rows[some]), labels[some]).backward()
            optimizer.step()
        yield layer


def tuned(X: Vectors, y: Any, n_labels: int) -> tuple[float, int]:
    """Return the learning rate and the epochs that are best on a tenth of the rows."""
    held_out = np.random.default_rng(0).random(len(X)) < 0.1
    best, chosen = -1.0, (RATES[0], 1)
    for rate in RATES:
        own, since = -1.0, 0
        for epoch, layer in enumerate(
            softmax_epochs(X[~held_out], y[~held_out], n_labels, rate), 1
        ):
            topk, _ = scored(layer)
            precision = float((topk(X[held_out])[:, 0] == y[held_out]).mean())
            since = 0 if precision > own else since + 1
            own = max(own, precision)
            if precision > best:
                best, chosen = precision, (rate, epoch)
            if since == PATIENCE or epoch == MOST_EPOCHS:
                break
    return chosen


def scored(layer: Any) -> tuple[Topk, int]:
    weight, bias = (each.detach().numpy() for each in (layer.weight, layer.bias))
    return by_scores(lambda rows: rows @ weight.T + bias, weight.nbytes + bias.nbytes)


def softmax(X: Vectors, y: Any, n_labels: int, rate: float, epochs: int) -> tuple[Topk, int]:
    """Train a linear layer with a softmax, in torch."""
    return scored(next(islice(softmax_epochs(X, y, n_labels, rate), epochs - 1, None)))


def logistic_regression(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Train scikit-learn's; C is larger than usual, since rows have unit length.

    Gradients are of a mean over rows, and the more labels, the smaller: with the usual tolerance,
    a thousand labels can be done before the first step.
    """
    model = LogisticRegression(C=100, max_iter=200, tol=1e-4 / n_labels).fit(X, y)
    columns = np.zeros((n_labels, X.shape[1]), np.float32)
    bias = np.full(n_labels, -np.inf, np.float32)
    columns[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
    return by_scores(lambda rows: rows @ columns.T + bias, 4 * (model.coef_.size + len(bias)))


METHODS: dict[str, Callable[..., tuple[Topk, int]]] = {
    "ltls": ltls,
    "nearest centroid": nearest_centroid,
    "20 nearest neighbours": neighbours,
    "hnswlib": hnswlib,
    "usearch": usearch,
    "faiss": faiss,
    "linear softmax": softmax,
    "logistic regression": logistic_regression,
}
PACKAGES = {
    "hnswlib": "hnswlib",
    "usearch": "usearch",
    "faiss": "faiss-cpu",
    "linear softmax": "torch",
}


def is_installed(method: str) -> bool:
    package = PACKAGES.get(method, "numpy").removesuffix("-cpu")
    return importlib.util.find_spec(package) is not None


def measure(
    name: str, X: Vectors, y: Any, X_test: Vectors, Y_test: Any, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train and test one method; what was tuned before is not tuned again."""
    n_labels, known = Y_test.shape[1], known or {}
    if len(X) * n_labels > MOST_CELLS.get(name, math.inf):
        return {"not_run": f"rows × labels is {len(X) * n_labels:.1e}"}
    settings: dict[str, Any] = {}
    if name == "linear softmax":
        tried = (known["rate"], known["epochs"]) if "rate" in known else tuned(X, y, n_labels)
        settings = dict(zip(("rate", "epochs"), tried, strict=True))
    start = time.process_time()
    topk, n_bytes = METHODS[name](X, y, n_labels, **settings)
    trained = time.process_time()
    best = topk(X_test)
    spent = time.process_time() - trained
    return {
        "p1": precision_at_k(Y_test, best, 1),
        "recall5": recall_at_k(Y_test, best, 5),
        "train_cpu_seconds": trained - start,
        "predict_us": 1e6 * spent / len(X_test),
        "bytes": n_bytes,
        **settings,
    }


def store(name: str, counts: dict[str, Any], method: str, found: Any, folder: Path) -> None:
    """Put a figure among the stored ones, which other processes may have written meanwhile."""
    stored = machine.read("embeddings", folder)
    sets = stored.get("sets", {})
    of = {**sets.get(name, {}).get("methods", {}), method: found}
    sets[name] = {**counts, "methods": {each: of[each] for each in METHODS if each in of}}
    packages = {"numpy", "scikit-learn", PACKAGES.get(method, "numpy")}
    about = {**stored.get("about", {}), **machine.description(*sorted(packages))}
    about["command"] = "python -m benchmarks.embeddings"  # in pieces or at once
    ordered = {each: sets[each] for each in SETS if each in sets}
    machine.write("embeddings", {"about": about, "sets": ordered}, folder)


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, metavar="SET")
    installed = [*filter(is_installed, METHODS)]
    parser.add_argument("--methods", nargs="+", default=installed, choices=METHODS)
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    for name in options.sets or filter(files_of, SETS):
        X, y, X_test, Y_test = embedded(name)
        test = np.random.default_rng(0).permutation(len(X_test))[:MOST_TEST_ROWS]
        counts = {"rows": len(X), "labels": Y_test.shape[1], "features": X.shape[1]}
        for method in options.methods:
            stored = machine.read("embeddings", options.output)
            known = stored.get("sets", {}).get(name, {}).get("methods", {})
            found = measure(method, X, y, X_test[test], Y_test[test], known.get(method))
            machine.say(f"{name}, {method}: {found}")
            store(name, counts, method, found, options.output)
    print("\n".join(tables.embeddings(machine.read("embeddings", options.output))))


if __name__ == "__main__":
    main()
