"""A part that is registered from outside: one file, and models train, save and explain it.

The toy says of every label how rare it is, whatever the row, times a setting.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from problems import sparse
from sklearn.base import clone

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.core.declarations import Array
from ltls.core.settings import Number, Settings, setting, settings
from ltls.parts.base import PARTS, PartExplanation, register_part
from ltls.settings import Trellises
from ltls.storage.model_file import describe


@settings
class Toy(Settings):
    """How much the toy says."""

    strength: float = setting(Number(0), default=1.0, help="What its constants are multiplied by.")


@dataclass(frozen=True, eq=False)
class ToyPart:
    """A constant for every label."""

    name: ClassVar[str] = "toy"
    settings: ClassVar[type[Settings]] = Toy

    constants: Any
    strength: float

    @classmethod
    def fit(cls, given, context):
        return cls(-np.log1p(context.counts).astype(np.float32), given.strength)

    def finish(self, context):
        return replace(self, constants=-np.log1p(context.counts).astype(np.float32))

    def score(self, rows, ids, n_jobs):
        return np.float32(self.strength) * self.constants[ids]

    def candidates(self, rows, n, n_jobs):
        return np.tile(np.argsort(-self.constants, kind="stable")[:n], (len(rows), 1))

    def explain(self, rows, label):
        score = float(self.strength * self.constants[label])
        none = np.empty(0, np.int64)
        return PartExplanation(self.name, none, np.empty(0), score, score, "how rare the label is")

    def grow(self, n_labels, n_new_columns):
        more = (0, n_labels - len(self.constants))
        return replace(self, constants=np.pad(self.constants, more))

    def learn(self, context):
        return self.finish(context)

    def state(self):
        return {"strength": self.strength}, {"constants": self.constants}

    @classmethod
    def from_state(cls, section, sizes, memory):
        declared = {"constants": Array("f4", ("n_labels",), high=0)}
        tensors = section.tensors(declared, {"n_labels": sizes.n_labels})
        return cls(np.array(tensors["constants"]), section.number("strength", 0))

    def describe(self):
        return {"toy_strength": self.strength}


@pytest.fixture(autouse=True)
def _registered():
    register_part(ToyPart)
    yield
    PARTS.pop("toy", None)


@pytest.fixture(scope="module")
def rows():
    return sparse()


def fitted(rows, strength=3.0, **more):
    trellises = Trellises(width=4, n_trellises=1, epochs=2)
    given = {"trellises": trellises, "random_state": 0, "parts": {"toy": Toy(strength=strength)}}
    return LTLSClassifier(**given, **more).fit(*rows)


def test_it_is_trained_and_used(rows):
    X, y = rows
    model, plain = fitted(rows), fitted(rows, strength=0.0)
    toy = model.model_.part("toy")
    counts = np.array([y.count(label) for label in model.classes_])
    np.testing.assert_allclose(toy.constants, -np.log1p(counts), rtol=1e-6)
    trellises = plain.decision_function(X)
    np.testing.assert_allclose(
        model.decision_function(X), trellises + 3 * toy.constants, rtol=1e-4, atol=1e-4
    )
    best = model.classes_[(trellises + 3 * toy.constants).argmax(axis=1)]
    assert (model.predict(X) == best).mean() > 0.99  # but for ties
    assert (model.predict(X) != plain.predict(X)).any()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-5)


def test_it_is_explained(rows):
    X, _ = rows
    model = fitted(rows)
    labels, scores = model.predict_topk(X[:5], 3)
    for row, explained in enumerate(model.explain(X[:5], k=3)):
        for each, label, score in zip(explained, labels[row], scores[row], strict=True):
            assert each.label == label
            assert each.score == pytest.approx(score, rel=1e-4, abs=1e-4)
            [toy] = [part for part in each.parts if part.part == "toy"]
            constant = model.model_.part("toy").constants[model.model_.labels.id(label)]
            assert toy.score == pytest.approx(3 * constant, rel=1e-5)


def test_files_hold_it(rows, tmp_path):
    X, _ = rows
    model, path = fitted(rows), tmp_path / "model.ltls"
    model.save(path)
    loaded = ltls.load(path)
    for ours, theirs in zip(loaded.predict_topk(X, 3), model.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.parts["toy"].strength == 3
    facts = describe(path)
    assert (facts["toy_strength"], facts["weights"]["toy"]) == (3, 1)
    PARTS.pop("toy")
    with pytest.raises(ModelFileError, match="part 'toy', which this version of ltls does not"):
        ltls.load(path)


def test_it_learns_new_labels(rows):
    X, _ = rows
    model = fitted(rows)
    model.partial_fit(X[:3], ["label 0", "other", "other"])
    toy = model.model_.part("toy")
    assert len(toy.constants) == len(model.classes_) == 41
    assert toy.constants[-1] == pytest.approx(-np.log1p(2))
    assert np.isfinite(model.predict_topk(X, 41)[1]).all()


def test_clones_and_checks(rows):
    model = fitted(rows)
    assert clone(model).parts["toy"].strength == 3
    for wrong in ({"toy": 3}, {"nobody": Toy()}, [Toy()], {"toy": Trellises()}):
        with pytest.raises(ValueError, match="'parts' parameter of LTLSClassifier must be"):
            LTLSClassifier(parts=wrong).fit(*rows)


def test_its_settings_are_checked(rows):
    with pytest.raises(ValueError, match="'strength' parameter"):
        fitted(rows, strength=-1.0)
