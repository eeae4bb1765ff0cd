"""Masked arrays: NumPy drops masks silently, so masked entries are errors wherever one is given."""

import numpy as np
import pytest

from ltls import LTLSClassifier, TextClassifier, metrics

X = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
y = np.arange(40) % 4
Y = np.eye(4, dtype=int)[y]
TEXTS = np.array([["one text", "another"], ["a third", "and more"]] * 20, object)
MODEL = LTLSClassifier(random_state=0).fit(X, y)
TEXT_MODEL = TextClassifier(random_state=0).fit(TEXTS, y)
TOPK = MODEL.predict_topk(X, 3)[0]


def new():
    return LTLSClassifier(random_state=0)


CALLS = {  # the name of the argument, its value without a mask, and a call with it
    "fit": ("X", X, lambda value: new().fit(value, y)),
    "fit, a list of rows": ("X", X, lambda value: new().fit(list(value), y)),
    "fit, targets": ("y", y, lambda value: new().fit(X, value)),
    "fit, a list of targets": ("y", y, lambda value: new().fit(X, list(value))),
    "fit, an indicator matrix": ("y", Y, lambda value: new().fit(X, value)),
    "fit, rows of one": ("y", Y, lambda value: new().fit(X, list(value))),
    "fit, texts": ("texts", TEXTS, lambda value: TextClassifier(random_state=0).fit(value, y)),
    "fit, weights": ("sample_weight", y + 1.0, lambda value: new().fit(X, y, value)),
    "partial_fit": ("X", X, lambda value: new().partial_fit(value, y)),
    "partial_fit, targets": ("y", y, lambda value: new().partial_fit(X, value)),
    "partial_fit, classes": ("classes", y, lambda value: new().partial_fit(X, y, value)),
    "partial_fit, weights": (
        "sample_weight",
        y + 1.0,
        lambda value: new().partial_fit(X, y, sample_weight=value),
    ),
    "fit_stream": ("X", X, lambda value: new().fit_stream([(value, y)])),
    "fit_stream, targets": ("y", y, lambda value: new().fit_stream([(X, value)])),
    **{
        name: ("X", X, lambda value, name=name: getattr(MODEL, name)(value))
        for name in ("predict", "predict_topk", "predict_proba", "decision_function", "explain")
    },
    "explain, labels": ("labels", y[:4], lambda value: MODEL.explain(X[:2], value)),
    "predict, texts": ("texts", TEXTS, lambda value: TEXT_MODEL.predict(value)),
    "score": ("y", y, lambda value: MODEL.score(X, value)),
    "score, weights": ("sample_weight", y + 1.0, lambda value: MODEL.score(X, y, value)),
    "log_proba": ("y", y, lambda value: MODEL.log_proba(X, value)),
    "among": ("among", y[:4], lambda value: MODEL.predict_topk(X, 2, among=value)),
    "among, a mask": ("among", Y[0] == Y[0], lambda value: MODEL.predict_topk(X, 2, among=value)),
    "among, masks": ("among", Y == Y, lambda value: MODEL.predict_topk(X, 2, among=value)),
    "predictor": ("X", X, lambda value: MODEL.predictor()(value)),
    "predictor, values": ("values", X[0], lambda value: MODEL.predictor()(np.arange(5), value)),
    "predictor, indices": ("indices", np.arange(5), lambda value: MODEL.predictor()(value, X[0])),
    "a metric": ("y_true", y, lambda value: metrics.precision_at_k(value, TOPK)),
    "a metric, matrix": ("y_true", Y, lambda value: metrics.ndcg_at_k(value, TOPK)),
    "a metric, predictions": ("topk", TOPK, lambda value: metrics.recall_at_k(y, value)),
    "a metric, weights": (
        "sample_weight",
        y + 1.0,
        lambda value: metrics.precision_at_k(y, TOPK, sample_weight=value),
    ),
    "psp": ("propensity", np.ones(4), lambda value: metrics.psp_at_k(y, TOPK, value)),
    "propensities": ("y_train", y, metrics.propensities),
    "propensities_of": ("counts", y + 1, lambda value: metrics.propensities_of(value, 9)),
    "calibration_error": (
        "proba",
        np.full(40, 0.5),
        lambda value: metrics.calibration_error(y > 1, value),
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_masked_entries_are_errors_that_name_the_argument(call):
    name, value, ask = CALLS[call]
    mask = np.zeros(value.shape, bool)
    ask(np.ma.array(value, mask=mask))  # nothing is masked
    mask.flat[3] = True
    with pytest.raises(ValueError, match=f"^{name} must not have masked entries"):
        ask(np.ma.array(value, mask=mask))
