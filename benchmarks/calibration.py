"""Are probabilities right? Calibration of the defaults on test rows.

    python -m benchmarks.calibration                 all sets, a minute or two
    python -m benchmarks.calibration --sets bibtex   one of them

The expected calibration error (ECE, 15 bins of equal width) of several labels per row is over the
five best labels of every row, and over all pairs of rows and labels; that of one label per row is
over the best label.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from benchmarks import datasets, machine, tables
from ltls import LTLSClassifier
from ltls.metrics import calibration_error, precision_at_k

SETS = ("bibtex", "delicious", "stackex_cs", "debtags", "banking77", "icd10cm")
TOP = 5


def measure(model: LTLSClassifier, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, float]:
    """Fit a model and return its accuracy, calibration, processor seconds and file size."""
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    best, scores = model.predict_topk(X_test, TOP, proba=True)
    found = {
        "p1": precision_at_k(y_test, model.predict_topk(X_test, 1)[0], 1),
        "p5": precision_at_k(y_test, model.predict_topk(X_test, TOP)[0], TOP),
        "seconds": seconds,
        "bytes": file_size(model),
    }
    proba = model.predict_proba(X_test)
    truth = np.zeros(proba.shape, bool)
    if model.multilabel_:
        truth[y_test.nonzero()] = True
        found |= f1_scores(proba, truth)
        found["f1_predict"] = f1(np.asarray(model.predict(X_test).todense()) > 0, truth)
        hits = np.take_along_axis(truth, best.astype(int), axis=1)
        found["ece"] = calibration_error(hits, scores)
        found["ece_all_pairs"] = calibration_error(truth, proba)
    else:
        truth = model.classes_ == np.asarray(y_test)[:, None]
        found |= of_one_label(proba, truth)
        found["same_as_predict"] = float(
            (model.classes_[proba.argmax(axis=1)] == model.predict(X_test)).mean()
        )
    return found


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


def f1_scores(proba: Any, truth: Any) -> dict[str, float]:
    """Return micro-F1 at a threshold of 0.5 and at the best one."""
    thresholds = np.linspace(0.02, 0.98, 49)
    scores = [f1(proba >= threshold, truth) for threshold in thresholds]
    best = int(np.argmax(scores))
    return {
        "f1_at_half": f1(proba >= 0.5, truth),
        "f1_best": scores[best],
        "best_threshold": float(thresholds[best]),
    }


def file_size(model: LTLSClassifier) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ltls")
        model.save(path)
        return path.stat().st_size


def digits(seed: int) -> dict[str, dict[str, float]]:
    """Return the measures on scikit-learn's digits, and those of logistic regression.

    A fold has too few rows for the error of a calibration, so that it is of all five.
    """
    X, y = load_digits(return_X_y=True)
    X = X / 16
    models = {
        "digits": LTLSClassifier(random_state=seed),
        "digits, logistic regression": LogisticRegression(max_iter=1000),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    truth = np.unique(y) == y[:, None]
    found = {}
    for name, model in models.items():
        start = time.process_time()
        proba = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
        found[name] = {
            "p1": float((proba.argmax(axis=1) == y).mean()),
            "seconds": (time.process_time() - start) / 5,
            **of_one_label(proba, truth),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="SET")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    machine.data_folder()
    results = digits(options.seed)
    machine.say(str(results))
    for name in options.sets:
        train, test = datasets.train_and_test(name)
        y, y_test = (datasets.targets(part, train.single_label) for part in (train, test))
        model = LTLSClassifier(random_state=options.seed)
        results[name] = measure(model, train.X, y, test.X, y_test)
        machine.say(f"{name} {results[name]}")
    result = {"about": machine.description("numpy", "scikit-learn"), "sets": results}
    print("\n".join(tables.TABLES["calibration"](result)))
    machine.write("calibration", result)


if __name__ == "__main__":
    main()
