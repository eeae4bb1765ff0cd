"""The layout numbers edges and paths as the engine does."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import Trellis  # noqa: E402
from ltls.torch import make_layout  # noqa: E402
from ltls.torch.layout import layout_of  # noqa: E402

SIZES = [(1, 2), (2, 2), (3, 2), (22, 2), (64, 2), (7, 3), (100, 5), (64, 8), (300, 8), (40, 64),
         (10**6, 8), (2**62, 2), (2**62 - 1, 64), (3**39, 3)]  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_layout_equals_the_engine(size):
    trellis, layout = Trellis(*size), make_layout(*size)
    for name in ("n_classes", "width", "digits", "n_slices", "n_edges", "longest_path"):
        assert getattr(layout, name) == getattr(trellis, name), name
    rng = np.random.default_rng(0)
    paths = np.append(rng.integers(layout.n_classes, size=200), [0, layout.n_classes - 1])
    edges = layout.path_edges(torch.from_numpy(paths)).numpy()
    np.testing.assert_array_equal(edges, trellis.path_edges_batch(paths))


def test_layout_of_accepts_a_trellis_or_a_layout():
    layout = make_layout(300, 8)
    assert layout_of(Trellis(300, 8)) is layout
    assert layout_of(layout) is layout


def test_negative_paths_have_no_edges():
    assert (make_layout(22, 2).path_edges(torch.tensor([-1, -100])) == -1).all()


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((0, 2), "n_classes must be between"),
        ((2**62 + 1, 2), "n_classes must be between"),
        ((10, 1), "width must be at least 2, got 1"),
        ((2**62, 2**17), "needs more than"),
    ],
)
def test_invalid_sizes_raise(size, message):
    with pytest.raises(ValueError, match=message):
        make_layout(*size)
