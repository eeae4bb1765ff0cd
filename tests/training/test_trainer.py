"""The trainer: one engine task per batch and epoch, chunks, early stopping, best weights."""

import numpy as np
import pytest
from comparison import trellises_only
from sklearn.datasets import load_digits

from ltls import LTLSClassifier, TextClassifier
from ltls.core import _engine
from ltls.settings import Text, Trellises


class Counted:
    """Training tasks of the engine that count how they are made and run."""

    def __init__(self, make):
        self.make, self.n_tasks, self.runs = make, 0, []

    def __call__(self, *arguments, **options):
        self.n_tasks += 1
        task, number = self.make(*arguments, **options), self.n_tasks
        counted = self

        class Task:
            def run(self, *arrays, **options):
                counted.runs.append((number, len(arrays[3])))
                return task.run(*arrays, **options)

        return Task()


@pytest.fixture
def tasks(monkeypatch):
    counted = Counted(_engine.TrainTask)
    monkeypatch.setattr(_engine, "TrainTask", counted)
    return counted


def rows(n):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 20
    return rng.normal(size=(20, 16))[y] + 0.1 * rng.normal(size=(n, 16)), y


def classifier(validation_fraction=0.0, **settings):
    usual = {"width": 4, "n_trellises": 1, "average": False, "dtype": "float32"}
    given = {"calibration": False, "validation_fraction": validation_fraction, "random_state": 0}
    return trellises_only(Trellises(**{**usual, **settings}), **given)


@pytest.mark.parametrize("n_rows", [500, 5000])
def test_fit_validates_all_rows_once_per_epoch(tasks, n_rows):
    X, y = rows(n_rows)
    classifier(epochs=3).fit(X, y)
    assert tasks.n_tasks == 3
    # The rows are trained on in chunks, and a chunk brings its own rows alone.
    per_task = [[size for task, size in tasks.runs if task == number] for number in (1, 2, 3)]
    assert [sum(sizes) for sizes in per_task] == [n_rows] * 3
    assert all(len(sizes) > 1 for sizes in per_task)


def test_fit_stream_and_partial_fit_validate_every_batch_once_per_epoch(tasks):
    X, y = rows(1000)
    batches = [(X[i : i + 150], y[i : i + 150]) for i in range(0, 1000, 150)]
    model = classifier(epochs=3).fit_stream(batches)
    assert tasks.n_tasks == 3 * len(batches)
    assert sum(size for _, size in tasks.runs) == 3 * 1000
    for number in (1, 2):
        model.partial_fit(X[:300], y[:300])
        assert tasks.n_tasks == 3 * len(batches) + number


def test_chunks_are_whole_mini_batches(tasks):
    classifier(epochs=1, batch_size=48).fit(*rows(3000))
    *sizes, _ = [size for _, size in tasks.runs]
    assert all(size % 48 == 0 for size in sizes)


def test_the_size_of_chunks_does_not_change_the_weights(monkeypatch):
    X, y = rows(2000)
    expected = classifier(epochs=2).fit(X, y)
    run = _engine.TrainTask

    class RowByRow:
        def __init__(self, *arguments, **options):
            self.task = run(*arguments, **options)

        def run(self, values, squares, sums, order, *, step, **options):
            results = [
                self.task.run(values, squares, sums, order[i : i + 1], step=step + i, **options)
                for i in range(len(order))
            ]
            return tuple(map(sum, zip(*results, strict=True)))

    monkeypatch.setattr(_engine, "TrainTask", RowByRow)
    model = classifier(epochs=2).fit(X, y)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.loss_curve_ == pytest.approx(expected.loss_curve_, rel=1e-6)


@pytest.mark.parametrize("average", [False, True], ids=["", "average"])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_early_stopping_restores_the_weights_of_the_best_epoch(digits, average, l1):
    X, y = digits
    settings = {"width": 10, "n_iter_no_change": 3, "average": average, "l1": l1}
    model = classifier(0.3, epochs=60, **settings).fit(X, y)
    assert 3 < model.n_iter_ < 60
    best = classifier(0.3, epochs=model.n_iter_ - 3, **settings).fit(X, y)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-6)
    one_less = classifier(0.3, epochs=model.n_iter_ - 4, **settings).fit(X, y)
    assert not np.allclose(model.coef_, one_less.coef_, atol=1e-6)
    model.partial_fit(X[:1], y[:1], sample_weight=[0])  # which continues from the best epoch
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-3 if average else 1e-6)


@pytest.mark.parametrize("kind", ["numbers", "texts", "hashed texts"])
def test_files_do_not_depend_on_the_number_of_threads(kind, tmp_path):
    rng = np.random.default_rng(0)
    if kind == "numbers":
        (X, y), model = load_digits(return_X_y=True), LTLSClassifier(random_state=0, views=True)
    else:
        words = np.array(["card", "lost", "fee", "why", "naïve", "Straße", "a", "7"])
        y = rng.integers(0, 5, 200)
        X = [" ".join(rng.choice(words[label : label + 4], 6)) for label in y]
        features = Text(n_features=500 if kind == "hashed texts" else None)
        model = TextClassifier(features=features, random_state=0)
    files = set()
    for n_jobs in (1, 2, 3):
        model.set_params(n_jobs=n_jobs).fit(X, y).set_params(n_jobs=None).save(tmp_path / "model")
        files.add((tmp_path / "model").read_bytes())
    assert len(files) == 1
