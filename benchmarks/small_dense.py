"""Small dense problems: the defaults beside logistic regression.

    python -m benchmarks.small_dense            half a minute

Each data set is split five times into 70 % to train on and 30 % to test. Logistic regression is
scikit-learn's, with a `StandardScaler` before it; both have one thread. "hard" and the other
synthetic sets are `make_classification`'s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks import machine, tables
from ltls import LTLSClassifier

N_SPLITS = 5
MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "ltls": lambda: LTLSClassifier(random_state=0, n_jobs=1),
}


def synthetic(
    n_rows: int, n_features: int, n_informative: int, n_classes: int, apart: float
) -> Any:
    return make_classification(
        n_rows,
        n_features,
        n_informative=n_informative,
        n_redundant=0,
        n_classes=n_classes,
        n_clusters_per_class=1,
        class_sep=apart,
        random_state=0,
    )


def data_sets() -> dict[str, Any]:
    return {
        "100 features, 50 classes": synthetic(5000, 100, 30, 50, 2.0),
        "100 features, 50 classes, hard": synthetic(10_000, 100, 60, 50, 1.0),
        "40 features, 20 classes": synthetic(4000, 40, 20, 20, 1.0),
        "digits": load_digits(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "iris": load_iris(return_X_y=True),
    }


def measure(make: Callable[[], Any], X: Any, y: Any) -> dict[str, float]:
    """Return the median processor seconds of fitting, and the mean accuracy."""
    seconds, scores = [], []
    for split in range(N_SPLITS):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=0.3, random_state=split, stratify=y
        )
        model = make()
        start = time.process_time()
        with threadpool_limits(1):
            model.fit(X_train, y_train)
        seconds.append(time.process_time() - start)
        scores.append(model.score(X_test, y_test))
    return {"accuracy": statistics.mean(scores), "seconds": statistics.median(seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for name, (X, y) in data_sets().items():
        found[name] = {
            "rows": len(y),
            **{title: measure(make, X, y) for title, make in MODELS.items()},
        }
        machine.say(name)
    result = {"about": machine.description("numpy", "scikit-learn"), "sets": found}
    machine.write("small_dense", result, options.output)
    print("\n".join(tables.small_dense(result)))


if __name__ == "__main__":
    main()
