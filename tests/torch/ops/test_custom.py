"""The custom operators keep the contracts of torch.library, autograd and torch.compile."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import RandomCodebook  # noqa: E402
from ltls.torch import functional, make_layout  # noqa: E402
from ltls.torch.ops import custom  # noqa: E402


def edge_scores(n_edges, rows, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, n_edges, generator=generator, dtype=dtype)


@pytest.mark.parametrize("operator", ["log_probs", "topk", "permute"])
def test_opcheck(operator):
    h = edge_scores(19, 3, torch.float32).requires_grad_()
    arguments = {
        "log_probs": (h, torch.tensor([[0], [3], [-1]]), 22, 2),
        "topk": (h.detach(), 3, 22, 2),
        "permute": (torch.arange(22), torch.tensor([5]), [10, 22], False),
    }
    torch.library.opcheck(getattr(torch.ops.ltls, operator).default, arguments[operator])


def test_double_backward_raises_and_names_the_alternative():
    layout = make_layout(22, 2)
    h = edge_scores(layout.n_edges, 1).requires_grad_()
    (grad,) = torch.autograd.grad(functional.log_partition(h, layout).sum(), h, create_graph=True)
    with pytest.raises(RuntimeError, match=r"double backward.*fused=False"):
        grad.square().sum().backward()


def test_eager_mode_and_the_registered_operator_agree():
    h = edge_scores(19, 3).requires_grad_()
    paths = torch.tensor([[0, 4], [21, -1], [7, 7]])
    results = []
    for compute in (custom.log_probs, torch.ops.ltls.log_probs):
        log_probs, log_z, _ = compute(h, paths, 22, 2)
        (grad,) = torch.autograd.grad((log_probs * log_z[:, None]).sum(), h)
        results.append((log_probs, log_z, grad))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_permute_maps_values_out_of_range():
    book = RandomCodebook(30, 3)
    values, seed = torch.tensor([-100, -1, 0, 29, 30, 2**40]), torch.tensor([3])
    expected = [-1, -1, book.path_of(0), book.path_of(29), 30, 30]
    assert custom.permute(values, seed, [30], False).tolist() == expected


def test_permute_without_the_engine_raises(monkeypatch):
    monkeypatch.setattr(custom, "HAS_ENGINE", False)
    with pytest.raises(RuntimeError, match="needs the compiled engine"):
        custom.permute(torch.arange(5), torch.tensor([0]), [5], False)
