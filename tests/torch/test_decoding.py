"""Exact decoding of mixtures and of codebooks with free paths."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import TableCodebook  # noqa: E402
from ltls.torch import TrellisSoftmax  # noqa: E402

IN, C = 12, 100


def test_topk_of_a_mixture_widens_its_search_until_it_is_exact():
    """The best label is nowhere near the top of any single trellis."""
    torch.manual_seed(0)
    paths = [torch.arange(C), torch.arange(C).flip(0)]
    head = TrellisSoftmax(1, C, 4, 2, paths)
    x = torch.ones(2, 1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.edges.bias.copy_(0.01 * torch.randn(head.edges.bias.shape))
    labels, log_probs = head.topk(x, 1)
    best = head.log_prob(x).max(1)
    torch.testing.assert_close(log_probs[:, 0], best.values)
    assert labels[:, 0].tolist() == best.indices.tolist()


def test_free_paths_are_never_predicted_and_sampled_as_minus_one():
    torch.manual_seed(0)
    head = TrellisSoftmax(IN, 3, 4, assignment=TableCodebook(64, [1, 20, 63]))
    x = torch.randn(50, IN, generator=torch.Generator().manual_seed(1))
    labels, _ = head.topk(x, 3)
    assert labels.sort(1).values.tolist() == [[0, 1, 2]] * 50
    samples = head.sample(x, 20, generator=torch.Generator().manual_seed(2))
    assert set(samples.flatten().tolist()) == {-1, 0, 1, 2}
