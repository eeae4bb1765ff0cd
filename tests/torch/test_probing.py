"""Probes: the same steps as those of the estimators, taken by torch."""

import tracemalloc
from copy import deepcopy

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import LTLSClassifier, load  # noqa: E402
from ltls.parts.discriminant import Transform  # noqa: E402
from ltls.parts.label_trainer import BatchTargets, LabelTrainer  # noqa: E402
from ltls.settings import LabelMatrix, Trellises  # noqa: E402
from ltls.torch import probe, probing  # noqa: E402

N_LABELS, D = 600, 16


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_LABELS, 9000)
    X = (rng.normal(size=(N_LABELS, D))[y] + 0.5 * rng.normal(size=(len(y), D))).astype(np.float32)
    return X[:8000], y[:8000], X[8000:], y[8000:]


def batches(rng, n=6):
    for _ in range(n):
        per_row = rng.integers(0, 4, 50)
        ptr = np.concatenate([[0], np.cumsum(per_row)])
        labels = np.concatenate([rng.choice(30, k, replace=False) for k in per_row])
        weights = rng.integers(0, 3, 50).astype(np.float32)
        yield rng.normal(size=(50, 4)).astype(np.float32), BatchTargets(ptr, labels, weights)


@pytest.mark.parametrize("n_sampled", [5, 30])
def test_steps_are_those_of_the_label_trainer(n_sampled):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(30, 4)).astype("f4"), rng.normal(size=30).astype("f4")
    squares, counts = np.full(30, 1e-8, "f4"), rng.integers(0, 9, 30)
    here = LabelTrainer(W, b, squares, counts, n_sampled, np.random.default_rng(1))
    there = probing.DeviceTrainer(deepcopy(here), torch.device("cpu"))
    axes = np.linalg.qr(rng.normal(size=(4, 4))).Q
    transform = Transform(rng.normal(size=4).astype("f4"), rng.uniform(1, 2, 4), axes)
    for _ in range(2):  # a second run continues from the first
        given = list(batches(rng))
        for trainer in (here, there):
            trainer.run(iter(given), transform, lambda step: 0.3 / (step + 1))
    assert here.n_steps == there.n_steps == 12
    for name in ("W", "b", "squares", "offset_squares"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=2e-3, atol=1e-5)
    assert not np.array_equal(there.W, W)


@pytest.mark.parametrize("several", [False, True])
def test_a_probe_is_the_model_that_fit_trains(data, several):
    X, y, X_test, y_test = data
    if several:
        y = [[label, 1000 + label % 20] if label % 7 else [] for label in y.tolist()]
    settings = LabelMatrix(epochs=3)
    expected = LTLSClassifier(label_matrix=settings, random_state=0).fit(X, y)
    found = probe(X, y, device="cpu", label_matrix=settings, random_state=0)
    assert found.plan_ == expected.plan_
    assert [part.name for part in found.model_.parts] == [
        part.name for part in expected.model_.parts
    ]
    parts = [model.model_.part("label_matrix").vectors.matrix() for model in (found, expected)]
    np.testing.assert_allclose(parts[0], parts[1], atol=0.1 * parts[1].std())
    best, other = found.predict_topk(X_test, 1)[0][:, 0], expected.predict_topk(X_test, 1)[0][:, 0]
    assert (best == other).mean() > 0.97
    if not several:
        assert (best == y_test).mean() > 0.7
        # The trellis took other mini-batches than the engine, but learned as much.
        assert found.loss_curve_ == pytest.approx(expected.loss_curve_, rel=0.05)


def test_a_probe_is_saved_and_trained_further(data, tmp_path):
    X, y, X_test, _ = data
    model = probe(X, y, device="cpu", random_state=0)
    model.save(tmp_path / "model.ltls")
    again = load(tmp_path / "model.ltls")
    np.testing.assert_array_equal(again.predict(X_test), model.predict(X_test))
    again.partial_fit(X_test[:20], np.full(20, -1))
    assert -1 in again.classes_


def test_vectors_on_disk_stay_there(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 100, 120_000)
    X = rng.standard_normal((len(y), 256), np.float32)
    X += rng.standard_normal((100, 256), np.float32)[y]
    np.save(tmp_path / "vectors.npy", X)
    size, some = X.nbytes, X[:1000].copy()
    del X
    tracemalloc.start()
    model = probe(
        tmp_path / "vectors.npy",
        y,
        device="cpu",
        random_state=0,
        label_matrix=LabelMatrix(epochs=1),
        trellises=Trellises(width=4),
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size  # what is kept of rows, and chosen on them, does not grow with their number
    assert model.score(some, y[:1000]) > 0.95


def test_settings_that_only_the_engine_knows(data):
    X, y, X_test, y_test = data
    few = y < 100  # a trellis as wide as the labels are many, whose weights are averaged
    model = probe(X[few], y[few], device="cpu", random_state=0)
    assert model.plan_.startswith("one-vs-all")
    assert model.score(X_test[y_test < 100], y_test[y_test < 100]) > 0.8


def test_losses_that_only_the_engine_knows(data, monkeypatch):
    monkeypatch.delattr(probing, "EdgeTrainer")
    X, y, _, _ = data
    settings = {"trellises": Trellises(loss="separation"), "label_matrix": True, "random_state": 0}
    model, same = probe(X, y, device="cpu", **settings), LTLSClassifier(**settings).fit(X, y)
    ours, theirs = (each.model_.trellises()[0].weights for each in (model, same))
    np.testing.assert_array_equal(ours.values, theirs.values)


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_a_file_of_any_numbers_is_scaled_but_not_kept(data, tmp_path, dtype):
    X, y, *_ = data
    np.save(tmp_path / "vectors.npy", (10 * X + 90).clip(0, 127).astype(dtype))
    model = probe(tmp_path / "vectors.npy", y, device="cpu", random_state=0)
    assert model.model_.columns.standardizer is not None  # the means are far from 0
    assert "Neighbours" not in model.plan_
    assert model.score(np.load(tmp_path / "vectors.npy"), y) > 0.7


def test_other_numbers_and_weights(data):
    X, y, X_test, y_test = data
    weights = (y < N_LABELS - 1).astype(float)
    model = probe(X.astype(np.float16), y, device="cpu", sample_weight=weights, random_state=0)
    assert model.score(X_test, y_test) > 0.7
    assert (model.predict(X_test) < N_LABELS - 1).all()


def test_bad_input(data, monkeypatch):
    X, y, *_ = data
    with pytest.raises(ValueError, match="label_matrix must not be False"):
        probe(X, y, label_matrix=False)
    with pytest.raises(ValueError, match="y must have one entry per row"):
        probe(X, y[:-1])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="got 'cuda' and no GPU; use device='cpu'"):
        probe(X, y, device="cuda")

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(probing, "_step", full)
    with pytest.raises(MemoryError, match=r"600 × 16 weights .* device='cpu': use vectors of few"):
        probe(X, y, device="cpu")


def test_bad_files(data, tmp_path):
    X, y, *_ = data
    path = tmp_path / "vectors.npy"
    np.save(path, X)
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:50], b"", b"text", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"vectors must be a \.npy file of numbers, got .*npy'"
        ):
            probe(path, y)
    for array in (np.array(["a", "b"]), np.array([{}, {}]), X.astype(complex)):
        np.save(path, array)
        with pytest.raises(ValueError, match=r"vectors must be a \.npy file of numbers"):
            probe(path, y)
    np.savez(tmp_path / "vectors.npz", X)
    with pytest.raises(ValueError, match=r"numbers, got '.*npz', which is damaged or another"):
        probe(tmp_path / "vectors.npz", y)
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "none.npy", y)
