"""The table of losses agrees with the engine's losses and the definitions."""

import numpy as np
import pytest
from reference import Graph

from ltls import Trellis
from ltls.core import _engine
from ltls.settings import Trellises
from ltls.structure.losses import LOSSES

SIZES = [(2, 2), (10, 2), (22, 2), (13, 3), (30, 5), (8, 8)]


def decode_scores(trellis, loss, h):
    g = np.empty_like(h)
    _engine.decode_scores(trellis.engine, loss, h, g)
    return g


def test_python_and_engine_have_the_same_losses():
    assert set(LOSSES) == {loss.name for loss in _engine.losses()}
    assert all(loss.name == name for name, loss in LOSSES.items())
    for loss in _engine.losses():
        assert LOSSES[loss.name].normalized == loss.normalizes


def test_properties():
    properties = {name: (loss.normalized, loss.independent_edges) for name, loss in LOSSES.items()}
    assert properties == {
        "softmax": (True, False), "separation": (False, False), "logistic": (False, True)
    }  # fmt: skip
    assert [name for name, loss in LOSSES.items() if not loss.probabilistic] == ["separation"]
    assert [name for name, loss in LOSSES.items() if loss.averages_positives] == ["softmax"]
    engine = {loss.name: loss.needs_positives for loss in _engine.losses()}
    assert engine == {"separation": True, "softmax": True, "logistic": False}


def test_auto_depends_on_the_number_of_labels_per_row():
    assert Trellises().loss_for(multilabel=False).name == "softmax"
    assert Trellises().loss_for(multilabel=True).name == "logistic"
    for name, loss in LOSSES.items():
        assert Trellises(loss=name).loss_for(True) is Trellises(loss=name).loss_for(False) is loss


@pytest.mark.parametrize("loss", ["softmax", "separation"])
@pytest.mark.parametrize(("n_classes", "width"), SIZES)
def test_decode_scores_are_edge_scores(loss, n_classes, width):
    trellis = Trellis(n_classes, width)
    h = np.random.default_rng(0).normal(size=(5, trellis.n_edges)).astype(np.float32)
    np.testing.assert_array_equal(decode_scores(trellis, loss, h), h)


@pytest.mark.parametrize(("n_classes", "width"), SIZES)
def test_logistic_decode_scores_make_up_for_the_edges_of_longer_paths(n_classes, width):
    trellis, graph = Trellis(n_classes, width), Graph(n_classes, width)
    h = np.random.default_rng(0).normal(size=(5, trellis.n_edges)).astype(np.float32)
    g = decode_scores(trellis, "logistic", h)

    def column(vertex):
        return (vertex - 1) // graph.width

    for found, row in zip(g, -np.logaddexp(0, -h.astype(float)), strict=True):
        expected = row.copy()
        for edge, (tail, head) in enumerate(graph.edges):
            if head == graph.sink and column(tail) < graph.n_slices:  # an early exit
                for block in range(column(tail) + 1, graph.n_slices + 1):
                    inside = [
                        e for e, (_, to) in enumerate(graph.edges)
                        if to != graph.sink and column(to) == block
                    ]  # fmt: skip
                    expected[edge] += row[inside].max()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
