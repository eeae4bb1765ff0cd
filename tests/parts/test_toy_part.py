"""A part of another package: one file, and models train, save and explain it, in all ways in."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from problems import sparse
from sklearn.base import clone
from toy_part import Toy, ToyPart

import ltls
from ltls import LTLSClassifier, ModelFileError
from ltls.core.settings import GROUPS, Settings
from ltls.parts.base import PARTS, register_part
from ltls.readers import write
from ltls.settings import Trellises


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


@pytest.fixture
def saved(rows, tmp_path):
    """A model and its file, in a process that has not imported the part."""
    model, path = fitted(rows), tmp_path / "model.ltls"
    model.save(path)
    PARTS.pop("toy")
    return model, path


def test_files_hold_it(rows, saved, monkeypatch):
    X, _ = rows
    model, path = saved
    loaded = ltls.load(path)
    for ours, theirs in zip(loaded.predict_topk(X, 3), model.predict_topk(X, 3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.parts["toy"].strength == 3
    PARTS.pop("toy")
    monkeypatch.setattr("ltls.parts.base.entry_points", lambda group: ())
    with pytest.raises(ModelFileError, match="unknown part 'toy': install"):
        ltls.load(path)


def test_settings_of_a_part_that_held_out_rows_left_out(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(ToyPart, "grid", (1e-9,), raising=False)
    model, path = fitted(rows), tmp_path / "model.ltls"
    assert model.model_.part("toy") is None
    model.save(path)
    PARTS.pop("toy")
    assert ltls.load(path).parts["toy"].strength == 3
    PARTS.pop("toy")
    monkeypatch.delitem(GROUPS, "Toy")
    monkeypatch.setattr("ltls.parts.base.entry_points", lambda group: ())
    with pytest.raises(ModelFileError, match="Toy are settings of an unknown part"):
        ltls.load(path)


def test_its_settings_need_a_name_of_their_own():
    part = type("OtherPart", (), {"name": "other", "settings": type("Memory", (Settings,), {})})
    with pytest.raises(ValueError, match=r"must not be named Memory, like those of ltls\.parts"):
        register_part(part)
    assert "other" not in PARTS


def test_another_group_of_the_same_name_does_not_replace_its_settings(saved):
    _, path = saved
    type("Toy", (Settings,), {})
    assert type(ltls.load(path).parts["toy"]) is Toy


def test_info_shows_it_in_a_fresh_process(saved):
    words = [sys.executable, "-m", "ltls", "info", saved[1], "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["toy_strength"], facts["weights"]["toy"]) == (3, 1)
    assert facts["parameters"]["parts"]["toy"]["strength"] == 3


def test_the_terminal_trains_it_and_predicts_with_it(rows, saved, command, tmp_path):
    X, y = rows
    model, path = saved
    write(tmp_path / "rows", X, [int(label.split()[1]) for label in y], "svmlight")
    done = command("predict", path, tmp_path / "rows", "-k", "1", "--json")
    assert done.code == 0, done.err
    found = [json.loads(line)["labels"][0] for line in done.out.splitlines()]
    assert found == model.predict(X).tolist()
    PARTS.pop("toy")
    words = ("train", tmp_path / "rows", "-o", tmp_path / "other", "--set")
    done = command(*words, "parts.toy.strength=3", "--epochs", "1")
    assert done.code == 0, done.err
    assert ltls.load(tmp_path / "other").model_.part("toy").strength == 3
    assert (
        "--set parts.toy.strength must be a number" in command(*words, "parts.toy.strength=x").err
    )
    assert "no setting 'parts.toy.size'" in command(*words, "parts.toy.size=1").err
    assert "parts.toy.strength=1.0" in command("settings", "parts").out


def test_the_server_uses_it(rows, saved):
    for name in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
        pytest.importorskip(name, reason=f"needs {name}: run make test-all")
    from serving import in_thread

    from ltls.serve import Settings

    X, (model, path) = rows[0][:5].toarray().tolist(), saved
    with in_thread(Settings(models={"model": path}, reload=0)) as server:
        answer = server.predict(rows=X, k=1)
    assert answer.status == 200, answer.body
    found = [each["labels"][0] for each in answer.json["predictions"]]
    assert found == model.predict(X).tolist()


def test_parameters_reach_its_settings(rows):
    model = LTLSClassifier(parts={"toy": Toy()})
    assert model.get_params()["parts__toy__strength"] == 1
    copied = clone(model).set_params(parts__toy__strength=2)
    assert (copied.parts["toy"].strength, model.parts["toy"].strength) == (2, 1)
    PARTS.pop("toy")
    assert LTLSClassifier().set_params(parts__toy__strength=2).parts["toy"].strength == 2
    for name in ("nobody", "trellises"):
        with pytest.raises(ValueError, match=rf"parts must be registered .*, got '{name}'"):
            LTLSClassifier().set_params(**{f"parts__{name}__width": 2})


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


def test_a_model_that_starts_with_partial_fit_cannot_train_it(rows):
    with pytest.raises(ValueError, match=r"toy=.* needs all rows at once: call fit first"):
        LTLSClassifier(parts={"toy": Toy()}).partial_fit(*rows)
