"""Dense rows, such as embeddings: the defaults beside what one would use otherwise.

    python -m benchmarks.embeddings                              all sets and methods
    python -m benchmarks.embeddings --sets icd10cm --methods ltls --rows 5000

Rows are truncated SVDs of TF-IDF vectors with 256 dimensions, and the raw pixels of omniglot, all
of unit length, kept below build/embeddings. Every method trains on the first label of a row.
The linear softmax has the learning rate and the number of epochs that are best on a tenth of the
training rows; its seconds are those of the final training alone. Seconds and µs are processor time,
MB those of a model of float32 numbers, of ltls those of its file. --rows takes some of the training
rows, and stores nothing.
"""

from __future__ import annotations

import tempfile
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

SETS = ("icd10cm", "debsrc", "wordnet_hyper", "omniglot")
RAW = ("omniglot",)
SIZE = 256
N_NEIGHBORS = 20
RATES, MOST_EPOCHS, PATIENCE, BATCH = (1e-2, 3e-2, 1e-1), 30, 3, 256
MOST_CELLS = 10**8  # rows × labels of a logistic regression: others take hours, and gigabytes
MOST_TEST_ROWS = 5000
BLOCK = 1024  # rows that are predicted at a time

Vectors = Any  # float32 array, a row of unit length for every row
Topk = Callable[[Vectors], Any]


def embedded(name: str) -> tuple[Vectors, Any, Vectors, Any]:
    """Return vectors and labels of the training rows, and those of test rows as an indicator."""
    files = datasets.find(machine.data_folder(), name)
    if files is None:
        raise SystemExit(f"{name} is not in the folder that LTLS_DATA names")
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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.save(path)
        size = path.stat().st_size
    return lambda rows: model.predict_topk(rows, 5)[0], size


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


def neighbours(X: Vectors, y: Any, n_labels: int) -> tuple[Topk, int]:
    """Let the 20 nearest training rows vote, each with its cosine; exact."""

    def scores(rows: Vectors) -> Any:
        cosines = rows @ X.T
        nearest = np.argpartition(-cosines, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
        votes = np.zeros((len(rows), n_labels), np.float32)
        own = np.broadcast_to(np.arange(len(rows))[:, None], nearest.shape)
        np.add.at(votes, (own, y[nearest]), np.take_along_axis(cosines, nearest, axis=1))
        return votes

    return by_scores(scores, X.nbytes)


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
    """Train scikit-learn's; C is larger than usual, since rows have unit length."""
    model = LogisticRegression(C=100, max_iter=200).fit(X, y)
    columns = np.zeros((n_labels, X.shape[1]), np.float32)
    bias = np.full(n_labels, -np.inf, np.float32)
    columns[model.classes_], bias[model.classes_] = model.coef_, model.intercept_
    return by_scores(lambda rows: rows @ columns.T + bias, 4 * (model.coef_.size + len(bias)))


METHODS: dict[str, Callable[..., tuple[Topk, int]]] = {
    "ltls": ltls,
    "nearest centroid": nearest_centroid,
    "20 nearest neighbours": neighbours,
    "linear softmax": softmax,
    "logistic regression": logistic_regression,
}


def measure(name: str, X: Vectors, y: Any, X_test: Vectors, Y_test: Any) -> dict[str, Any]:
    """Train and test one method."""
    n_labels, chosen = Y_test.shape[1], ()
    if name == "logistic regression" and len(X) * n_labels > MOST_CELLS:
        return {"not_run": f"rows × labels is {len(X) * n_labels:.1e}"}
    if name == "linear softmax":
        chosen = tuned(X, y, n_labels)
    start = time.process_time()
    topk, n_bytes = METHODS[name](X, y, n_labels, *chosen)
    trained = time.process_time()
    best = topk(X_test)
    spent = time.process_time() - trained
    return {
        "p1": precision_at_k(Y_test, best, 1),
        "recall5": recall_at_k(Y_test, best, 5),
        "train_cpu_seconds": trained - start,
        "predict_us": 1e6 * spent / len(X_test),
        "bytes": n_bytes,
        **({"rate": chosen[0], "epochs": chosen[1]} if chosen else {}),
    }


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--rows", type=int, help="take so many training rows, and store nothing")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    found = machine.read("embeddings", options.output).get("sets", {})
    rng = np.random.default_rng(0)
    for name in options.sets:
        X, y, X_test, Y_test = embedded(name)
        test = rng.permutation(len(X_test))[:MOST_TEST_ROWS]
        some = np.sort(rng.permutation(len(X))[: options.rows])
        counts = {"rows": len(some), "labels": Y_test.shape[1], "features": X.shape[1]}
        of = {} if options.rows else found.get(name, {}).get("methods", {})
        for method in options.methods:
            of[method] = measure(method, X[some], y[some], X_test[test], Y_test[test])
            machine.say(f"{name}, {method}: {of[method]}")
        found[name] = {**counts, "methods": of}
    about = machine.description("numpy", "scikit-learn", "torch")
    about["command"] = "python -m benchmarks.embeddings"  # some of it may be of earlier runs
    result = {"about": about, "sets": found}
    if not options.rows:
        machine.write("embeddings", result, options.output)
    print("\n".join(tables.embeddings(result)))


if __name__ == "__main__":
    main()
