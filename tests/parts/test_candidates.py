"""What joins the candidates of several parts and chooses the best of them, against plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ltls.core import _engine

LABELS = st.integers(-1, 12) | st.sampled_from([2**40, 2**40 + 16, 2**62])


def matrices(n_rows, elements, max_width=6):
    widths = st.integers(0, max_width)
    return widths.flatmap(lambda n: arrays(np.int64, (n_rows, n), elements=elements))


@given(st.data())
def test_unite(data):
    n_rows = data.draw(st.integers(0, 4))
    parts = data.draw(st.lists(matrices(n_rows, LABELS), max_size=4))
    width = sum(part.shape[1] for part in parts) + data.draw(st.integers(0, 2))
    out = np.full((n_rows, width), 7)
    most = _engine.unite(parts, out)
    wanted = [list(dict.fromkeys(int(c) for p in parts for c in p[r] if c >= 0))
              for r in range(n_rows)]  # fmt: skip
    assert out.tolist() == [row + [-1] * (width - len(row)) for row in wanted]
    assert most == max(map(len, wanted), default=0)


@given(st.data())
def test_look_up(data):
    n_rows, n_keys = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))
    distinct = st.lists(
        LABELS, min_size=n_keys, max_size=n_keys, unique_by=lambda c: c if c >= 0 else object()
    )
    keys = np.array([data.draw(distinct) for _ in range(n_rows)], np.int64).reshape(n_rows, n_keys)
    values = np.arange(keys.size, dtype=np.float32).reshape(keys.shape)
    ids = data.draw(matrices(n_rows, LABELS))
    out = np.empty(ids.shape, np.float32)
    _engine.look_up(ids, keys, values, -5.0, out)
    known = [{c: v for c, v in zip(*row, strict=True) if c >= 0}
             for row in zip(keys.tolist(), values.tolist(), strict=True)]  # fmt: skip
    assert out.tolist() == [
        [own.get(c, -5.0) for c in row] for own, row in zip(known, ids.tolist(), strict=True)
    ]


@given(st.data())
def test_select(data):
    n_rows, k = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 8))
    ids = data.draw(matrices(n_rows, LABELS))
    score = st.sampled_from([-np.inf, -2.0, 0.0, 0.5, 3.0])
    scores = data.draw(arrays(np.float32, ids.shape, elements=score))
    best, their_scores = np.empty((n_rows, k), np.int64), np.empty((n_rows, k), np.float32)
    _engine.select(ids, scores, best, their_scores)
    for row in range(n_rows):
        pairs = zip(-scores[row], ids[row], strict=True)
        ranked = sorted((s, c) for s, c in pairs if c >= 0)[:k]
        padded = ranked + [(np.inf, -1)] * (k - len(ranked))
        assert list(zip(-their_scores[row], best[row], strict=True)) == padded


SCORES = st.floats(-200, 50, width=32) | st.just(-np.inf)


@given(st.lists(st.tuples(SCORES, SCORES), max_size=70))
def test_add_exponentials(pairs):
    scores, totals = np.array(pairs, np.float32).reshape(-1, 2).T.copy()
    wanted = np.logaddexp(*np.float64([scores, totals]))
    for name in _engine.instruction_sets():
        found, previous = totals[None].copy(), _engine.use_instruction_set(name)
        try:
            _engine.add_exponentials(scores[None].copy(), found)
        finally:
            _engine.use_instruction_set(previous)
        np.testing.assert_allclose(found[0], wanted, rtol=1e-6, atol=1e-6)


def test_arguments_that_do_not_fit_are_rejected():
    ids, floats = np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="number of columns of out must be at least 6, got 3"):
        _engine.unite([ids, ids], ids.copy())
    with pytest.raises(ValueError, match="a matrix must have 2 entries, got 1"):
        _engine.unite([ids[:1]], ids.copy())
    for wrong in ((ids[:1], floats), (ids, floats[:, :2].copy())):
        with pytest.raises(ValueError, match="must have"):
            _engine.look_up(ids, *wrong, 0.0, floats.copy())
    with pytest.raises(ValueError, match="out must have 6 entries"):
        _engine.look_up(ids, ids, floats, 0.0, floats[:1].copy())
    with pytest.raises(ValueError, match="scores must have 6 entries"):
        _engine.select(ids, floats[:1].copy(), ids.copy(), floats.copy())
    with pytest.raises(ValueError, match="best must have 2 entries"):
        _engine.select(ids, floats, ids[:1].copy(), floats.copy())
    with pytest.raises(ValueError, match="totals must have 6 entries"):
        _engine.add_exponentials(floats, floats[:1].copy())
