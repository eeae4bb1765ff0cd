"""Model files: a loaded model predicts the same, whatever its labels, weights and parameters."""

import contextlib
import json
import multiprocessing
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import make_multilabel_classification

import ltls
from ltls import LTLSClassifier, ModelFileError, RandomCodebook, TableCodebook, Trellis
from ltls.linear.weights import padded
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

FIRST_FORMAT = Path(__file__).parents[1] / "compat" / "format1" / "first_format.ltls"


@pytest.fixture(scope="module")
def model(digits):
    return LTLSClassifier(width=4, assignment="frequency", random_state=0).fit(*digits)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ltls"


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("assignment", ["random", "ranking", "similarity"])
@pytest.mark.parametrize("loss", ["softmax", "separation", "logistic"])
def test_a_loaded_model_predicts_the_same(digits, path, mmap, assignment, loss):
    X, y = digits
    model = LTLSClassifier(loss=loss, assignment=assignment, random_state=0).fit(X, y)
    model.save(path, dtype="float32")
    loaded = ltls.load(path, mmap=mmap, verify=True)
    for ours, theirs in zip(model.predict_topk(X, 4), loaded.predict_topk(X, 4), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.get_params() == model.get_params()
    assert loaded.n_iter_ == model.n_iter_
    np.testing.assert_array_equal(loaded.coef_, model.coef_)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_weights_predict_almost_the_same(digits, path, model, dtype):
    X, _ = digits
    model.save(path, dtype="float32")
    full = path.stat().st_size
    model.save(path, dtype=dtype)
    assert path.stat().st_size < full
    loaded = ltls.load(path)
    assert loaded.model_.weights.values.dtype == dtype
    assert (loaded.predict(X) == model.predict(X)).mean() > 0.99
    largest = np.abs(np.column_stack([model.coef_, model.intercept_])).max(axis=0)
    error = np.abs(loaded.coef_ - model.coef_).max(axis=0)
    assert (error <= largest[:-1] * (0.5 / 127 if dtype == "int8" else 2**-11) * 1.01).all()


def test_the_default_is_int8(digits, path, model):
    X, y = digits
    several = [[label, label // 2] for label in y]
    tagger = LTLSClassifier(width=4, label_weights=True, random_state=0).fit(X, several)
    for each in (model, tagger):
        each.save(path)
        assert describe(path)["dtype"] == "int8"
        loaded = ltls.load(path)
        # Rounding to one of 255 values per feature hardly ever changes the best label.
        ours, theirs = each.predict_topk(X, 1), loaded.predict_topk(X, 1)
        assert (ours[0] == theirs[0]).mean() > 0.99
        np.testing.assert_allclose(theirs[1], ours[1], rtol=0.02, atol=0.02 * np.ptp(ours[1]))
        largest = np.abs(each.coef_).max(axis=0)
        assert (np.abs(loaded.coef_ - each.coef_) <= largest * 0.5 / 127 * 1.01).all()
        # What was rounded is not rounded again.
        loaded.save(path)
        np.testing.assert_array_equal(ltls.load(path).coef_, loaded.coef_)
    # Label weights are int8 in memory, too.
    assert (loaded.label_coef_ != tagger.label_coef_).nnz == 0
    np.testing.assert_array_equal(loaded.label_intercept_, tagger.label_intercept_)


def test_multilabel_models_keep_their_threshold_and_format(path):
    X, Y = make_multilabel_classification(200, n_classes=9, random_state=0)
    model = LTLSClassifier(loss="logistic", random_state=0).fit(X, Y)
    model.save(path, dtype="float32")
    np.testing.assert_array_equal(ltls.load(path).predict(X), model.predict(X))


@pytest.mark.parametrize(
    "labels",
    [
        [f"ß{i}\U0001f600 \0" for i in range(10)],
        [i - 2**63 for i in range(10)],
        [i + 2**70 for i in range(10)],
        [float(2**i) for i in range(10)],
        [bool(i % 2) for i in range(10)],
        [bytes([i, 255, 0]) for i in range(10)],
        [(i, "x", (b"y", 0.1, True)) for i in range(10)],
        [i if i % 2 else str(i) for i in range(10)],
    ],
    ids=["str", "int", "large int", "float", "bool", "bytes", "tuple", "mixed"],
)
def test_labels_keep_their_type(digits, path, labels):
    X, y = digits
    model = LTLSClassifier(random_state=0, epochs=1).fit(X, [labels[i] for i in y])
    model.save(path)
    loaded = ltls.load(path)
    assert loaded.model_.labels.values == model.model_.labels.values
    assert [type(v) for v in loaded.model_.labels.values] == [
        type(v) for v in model.model_.labels.values
    ]
    assert loaded.classes_.tolist() == model.classes_.tolist()


def test_labels_keep_trailing_null_characters(digits, path):
    X, y = digits
    given = [f"{i}\0" for i in y]
    LTLSClassifier(epochs=1).fit(X, given).save(path)
    assert set(ltls.load(path).classes_.tolist()) == set(given)


def test_a_model_may_hold_a_checksum_of_zeros(digits, path):
    X, y = digits
    model = LTLSClassifier(epochs=1, class_weight={"0" * 64: 1.0})
    model.fit(X, ["0" * 64 if label == 0 else str(label) for label in y])
    model.save(path)
    assert ltls.load(path, verify=True).class_weight == {"0" * 64: 1.0}


def test_given_codebooks_are_stored(digits, path):
    X, y = digits
    books = [RandomCodebook(10, seed) for seed in (1, 2)]
    model = LTLSClassifier(n_trellises=2, assignment=books, epochs=1).fit(X, y)
    model.save(path)
    assert ltls.load(path).codebooks_ == books


@pytest.mark.parametrize("average", [False, True])
def test_partial_fit_of_a_loaded_model_starts_from_its_weights(digits, path, average):
    X, y = digits
    model = LTLSClassifier(l1=0.05, average=average, random_state=0).fit(X, y)
    model.save(path, dtype="float32")
    loaded = ltls.load(path).partial_fit(X[:1], y[:1], sample_weight=[0])
    np.testing.assert_allclose(loaded.coef_, model.coef_, atol=1e-6)


def test_a_missing_folder_is_named(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such folder.*nowhere"):
        model.save(tmp_path / "nowhere" / "model.ltls")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)


def test_labels_that_cannot_be_stored_are_rejected_before_writing(digits, path):
    X, y = digits
    path.write_bytes(b"precious")
    model = LTLSClassifier(epochs=1).fit(X, [Decimal(int(i)) for i in y])
    with pytest.raises(TypeError, match=r"Decimal\('0'\)"):
        model.save(path)
    assert path.read_bytes() == b"precious"
    assert list(path.parent.iterdir()) == [path]


def test_parameters_of_every_type_are_stored(digits, path):
    X, y = digits
    model = LTLSClassifier(class_weight={3: 2.5, "x": 1.0}, l1=0.1, random_state=3)
    model.fit(X, ["x" if label == 0 else int(label) for label in y])
    model.save(path)
    assert ltls.load(path).get_params() == model.get_params()
    model = LTLSClassifier(assignment=TableCodebook(11, np.arange(10))).fit(X, y)
    model.save(path)
    np.testing.assert_array_equal(ltls.load(path).codebook_.paths, np.arange(10))


def test_dtype_is_checked(model, path):
    with pytest.raises(ValueError, match="dtype must be 'float32', 'float16' or 'int8'"):
        model.save(path, dtype="int4")
    assert not path.exists()


def test_random_damage_never_crashes(digits, model, path):
    X, _ = digits
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(100):
        bad = bytearray(good)
        for position in rng.integers(len(bad), size=rng.integers(1, 20)):
            bad[position] = rng.integers(256)
        path.write_bytes(bad[: rng.integers(len(bad))] if rng.random() < 0.3 else bad)
        with contextlib.suppress(ValueError):
            ltls.load(path).predict(X[:5])


def loading_time(path, **options):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        ltls.load(path, **options)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.perf
def test_loading_takes_no_longer_for_more_weights(tmp_path):
    paths = {}
    for n_features in (2_000, 400_000):
        X = csr_array(np.eye(300, n_features, dtype=np.float32))
        paths[n_features] = tmp_path / f"{n_features}.ltls"
        LTLSClassifier(epochs=1).fit(X, np.arange(300)).save(paths[n_features])
    small, large = paths.values()
    assert large.stat().st_size > 100 * small.stat().st_size
    assert loading_time(large) < 3 * loading_time(small)
    assert loading_time(large) < loading_time(large, mmap=False) / 3


def test_mapped_weights_cannot_be_changed(model, path):
    model.save(path)
    weights = ltls.load(path).model_.weights.values
    assert not weights.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


def predict(path, X, queue):
    queue.put(ltls.load(path).predict(X))


def test_another_process_loads_the_same_model(digits, model, path):
    X, _ = digits
    model.save(path, dtype="float32")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=predict, args=(path, X[:20], queue))
    process.start()
    np.testing.assert_array_equal(queue.get(timeout=60), model.predict(X[:20]))
    process.join()


def test_a_loaded_model_can_be_trained_further(digits, model, path):
    X, y = digits
    model.save(path)
    loaded = ltls.load(path)
    before = loaded.decision_function(X)
    loaded.partial_fit(X[:1], ["new"], sample_weight=[0])
    np.testing.assert_allclose(loaded.decision_function(X)[:, :10].argmax(1), before.argmax(1))
    for _ in range(3):
        loaded.partial_fit(X, y)
    assert loaded.score(X, y) > 0.9
    assert ltls.load(path, verify=True).classes_.tolist() == list(range(10))


def test_describe(model, path):
    model.save(path, dtype="int8")
    facts = describe(path)
    assert facts["classes"] == 10
    assert facts["features"] == 64
    assert facts["edges"] == model.trellis_.n_edges
    assert facts["dtype"] == "int8"
    assert facts["bytes"] == path.stat().st_size
    assert facts["parameters"] == model.get_params()
    json.dumps(facts)


def rewritten(path, change):
    """Replace a model file by one with another description and valid checksums."""
    file = TensorFile(path, MODEL)
    description = json.loads(json.dumps(file.description))
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    change(description, tensors)
    write(path, MODEL, description, tensors)


def fewer_paths(description, tensors):
    description["trellis"]["n_classes"] = 9
    n_edges = Trellis(9, description["trellis"]["width"]).n_edges
    tensors["weights"] = np.ascontiguousarray(tensors["weights"][:, : padded(n_edges)])


def more_labels(description, tensors):
    description["labels"]["n"] = 11
    tensors["labels"] = np.arange(11)


def one_path(description, tensors):
    description["trellis"]["n_classes"] = 1
    tensors["weights"] = np.zeros((65, 0), np.float32)


def unknown_loss(description, _):
    description["state"]["loss"] = "hinge"


def no_codebook(description, _):
    description["codebooks"] = []


def path_out_of_range(_, tensors):
    tensors["paths.0"][3] = 10


def same_path_twice(_, tensors):
    tensors["paths.0"][3] = tensors["paths.0"][4]


def narrow_weights(_, tensors):
    tensors["weights"] = np.ascontiguousarray(tensors["weights"][:, :8])


def no_state(description, _):
    del description["state"]


INVALID = [
    fewer_paths, more_labels, one_path, unknown_loss, path_out_of_range, same_path_twice, no_state,
    no_codebook, narrow_weights,
]  # fmt: skip


@pytest.mark.parametrize("assignment", ["frequency", "random"])
@pytest.mark.parametrize("change", INVALID)
def test_descriptions_that_contradict_each_other_are_rejected(digits, path, change, assignment):
    X, y = digits
    if assignment == "random" and change in (path_out_of_range, same_path_twice):
        pytest.skip("a random codebook has no table of paths")
    model = LTLSClassifier(
        width=4, n_trellises=1, assignment=assignment, epochs=1, random_state=0
    ).fit(X, y)
    model.save(path, dtype="float32")
    rewritten(path, lambda *_: None)
    np.testing.assert_array_equal(ltls.load(path).predict(X), model.predict(X))
    rewritten(path, change)
    with pytest.raises(ModelFileError):
        ltls.load(path, verify=True)


def test_format_version_1_can_be_read():
    expected = json.loads(FIRST_FORMAT.with_suffix(".json").read_text())
    model = ltls.load(FIRST_FORMAT, verify=True)
    labels, scores = model.predict_topk(np.array(expected["X"]), 3)
    assert labels.tolist() == expected["labels"]
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5)
    assert model.classes_.tolist() == expected["classes"]
