"""Sparse and dense features of the same rows: each alone, and both in one model.

    python -m benchmarks.blocks
    python -m benchmarks.blocks --sets banking77

Texts (banking77, and the first 40,000 rows of yso_en) have TF-IDF weighted words as sparse
features, and a truncated SVD of character n-grams with 256 dimensions as dense ones. icd10cm and
wordnet_hyper have no texts: their dense features are an SVD of the sparse ones, as in
`benchmarks.embeddings`, and know nothing new. Of icd10cm_halves, a random half of the features are
sparse, and an SVD of the other half is dense: each knows what the other does not, as the words of a
title and an embedding of its text do. All settings are the defaults. Seconds and µs are processor
time of one thread, MB those of the file.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from benchmarks import datasets, machine, tables
from benchmarks.embeddings import SIZE, embedded, files_of
from ltls import LTLSClassifier
from ltls.metrics import precision_at_k, recall_at_k

SETS = ("banking77", "yso_en", "icd10cm", "wordnet_hyper", "icd10cm_halves")
MOST_ROWS, MOST_TEST_ROWS = 40_000, 5000
WORDS: dict[str, Any] = {"sublinear_tf": True, "token_pattern": r"(?u)\b\w+\b"}
CHARACTERS: dict[str, Any] = {
    "sublinear_tf": True,
    "analyzer": "char_wb",
    "ngram_range": (3, 5),
    "min_df": 2,
    "max_features": 100_000,
}


def of_texts(name: str) -> tuple[list[Any], Any, list[Any], Any]:
    """Return words and vectors, and labels, of training and test rows."""
    train, own = (rows[:MOST_ROWS] for rows in datasets.texts(name, "train"))
    test, theirs = (rows[:MOST_TEST_ROWS] for rows in datasets.texts(name, "test"))
    single = isinstance(own[0], str)
    if single:
        own, theirs = ([[label] for label in labels] for labels in (own, theirs))
    ids = {label: number for number, label in enumerate(sorted({x for row in own for x in row}))}
    words = TfidfVectorizer(dtype=np.float32, **WORDS)
    sparse = [words.fit_transform(train), words.transform(test)]
    path = machine.BUILD / "blocks" / f"{name}.npz"
    if not path.exists():
        letters = TfidfVectorizer(dtype=np.float32, **CHARACTERS)
        ngrams = [letters.fit_transform(train), letters.transform(test)]
        svd = TruncatedSVD(SIZE, random_state=0).fit(ngrams[0])
        vectors = [normalize(svd.transform(part)).astype(np.float32) for part in ngrams]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, train=vectors[0], test=vectors[1])
    with np.load(path) as stored:
        dense = [stored["train"], stored["test"]]
    y = [ids[row[0]] for row in own] if single else [[ids[x] for x in row] for row in own]
    known = [[ids[x] for x in row if x in ids] for row in theirs]
    pairs = [(n, label) for n, row in enumerate(known) for label in row]
    rows, columns = zip(*pairs, strict=True)
    truth = sp.csr_matrix((np.ones(len(rows)), (rows, columns)), (len(test), len(ids)))
    return [sparse[0], dense[0]], y, [sparse[1], dense[1]], truth


def of_features(name: str) -> tuple[list[Any], Any, list[Any], Any]:
    """Return features and their SVD, and labels, of training and test rows."""
    files = files_of(name)
    if files is None:
        raise SystemExit(f"{name} is not in the folder that LTLS_DATA names")
    X, Y, X_test, _ = datasets.load(files)
    dense, y, dense_test, truth = embedded(name)
    test = np.random.default_rng(0).permutation(len(dense_test))[:MOST_TEST_ROWS]
    sparse = X[np.diff(Y.indptr) > 0]
    return [sparse, dense], y, [X_test[test], dense_test[test]], truth[test]


def of_halves(name: str) -> tuple[list[Any], Any, list[Any], Any]:
    """Return a half of the features, and an SVD of the other half."""
    (X, _), y, (X_test, _), truth = of_features(name.removesuffix("_halves"))
    sparse = np.random.default_rng(0).random(X.shape[1]) < 0.5
    svd = TruncatedSVD(SIZE, random_state=0).fit(normalize(X[:, ~sparse]))
    dense = [
        normalize(svd.transform(normalize(part[:, ~sparse]))).astype(np.float32)
        for part in (X, X_test)
    ]
    return [X[:, sparse], dense[0]], y, [X_test[:, sparse], dense[1]], truth


def measure(X: Any, y: Any, X_test: Any, truth: Any) -> dict[str, Any]:
    """Train and test a model."""
    start = time.process_time()
    model = LTLSClassifier(random_state=0, n_jobs=1).fit(X, y)
    trained = time.process_time()
    best = model.predict_topk(X_test, 5)[0]
    spent = time.process_time() - trained
    parts = zip(model.model_.parts, model.model_.weights, strict=True)
    return {
        "p1": precision_at_k(truth, best, 1),
        "recall5": recall_at_k(truth, best, 5),
        "p5": precision_at_k(truth, best, 5),
        "train_cpu_seconds": trained - start,
        "predict_us": 1e6 * spent / truth.shape[0],
        "bytes": machine.saved_bytes(model),
        "parts": {part.name: weight for part, weight in parts},
    }


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    for name in options.sets:
        made = of_texts if name in SETS[:2] else of_features
        X, y, X_test, truth = (of_halves if name.endswith("halves") else made)(name)
        stored = machine.read("blocks", options.output)
        found = {"rows": len(y), "labels": truth.shape[1], "methods": {}}
        inputs = {"sparse": (X[0], X_test[0]), "dense": (X[1], X_test[1]), "both": (X, X_test)}
        for method, (rows, test) in inputs.items():
            found["methods"][method] = measure(rows, y, test, truth)
            machine.say(f"{name}, {method}: {found['methods'][method]}")
        sets = {**stored.get("sets", {}), name: found}
        about = {**machine.description("numpy", "scikit-learn")}
        about["command"] = "python -m benchmarks.blocks"
        ordered = {each: sets[each] for each in SETS if each in sets}
        machine.write("blocks", {"about": about, "sets": ordered}, options.output)
    print("\n".join(tables.blocks(machine.read("blocks", options.output))))


if __name__ == "__main__":
    main()
