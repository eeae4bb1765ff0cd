"""AdaptiveTrellisSoftmax: its clusters, and its likeness to torch's adaptive softmax."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

IN, C = 16, 120


def make(cutoffs=(10, 30, 55), **options):
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(IN, C, cutoffs, **{"width": 4, **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(4)
    return layer


def rows(*batch):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*batch, IN, generator=generator)
    return x, torch.randint(0, C, batch, generator=generator)


def test_is_adaptive_softmax_but_for_the_last_cluster():
    """With the same weights, every class before the last cutoff has the same probability."""
    torch.manual_seed(0)
    adaptive = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10, 30], head_bias=True)
    layer = AdaptiveTrellisSoftmax.from_adaptive(adaptive, width=64)
    x, y = rows(7)
    every, other = layer.log_prob(x), adaptive.log_prob(x)
    torch.testing.assert_close(every[:, :30], other[:, :30])
    mass = torch.logsumexp(other[:, 30:], 1)
    torch.testing.assert_close(torch.logsumexp(every[:, 30:], 1), mass)
    # A trellis as wide as it has classes is a full softmax: the fit is exact up to its ridge.
    torch.testing.assert_close(every, other, rtol=0, atol=0.05)
    assert layer(x, y).output.shape == adaptive(x, y).output.shape
    keys = {key for key in adaptive.state_dict() if not key.startswith("tail.1.1")}
    assert keys == {key for key in layer.state_dict() if not key.startswith("tail.1.1")}


def test_attributes_are_those_of_adaptive_softmax():
    layer = AdaptiveTrellisSoftmax(IN, C, [10, 30], head_bias=True)
    module = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10, 30], head_bias=True)
    for name in ("in_features", "n_classes", "cutoffs", "div_value", "head_bias", "n_clusters",
                 "shortlist_size", "head_size"):  # fmt: skip
        assert getattr(layer, name) == getattr(module, name)


@pytest.mark.parametrize(
    "options", [{"cutoffs": [10]}, {}, {"head_bias": True}, {"width": 64}], ids=str
)
def test_nothing_synchronizes_where_rows_are_masked(options, monkeypatch):
    """On a GPU no operation may return to the host; `nonzero` and `item` are those that could."""
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            calls.append(str(operator))
            return operator(*args, **(kwargs or {}))

    layer, (x, y) = make(**options), rows(7)
    expected = layer(x, y).output
    monkeypatch.setattr(AdaptiveTrellisSoftmax, "_gathers", lambda self, rows: False)
    monkeypatch.setattr(AdaptiveTrellisSoftmax, "_check_range", lambda *_: None)
    monkeypatch.setattr(TrellisSoftmax, "_check_range", lambda *_: None)
    with Record():
        output, loss = layer(x, y)
        loss.backward()
    assert not [name for name in calls if "nonzero" in name or "local_scalar" in name]
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoffs": 100}, "cutoffs must be a sequence of integers, got 100"),
        ({"cutoffs": []}, "cutoffs must be increasing, from 1 to n_classes - 2 = 118"),
        ({"cutoffs": [20, 10]}, "cutoffs must be increasing"),
        ({"cutoffs": [10, 119]}, "cutoffs must be increasing"),
        ({"cutoffs": [0.5]}, "cutoffs must be an integer"),
        ({"cutoffs": [10], "div_value": 0}, "div_value must be greater than 0"),
        ({"cutoffs": [10], "width": 1}, "width must be at least 2"),
    ],
)
def test_invalid_parameters_raise(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AdaptiveTrellisSoftmax(IN, C, **options)


def test_invalid_targets_raise():
    layer, (x, y) = make(), rows(7)
    with pytest.raises(ValueError, match=r"target must be a class index from 0 to 119 .*, got 120"):
        layer(x, torch.full_like(y, C))
    with pytest.raises(ValueError, match="within needs a layer with a hierarchy"):
        layer.topk(x, 3, within=1)
    np.testing.assert_equal(layer(x, torch.full_like(y, -100)).output.tolist(), [0.0] * 7)


@pytest.mark.parametrize("name", ["label_smoothing", "hierarchy"])
def test_parameters_of_a_trellis_alone_are_refused(name):
    value = {"label_smoothing": 0.1, "hierarchy": np.arange(C)}[name]
    module = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10])
    with pytest.raises(ValueError, match=f"does not support {name}"):
        AdaptiveTrellisSoftmax(IN, C, [10], **{name: value})
    with pytest.raises(ValueError, match=f"does not support {name}"):
        AdaptiveTrellisSoftmax.from_adaptive(module, **{name: value})


def test_from_adaptive_passes_on_the_options_of_the_layer():
    module = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10, 30])
    weight = torch.rand(C)
    options = {"reduction": "sum", "ignore_index": 0, "weight": weight, "dtype": torch.float64}
    layer = AdaptiveTrellisSoftmax.from_adaptive(module, 4, assignment="frequency", **options)
    assert (layer.reduction, layer.ignore_index) == ("sum", 0)
    torch.testing.assert_close(layer.weight, weight)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float64}
    x, y = rows(5)
    assert layer(x.double(), y).loss.isfinite()


def test_classes_are_added_to_the_trellis():
    book = TableCodebook(120, np.arange(90))
    layer = make([30], assignment=book)
    x, _ = rows(6)
    before = layer.log_prob(x)
    assert layer.add_classes([100, 111]).tolist() == [C, C + 1]
    assert (layer.n_classes, layer.cutoffs) == (C + 2, [30, C + 2])
    log_probs = layer.log_prob(x)
    torch.testing.assert_close(log_probs[:, :C], before)
    labels, best = layer.topk(x, C + 2)
    torch.testing.assert_close(best, log_probs.gather(1, labels))
    assert layer.sample(x, 500).max() <= C + 1
    with pytest.raises(ValueError, match="without weight"):
        make([10], weight=np.ones(C)).add_classes([1])


@pytest.mark.parametrize(
    ("n_classes", "cutoffs"),
    [(3, [1]), (4, [1, 2]), (5, [1, 2, 3]), (120, [30, 60, 90]), (10_000, [2000, 5000, 7500]),
     (40_000, [2000, 10_000, 20_000]), (10**7, [2000, 10_000, 20_000])],
)  # fmt: skip
def test_three_clusters_by_default(n_classes, cutoffs):
    layer = AdaptiveTrellisSoftmax(IN, n_classes, device="meta")
    assert layer.cutoffs == [*cutoffs, n_classes]
    width = min(64, n_classes - cutoffs[-1])
    assert (layer.trellis.in_features, layer.trellis.width) == (IN // 8, width)


def test_too_few_classes_for_a_cluster():
    with pytest.raises(ValueError, match="n_classes must be at least 3, got 2"):
        AdaptiveTrellisSoftmax(IN, 2)


@pytest.mark.parametrize("again", [False, True], ids=["new", "reset"])
@pytest.mark.parametrize("options", [{}, {"n_trellises": 2}, {"unit_length": True}], ids=str)
@torch.no_grad()
def test_features_of_clusters_are_as_long_as_the_input(options, again):
    torch.manual_seed(0)
    sizes = {"width": 8, "trellis_features": 16}
    layer = AdaptiveTrellisSoftmax(256, 2000, [500, 1000], **sizes, **options)
    if again:
        layer.reset_parameters()
    x = torch.randn(500, 256)
    narrow, within = layer.tail[0]
    assert narrow(x).norm(dim=1).mean().item() == pytest.approx(16, rel=0.1)
    narrow = layer.tail[1][0]
    assert narrow(x).norm(dim=1).mean().item() == pytest.approx(16, rel=0.1)
    # Before training, scores are as large as with the weights of nn.Linear.
    like_torch = nn.AdaptiveLogSoftmaxWithLoss(256, 2000, [500, 1000]).tail
    assert within(layer.tail[0][0](x)).std().item() == pytest.approx(
        like_torch[0](x).std().item(), rel=0.15
    )
    trellis, features = layer.trellis, narrow(x)
    unscaled = like_torch[1][0](x)
    if trellis.unit_length:
        features, unscaled = F.normalize(features), F.normalize(unscaled)
    expected = F.linear(unscaled, nn.Linear(16, 1000).weight).std().item()
    scores = F.linear(features, trellis.edges.weight)
    assert scores.std().item() == pytest.approx(expected, rel=0.15)
    if trellis.gate is not None:
        gate = F.linear(features, trellis.gate.weight)
        assert gate.std().item() == pytest.approx(expected, rel=0.5)


def test_layers_of_the_users_own_are_reset_as_they_are():
    class Narrow(nn.Module):
        def reset_parameters(self):
            self.was_reset = True

    layer = make()
    layer.tail[0][0] = Narrow()
    before = layer.tail[1][0].weight.clone()
    layer.reset_parameters()
    assert layer.tail[0][0].was_reset
    assert not torch.equal(layer.tail[1][0].weight, before)
