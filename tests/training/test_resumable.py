"""Files that training continues from: bit-identical to continuing in memory, or in little space."""

import pickle

import numpy as np
import problems
import pytest
from scipy.sparse import csr_array
from small_models import MODELS, model_of, rows_for, targets_for

from ltls import LTLSClassifier, TextClassifier, load
from ltls.settings import Memory, Trellises
from ltls.storage import model_file
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import TensorFile
from tests.fuzz.seeds import numbers


def rows(multilabel=False):
    return problems.wide(multilabel)


def estimator(**parts):
    given = Trellises(width=4, n_trellises=2, epochs=2)
    return LTLSClassifier(**{"trellises": given, "random_state": 0, **parts})


def batches(multilabel):
    """Return further rows: of known labels, of new ones with new features, and a single one."""
    X, y = rows(multilabel)
    new = [["new"]] * 20 if multilabel else ["new"] * 20
    moved = csr_array((X.data, X.indices + 7, X.indptr), shape=X.shape)
    return [(X[:30], y[:30]), (moved[:20], new), (X[30:31], y[30:31])]


def saved(model, path):
    model.save(path, resumable=True)
    return path.read_bytes()


KINDS = {
    **{name: lambda name=name: model_of(name) for name in MODELS},
    "average, l1": lambda: trained(average=True, l1=0.01),
    "mini-batches": lambda: trained(assignment="ranking", batch_size=4),
    "one-vs-all": lambda: estimator(trellises=Trellises(epochs=2)).fit(*problems.digits()),
}


def trained(**settings):
    return numbers(trellises=Trellises(width=2, n_trellises=2, epochs=2, **settings))


@pytest.mark.parametrize("name", KINDS)
def test_continuing_from_a_resumable_file_is_bit_identical(name, tmp_path):
    model = KINDS[name]().set_params(size_budget=None, random_state=0)
    X = problems.digits()[0][:10] if name == "one-vs-all" else rows_for(model)
    for number in range(3):
        content = saved(model, tmp_path / "model")
        loaded = load(tmp_path / "model", mmap=number != 1, verify=number == 1)
        assert saved(loaded, tmp_path / "again") == content
        for each in (model, loaded):
            each.partial_fit(X, targets_for(each))
        # Weights and optimizer in full precision, all parts, the memory and what was trained on.
        assert saved(loaded, tmp_path / "ours") == saved(model, tmp_path / "theirs")
        assert describe(tmp_path / "model")["resumable"]
    if model.memory is not False:
        assert describe(tmp_path / "model")["rows_in_memory"] > 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("memory", [Memory(n_rows=50), Memory(n_rows=2000), False, "auto"], ids=str)
@pytest.mark.parametrize("multilabel", [False, True], ids=["one label", "several labels"])
def test_it_continues_the_same_with_another_memory(memory, when, multilabel, tmp_path):
    model = estimator(memory=Memory(n_rows=30), label_weights=True).fit(*rows(multilabel))
    if when == "before":
        model.set_params(memory=memory)
    saved(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    for each in (model, loaded):
        each.set_params(memory=memory)
        for batch in batches(multilabel):
            each.partial_fit(*batch)
    assert saved(loaded, tmp_path / "ours") == saved(model, tmp_path / "theirs")
    kept = 0 if model.model_.memory is None else len(model.model_.memory)
    assert kept <= {"Memory(n_rows=50)": 50, "False": 0}.get(str(memory), 2000)


def test_memory_that_is_off_is_forgotten_by_pickles_and_files(tmp_path):
    X, y = rows()
    model = estimator().fit(X, y)
    expected = model.predict_topk(X, 3)
    model.set_params(memory=False)
    for save in (lambda: model.save(tmp_path / "model"), lambda: saved(model, tmp_path / "model")):
        save()
        assert load(tmp_path / "model").model_.memory is None
    values = model.model_.memory.values.tobytes()
    assert values not in pickle.dumps(model)
    assert values in pickle.dumps(model.set_params(memory=True))
    copied = pickle.loads(pickle.dumps(model.set_params(memory=False)))
    assert copied.model_.memory is None
    for ours, theirs in zip(copied.predict_topk(X, 3), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    model.partial_fit(X[:5], y[:5])
    assert model.model_.memory is None


def test_neighbours_cannot_be_forgotten(tmp_path):
    X, y = rows()
    model = estimator(label_weights=True, neighbours=True).fit(X, y).set_params(memory=False)
    message = "memory=False: the model has neighbours, which need training rows; fit again"
    for call in (
        lambda: model.save(tmp_path / "model"),
        lambda: model.partial_fit(X[:5], y[:5]),
        lambda: pickle.dumps(model),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not (tmp_path / "model").exists()
    model.set_params(neighbours=False).fit(X, y).save(tmp_path / "model")


def test_a_small_file_can_become_resumable(tmp_path):
    texts, labels = problems.texts()
    TextClassifier(random_state=0).fit(texts, labels).save(tmp_path / "small.ltls")
    loaded = load(tmp_path / "small.ltls")
    loaded.partial_fit(texts[:5], ["new"] * 5)
    saved(loaded, tmp_path / "large.ltls")
    again = load(tmp_path / "large.ltls")
    for each in (loaded, again):
        each.partial_fit(texts[5:10], ["newer"] * 5)
    assert saved(again, tmp_path / "ours") == saved(loaded, tmp_path / "theirs")


# Small files


def test_a_tenth_of_the_file_is_for_further_training(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "_FEW_BYTES", 0)
    X, y = rows()
    model = estimator().set_params(trellises__n_trellises=9).fit(X, y)
    model.save(tmp_path / "model")
    file = TensorFile(tmp_path / "model", MODEL)
    sizes = {name: file.tensor(name).nbytes for name in file.tensors}
    further = sum(n for name, n in sizes.items() if name.startswith(("memory.", "optimizer.")))
    assert 0.08 < further / (sum(sizes.values()) - further) <= 0.1
    kept = load(tmp_path / "model").model_.memory
    assert set(kept.keys) < set(model.model_.memory.keys)
    model.set_params(memory=False).save(tmp_path / "plain")
    np.testing.assert_array_equal(
        load(tmp_path / "plain").predict_topk(X, 3)[1],
        load(tmp_path / "model").predict_topk(X, 3)[1],
    )


@pytest.mark.parametrize("budget", [6_000, 9_000, 40_000])
def test_a_size_budget_is_never_exceeded_by_what_is_learned_later(tmp_path, budget):
    X, y = rows()
    model = estimator().set_params(size_budget=budget).fit(X, y)
    for _ in range(3):
        model.save(tmp_path / "model")
        assert (tmp_path / "model").stat().st_size <= budget
        model.partial_fit(X[:20], ["new"] * 20)
    assert (describe(tmp_path / "model")["rows_in_memory"] > 0) == (budget > 20_000)


def test_a_pruned_model_stays_pruned(tmp_path):
    X, y = rows()
    model = estimator().set_params(trellises__density=0.2).fit(X, y)
    for name in ("first", "second", "third"):
        model.save(tmp_path / name)
        assert abs(describe(tmp_path / name)["density"] - 0.2) < 0.02
        model = load(tmp_path / name).partial_fit(X[:5], [name] * 5)
