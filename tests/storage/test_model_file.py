"""Model files: what is loaded is what was saved, bit for bit, for every kind of model."""

import json
import pickle
import re
import tracemalloc

import numpy as np
import problems
import pytest
from scipy.sparse import identity
from small_models import MODELS, memory_limited, model_of, rows_for, targets_for

import ltls
from ltls import LTLSClassifier, ModelFileError, TableCodebook, presets
from ltls.settings import Memory, Numbers, Trellises
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

# Parameters that a file does not hold: codebooks have tensors, a generator is not part of a model,
# and numbers of NumPy become those of Python.
OTHER_PARAMETERS = {"codebooks", "random codebook", "a generator", "numbers of NumPy", "words"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ltls"


def answers(model, X):
    """Return all that a model says of some rows."""
    found = [*model.predict_topk(X, 4), model.decision_function(X), model.predict(X)]
    if hasattr(model, "predict_proba"):
        found += [model.predict_proba(X), model.predict_topk(X, 2, proba=True)[1]]
    if model.multilabel_:
        found.append(np.array(model.threshold_))
    some = X.iloc[:2] if hasattr(X, "iloc") else X[:2]
    explained = [each.to_dict() for row in model.explain(some, k=2) for each in row]
    return [each.toarray() if hasattr(each, "toarray") else each for each in found], explained


def assert_same_answers(ours, theirs):
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("name", MODELS)
def test_files_and_pickles_give_the_same_answers_and_the_same_file_again(name, path):
    model = model_of(name)
    X = rows_for(model)
    expected = answers(model, X)
    model.save(path)
    content = path.read_bytes()
    assert_same_answers(answers(model, X), expected)
    for options in ({}, {"mmap": False}, {"verify": True}):
        loaded = ltls.load(path, **options)
        assert type(loaded) is type(model)
        assert_same_answers(answers(loaded, X), expected)
        assert (repr(loaded) == repr(model)) == (name not in OTHER_PARAMETERS)
        assert loaded.model_.labels.values == model.model_.labels.values
        assert loaded.codebooks_ == model.codebooks_
        assert (loaded.plan_, loaded.n_iter_) == (model.plan_, model.n_iter_)
        assert loaded.loss_curve_ == model.loss_curve_
        assert loaded.n_features_in_ == model.n_features_in_
        loaded.save(path)
        assert path.read_bytes() == content
    assert_same_answers(answers(pickle.loads(pickle.dumps(model)), X), expected)
    facts = describe(path)
    assert (facts["labels"], facts["features"]) == (len(model.classes_), model.n_features_in_)
    assert facts["bytes"] == path.stat().st_size
    assert list(facts["weights"]) == [part.name for part in model.model_.parts]
    assert facts["rows_in_memory"] == len(loaded.model_.memory or ())
    assert (facts["format_version"], facts["resumable"], facts["verified"]) == (1, False, True)
    json.dumps({**facts, "parameters": str(facts["parameters"])})


@pytest.mark.parametrize("name", MODELS)
def test_what_was_trained_further_is_saved_as_well(name, path):
    model = model_of(name)
    if model.size_budget is not None:
        model.set_params(size_budget=None)  # it would be cut to the budget when it is saved
    X = rows_for(model)
    model.save(path)
    for each in (model, ltls.load(path)):
        for _ in range(2):
            each.partial_fit(X, targets_for(each))
            each.save(path)
            content = path.read_bytes()
            loaded = ltls.load(path, verify=True)
            assert_same_answers(answers(loaded, X), answers(each, X))
            loaded.save(path)
            assert path.read_bytes() == content


@pytest.mark.parametrize("problem", ["digits", "repeated", "repeated_multilabel", "wide"])
@pytest.mark.parametrize("make", [LTLSClassifier, presets.paper], ids=["defaults", "paper"])
def test_weights_are_saved_in_the_precision_that_they_predict_with(make, problem, path):
    X, y = problems.rows_of(problem)
    model = make(random_state=0).fit(X, y)
    model.save(path)
    found, expected = (each.predict_topk(X, 5) for each in (ltls.load(path), model))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "labels",
    [
        [f"ß{i}\U0001f600 \0" for i in range(10)],
        [f"{i}\0" for i in range(10)],
        ["\ud800" * (1 + i) for i in range(10)],
        ["0" * 64 if i == 0 else str(i) for i in range(10)],  # as the place of a checksum
        [i - 2**63 for i in range(10)],
        [i + 2**70 for i in range(10)],
        [float(2**i) for i in range(10)],
        [bool(i % 2) for i in range(10)],
        [bytes([i, 255, 0]) for i in range(10)],
        [(i, "x", (b"y", 0.1, True)) for i in range(10)],
        [i if i % 2 else str(i) for i in range(10)],
        [np.timedelta64(i, "ms") for i in range(10)],
    ],
    ids=["str", "nul", "surrogate", "zeros", "int", "large", "float", "bool", "bytes", "tuple",
         "mixed", "timedelta"],
)  # fmt: skip
def test_labels_keep_their_type(digits, path, labels):
    X, y = digits
    model = LTLSClassifier(trellises=Trellises(epochs=1), class_weight={labels[1]: 2.0})
    model.fit(X[:200], [labels[i] for i in y[:200]]).save(path)
    loaded = ltls.load(path, verify=True)
    known = loaded.model_.labels.values
    assert known == model.model_.labels.values
    assert list(map(type, known)) == list(map(type, model.model_.labels.values))
    assert loaded.class_weight == model.class_weight
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# What cannot be loaded is not saved


def too_large(model):
    model.fitted_.model.part("trellises").weights.values[0, 0] = np.inf


def invalid_parameter(model):
    model.set_params(n_jobs=0)


def invalid_setting(model):
    model.set_params(trellises__width=1)


def a_label_of_another_type(model):
    model.fitted_.model.labels.extend([object()])


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (too_large, "cannot be saved: tensor 'parts.trellises.weights.values' has numbers"),
        (invalid_parameter, "'n_jobs' parameter"),
        (invalid_setting, "'width' parameter"),
        (a_label_of_another_type, "a model file can store labels that are"),
    ],
)
def test_a_refused_save_leaves_the_old_file(path, spoil, error):
    model = model_of("plain")
    model.save(path)
    before = path.read_bytes()
    spoil(model)
    with pytest.raises((ValueError, TypeError), match=error):
        model.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


REFUSED = r"at most 1e\+09|from 0 to 1e\+09|weights became infinite|scores .* not finite"


@pytest.mark.parametrize("weight", [1e9, 1e20])
@pytest.mark.parametrize("loss", ["softmax", "separation", "logistic"])
@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_rows_that_weigh_too_much_are_refused_or_saved(path, weight, loss, optimizer):
    X, y = problems.sparse()
    given = Trellises(loss=loss, optimizer=optimizer, n_trellises=2, epochs=1, dtype="float32")
    features = Numbers(normalize=False)
    model = LTLSClassifier(trellises=given, features=features, random_state=0).fit(X, y)
    weights = np.full(len(y), weight)
    attempts = (
        lambda: model.partial_fit(X * np.float32(5e14), y, sample_weight=weights),
        lambda: model.partial_fit(X, y, sample_weight=weights),
        lambda: model.set_params(class_weight={y[0]: weight}).fit(X, y),
    )
    for attempt in attempts:
        before = model.decision_function(X)
        try:
            attempt()
        except ValueError as error:
            assert re.search(REFUSED, str(error))  # noqa: PT017
            np.testing.assert_array_equal(model.decision_function(X), before)
            model.set_params(class_weight=None)
        model.save(path)
        model.save(path, resumable=True)
        expected = model.decision_function(X)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(ltls.load(path).decision_function(X), expected)


# Memory


def test_a_file_that_is_mapped_is_not_read(path):
    X = identity(20_000, np.float32, "csr")
    given = Trellises(epochs=1, dtype="float32", n_trellises=12, density=1.0)
    model = LTLSClassifier(trellises=given, label_weights=False, memory=False)
    model.fit(X, np.arange(20_000) % 9).save(path)
    ltls.load(path)
    tracemalloc.start()
    try:
        loaded = ltls.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 4
    weights = loaded.model_.part("trellises").weights.values
    assert not weights.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


@pytest.mark.parametrize("name", ["plain", "views", "several", "text", "pruned"])
def test_a_model_that_is_not_mapped_survives_the_end_of_its_file(name, path):
    model = model_of(name)
    X = rows_for(model)
    model.save(path)
    loaded = ltls.load(path, mmap=False)
    with path.open("r+b") as file:
        file.truncate(0)
    assert_same_answers(answers(loaded, X), answers(model, X))


def test_pruned_weights_cannot_ask_for_memory(path):
    X, y = np.eye(500, dtype=np.float32), np.arange(500)
    given = Trellises(width=64, n_trellises=2, density=1e-3, epochs=1)
    parts = dict.fromkeys(("memory", "views", "label_weights", "label_matrix"), False)
    model = LTLSClassifier(trellises=given, **parts)
    model.fit(X, y).save(path)
    n_rows = 100_000
    file = TensorFile(path, MODEL)
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    file.description["columns"]["n_features"] = n_rows - 1
    counts = tensors["parts.trellises.weights.counts"]
    tensors["parts.trellises.weights.counts"] = np.pad(counts, (0, n_rows - len(counts)))
    write(path, MODEL, file.description, tensors)
    assert n_rows * model.model_.part("trellises").weights.stride > 100e6
    with memory_limited(64 << 20):
        found = ltls.load(path).predict_topk(np.zeros((1, n_rows - 1), np.float32), 2)[0]
    assert found.shape == (1, 2)


def test_a_file_lists_its_sections_and_no_other_is_accepted(path):
    model_of("views").save(path)
    file = TensorFile(path, MODEL)
    sections = {name for name, value in file.description.items() if isinstance(value, dict)}
    assert sections == {"parameters", "provenance", "front_end", "columns", "calibration", "parts",
                        "memory", "optimizer"}  # fmt: skip
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    write(path, MODEL, {**file.description, "routing": {}}, tensors)
    with pytest.raises(ModelFileError, match="routing is not known"):
        ltls.load(path)
    write(path, MODEL, file.description, {**tensors, "routing.x": np.zeros(3)})
    with pytest.raises(ModelFileError, match=r"tensor 'routing\.x' is not known"):
        ltls.load(path)
    parts = {**file.description["parts"], "routing": {}}
    names = [*file.description["part_names"], "routing"]
    weights = [*file.description["weights"], 1.0]
    changed = {**file.description, "parts": parts, "part_names": names, "weights": weights}
    write(path, MODEL, changed, tensors)
    with pytest.raises(ModelFileError, match=r"has an unknown part 'routing'"):
        ltls.load(path)


def test_a_table_codebook_of_too_many_paths_is_not_saved(digits, path):
    X, y = digits
    book = TableCodebook(1 << 17, np.arange(10))
    given = Trellises(assignment=book, epochs=1)
    model = LTLSClassifier(trellises=given, memory=Memory(n_rows=5)).fit(X, y)
    with pytest.raises(
        ValueError, match="a table codebook of 10 labels may have at most 65536 paths"
    ):
        model.save(path)
    assert not path.exists()
