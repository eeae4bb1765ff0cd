"""Small dense problems: the defaults and one-vs-all beside logistic regression.

    python -m benchmarks.small_dense            a minute; it prints a table, and stores nothing

Each data set is split three times into 70 % to train on and 30 % to test. Logistic regression has
a `StandardScaler` before it. "one-vs-all" is a single trellis as wide as there are classes, with
averaged weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import machine
from ltls import LTLSClassifier

N_SPLITS = 3
MODELS: dict[str, Callable[[int], Any]] = {
    "logistic regression": lambda n: make_pipeline(StandardScaler(), LogisticRegression()),
    "ltls": lambda n: LTLSClassifier(random_state=0),
    "averaged": lambda n: LTLSClassifier(random_state=0, average=True),
    "one-vs-all": lambda n: LTLSClassifier(n, 1, average=True, random_state=0),
    "label weights": lambda n: LTLSClassifier(random_state=0, label_weights=True),
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
    }


def measure(make: Callable[[int], Any], X: Any, y: Any) -> tuple[float, float]:
    """Return the median processor seconds of fitting, and the mean accuracy."""
    seconds, scores = [], []
    for split in range(N_SPLITS):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=0.3, random_state=split, stratify=y
        )
        model = make(len(set(y_train.tolist())))
        start = time.process_time()
        model.fit(X_train, y_train)
        seconds.append(time.process_time() - start)
        scores.append(model.score(X_test, y_test))
    return statistics.median(seconds), statistics.mean(scores)


def main() -> None:
    rows = []
    for name, (X, y) in data_sets().items():
        found = [measure(make, X, y) for make in MODELS.values()]
        rows.append([name, *(f"{accuracy:.3f} ({seconds:.3f} s)" for seconds, accuracy in found)])
        machine.say(" | ".join(rows[-1]))
    print("\n".join(machine.table(["data", *MODELS], rows)))


if __name__ == "__main__":
    main()
