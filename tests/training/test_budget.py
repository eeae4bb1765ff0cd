"""A size budget leaves out what held-out rows miss least."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from toy_part import Toy, ToyPart

import ltls
from ltls import LTLSClassifier
from ltls.parts.base import PARTS
from ltls.settings import Views

N_LABELS, N_WORDS = 80, 400


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    words = rng.integers(N_WORDS, size=(N_LABELS, 12))
    y = np.repeat(np.arange(N_LABELS), 16)
    own = np.take_along_axis(words[y], rng.integers(12, size=(len(y), 6)), axis=1)
    columns = np.concatenate([own, rng.integers(N_WORDS, size=(len(y), 4))], axis=1)
    X = csr_array((len(y), N_WORDS), dtype=np.float32).tolil()
    X[np.arange(len(y))[:, None], columns] = 1
    return csr_array(X), y


def fitted(problem, tmp_path, **given):
    model = LTLSClassifier(random_state=0, n_jobs=1, memory=False, **given).fit(*problem)
    model.save(tmp_path / "model")
    return model, (tmp_path / "model").stat().st_size


def test_views_are_left_out_before_most_weights_are(problem, tmp_path):
    views = {"views": True, "prototypes": False}
    _, whole = fitted(problem, tmp_path, **views)
    _, size = fitted(problem, tmp_path, **{**views, "views": Views(n_views=1)})
    assert size < 0.7 * whole
    small, found = fitted(problem, tmp_path, **views, size_budget=size // 4)
    assert found <= size // 4
    assert len(small.model_.part("views").views) == 1
    # It learns further, and so does the file.
    for model in (small, ltls.load(tmp_path / "model")):
        model.partial_fit(problem[0][:5], np.full(5, N_LABELS))
        assert len(model.model_.part("views").views) == 1
        assert N_LABELS in model.classes_


def test_what_the_user_asked_for_is_only_pruned(problem, tmp_path):
    given = {"views": Views(n_views=2), "prototypes": True}
    _, whole = fitted(problem, tmp_path, **given)
    small, found = fitted(problem, tmp_path, **given, size_budget=whole // 2)
    assert found <= whole // 2
    assert len(small.model_.part("views").views) == 2
    assert small.model_.part("prototypes") is not None


def test_a_smaller_model_has_the_variant_that_was_chosen_for_it(problem, tmp_path, monkeypatch):
    pairs = iter([(1.0, 0.0), *[(0.25, 0.75)] * 9])  # of the whole model, and of smaller ones

    def chosen(model, *given):
        weight, cluster_weight = next(pairs)
        views = replace(model.part("views"), weight=weight, cluster_weight=cluster_weight)
        return model.with_parts([views])

    monkeypatch.setattr("ltls.training.fit.choose", chosen)
    given = {"views": Views(cluster_weights=True, cluster_size=10), "prototypes": False}
    model, size = fitted(problem, tmp_path, **given, size_budget=60_000)
    views = model.model_.part("views")
    assert size <= 60_000
    assert (views.weight, views.cluster_weight) == (0.25, 0.75)
    assert views.views[0].cluster_weights is not None


class LargePart(ToyPart):
    """A part of another package that takes half a megabyte and need not be there."""

    name = "large"
    grid = (1.0,)

    def state(self):
        section, tensors = super().state()
        return section, {**tensors, "ballast": np.zeros(1 << 17, np.float32)}


def test_a_part_of_another_package_is_left_out(problem, tmp_path, monkeypatch):
    monkeypatch.setitem(PARTS, "large", LargePart)
    monkeypatch.setattr("ltls.training.fit.choose", lambda model, *given: model)
    given = {"views": True, "prototypes": False, "parts": {"large": Toy()}}
    model, size = fitted(problem, tmp_path, **given, size_budget=300_000)
    assert size <= 300_000
    assert [part.name for part in model.model_.parts] == ["views"]


def test_an_error_says_how_small_a_model_can_be(problem, tmp_path):
    with pytest.raises(ValueError, match="is too small: the smallest model") as error:
        fitted(problem, tmp_path, views=True, size_budget=5000)
    smallest = int(re.search(r"labels takes ([\d,]+)", str(error.value))[1].replace(",", ""))
    budget = smallest + 100  # digits of weights may differ
    _, size = fitted(problem, tmp_path, views=True, size_budget=budget)
    assert smallest - 100 < size <= budget


@pytest.mark.parametrize("stream", [False, True], ids=["fit", "fit_stream"])
def test_a_budget_below_the_smallest_model_fails_before_training(capsys, stream):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(70), 15)
    texts = [f"label{label} " + " ".join(map(str, rng.integers(3000, size=9))) for label in y]
    model = ltls.TextClassifier(random_state=0).fit(texts, y)
    vocabulary = sum(tensor.nbytes for tensor in model.model_.front_end.state()[1].values())
    budget = vocabulary + model.n_features_in_  # as much as one table of weights needs
    small = ltls.TextClassifier(size_budget=budget, random_state=0, verbose=1)
    with pytest.raises(ValueError, match=r"the smallest model with .* takes at least") as error:
        small.fit_stream([(texts, y)]) if stream else small.fit(texts, y)
    assert "epoch" not in capsys.readouterr().err
    # This is no more than what a model needs that was trained and pruned.
    smallest = int(re.search(r"at least ([\d,]+)", str(error.value))[1].replace(",", ""))
    model.size_budget = budget
    with pytest.raises(ValueError, match=r"the smallest model with .* takes") as error:
        model.save("never-written")
    assert smallest <= int(re.search(r"takes ([\d,]+)", str(error.value))[1].replace(",", ""))


def test_a_budget_that_n_grams_fill_is_warned_of():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(70), 15)
    texts = [f"label{label} " + " ".join(map(str, rng.integers(3000, size=9))) for label in y]
    message = r"of the 350,000 bytes of size_budget are needed for .*train again with fewer n-grams"
    with pytest.warns(UserWarning, match=message):
        ltls.TextClassifier(size_budget=350_000, random_state=0).fit(texts, y)
    fewer = ltls.TextClassifier(size_budget=350_000, random_state=0).set_params(features__min_df=2)
    fewer.fit(texts, y)  # without a warning, which would be an error
