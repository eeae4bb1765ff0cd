"""fit_stream and memory-mapped features give the same models as rows in memory."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from ltls import LTLSClassifier, readers

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


def in_batches(X, y, size=70):
    return [(X[first : first + size], y[first : first + size]) for first in range(0, N_ROWS, size)]


def assert_same_model(one, other):
    assert np.array_equal(one.coef_, other.coef_)
    assert np.array_equal(one.intercept_, other.intercept_)
    assert one.classes_.tolist() == other.classes_.tolist()
    assert one.n_features_in_ == other.n_features_in_
    assert one.loss_curve_ == pytest.approx(other.loss_curve_)
    assert one.multilabel_ == other.multilabel_
    if one.multilabel_:
        assert one.threshold_ == other.threshold_


PARAMETERS = [
    {},
    {"width": 4, "n_trellises": 2, "n_jobs": 2},
    {"assignment": "frequency"},
    {"assignment": "ranking", "loss": "separation", "optimizer": "sgd", "average": True},
    {"class_weight": {3: 2.0}},
    {"class_weight": "balanced"},
    {"loss": "logistic", "l1": 0.01},
]


@pytest.mark.parametrize("kind", [1, 2], ids=["single", "several"])
@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_batches_in_order_give_the_model_of_fit(rows, kind, parameters):
    X, y = rows[0], rows[kind]
    whole = LTLSClassifier(epochs=3, shuffle=False, random_state=0, **parameters).fit(X, y)
    streamed = LTLSClassifier(epochs=3, shuffle=False, random_state=0, **parameters)
    assert_same_model(streamed.fit_stream(in_batches(X, y)), whole)


def test_one_batch_is_shuffled_as_fit_does(rows):
    X, y, _ = rows
    whole = LTLSClassifier(random_state=0).fit(X, y)
    assert_same_model(LTLSClassifier(random_state=0).fit_stream([(X, y)]), whole)


@pytest.mark.parametrize(
    "make", [str, float, lambda label: (label, "x")], ids=["str", "float", "tuple"]
)
def test_labels_of_any_type(rows, make):
    X, y = rows[0].toarray(), [make(label) for label in rows[1].tolist()]
    whole = LTLSClassifier(shuffle=False, random_state=0).fit(X, y)
    streamed = LTLSClassifier(shuffle=False, random_state=0).fit_stream(in_batches(X, y))
    assert_same_model(streamed, whole)


def test_indicator_matrices(rows):
    Y = sp.lil_matrix((N_ROWS, N_LABELS + 2), dtype=int)
    for row, labels in enumerate(rows[2]):
        Y[row, labels] = 1
    Y = Y.tocsr()
    whole = LTLSClassifier(shuffle=False, random_state=0).fit(rows[0], Y)
    streamed = LTLSClassifier(shuffle=False, random_state=0).fit_stream(in_batches(rows[0], Y))
    assert_same_model(streamed, whole)
    assert streamed.predict(rows[0]).shape == Y.shape
    with pytest.raises(ValueError, match="indicator matrices of the same number of columns"):
        LTLSClassifier().fit_stream([(rows[0], Y), (rows[0], Y[:, :5])])


def test_one_batch_with_several_labels_makes_a_multilabel_model(rows):
    X, y, several = rows
    mixed = [(X[:300], y[:300]), (X[300:], several[300:])]
    lists = [[label] for label in y[:300].tolist()] + several[300:]
    whole = LTLSClassifier(shuffle=False, random_state=0).fit(X, lists)
    assert_same_model(LTLSClassifier(shuffle=False, random_state=0).fit_stream(mixed), whole)


@pytest.mark.parametrize("assignment", ["random", "similarity"])
def test_shuffling_within_batches_is_as_accurate(rows, assignment):
    X, y, _ = rows
    found, expected = [], []
    for seed in range(5):
        model = LTLSClassifier(epochs=10, assignment=assignment, random_state=seed)
        expected.append(model.fit(X, y).score(X, y))
        found.append(model.fit_stream(in_batches(X, y)).score(X, y))
    assert np.mean(expected) > 0.7
    assert np.mean(found) > np.mean(expected) - 0.05


def test_held_out_rows_are_not_trained_on_and_stop_training_early(rows):
    X, y, several = rows
    batches = in_batches(X, y)
    model = LTLSClassifier(epochs=200, validation_fraction=0.2, random_state=0)
    model.fit_stream(batches)
    assert model.n_iter_ < 200
    assert model.score(X, y) > 0.5
    half = LTLSClassifier(epochs=1, validation_fraction=0.5, random_state=0)
    half.fit_stream(batches)
    assert half.model_.trainable.step == 1 + N_ROWS // 2
    model = LTLSClassifier(epochs=20, validation_fraction=0.2, random_state=0)
    model.fit_stream(in_batches(X, several))
    assert np.isfinite(model.threshold_)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.9 leaves none of the 2 rows"):
        LTLSClassifier(validation_fraction=0.9).fit_stream([(X[:2], y[:2])])


class Changing:
    """Batches that differ from one iteration to the next."""

    def __init__(self, *passes):
        self.passes = list(passes)

    def __iter__(self):
        return iter(self.passes.pop(0))


def test_invalid_batches_are_rejected(rows):
    X, y, _ = rows
    model = LTLSClassifier(random_state=0)
    with pytest.raises(TypeError, match=r"batches must be iterable again .* got a generator"):
        model.fit_stream(batch for batch in in_batches(X, y))
    with pytest.raises(ValueError, match="training needs at least 2 different labels, got 0"):
        model.fit_stream([])
    with pytest.raises(ValueError, match="training needs at least 2 different labels, got 1"):
        model.fit_stream([(X[:2], [1, 1]), (X[:1], [1])])
    with pytest.raises(ValueError, match="X has 600 rows, y 599"):
        model.fit_stream([(X, y), (X, y[1:])])
    with pytest.raises(ValueError, match="39 features"):
        model.fit_stream([(X, y), (X[:, 1:], y)])
    changing = Changing([(X, y)], [(X, y + 1)])
    with pytest.raises(ValueError, match=r"the same in every epoch, got the new label \d+$"):
        model.fit_stream(changing)
    assert not hasattr(model, "classes_")


def test_a_batch_may_have_no_labels_and_a_failed_fit_keeps_the_old_model(rows):
    X, y, several = rows
    none = [[] for _ in range(50)]
    batches = [(X[:50], none), (X[50:], several[50:])]
    model = LTLSClassifier(shuffle=False, random_state=0).fit_stream(batches)
    whole = LTLSClassifier(shuffle=False, random_state=0).fit(X, none + several[50:])
    assert_same_model(model, whole)
    with pytest.raises(ValueError, match="rows"):
        model.fit_stream([(X, y[1:])])
    assert_same_model(model, whole)


@pytest.mark.parametrize("kind", [1, 2], ids=["single", "several"])
def test_streaming_a_file_gives_the_model_of_reading_it(rows, kind, tmp_path):
    X, y = rows[0], rows[kind]
    Y = sp.csr_matrix(np.array([np.isin(range(N_LABELS), labels) for labels in y]))
    readers.write(tmp_path / "rows.txt.gz", X, Y, "svmlight")
    data = readers.read(tmp_path / "rows.txt.gz")
    stream = readers.Stream(tmp_path / "rows.txt.gz", chunk_size=5000)
    assert len(list(stream)) > 5
    whole = LTLSClassifier(shuffle=False, random_state=0).fit(data.X, data.targets)
    assert_same_model(LTLSClassifier(shuffle=False, random_state=0).fit_stream(stream), whole)
    named = LTLSClassifier(shuffle=False, random_state=0)
    assert_same_model(named.fit(data.X, y if kind == 2 else data.y), whole)


# Memory

# The rows to replay and the scores to calibrate on are bounded too, but not small beside this file.
PEAK = """
import sys
from ltls import LTLSClassifier, readers

def peak():  # getrusage would include the parent's
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

bounded = {"replay_size": 0, "calibrate": False}
model = LTLSClassifier(**bounded, width=4, n_trellises=1, epochs=1, random_state=0)
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


def size_of(X):
    arrays = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(array.nbytes for array in arrays)


@pytest.fixture(scope="module")
def many_rows():
    rng = np.random.default_rng(0)
    X = sp.random(2000, 300, 0.5, "csr", np.float32, random_state=0)
    return X, rng.integers(0, 20, 2000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.int32, np.int64, "dense"])
def test_memory_mapped_features_are_not_copied(many_rows, tmp_path, dtype, layout):
    X, y = many_rows
    if layout == "dense":
        in_memory = X.toarray().astype(dtype)
        mapped_X = mapped(in_memory, tmp_path / "dense")
    else:
        in_memory = X.astype(dtype)
        mapped_X = mapped_csr(X, tmp_path, dtype, layout)
    small = {"width": 2, "n_trellises": 1, "embedding_dim": 0, "epochs": 1, "random_state": 0}
    small["replay_size"] = 0  # all of these rows would be kept
    model = LTLSClassifier(**small)
    assert memory_of(lambda: model.fit(mapped_X, y)) < size_of(mapped_X) / 4
    expected = LTLSClassifier(**small).fit(in_memory, y)
    assert_same_model(model, expected)
    assert memory_of(lambda: model.predict_topk(mapped_X, 1)) < size_of(mapped_X) / 4
    assert np.array_equal(
        model.predict_topk(mapped_X, 3)[0], expected.predict_topk(in_memory, 3)[0]
    )
