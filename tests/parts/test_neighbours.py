"""Neighbours: the log of a label's share of the votes of similar rows, plus 0.01."""

from types import SimpleNamespace

import numpy as np
import pytest
import reference_parts as reference
from hypothesis import given
from hypothesis import strategies as st
from small_parts import N_FEATURES, N_LABELS, SEEDS, every, make_rows, neighbour_part, stored_rows

from ltls.features.rows import Rows
from ltls.model.examples import Examples
from ltls.parts.memory import StoredRows
from ltls.parts.neighbours import NeighbourPart


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
        NeighbourPart.from_state(None, None, None)
