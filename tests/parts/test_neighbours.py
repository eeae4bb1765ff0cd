"""Neighbours: the log of a label's share of the votes of similar rows, plus 0.01."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh
from small_parts import (
    N_FEATURES,
    N_LABELS,
    SEEDS,
    SIZES,
    coordinate_part,
    every,
    make_rows,
    neighbour_part,
    section_of,
    stored_rows,
)

from ltls import LTLSClassifier, load
from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.parts.discriminant import Statistics
from ltls.parts.label_matrix import MOST_FEATURES
from ltls.parts.memory import StoredRows
from ltls.parts.neighbours import Coordinates, NeighbourPart


@given(seed=SEEDS, n_neighbors=st.integers(1, 50), dense=st.booleans())
def test_neighbours(seed, n_neighbors, dense):
    rng = np.random.default_rng(seed)
    part, rows = neighbour_part(rng, n_neighbors, dense), make_rows(rng, sparse=not dense)
    memory = part.memory
    ends = zip(memory.label_ptr[:-1], memory.label_ptr[1:], strict=True)
    lists = [memory.labels[a:b].tolist() for a, b in ends]
    nearest, cosines = part.nearest(rows, None)
    wanted = np.full((5, N_LABELS), np.float32(0.01))
    for row in range(5):
        votes = reference.votes_of(nearest[row], cosines[row], lists)
        for label, share in votes:
            wanted[row, label] += share
        ranked = [label for label, _ in votes][:7]
        found = part.candidates(rows, 7, None)[row].tolist()  # at most as many as can have votes
        assert found == ranked + [-1] * (len(found) - len(ranked))
    np.testing.assert_allclose(part.score(rows, every(5), None), np.log(wanted), rtol=1e-5)


def test_the_rows_that_speak_for_a_label():
    rng = np.random.default_rng(0)
    part, rows = neighbour_part(rng), make_rows(rng, 1)
    nearest, cosines = part.nearest(rows, None)
    label = int(part.candidates(rows, 1, None)[0, 0])
    found = part.explain(rows, label).rows
    memory = part.memory
    expected = [
        (row, cosine) for row, cosine in zip(nearest[0].tolist(), cosines[0].tolist(), strict=True)
        if label in memory.labels[memory.label_ptr[row] : memory.label_ptr[row + 1]]
    ]  # fmt: skip
    assert [(each["row"], each["cosine"]) for each in found] == expected[:5]
    for each in found:
        products = (memory.take(np.array([each["row"]])).rows_like(rows).X * rows.X).toarray()[0]
        order = np.argsort(-products, kind="stable")
        assert each["shared"] == order[products[order] > 0].tolist()


def test_a_dense_row_shares_the_features_that_count_most():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1, 300)).astype(np.float32)
    labels = np.arange(2), np.zeros(1, np.int64)
    examples = Examples(Rows(X, False, False), *labels, None, False)
    memory = StoredRows.of(examples, 1, np.ones(1), 1)
    part = NeighbourPart(memory, 1, 300, False, True, 5)
    [near] = part.explain(Rows(X, False, False), 0).rows
    assert near["cosine"] == pytest.approx(1, abs=1e-3)
    assert len(near["shared"]) == 10
    assert set(near["shared"]) <= set(np.argsort(-np.abs(X[0]))[:12].tolist())


@given(seed=SEEDS, n_neighbors=st.integers(1, 12))
def test_the_nearest_of_dense_rows_are_those_of_all(seed, n_neighbors):
    rng = np.random.default_rng(seed)
    part, rows = neighbour_part(rng, n_neighbors, dense=True), make_rows(rng, sparse=False)
    theirs, X = part.memory.rows_like(rows).X, rows.X.astype(float)
    lengths = [np.maximum(np.linalg.norm(each, axis=1), 1e-30) for each in (X, theirs)]
    cosines = (X @ theirs.T) / np.outer(*lengths)
    nearest, found = part.nearest(rows, None)
    highest = -np.sort(-cosines, axis=1)[:, : nearest.shape[1]]
    np.testing.assert_allclose(found, np.maximum(highest, 0), atol=2e-4)
    own = np.take_along_axis(cosines, np.maximum(nearest, 0), axis=1)
    np.testing.assert_allclose(found, np.where(nearest >= 0, own, 0), atol=2e-4)


@pytest.mark.parametrize("dense", [False, True])
def test_an_empty_memory_has_no_neighbours(dense):
    empty = stored_rows(np.random.default_rng(0)).take(np.empty(0, np.int64))
    part = NeighbourPart(empty, N_LABELS, N_FEATURES + 1, True, dense, 5)
    rows = make_rows(np.random.default_rng(0))
    assert (part.candidates(rows, 4, None) == -1).all()
    np.testing.assert_allclose(part.score(rows, every(5), None), np.log(0.01), rtol=1e-6)
    assert part.explain(rows[np.array([0])], 3).score == pytest.approx(np.log(0.01))


def test_neighbours_follow_the_memory():
    rng = np.random.default_rng(0)
    part, memory = neighbour_part(rng), stored_rows(rng, 9)
    sizes = {"n_rows": 90, "n_labels": 40, "n_columns": 12, "intercept": True, "dense": False}
    context = SimpleNamespace(memory=lambda *_, **__: memory, stored=memory, **sizes)
    for other in (part.learn(context), part.finish(context)):
        assert (other.memory, other.n_labels, other.n_columns) == (memory, 40, 12)
        assert other.n_neighbors == part.n_neighbors
    assert NeighbourPart.fit(SimpleNamespace(n_neighbors=3), context).n_neighbors == 3
    with pytest.raises(ValueError, match="neighbours need rows in memory"):
        NeighbourPart.from_state(section_of({"n_neighbors": 3}, {}), SIZES, None)


# Coordinates


def labelled_vectors(rng, n_rows=600, n_labels=60, n_features=50, n_own=24):
    """Labels differ in some directions, and rows vary much more in all others."""
    basis = np.linalg.qr(rng.normal(size=(n_features, n_features))).Q
    centers = rng.normal(size=(n_labels, n_own))
    labels = np.arange(n_rows) % n_labels
    own = centers[labels] + 0.1 * rng.normal(size=(n_rows, n_own))
    others = 2 * rng.normal(size=(n_rows, n_features - n_own))
    return (np.hstack([own, others]) @ basis.T + 1).astype(np.float32), labels


def context_of(X, labels, n_labels):
    examples = Examples(Rows(X, False, False), np.arange(len(X) + 1), labels, None, False)
    return SimpleNamespace(
        n_labels=n_labels,
        n_vector_features=X.shape[1],
        counts=np.bincount(labels, minlength=n_labels),
        source=SimpleNamespace(in_order=lambda: [(examples, np.arange(len(X)))]),
        plan=SimpleNamespace(of_vectors=True),
    )


def test_directions_are_those_of_a_linear_discriminant_analysis():
    X, labels = labelled_vectors(np.random.default_rng(0))
    found = Statistics.of(context_of(X, labels, 60)).directions(5)
    means = np.array([X[labels == label].mean(axis=0) for label in range(60)], float)
    around = X - means[labels]
    within = around.T @ around / (600 - 60)
    within += np.trace(within) / 50 * np.eye(50)
    between = 10 * (means - X.mean(axis=0)).T @ (means - X.mean(axis=0))
    variances, wanted = eigh(between, within)
    np.testing.assert_allclose(found.T @ within @ found, np.eye(5), atol=1e-3)
    largest = np.diag(found.T @ between @ found)
    np.testing.assert_allclose(largest, variances[::-1][:5], rtol=1e-3)
    own = np.abs(np.diag(found.T @ within @ wanted[:, ::-1][:, :5]))
    np.testing.assert_allclose(own, 1, atol=1e-2)


def test_rows_are_near_those_of_their_label_in_coordinates():
    X, labels = labelled_vectors(np.random.default_rng(0))
    train, test = (slice(0, 540), slice(540, 600))
    coordinates = Coordinates.of(context_of(X[train], labels[train], 60))
    assert coordinates.axes.shape == (50, 32)
    assert np.abs(coordinates.axes).max() == 1

    def hits(place):
        theirs, ours = (place(Rows(X[some], False, False)).X for some in (train, test))
        lengths = np.outer(*(np.linalg.norm(each, axis=1) for each in (ours, theirs)))
        nearest = (ours @ theirs.T / lengths).argmax(axis=1)
        return (labels[train][nearest] == labels[test]).mean()

    assert hits(coordinates) > hits(lambda rows: rows) + 0.3
    assert Coordinates.of(context_of(X[:, :32], labels, 60)) is None  # few features
    assert Coordinates.of(context_of(X, labels % 32, 32)) is None  # few labels, more may follow


def test_coordinates_do_not_depend_on_other_rows_or_on_the_order_of_sums():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 700)).astype(np.float32)
    X[7] = mean = rng.normal(size=700).astype(np.float32)
    axes = rng.uniform(-1, 1, (700, 32)).astype(np.float16)
    found = Coordinates(mean, axes)(Rows(X, False, False)).X
    alone = [Coordinates(mean, axes)(Rows(X[[row]], False, False)).X[0] for row in range(300)]
    np.testing.assert_array_equal(alone, found)
    order = rng.permutation(700)
    moved = Coordinates(mean[order], axes[order])(Rows(X[:, order], False, False)).X
    np.testing.assert_array_equal(moved, found)
    wanted = (X.astype(float) - mean) @ axes.astype(float)
    lengths = [np.maximum(np.linalg.norm(each, axis=1), 1e-30) for each in (wanted, found)]
    unit, own = (each / n[:, None] for each, n in zip((wanted, found), lengths, strict=True))
    np.testing.assert_allclose(own, unit, atol=1e-3)


def test_a_row_that_is_near_only_by_rounding_is_not_explained_by_features():
    coordinates = Coordinates(np.zeros(2, np.float32), np.eye(2, dtype=np.float16))
    near = Rows(np.array([[127, 1]], np.float32), False, False)
    examples = Examples(near, np.arange(2), np.zeros(1, np.int64), None, False)
    memory = StoredRows.of(examples, 1, np.ones(1), 1)
    part = NeighbourPart(memory, 1, 2, False, True, 5, coordinates)
    rows = Rows(np.array([[1, -127.003]], np.float32), False, False)
    assert part.nearest(rows, None)[1] > 0 > rows.X @ near.X.T
    explained = part.explain(rows, 0)
    assert (explained.rows, explained.intercept) == ([], 1)
    assert not explained.contributions.any()
    assert explained.score == pytest.approx(part.score(rows, np.zeros((1, 1), int), None).item())


def test_rows_that_may_be_too_wide_are_not_compared_as_dense_ones():
    rng = np.random.default_rng(0)
    for part in (neighbour_part(rng, dense=True), coordinate_part(rng)):
        for sizes, refused in ((SIZES, False), (replace(SIZES, sparse=True), True)):
            with pytest.raises(ValueError, match="sparse rows") if refused else nullcontext():
                NeighbourPart.from_state(section_of(*part.state()), sizes, part.stored)
    wide = replace(SIZES, n_columns=MOST_FEATURES + 2)
    with pytest.raises(ValueError, match="at most 16384 features"):
        NeighbourPart.from_state(section_of(*coordinate_part(rng).state()), wide)


def test_neighbours_in_coordinates_are_learned_stored_and_explained(tmp_path):
    X, labels = labelled_vectors(np.random.default_rng(0), 2400, 140)
    names = np.array([f"label {label}" for label in range(140)])
    model = LTLSClassifier(neighbours=True, random_state=0).fit(X[:2000], names[labels[:2000]])
    part = model.model_.part("neighbours")
    assert part.coordinates is not None
    assert (len(part.stored), part.stored.vectors(32).shape) == (2000, (2000, 32))
    assert model.model_.needed_rows is None
    model.save(tmp_path / "model.ltls")
    assert part.n_bytes < 2000 * 50  # what the rows themselves would take
    loaded = load(tmp_path / "model.ltls")
    np.testing.assert_array_equal(loaded.predict_proba(X[2000:]), model.predict_proba(X[2000:]))
    [explained] = [p for p in loaded.explain(X[2000:2001], k=1)[0][0].parts if p.part == part.name]
    known = {name for row in explained.rows for name in row["labels"]}
    assert known <= set(names)
    new = X[2000:2010] + 30
    loaded.partial_fit(new, ["new"] * 10)
    assert len(loaded.model_.part("neighbours").stored) == 2010
    assert (loaded.predict(new + 0.01) == "new").all()
    with pytest.raises(ValueError, match="the model has neighbours"):
        loaded.set_params(memory=False).partial_fit(new, ["new"] * 10)
