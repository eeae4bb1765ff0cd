"""From rows to a model: plans that keep what is given, and small dense problems."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from problems import in_batches
from scipy.sparse import csr_array, random_array
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from toy_part import Toy, ToyPart

from ltls import Checkpoint, LTLSClassifier, load
from ltls.estimators.parameters import Parameters
from ltls.parts import label_weights, memory, prototypes
from ltls.parts.base import PARTS
from ltls.settings import LabelMatrix, Memory, Neighbours, Prototypes, Trellises, Views
from ltls.training.recipes import DatasetSize, plan_for


@pytest.mark.parametrize("several", [False, True])
def test_the_sizes_of_blocks_change_nothing(monkeypatch, tmp_path, several):
    """Of labels whose weights are trained and whose rows are added up, and of rows to store."""
    rng = np.random.default_rng(0)
    owners = rng.integers(0, 150, (1500, 2 if several else 1))
    noise = random_array((1500, 400), density=0.02, rng=rng, format="csr")
    X = csr_array(
        random_array((150, 400), density=0.05, rng=rng, format="csr")[owners[:, 0]] + noise
    )
    y = [sorted(set(own)) for own in owners.tolist()] if several else owners[:, 0]
    given = {"views": Views(cluster_size=20), "prototypes": True, "neighbours": True}

    def saved():
        LTLSClassifier(**given, random_state=0).fit(X, y).save(tmp_path / "model.ltls")
        return (tmp_path / "model.ltls").read_bytes()

    usual = saved()
    monkeypatch.setattr(label_weights, "_LABELS_AT_ONCE", 30)
    monkeypatch.setattr(label_weights, "_PIECES", 1000)
    monkeypatch.setattr(prototypes, "_LABELS_AT_ONCE", 7)
    monkeypatch.setattr(memory, "_ROWS_AT_ONCE", 100)
    assert saved() == usual


# Plans


@st.composite
def sizes(draw):
    n_rows, n_labels = draw(st.integers(2, 10**6)), draw(st.integers(2, 10**5))
    n_columns = draw(st.integers(1, 10**5))
    several = draw(st.booleans())
    return DatasetSize(
        n_rows,
        n_columns,
        n_rows * min(n_columns, 20),
        n_labels,
        n_rows * (3 if several else 1),
        draw(st.booleans()),
        several or draw(st.booleans()),
    )


GIVEN = {
    "trellises": Trellises(width=3, epochs=7, n_trellises=2, density=0.5, loss="logistic"),
    "views": Views(n_views=1, cluster_size=9),
    "prototypes": Prototypes(n_features=5),
    "neighbours": Neighbours(n_neighbors=4),
    "memory": Memory(n_rows=11),
    "validation_fraction": 0.25,
}


@given(sizes(), st.sets(st.sampled_from(sorted(GIVEN))))
def test_what_is_given_replaces_a_field_and_never_switches_the_recipe(size, names):
    assume(size.n_rows > 2)
    usual = plan_for(Parameters(), size)
    plan = plan_for(Parameters(**{name: GIVEN[name] for name in names}), size)
    assert (plan.recipe, plan.reason) == (usual.recipe, usual.reason)
    for name in names - {"validation_fraction"}:
        found = plan.parts.get(name) or getattr(plan, name)
        wanted = {key: each for key, each in GIVEN[name].get_params().items() if each != "auto"}
        assert found.get_params().items() >= wanted.items()
    if "validation_fraction" in names:
        assert (plan.n_held_out, plan.early_stopping) == (-(-size.n_rows // 4), True)
    else:
        assert plan.n_held_out < size.n_rows
    for group in (plan.trellises, plan.views):
        values = {} if group is None else group.get_params()
        assert "auto" not in {k: v for k, v in values.items() if k not in ("loss", "average")}
    assert str(plan).startswith(f"{plan.recipe}: {plan.reason}; ")
    assert not usual.left_out or not size.few_vector_features


SPARSE = DatasetSize(5000, 300, 10**5, 200, 5000, True, False)
DENSE = DatasetSize(5000, 300, 5000 * 300, 200, 5000, False, False)
BOOKS = Trellises(assignment="similarity")
SEPARATION = Trellises(loss="separation")


@pytest.mark.parametrize(
    ("size", "given", "left_out", "trained"),
    [
        (SPARSE, {}, "", ["views", "prototypes", "neighbours"]),
        (
            SPARSE,
            {"trellises": BOOKS},
            "without views, because of the given assignment",
            ["trellises", "label_weights", "prototypes", "neighbours"],
        ),
        (
            SPARSE,
            {"trellises": SEPARATION},
            "without views, because of the given loss",
            ["trellises"],
        ),
        (
            SPARSE,
            {"label_weights": False},
            "without views, because of the given label_weights",
            ["trellises"],
        ),
        (DENSE, {}, "", ["trellises", "label_matrix", "neighbours"]),
        (replace(DENSE, mapped=True), {}, "", ["trellises", "label_matrix"]),
        (
            DENSE,
            {"views": True},
            "without label_matrix, because of the given views",
            ["views"],
        ),
    ],
)
def test_a_plan_says_what_is_trained(size, given, left_out, trained):
    plan = plan_for(Parameters(**given), size)
    assert (plan.left_out, list(plan.trained)) == (left_out, trained)
    text = str(plan).split("; ")
    assert text[1:-1] == ([left_out] if left_out else [])
    assert ("Views(" in text[-1]) == ("views" in trained)
    assert ("LabelWeights(" in text[-1]) == (plan.label_weights is not None)


@pytest.mark.parametrize(
    ("size", "given", "message"),
    [
        (SPARSE, {"label_matrix": True}, "label_matrix needs dense rows"),
        (SPARSE, {"label_matrix": LabelMatrix()}, "label_matrix needs dense rows"),
        (DENSE, {"label_matrix": True, "views": True}, "label_matrix cannot be combined with"),
        (
            DENSE,
            {"label_matrix": True, "label_weights": True},
            "label_matrix cannot be combined with",
        ),
        (SPARSE, {"views": True, "trellises": BOOKS}, "views assign clusters at random"),
        (SPARSE, {"calibration": True, "trellises": SEPARATION}, "calibration needs probabilities"),
    ],
)
def test_what_is_asked_for_is_trained_or_an_error(size, given, message):
    with pytest.raises(ValueError, match=message):
        plan_for(Parameters(**given), size)


def test_the_reason_names_the_limit_of_the_rule():
    """Dense rows of one label have a label matrix above 128 labels, of several from 64 on."""
    for multilabel, most in ((False, 128), (True, 63)):
        size = replace(DENSE, multilabel=multilabel)
        reasons = [plan_for(Parameters(), replace(size, n_labels=most + more)) for more in (0, 1)]
        assert [plan.recipe == "label matrix" for plan in reasons] == [False, True]
        assert reasons[1].reason == f"dense rows, and more than {most} labels"


def test_a_calibration_that_is_asked_for_needs_no_minimum_of_rows():
    few = DatasetSize(500, 300, 10**4, 200, 500, True, False)
    plans = [plan_for(Parameters(calibration=each), few) for each in ("auto", True)]
    assert [plan.calibrate for plan in plans] == [False, True]


@pytest.mark.parametrize(("value", "trained"), [(Toy(), True), ("auto", False), (False, False)])
def test_a_part_with_a_parameter_of_its_own_is_trained_if_asked_for(value, trained, monkeypatch):
    monkeypatch.setitem(PARTS, "toy", ToyPart)
    plan = plan_for(SimpleNamespace(**vars(Parameters()), toy=value), SPARSE)
    assert ("toy" in plan.trained, "toy" in plan.asked_for) == (trained, trained)


@pytest.mark.parametrize("stream", [False, True])
def test_verbose_shows_the_plan_before_training(digits, capsys, stream):
    X, y = digits
    model = LTLSClassifier(verbose=1, random_state=0).set_params(trellises__epochs=1)
    model.fit_stream([(X, y)]) if stream else model.fit(X, y)
    lines = [line.split("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines.index(model.plan_) < lines.index("epoch 1/1") < lines.index("trellises")
    model.set_params(verbose=0).fit(X, y)
    assert capsys.readouterr().err == ""


def with_views():
    """Rows of 80 labels; labels are in clusters, and neighbours are tried and do not help."""
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 80
    X = (rng.random((1200, 100)) < 0.02).astype(np.float32)
    X[np.arange(1200), y] = 1
    return csr_array(X), y


def test_precision_on_held_out_rows_is_shown_and_recorded(tmp_path, capsys):
    X, y = with_views()
    model = LTLSClassifier(verbose=1, random_state=0).fit(X, y)
    shown = capsys.readouterr().err
    assert 0.5 < model.held_out_precision_ <= 1
    assert f"\nP@1 {model.held_out_precision_:.4f} on the held-out rows that" in shown
    assert "P@1 of clusters on training rows" in shown
    model.set_params(verbose=0).save(tmp_path / "model.ltls")
    assert load(tmp_path / "model.ltls").held_out_precision_ == model.held_out_precision_
    assert model.partial_fit(X[:9], y[:9]).held_out_precision_ is None  # it is another model
    few = LTLSClassifier(random_state=0).fit(X[:200], y[:200])  # too few rows to hold some out
    assert few.held_out_precision_ is None


def test_the_only_row_is_not_held_out():
    X = np.ones((1, 5), np.float32)
    model = LTLSClassifier(random_state=0).fit(X, [[f"label {n}" for n in range(70)]])
    assert model.plan_.startswith("label matrix")
    assert model.predict_topk(X, 70)[0].shape == (1, 70)


def test_the_plan_of_a_model_says_what_was_tried_and_left_out(capsys):
    X, y = with_views()
    model = LTLSClassifier(verbose=1, random_state=0).fit(X, y)
    kept = {part.name for part in model.model_.parts}
    assert "neighbours" not in kept
    *_, left_out = model.plan_.split("; ")
    assert re.fullmatch(r"left out: [a-z_, ]+ \(no gain on held-out rows\)", left_out)
    tried = re.findall(r"[a-z_]+", left_out.split(": ")[1].split(" (")[0])
    assert "neighbours" in tried
    assert not kept & set(tried)
    assert f"\n{left_out}\n" in capsys.readouterr().err
    alone = LTLSClassifier(random_state=0, prototypes=False, neighbours=False).fit(X, y)
    assert "left out" not in alone.plan_


# Small dense problems: one-vs-all with averaged weights


def softmax(scores):
    exponents = np.exp(scores - scores.max())
    return exponents / exponents.sum()


def averaged_one_vs_all(X, y, n_classes, epochs, row_length):
    """The same model in plain NumPy: AdaGrad on two weights per class, the average of all steps."""
    rows = np.hstack([X, np.ones((len(X), 1))])
    n_edges = 2 * n_classes + 1  # from the source, to the sink's neighbour, and from there
    W = np.zeros((rows.shape[1], n_edges))
    squares = np.full_like(W, 0.3 * row_length**2)
    total = np.zeros_like(W)
    edges = np.zeros((n_classes, n_edges))
    for c in range(n_classes):
        edges[c, [c, n_classes + c, 2 * n_classes]] = 1
    n_steps = 0
    for _ in range(epochs):
        for x, label in zip(rows, y, strict=True):
            total += W
            n_steps += 1
            step = edges[label] - softmax(edges @ (x @ W)) @ edges
            gradient = np.outer(x, step)
            squares += gradient**2
            W = W + 0.7 / row_length * gradient / np.sqrt(squares)
    return (total + W) / (n_steps + 1) @ edges.T


def test_weights_are_the_average_of_one_vs_all():
    rng = np.random.default_rng(0)
    X = 8 * rng.normal(size=(120, 3)).astype(np.float32)  # of length 14: a power of 2 is 16
    y = np.arange(120) % 4
    settings = Trellises(shuffle=False, epochs=2, learning_rate=0.7, dtype="float32")
    model = LTLSClassifier(trellises=settings, random_state=0).fit(X, y)
    assert (model.trellis_.n_edges, len(model.codebooks_)) == (9, 1)
    assert model.fitted_.training.weights.sums is None
    expected = averaged_one_vs_all(X.astype(float), y, 4, 2, 16.0)
    known = np.hstack([X, np.ones((120, 1))]) @ expected
    known -= np.log(np.exp(known).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(model.decision_function(X), known, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 20])
def test_no_worse_than_logistic_regression(n_classes):
    X, y = make_classification(
        2000, 30, n_informative=20, n_classes=n_classes, n_clusters_per_class=1, random_state=1
    )
    model = LTLSClassifier(random_state=0).fit(X[:900], y[:900])
    other = LogisticRegression(tol=1e-2).fit(X[:900], y[:900])
    assert model.score(X[900:], y[900:]) > other.score(X[900:], y[900:]) - 0.01


def test_rare_classes_have_their_intercept():
    weights = [0.6, 0.3, 0.07, 0.03]
    X, y = make_classification(
        3000, 20, n_informative=6, n_classes=4, weights=weights, random_state=0
    )
    model = LTLSClassifier(random_state=0).fit(X[:2000], y[:2000])
    other = LogisticRegression(tol=1e-2).fit(X[:2000], y[:2000])
    found, known = (log_loss(y[2000:], each.predict_proba(X[2000:])) for each in (model, other))
    assert found < known + 0.02


def test_streams_and_checkpoints_give_the_same_model(tmp_path):
    X, y = load_digits(return_X_y=True)
    batches = in_batches(X, y, 300)

    def model(epochs=2):
        given_ = Trellises(epochs=epochs, shuffle=False)
        return LTLSClassifier(trellises=given_, calibration=False, random_state=0)

    whole = model().fit(X, y)
    np.testing.assert_array_equal(model().fit_stream(batches).coef_, whole.coef_)
    model(1).fit(X, y, checkpoint=tmp_path / "state")
    resumed = model().fit(X, y, checkpoint=Checkpoint(tmp_path / "state", resume=True))
    np.testing.assert_array_equal(resumed.coef_, whole.coef_)


def test_training_goes_on_without_averaging(tmp_path):
    X, y = load_digits(return_X_y=True)
    old = y < 9
    model = LTLSClassifier(random_state=0).fit(X[old], y[old])
    model.save(tmp_path / "model.ltls")
    for each in (model, load(tmp_path / "model.ltls")):
        new = np.flatnonzero(~old)
        for _ in range(3):
            each.partial_fit(X[new[:60]], y[new[:60]])
        assert each.score(X[new[60:]], y[new[60:]]) > 0.8
        assert each.score(X[old], y[old]) > 0.9
    again = LTLSClassifier(random_state=0, warm_start=True).fit(X, y)
    before = again.score(X, y)
    assert again.fit(X, y).score(X, y) > before - 0.01
