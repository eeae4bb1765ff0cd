"""Layers in bfloat16 and float16: what is summed is summed in float32."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

C, D = 100, 16
HALVES = [torch.bfloat16, torch.float16]
LAYERS = {
    "trellis": lambda **options: TrellisSoftmax(D, C, 4, **options),
    "mixture": lambda **options: TrellisSoftmax(D, C, 4, 3, **options),
    "adaptive": lambda **options: AdaptiveTrellisSoftmax(D, C, [10, 30], width=4, **options),
}


def rows(n, dtype):
    torch.manual_seed(1)
    return torch.randn(n, D).to(dtype), torch.randint(C, (n,))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_probabilities_sum_to_one(name, dtype, autocast):
    torch.manual_seed(0)
    layer = LAYERS[name]().to(torch.float32 if autocast else dtype)
    x, y = rows(50, torch.float32 if autocast else dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        log_probs = layer.log_prob(x)
        found = layer(x, y)
        best = layer.topk(x, 5)[1]
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(50), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.output, log_probs.gather(1, y[:, None])[:, 0])
    torch.testing.assert_close(best, log_probs.topk(5).values)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_class_weights_do_not_overflow(name, dtype):
    layer = LAYERS[name](weight=np.full(C, 100.0)).to(dtype)
    x, y = rows(2003, dtype)
    loss = layer(x, y).loss
    torch.testing.assert_close(loss, -layer.log_prob(x, y).mean())


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
@pytest.mark.parametrize("temperature", [0.01, 0.7, 3.0])
@pytest.mark.parametrize("name", ["trellis", "adaptive"])
def test_the_normalizer_of_a_temperature(name, temperature, dtype):
    layer = LAYERS[name]().to(dtype)
    x, _ = rows(20, dtype)
    expected = torch.logsumexp(layer.log_prob(x).double() / temperature, 1)
    found = layer._log_normalizer(x, temperature, None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_row_of_zeros_has_no_length(dtype):
    layer = TrellisSoftmax(D, C, 4, unit_length=True).to(dtype)
    x, y = rows(3, dtype)
    x[1] = 0
    output, loss = layer(x, y)
    assert output.isfinite().all()
    assert loss.isfinite()
