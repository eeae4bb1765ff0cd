"""Are probabilities right? Calibration of the defaults on test rows.

    python -m benchmarks.calibration                 all sets, a minute or two
    python -m benchmarks.calibration --sets bibtex   one of them

The expected calibration error (ECE, 15 bins of equal width) of several labels per row is over the
five best labels of every row, and over all pairs of rows and labels; that of one label per row is
over the best label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier
from ltls.metrics import calibration_error

SETS = ("bibtex", "delicious", "stackex_cs", "debtags", "banking77", "icd10cm")


def measure(model: LTLSClassifier, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, float]:
    """Fit a model and return how well its probabilities are calibrated."""
    model.fit(X, y)
    proba = model.predict_proba(X_test)
    if not model.multilabel_:
        return of_one_label(proba, model.classes_ == np.asarray(y_test)[:, None])
    truth = np.zeros(proba.shape, bool)
    truth[y_test.nonzero()] = True
    best, scores = model.predict_topk(X_test, 5, proba=True)
    thresholds = np.linspace(0.02, 0.98, 49)
    return {
        "ece": calibration_error(np.take_along_axis(truth, best.astype(int), axis=1), scores),
        "ece_all_pairs": calibration_error(truth, proba),
        "f1_at_half": f1(proba >= 0.5, truth),
        "f1_best": max(f1(proba >= threshold, truth) for threshold in thresholds),
        "f1_predict": f1(model.predict(X_test).toarray() > 0, truth),
    }


def of_one_label(proba: Any, truth: Any) -> dict[str, float]:
    """Return ECE of the best label and negative log-likelihood."""
    top = proba.argmax(axis=1)[:, None]
    right = np.take_along_axis(truth, top, axis=1)
    known = truth.any(axis=1)  # labels that no training row has have no probability
    return {
        "ece": calibration_error(right, np.take_along_axis(proba, top, axis=1)),
        "nll": float(-np.log(np.maximum(proba[truth], 1e-12)).sum() / known.sum()),
    }


def f1(predicted: Any, truth: Any) -> float:
    return float(2 * (predicted & truth).sum() / max(predicted.sum() + truth.sum(), 1))


def digits(seed: int) -> dict[str, dict[str, float]]:
    """Return the measures on scikit-learn's digits, cross-validated, and those of a peer."""
    X, y = load_digits(return_X_y=True)
    models = {
        "digits": LTLSClassifier(random_state=seed),
        "digits, logistic regression": LogisticRegression(max_iter=1000),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    truth = np.unique(y) == y[:, None]
    return {
        name: of_one_label(
            cross_val_predict(model, X / 16, y, cv=folds, method="predict_proba"), truth
        )
        for name, model in models.items()
    }


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    machine.data_folder()
    results = digits(options.seed)
    for name in options.sets:
        model = LTLSClassifier(random_state=options.seed, n_jobs=-1)
        results[name] = measure(model, *datasets.problem(name))
        machine.say(f"{name} {results[name]}")
    result = {"about": machine.description("numpy", "scikit-learn"), "sets": results}
    machine.write("calibration", result, options.output)
    print("\n".join(tables.calibration(result)))


if __name__ == "__main__":
    main()
