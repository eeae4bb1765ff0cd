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
from ltls import LTLSClassifier, ModelFileError, RandomCodebook, TableCodebook
from ltls.storage.model_file import describe

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
    model.save(path)
    loaded = ltls.load(path, mmap=mmap, verify=True)
    for ours, theirs in zip(model.predict_topk(X, 4), loaded.predict_topk(X, 4), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.get_params() == model.get_params()
    assert loaded.n_iter_ == model.n_iter_
    np.testing.assert_array_equal(loaded.coef_, model.coef_)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_weights_predict_almost_the_same(digits, path, model, dtype):
    X, _ = digits
    model.save(path)
    full = path.stat().st_size
    model.save(path, dtype=dtype)
    assert path.stat().st_size < full
    loaded = ltls.load(path)
    assert loaded._learned.linear.weights.dtype == dtype
    assert (loaded.predict(X) == model.predict(X)).mean() > 0.99
    largest = np.abs(np.column_stack([model.coef_, model.intercept_])).max(axis=0)
    error = np.abs(loaded.coef_ - model.coef_).max(axis=0)
    assert (error <= largest[:-1] * (0.5 / 127 if dtype == "int8" else 2**-11) * 1.01).all()


def test_multilabel_models_keep_their_threshold_and_form(path):
    X, Y = make_multilabel_classification(200, n_classes=9, random_state=0)
    model = LTLSClassifier(loss="logistic", random_state=0).fit(X, Y)
    model.save(path)
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
def test_labels_come_back_with_their_type(digits, path, labels):
    X, y = digits
    model = LTLSClassifier(random_state=0, epochs=1).fit(X, [labels[i] for i in y])
    model.save(path)
    loaded = ltls.load(path)
    assert loaded._learned.labels.values == model._learned.labels.values
    assert [type(v) for v in loaded._learned.labels.values] == [
        type(v) for v in model._learned.labels.values
    ]
    assert loaded.classes_.tolist() == model.classes_.tolist()


def test_labels_are_those_that_were_given(digits, path):
    X, y = digits
    given = [f"{i}\0" for i in y]
    LTLSClassifier(epochs=1).fit(X, given).save(path)
    assert set(ltls.load(path).classes_.tolist()) == set(given)


def test_a_model_may_hold_a_checksum_of_zeros(digits, path):
    X, y = digits
    model = LTLSClassifier(epochs=1, class_weight={"0" * 64: 1.0}).fit(X, y)
    model.save(path)
    assert ltls.load(path, verify=True).class_weight == {"0" * 64: 1.0}


def test_codebooks_of_ones_own_are_kept(digits, path):
    X, y = digits
    books = [RandomCodebook(10, seed) for seed in (1, 2)]
    model = LTLSClassifier(n_trellises=2, assignment=books, epochs=1).fit(X, y)
    model.save(path)
    assert ltls.load(path).codebooks_ == books


@pytest.mark.parametrize("average", [False, True])
def test_learning_on_from_a_file_starts_from_its_weights(digits, path, average):
    X, y = digits
    model = LTLSClassifier(l1=0.05, average=average, random_state=0).fit(X, y)
    model.save(path)
    loaded = ltls.load(path).partial_fit(X[:1], y[:1], sample_weight=[0])
    np.testing.assert_allclose(loaded.coef_, model.coef_, atol=1e-6)


def test_a_missing_folder_is_named(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such folder.*nowhere"):
        model.save(tmp_path / "nowhere" / "model.ltls")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)


def test_another_kind_of_label_is_refused_before_anything_is_written(digits, path):
    X, y = digits
    path.write_bytes(b"precious")
    model = LTLSClassifier(epochs=1).fit(X, [Decimal(int(i)) for i in y])
    with pytest.raises(TypeError, match=r"Decimal\('0'\)"):
        model.save(path)
    assert path.read_bytes() == b"precious"
    assert list(path.parent.iterdir()) == [path]


def test_parameters_of_every_kind_come_back(digits, path):
    X, y = digits
    model = LTLSClassifier(class_weight={3: 2.5, "x": 1.0}, l1=0.1, random_state=3).fit(X, y)
    model.save(path)
    assert ltls.load(path).get_params() == model.get_params()
    model = LTLSClassifier(assignment=TableCodebook(11, np.arange(10))).fit(X, y)
    model.save(path)
    np.testing.assert_array_equal(ltls.load(path).codebook_.paths, np.arange(10))


def test_a_failed_write_leaves_the_old_file(model, path, monkeypatch):
    model.save(path)
    before = path.read_bytes()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ltls.storage.tensor_file._seal", no_space)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_model_file_has_the_mode_of_other_new_files(model, path):
    other = path.with_name("other")
    other.touch()
    model.save(path)
    assert path.stat().st_mode == other.stat().st_mode


def test_dtype_is_checked(model, path):
    with pytest.raises(ValueError, match="dtype must be 'float32', 'float16' or 'int8'"):
        model.save(path, dtype="int4")
    assert not path.exists()


def header_of(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def test_any_change_of_the_header_is_noticed(model, path):
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in [*range(8), *rng.integers(8, header_of(path), 100)]:
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ModelFileError):
            ltls.load(path)
        with pytest.raises(ModelFileError):
            describe(path)


def test_any_change_of_the_tensors_is_noticed_by_verify(model, path):
    model.save(path)
    good = path.read_bytes()
    rng = np.random.default_rng(1)
    for position in rng.integers(header_of(path), len(good), 100):
        bad = bytearray(good)
        bad[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ModelFileError, match="was changed"):
            ltls.load(path, verify=True)
        with pytest.raises(ModelFileError, match="was changed"):
            describe(path)


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


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1])
def test_a_truncated_file_is_refused(model, path, keep):
    model.save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError):
        ltls.load(path)


def test_a_longer_file_is_refused(model, path):
    model.save(path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ModelFileError, match="size"):
        ltls.load(path)


def test_foreign_files_are_refused(path):
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros((2, 2))}, path, {"format": "pt"})
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)
    path.write_bytes(b"PK\3\4" + bytes(1000))
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)
    path.write_text("hello world, this is text\n" * 50)
    with pytest.raises(ModelFileError, match="not a model file of ltls"):
        ltls.load(path)


def test_a_missing_file_is_the_systems_error(path):
    with pytest.raises(FileNotFoundError):
        ltls.load(path)


def test_a_newer_file_says_so(model, path):
    model.save(path)
    newer = path.read_bytes().replace(b'"format_version":"2"', b'"format_version":"9"')
    path.write_bytes(newer)
    with pytest.raises(ModelFileError, match=r"format version 9, .* upgrade ltls"):
        ltls.load(path)


def loading_time(path, **options):
    times = []
    for _ in range(7):
        start = time.perf_counter()
        ltls.load(path, **options)
        times.append(time.perf_counter() - start)
    return min(times)


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
    weights = ltls.load(path)._learned.linear.weights
    assert not weights.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


def predict(path, X, queue):
    queue.put(ltls.load(path).predict(X))


def test_another_process_reads_the_same_file(digits, model, path):
    X, _ = digits
    model.save(path)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=predict, args=(path, X[:20], queue))
    process.start()
    np.testing.assert_array_equal(queue.get(timeout=60), model.predict(X[:20]))
    process.join()


def test_a_loaded_model_learns_on(digits, model, path):
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


def test_describe_tells_the_facts(model, path):
    model.save(path, dtype="int8")
    facts = describe(path)
    assert facts["classes"] == 10
    assert facts["features"] == 64
    assert facts["edges"] == model.trellis_.n_edges
    assert facts["dtype"] == "int8"
    assert facts["bytes"] == path.stat().st_size
    assert facts["parameters"] == model.get_params()
    json.dumps(facts)


def test_the_first_format_is_read_for_ever():
    expected = json.loads(FIRST_FORMAT.with_suffix(".json").read_text())
    model = ltls.load(FIRST_FORMAT, verify=True)
    labels, scores = model.predict_topk(np.array(expected["X"]), 3)
    assert labels.tolist() == expected["labels"]
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5)
    assert model.classes_.tolist() == expected["classes"]
