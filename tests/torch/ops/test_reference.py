"""The dynamic programs in plain torch operations, on trellises too large to enumerate."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import Trellis  # noqa: E402
from ltls.torch import make_layout  # noqa: E402
from ltls.torch.ops import reference  # noqa: E402


def edge_scores(n_edges, rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, n_edges, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("size", [(10**6, 8), (2**62, 2), (2**62 - 1, 64), (3**39, 3)], ids=str)
def test_reference_equals_the_engine(size):
    trellis, layout = Trellis(*size), make_layout(*size)
    h = edge_scores(trellis.n_edges, 2)
    np.testing.assert_allclose(reference.log_partition(h, layout), trellis.log_partition(h.numpy()))
    paths, scores = reference.topk(h, layout, 4)
    expected_paths, expected_scores = trellis.topk(h.numpy(), 4)
    np.testing.assert_array_equal(paths, expected_paths)
    np.testing.assert_allclose(scores, expected_scores)
    np.testing.assert_allclose(
        reference.marginals(h, layout), trellis.marginals(h.numpy()), atol=1e-9
    )


def test_reference_supports_double_backward():
    layout = make_layout(22, 2)
    h = edge_scores(layout.n_edges, 1).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda h: reference.log_partition(h, layout), h)


def test_look_up():
    labels = torch.tensor([-100, -1, 0, 1, 4, 5, 2**40])
    table = torch.tensor([3, 1, 4, 0, 6], dtype=torch.int32)
    assert reference.look_up(labels, table, 5, 7, -100).tolist() == [-1, 7, 3, 1, 6, 7, 7]
    assert reference.look_up(labels, None, 5, 7, -100).tolist() == [-1, 7, 0, 1, 4, 7, 7]
