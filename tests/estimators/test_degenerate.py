"""Weak and degenerate data: a model whose every method answers, or a clear error."""

import time
import warnings

import numpy as np
import pytest
from asking import ask_everything
from scipy.sparse import csr_array

from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.settings import Memory, Numbers, Table, Text, Trellises

RNG = np.random.default_rng(0)
N = 1100
NOISE, RANDOM = RNG.normal(size=(N, 5)), RNG.integers(0, 100, N)
AS_THEY_ARE = Numbers(standardize=False)
WORDS = [" ".join(f"w{i}" for i in RNG.integers(0, 50, 4)) for _ in range(N)]

MODELS = {
    "auto": {},
    "label weights": {"label_weights": True},
    "label matrix": {"label_matrix": True, "label_weights": False},
    "margins": {"trellises": Trellises(loss="separation")},
    "independent edges": {"trellises": Trellises(loss="logistic")},
    "everything": {"views": True, "prototypes": True, "neighbours": True, "propensity": True},
}


ROWS = {
    "no signal": (NOISE, RANDOM),
    "constant features": (np.ones((N, 5)), RANDOM),
    "equal rows": (np.tile(RNG.normal(size=5), (N, 1)), RANDOM),
    "no features": (np.zeros((N, 5)), RANDOM),
    "some rows of zeros": (NOISE * (RNG.random((N, 1)) < 0.5), RANDOM),
    "one row per label": (RNG.normal(size=(N, 30)), np.arange(N)),
    "one row per label, few": (RNG.normal(size=(20, 30)), np.arange(20)),
    "one feature": (NOISE[:, :1], RANDOM),
    "two rows": (np.eye(2), [0, 1]),
    "three rows": (np.eye(3), [0, 1, 1]),
    "a rare label": (NOISE, [0] * (N - 1) + [1]),
    "large values": (1e6 * NOISE, RANDOM),
    "small values": (1e-20 * NOISE, RANDOM),
    "equal rows of different labels": (np.eye(4)[np.arange(N) % 4], np.arange(N) % 100),
    "several labels, no signal": (NOISE, (RNG.random((N, 100)) < 0.03).astype(int)),
    "more labels than rows": (NOISE[:50], [[10 * i + j for j in range(10)] for i in range(50)]),
    "many more labels": (NOISE, [[3 * i + j for j in range(3)] for i in range(N)]),
    "several labels, constant": (np.ones((N, 3)), [[i % 7, i % 11] for i in range(N)]),
    "rows without labels": (NOISE, [[i % 70] if i % 2 else [] for i in range(N)]),
    "all labels in every row": (NOISE, [list(range(70))] * N),
    "columns without labels": (NOISE, csr_array(np.eye(N, 200, dtype=int))),
}


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("dense", "auto"),
        ("sparse", "auto"),
        ("dense", "label weights"),
        ("sparse", "everything"),
        ("dense", "label matrix"),
        ("dense", "margins"),
        ("sparse", "independent edges"),
        ("stream", "auto"),
        ("stream", "label matrix"),
        ("sparse stream", "everything"),
    ],
)
@pytest.mark.parametrize("name", ROWS)
def test_numbers(name, form, parts, tmp_path):
    X, y = ROWS[name]
    X = csr_array(X) if "sparse" in form else X
    model = LTLSClassifier(random_state=0, **MODELS[parts])
    if "stream" in form:
        parts_of_rows = [slice(first, first + 300) for first in range(0, X.shape[0], 300)]
        model.fit_stream([(X[some], y[some]) for some in parts_of_rows])
    else:
        model.fit(X, y)
    ask_everything(model, X, tmp_path)


TEXTS = {
    "the same text": (["hello world"] * N, RANDOM),
    "no signal": (WORDS, RANDOM),
    "almost all empty": ([""] * (N - 1) + ["a word"], RANDOM),
    "half empty": ([text if i % 2 else "" for i, text in enumerate(WORDS)], RANDOM),
    "a text per label": ([f"t{i}" for i in range(N)], np.arange(N)),
    "two texts": (["a b", "c d"], ["x", "y"]),
    "two equal texts": (["a b", "a b"], ["x", "y"]),
    "more labels than rows": (WORDS, [[f"{i}-{j}" for j in range(3)] for i in range(N)]),
    "texts without labels": (WORDS, [[f"{i % 70}"] if i % 3 else [] for i in range(N)]),
}


@pytest.mark.parametrize(("n_features", "parts"), [(None, "auto"), (64, "everything")])
@pytest.mark.parametrize("name", TEXTS)
def test_texts(name, n_features, parts, tmp_path):
    X, y = TEXTS[name]
    features = Text(n_features=n_features)
    model = TextClassifier(features=features, random_state=0, **MODELS[parts]).fit(X, y)
    ask_everything(model, X, tmp_path)
    assert model.predictor(1)(X[0])[0].shape == (1,)


TABLES = {
    "constant cells": ([{"t": "x y", "n": 1, "c": "a"}] * N, RANDOM),
    "missing cells": ([{"t": "" if i else "x", "n": None if i else 3, "c": None} for i in range(N)],
                      RANDOM),
    "no signal": ([{"t": WORDS[i], "n": float(NOISE[i, 0]), "c": int(RANDOM[-i])}
                   for i in range(N)], RANDOM),
    "a row per label": ([{"t": f"t{i}", "n": i, "c": i} for i in range(N)], np.arange(N)),
    "two rows": ([{"t": "a", "n": 1, "c": 1}, {"t": "b", "n": 2, "c": 2}], ["x", "y"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "parts"),
    [("text", "auto"), ("number", "auto"), ("category", "everything"), ("all", "everything")],
)
@pytest.mark.parametrize("name", TABLES)
def test_tables(name, columns, parts, tmp_path):
    X, y = TABLES[name]
    kinds = {"text": "t", "number": "n", "category": "c"}
    table = Table(**(kinds if columns == "all" else {columns: kinds[columns]}))
    model = TableClassifier(features=table, random_state=0, **MODELS[parts]).fit(X, y)
    ask_everything(model, X, tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LTLSClassifier().fit(NOISE, np.zeros(N)), "at least 2 classes, got 1 class: 0"),
        (lambda: LTLSClassifier().fit(NOISE, [[]] * N), "at least one label, got none"),
        (lambda: LTLSClassifier().fit(NOISE, np.zeros((N, 3), int)), "at least one label"),
        (lambda: LTLSClassifier().fit(np.empty((N, 0)), RANDOM), "0 feature"),
        (
            lambda: LTLSClassifier(features=AS_THEY_ARE).fit(1e-30 * NOISE, RANDOM),
            "became infinite: scale the features",
        ),
        (
            lambda: LTLSClassifier(
                features=AS_THEY_ARE, label_matrix=True, label_weights=False
            ).fit(1e-20 * NOISE, RANDOM),
            "needs features of at least 1e-15, .*: scale the features",
        ),
        (lambda: LTLSClassifier(validation_fraction=0.9).fit(np.eye(2), [0, 1]), "leaves none of"),
        (lambda: TextClassifier().fit([""] * 4, list("abab")), "no words are left of the 4 texts"),
        (
            lambda: TextClassifier(features=Text(min_df=9)).fit(WORDS[:4], list("abab")),
            "no words are left of the 4 texts: .* lower min_df; is this",
        ),
        (
            lambda: TableClassifier(features=Table(number="n")).fit([{"n": None}] * 2, "ab"),
            "number column 'n' must have numbers, all are missing",
        ),
    ],
)
def test_data_that_no_model_can_be_fitted_to(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_large_values_cause_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LTLSClassifier(random_state=0).fit(1e12 * NOISE, RANDOM)
        before = model.predict_topk(1e12 * NOISE, 3)[1]
        after = model.partial_fit(1e12 * NOISE[:9], RANDOM[:9]).predict_topk(1e12 * NOISE, 3)[1]
    assert np.isfinite(before).all()
    assert np.abs(after - before).max() < 10


@pytest.mark.parametrize("weight", [1e-45, 1e-40, 1e-20, 1e9])
@pytest.mark.parametrize("memory", [False, Memory(n_rows=1), Memory(n_rows=5), Memory()])
def test_weights_of_any_size_give_numbers(tmp_path, memory, weight):
    X, y = NOISE[:30], RANDOM[:30] % 10
    model = LTLSClassifier(random_state=0, neighbours=memory is not False, memory=memory)
    model.fit(X, y, sample_weight=np.full(30, weight))
    ask_everything(model, X, tmp_path)


@pytest.mark.parametrize("loss", ["softmax", "logistic", "separation"])
def test_a_row_may_have_very_many_labels_in_any_order(loss):
    n_labels = 3000
    many = RNG.permutation(n_labels).tolist()
    trellises = Trellises(loss=loss, epochs=1)
    models = [
        LTLSClassifier(trellises=trellises, random_state=0).fit(np.eye(3), [labels, [2], [0, 2]])
        for labels in (sorted(many), many)
    ]
    one, other = (model.decision_function(np.eye(3)) for model in models)
    np.testing.assert_array_equal(one, other)


@pytest.mark.perf
def test_training_takes_time_in_proportion_to_the_labels_of_a_row():
    def seconds(n_labels):
        model = LTLSClassifier(
            trellises=Trellises(width=2, epochs=10), label_weights=False, random_state=0
        )
        start = time.process_time()
        model.fit(np.eye(3), [RNG.permutation(n_labels).tolist(), [2], [2]])
        return time.process_time() - start

    seconds(100)
    assert seconds(40_000) < 10 * seconds(10_000)
