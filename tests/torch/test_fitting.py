"""The least-squares fit of a layer to a trained softmax layer."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from ltls.torch import TrellisSoftmax, functional  # noqa: E402

IN, C = 12, 100


def test_from_linear_starts_close_to_the_layer_it_replaces():
    torch.manual_seed(0)
    directions = torch.randn(20, IN)
    linear = nn.Linear(IN, 600)
    with torch.no_grad():
        linear.weight.copy_(directions[torch.arange(600) % 20] + 0.2 * torch.randn(600, IN))
    x = torch.randn(500, IN)
    y = torch.distributions.Categorical(logits=linear(x)).sample()
    full = F.cross_entropy(linear(x), y)
    for options in ({}, {"counts": torch.ones(600)}, {"n_trellises": 2}):
        head = TrellisSoftmax.from_linear(linear, width=8, **options)
        fitted, fresh = head(x, y).loss, TrellisSoftmax(IN, 600, 8)(x, y).loss
        assert full < fitted < fresh - 0.5 * (fresh - full)


def test_from_linear_fits_frequent_classes_better():
    torch.manual_seed(0)
    linear = nn.Linear(IN, 600)
    counts = torch.where(torch.arange(600) < 60, 1000.0, 1.0)[torch.randperm(600)]
    x = torch.randn(200, IN)
    errors = []
    for weights in (counts, torch.ones(600)):
        head = TrellisSoftmax.from_linear(
            linear, width=4, assignment=torch.arange(600), counts=weights
        )
        logits = functional.path_scores(
            head.edges(x), torch.arange(600).expand(200, -1), head.layout
        )
        errors.append((logits - linear(x)).square().mean(0)[counts > 1].mean())
    assert errors[0] < 0.7 * errors[1]


def test_from_linear_takes_inputs_of_any_length():
    with pytest.raises(ValueError, match="from_linear does not support unit_length"):
        TrellisSoftmax.from_linear(nn.Linear(IN, C), unit_length=True)


def test_from_linear_is_exact_where_every_class_has_its_own_edge():
    torch.manual_seed(0)
    linear = nn.Linear(IN, C)
    head = TrellisSoftmax.from_linear(linear, width=C)
    x = torch.randn(5, IN)
    torch.testing.assert_close(head.log_prob(x), linear(x).log_softmax(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("linear_bias", "head_bias"), [(True, False), (False, True)])
def test_from_linear_with_a_bias_on_one_side_only(linear_bias, head_bias):
    torch.manual_seed(0)
    linear = nn.Linear(IN, C, bias=linear_bias)
    head = TrellisSoftmax.from_linear(linear, width=C, bias=head_bias)
    x = torch.randn(5, IN)
    expected = F.linear(x, linear.weight).log_softmax(1)
    torch.testing.assert_close(head.log_prob(x), expected, rtol=1e-4, atol=1e-4)
