"""fit_stream and memory-mapped features give the same models as rows in memory."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from problems import in_batches

from ltls import LTLSClassifier, readers
from ltls.settings import LabelMatrix, Memory, Trellises, Views
from ltls.training.trainer import Trainer

N_ROWS, N_FEATURES, N_LABELS = 600, 40, 30


@pytest.fixture(scope="module")
def rows():
    """Features, one label per row, and several labels per row."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, N_LABELS, N_ROWS)
    prototypes = rng.random((N_LABELS, N_FEATURES)) * (rng.random((N_LABELS, N_FEATURES)) < 0.2)
    noise = rng.random((N_ROWS, N_FEATURES)) * (rng.random((N_ROWS, N_FEATURES)) < 0.05)
    X = sp.csr_matrix((prototypes[label] + noise).astype(np.float32))
    several = [sorted({int(one), (7 * int(one)) % N_LABELS}) for one in label]
    return X, label, several


def classifier(parts=None, **settings):
    given = Trellises(**{"epochs": 3, "shuffle": False, **settings})
    return LTLSClassifier(**{"trellises": given, "random_state": 0, **(parts or {})})


def assert_same_model(one, other):
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    assert one.classes_.tolist() == other.classes_.tolist()
    assert one.n_features_in_ == other.n_features_in_
    assert one.loss_curve_ == pytest.approx(other.loss_curve_)
    assert one.multilabel_ == other.multilabel_
    if one.multilabel_:
        assert one.threshold_ == other.threshold_


SETTINGS = [
    {},
    {"width": 4, "n_trellises": 2, "parts": {"n_jobs": 2}},
    {"assignment": "frequency"},
    {"assignment": "ranking", "loss": "separation", "optimizer": "sgd", "average": True},
    {"parts": {"class_weight": {3: 2.0}}},
    {"parts": {"class_weight": "balanced"}},
    {"loss": "logistic", "l1": 0.01},
    {"parts": {"prototypes": True, "neighbours": True, "memory": Memory(n_rows=200)}},
]


@pytest.mark.parametrize("kind", [1, 2], ids=["single", "several"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_batches_in_order_give_the_model_of_fit(rows, kind, settings):
    X, y = rows[0], rows[kind]
    settings = {"n_trellises": 3, **settings}
    parts = {"validation_fraction": 0.0, **settings.pop("parts", {})}
    whole = classifier(parts, **settings).fit(X, y)
    streamed = classifier(parts, **settings).fit_stream(in_batches(X, y, 70))
    assert_same_model(streamed, whole)
    ours, theirs = (np.sort(model.model_.memory.keys) for model in (streamed, whole))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("parts", [{}, {"views": Views(cluster_size=6)}], ids=str)
def test_one_batch_is_shuffled_as_fit_does(rows, parts):
    X, y, _ = rows
    parts = {**parts, "validation_fraction": 0.0}
    whole = classifier(parts, shuffle=True).fit(X, y)
    assert_same_model(classifier(parts, shuffle=True).fit_stream([(X, y)]), whole)


def test_indicator_matrices(rows):
    Y = sp.lil_matrix((N_ROWS, N_LABELS + 2), dtype=int)
    for row, labels in enumerate(rows[2]):
        Y[row, labels] = 1
    Y = Y.tocsr()
    streamed = classifier().fit_stream(in_batches(rows[0], Y, 70))
    assert_same_model(streamed, classifier().fit(rows[0], Y))
    assert streamed.predict(rows[0]).shape == Y.shape
    with pytest.raises(ValueError, match="indicator matrices with the same number of columns"):
        classifier().fit_stream([(rows[0], Y), (rows[0], Y[:, :5])])


def test_batches_of_several_labels_of_one_or_of_none(rows):
    X, y, several = rows
    none = [[] for _ in range(50)]
    mixed = [(X[:50], none), (X[50:300], y[50:300]), (X[300:], several[300:])]
    lists = [*none, *([label] for label in y[50:300].tolist()), *several[300:]]
    assert_same_model(classifier().fit_stream(mixed), classifier().fit(X, lists))


@pytest.mark.parametrize("settings", [{}, {"assignment": "similarity"}, {"views": True}], ids=str)
def test_shuffling_within_batches_is_as_accurate(rows, settings):
    X, y, _ = rows
    found, expected = [], []
    parts = {key: settings[key] for key in settings if key == "views"}
    given = {
        "epochs": 10,
        "shuffle": True,
        "n_trellises": 3,
        **{k: v for k, v in settings.items() if k != "views"},
    }
    for seed in range(4):
        model = classifier({"random_state": seed, **parts}, **given)
        expected.append(model.fit(X, y).score(X, y))
        found.append(model.fit_stream(in_batches(X, y, 70)).score(X, y))
    assert np.mean(expected) > 0.7
    assert np.mean(found) > np.mean(expected) - 0.05


def test_held_out_rows_are_not_trained_on_and_stop_training_early(rows):
    X, y, several = rows
    model = classifier({"validation_fraction": 0.2}, epochs=200).fit_stream(in_batches(X, y, 70))
    assert model.n_iter_ < 200
    assert model.score(X, y) > 0.5
    half = classifier({"validation_fraction": 0.5}, epochs=1).fit_stream(in_batches(X, y, 70))
    assert half.fitted_.training.weights.step == 1 + N_ROWS // 2
    model = classifier({"validation_fraction": 0.2}).fit_stream(in_batches(X, several, 70))
    assert np.isfinite(model.threshold_)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.9 leaves none of the 2 rows"):
        classifier({"validation_fraction": 0.9}).fit_stream([(X[:2], y[:2])])


class Changing:
    """Batches that differ from one iteration to the next."""

    def __init__(self, *passes):
        self.passes = list(passes)

    def __iter__(self):
        yield from self.passes.pop(0)


def test_invalid_batches_are_rejected(rows):
    X, y, _ = rows
    model = classifier()
    for batches, message in (
        ([], "y must have at least 2 classes, got none"),
        ([(X[:2], [1, 1]), (X[:1], [1])], "y must have at least 2 classes, got 1 class: 1"),
        ([(X, y), (X, y[1:])], "X has 600 rows, y 599"),
        ([(X, y), (X[:, 1:], y)], "39 features"),
        (Changing([(X, y)], [(X, y + 1)]), r"the same in every pass, got the new label \d+$"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit_stream(batches)
        assert not hasattr(model, "classes_")
    with pytest.raises(
        TypeError, match=r"batches must be iterable more than once.* got a generator"
    ):
        model.fit_stream(batch for batch in in_batches(X, y, 70))
    before = model.fit(X, y).model_
    with pytest.raises(ValueError, match="rows"):
        model.fit_stream([(X, y[1:])])
    assert model.model_ is before


@pytest.mark.parametrize("kind", [1, 2], ids=["single", "several"])
def test_streaming_a_file_gives_the_model_of_reading_it(rows, kind, tmp_path):
    X, y = rows[0], rows[kind]
    Y = sp.csr_matrix(np.array([np.isin(range(N_LABELS), labels) for labels in y]))
    readers.write(tmp_path / "rows.txt.gz", X, Y, "svmlight")
    data = readers.read(tmp_path / "rows.txt.gz")
    stream = readers.Stream(tmp_path / "rows.txt.gz", chunk_size=5000)
    assert len(list(stream)) > 5
    whole = classifier().fit(data.X, data.targets)
    assert_same_model(classifier().fit_stream(stream), whole)
    assert_same_model(classifier().fit(data.X, y if kind == 2 else data.y), whole)


# Memory

# The rows to replay and the scores to calibrate on are bounded too, but not small beside this file.
PEAK = """
import sys
from ltls import LTLSClassifier, readers
from ltls.settings import Trellises

def peak():  # getrusage would include the parent's
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

given = Trellises(width=4, n_trellises=1, epochs=1)
bounded = {"memory": False, "calibration": False, "label_weights": False}
model = LTLSClassifier(trellises=given, random_state=0, **bounded)
part = readers.read(sys.argv[1] + ".part")
model.fit(part.X, part.targets)  # import and allocate what the first fit needs
before = peak()
if sys.argv[2] == "stream":
    model.fit_stream(readers.Stream(sys.argv[1], chunk_size=1 << 18))
else:
    rows = readers.read(sys.argv[1])
print(peak() - before, model.n_iter_)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs VmHWM of /proc")
def test_memory_does_not_grow_with_the_streamed_file(tmp_path):
    rng = np.random.default_rng(0)
    lines = []
    for label in rng.integers(0, 100, 2000):
        features = np.sort(rng.choice(1000, 60, replace=False)) + 1
        lines.append(f"{label} " + " ".join(f"{j}:{(j % 7) / 8}" for j in features))
    text = "\n".join(lines) + "\n"  # about 1 MB
    path = tmp_path / "rows"
    (tmp_path / "rows.part").write_text(text)
    with open(path, "w") as file:
        for _ in range(80):
            file.write(text)
    grown = {}
    for way in ("stream", "read"):
        command = [sys.executable, "-c", PEAK, str(path), way]
        done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=200)
        grown[way], epochs = map(int, done.stdout.split())
        assert epochs == 1
    size = path.stat().st_size
    assert grown["stream"] < size / 2
    assert grown["read"] > size


def mapped(array, path):
    path.write_bytes(np.ascontiguousarray(array).tobytes())
    return np.memmap(path, array.dtype, "r", shape=array.shape)


def mapped_csr(X, folder, dtype, index):
    """A memory-mapped CSR matrix; the constructor would copy int64 indices to int32."""
    result = sp.csr_matrix(X.shape, dtype=dtype)
    result.data = mapped(X.data.astype(dtype), folder / "data")
    result.indices = mapped(X.indices.astype(index), folder / "indices")
    result.indptr = mapped(X.indptr.astype(index), folder / "indptr")
    return result


def memory_of(work):
    """The peak memory of a call, after a first call."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rows_that_paths_are_assigned_by_are_not_kept_in_training(monkeypatch):
    X = np.random.default_rng(0).normal(size=(3000, 300)).astype(np.float32)
    held = []

    def begin(*_):
        held.append(tracemalloc.get_traced_memory()[0])
        raise RuntimeError("training begins")

    monkeypatch.setattr(Trainer, "fit", begin)
    tracemalloc.start()
    try:
        with pytest.raises(RuntimeError, match="training begins"):
            LTLSClassifier().fit_stream(in_batches(X, np.arange(3000) % 150, 500))
    finally:
        tracemalloc.stop()
    assert held[0] < X.nbytes / 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.int32, np.int64, "dense"])
def test_memory_mapped_features_are_not_copied(tmp_path, dtype, layout):
    X = sp.random(9000, 100, 0.5, "csr", np.float32, random_state=0)
    y = np.arange(9000) % 20
    if layout == "dense":
        in_memory = X.toarray().astype(dtype)
        mapped_X = mapped(in_memory, tmp_path / "dense")
        size = mapped_X.nbytes
    else:
        in_memory, mapped_X = X.astype(dtype), mapped_csr(X, tmp_path, dtype, layout)
        size = sum(part.nbytes for part in (mapped_X.data, mapped_X.indices, mapped_X.indptr))
    # All of these rows would be kept, and a tenth of them held out.
    bounded = {"memory": False, "calibration": False, "label_weights": False}
    small = {"width": 2, "n_trellises": 1, "epochs": 1}
    model = classifier(bounded, **small)
    assert memory_of(lambda: model.fit(mapped_X, y)) < size / 4
    expected = classifier(bounded, **small).fit(in_memory, y)
    assert_same_model(model, expected)
    assert memory_of(lambda: model.predict_topk(mapped_X, 1)) < size / 4
    ours, theirs = model.predict_topk(mapped_X, 3), expected.predict_topk(in_memory, 3)
    assert np.array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("kind", [np.float16, np.int8, np.float32, "Fortran"])
def test_memory_mapped_numbers_are_converted_and_scaled_a_few_rows_at_a_time(tmp_path, kind):
    """Rows with a mean far from 0, which are standardized, and not tried with neighbours."""
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 150
    X = np.rint(40 + 5 * (rng.normal(size=(150, 900))[y] + rng.normal(size=(3000, 900))))
    X = np.asfortranarray(X, np.float32) if kind == "Fortran" else X.clip(0, 127).astype(kind)
    np.save(tmp_path / "X.npy", X)
    mapped_X = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected = LTLSClassifier(neighbours=False, random_state=0).fit(X, y)
    model = LTLSClassifier(random_state=0).fit(mapped_X, y)
    assert "Neighbours" not in model.plan_
    assert model.model_.columns.standardizer is not None
    assert_same_model(model, expected)
    np.testing.assert_array_equal(model.predict(mapped_X), expected.predict(X))
    rows = model.model_.columns.rows(mapped_X)
    assert rows.converts
    assert memory_of(lambda: rows[:10].dense()) < X.size


def test_memory_mapped_half_precision_takes_no_more_memory_than_single_precision(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40_000) % 150
    X = (rng.normal(size=(150, 150))[y] + 0.1 * rng.normal(size=(40_000, 150))).astype(np.float16)
    model = LTLSClassifier(label_matrix=LabelMatrix(epochs=1), memory=False, random_state=0)
    peaks = {}
    for dtype in (np.float16, np.float32):
        mapped_X = mapped(X.astype(dtype), tmp_path / "X")
        peaks[dtype] = memory_of(lambda rows=mapped_X: model.fit(rows, y))
    assert peaks[np.float16] < peaks[np.float32] + 4 * X.size / 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16])
def test_small_numbers_are_taken_as_single_precision(dtype):
    rng = np.random.default_rng(0)
    y = np.arange(1500) % 150
    X = (rng.normal(size=(150, 20))[y] * 40 + 64).clip(0, 127).astype(dtype)
    one, other = (LTLSClassifier(random_state=0).fit(each, y) for each in (X, X.astype("f4")))
    assert_same_model(one, other)
    for found, expected in zip(
        one.predict_topk(X), other.predict_topk(X.astype("f4")), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
