"""Files that training continues from: approximately in little space, or exactly."""

import copy
import json

import numpy as np
import problems
import pytest

from ltls import LTLSClassifier, ModelFileError, TextClassifier, load
from ltls.linear.squares import SquaresSketch
from ltls.linear.trainable import INITIAL_SQUARES
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile, write

CASES = {
    "trellises": {},
    "label weights": {"label_weights": True},
    "buckets": {"label_weights": True, "bucket_size": 4},
    "average": {"average": True, "l1": 0.01},
    "sgd": {"optimizer": "sgd", "loss": "separation"},
    "tables": {"assignment": "ranking"},
    "pruned": {"density": 0.2},
    "embedding": {"embedding_dim": 4},
    "no replay": {"replay_size": 0, "label_weights": True},
}


def state(estimator):
    """Return all that a model has learned."""
    model = estimator.model_
    arrays = dict(model.trainable.tensors())
    if model.label_weights is not None:
        for name in ("row_ptr", "labels", "values", "scales"):
            arrays[f"label_weights.{name}"] = getattr(model.label_weights, name)
    if model.reservoir is not None:
        for name in ("indptr", "indices", "values", "scales", "labels", "strata", "keys"):
            arrays[f"reservoir.{name}"] = getattr(model.reservoir, name)
    every = np.arange(len(model.labels))
    arrays["paths"] = np.stack([book.path_of(every) for book in model.codebooks])
    numbers = (model.threshold, model.n_rows, model.n_epochs, model.loss_curve, model.density)
    return arrays, (*numbers, model.trainable.step, model.trainable.epochs, model.labels.values)


def assert_same(ours, theirs):
    (arrays, numbers), (expected, expected_numbers) = state(ours), state(theirs)
    assert set(arrays) == set(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert numbers == expected_numbers


def batches(multilabel):
    X, y = problems.sparse(multilabel=multilabel)
    new = [["new"]] * 20 if multilabel else ["new"] * 20
    return [(X[:30], y[:30]), (X[:20], new), (X[30:31], y[30:31])]


@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
@pytest.mark.parametrize("name", CASES)
def test_continuing_from_a_resumable_file_is_bit_identical(name, multilabel, tmp_path):
    X, y = problems.sparse(multilabel=multilabel)
    settings = {"width": 4, "n_trellises": 2, "label_weights": False, "epochs": 2}
    model = LTLSClassifier(**{**settings, **CASES[name]}, random_state=0).fit(X, y)
    path = tmp_path / "model.ltls"
    for batch in batches(multilabel):
        model.save(path, resumable=True)
        for options in ({}, {"mmap": False, "verify": True}):
            same = load(path, **options)
            labels, scores = same.predict_topk(X, 3)
            expected, expected_scores = model.predict_topk(X, 3)
            np.testing.assert_array_equal(labels, expected)
            np.testing.assert_array_equal(scores, expected_scores)
            assert_same(same, model)
        same.partial_fit(*batch)
        model.partial_fit(*batch)
        assert_same(same, model)
    facts = describe(path)
    assert facts["resumable"]
    assert facts["replay_rows"] == (0 if name == "no replay" else len(load(path).model_.reservoir))


def test_a_resumable_file_of_texts_and_of_a_loaded_model(tmp_path):
    texts, labels = problems.texts()
    model = TextClassifier(random_state=0).fit(texts, labels)
    model.save(tmp_path / "small.ltls")
    loaded = load(tmp_path / "small.ltls")
    loaded.save(tmp_path / "again.ltls", resumable=True)
    again = load(tmp_path / "again.ltls")
    for each in (loaded, again):
        each.partial_fit(texts[:5], ["new"] * 5)
    assert_same(again, loaded)


@pytest.fixture
def path(tmp_path):
    X, y = problems.sparse()
    settings = {"width": 4, "n_trellises": 2, "label_weights": True}
    LTLSClassifier(**settings, random_state=0).fit(X, y).save(tmp_path / "model.ltls")
    return tmp_path / "model.ltls"


def test_the_default_file_is_small(tmp_path, path):
    X, _ = problems.sparse()
    model = load(path)
    facts = describe(path)
    assert not facts["resumable"]
    assert facts["replay_rows"] > 0
    plain = copy.copy(model).set_params(replay_size=0)
    plain.save(tmp_path / "plain.ltls")
    without = describe(tmp_path / "plain.ltls")
    assert without["replay_rows"] == 0
    more = facts["bytes"] - without["bytes"]
    assert more < max(0.1 * without["bytes"], 96 << 10) + 8192
    np.testing.assert_array_equal(
        load(tmp_path / "plain.ltls").predict_topk(X, 3)[1], model.predict_topk(X, 3)[1]
    )


def test_a_tenth_of_the_file_is_for_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("ltls.storage.model_file.FEW_BYTES", 0)
    X, y = problems.sparse()
    model = LTLSClassifier(width=8, n_trellises=4, random_state=0).fit(X, y)
    model.save(tmp_path / "model.ltls")
    file = TensorFile(tmp_path / "model.ltls", MODEL)
    sizes = {name: file.tensor(name).nbytes for name in file.tensors}
    of_training = sum(n for name, n in sizes.items() if name.startswith(("replay", "optimizer")))
    rest = sum(sizes.values()) - of_training
    assert 0.08 * rest < of_training <= 0.1 * rest
    kept = load(tmp_path / "model.ltls").model_.reservoir
    assert set(kept.keys) < set(model.model_.reservoir.keys)


def test_a_size_budget_is_never_exceeded(tmp_path):
    X, y = problems.sparse()
    path = tmp_path / "model.ltls"
    for budget in (20_000, 50_000, 110_000):
        model = LTLSClassifier(size_budget=budget, random_state=0).fit(X, y)
        model.save(path)
        assert path.stat().st_size <= budget
    assert describe(path)["replay_rows"] > 0
    model.partial_fit(X[:5], ["new"] * 5).save(path)
    assert path.stat().st_size <= budget
    with pytest.raises(ValueError, match="resumable must be False with a size_budget"):
        model.save(path, resumable=True)


def test_a_pruned_model_stays_pruned_in_its_file(tmp_path):
    X, y = problems.sparse()
    model = LTLSClassifier(density=0.2, label_weights=False, random_state=0).fit(X, y)
    model.save(tmp_path / "first.ltls")
    model.partial_fit(X[:5], ["new"] * 5).save(tmp_path / "second.ltls")
    loaded = load(tmp_path / "second.ltls")
    loaded.partial_fit(X[:5], ["new"] * 5).save(tmp_path / "third.ltls")
    for name in ("first", "second", "third"):
        assert abs(describe(tmp_path / f"{name}.ltls")["density"] - 0.2) < 0.02


def test_the_sketch_is_exact_for_products():
    rng = np.random.default_rng(0)
    rows, edges = rng.random(50) ** 4, rng.random(16)
    rows[7] = 0
    squares = (np.outer(rows, edges) + INITIAL_SQUARES).astype(np.float32)
    found = SquaresSketch.of(squares).expand()
    np.testing.assert_allclose(found - INITIAL_SQUARES, np.outer(rows, edges), rtol=0.1, atol=1e-4)
    assert (found[7] == INITIAL_SQUARES).all()
    unused = SquaresSketch.of(np.full((3, 4), INITIAL_SQUARES))
    assert (unused.expand() == INITIAL_SQUARES).all()


def changed(name, change):
    def apply(_, tensors):
        tensors[name] = change(tensors[name])

    return apply


BAD = {
    "labels": (changed("replay.labels", lambda a: a + 200), "labels beyond"),
    "features": (changed("replay.features", lambda a: a + 200), "features beyond"),
    "order": (changed("replay.features", lambda a: a[::-1].copy()), "must increase"),
    "values": (changed("replay.values", lambda a: a[:-1]), "as many features as values"),
    "counts": (changed("replay.counts", lambda a: a[:-1]), "a scale, a label and a key"),
    "keys": (changed("replay.keys", lambda a: a[:-1]), "a scale, a label and a key"),
    "scales": (changed("replay.scales", lambda a: -a), "positive scales"),
    "nan": (changed("replay.scales", lambda a: a * np.nan), "not finite"),
    "type": (changed("replay.values", lambda a: a.astype(np.float32)), "must be I8"),
    "edges": (changed("optimizer.edges", lambda a: a[:-1]), "must be of shape"),
    "shares": (changed("optimizer.features", lambda a: a[:-1]), "must be of shape"),
    "late": (
        lambda description, _: description["sections"]["replay"].update(first_late=-1),
        "first_late",
    ),
}


def rewritten(path, change):
    """Replace a file by one with other contents and valid checksums."""
    file = TensorFile(path, MODEL)
    description = json.loads(json.dumps(file.description))
    tensors = {name: np.array(file.tensor(name)) for name in file.tensors}
    change(description, tensors)
    write(path, MODEL, description, tensors)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_section_is_refused(path, name):
    change, message = BAD[name]
    rewritten(path, change)
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize("name", ["weights", "squares"])
def test_a_bad_resumable_file_is_refused(tmp_path, name):
    X, y = problems.sparse()
    path = tmp_path / "model.ltls"
    LTLSClassifier(random_state=0).fit(X, y).save(path, resumable=True)
    rewritten(path, changed(f"resume.{name}", lambda a: a[:-1]))
    with pytest.raises(ModelFileError, match="must be float32 of shape"):
        load(path)
