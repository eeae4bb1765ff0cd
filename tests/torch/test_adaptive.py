"""AdaptiveTrellisSoftmax, against an enumeration of all classes in plain torch."""

import numpy as np
import pytest
from reference import Graph

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

IN, C = 16, 120
LAYERS = {
    "one cluster": {"cutoffs": [10]},
    "three clusters": {"cutoffs": [10, 30, 55]},
    "head bias": {"cutoffs": [7, 20], "head_bias": True, "div_value": 2.0},
    "wide": {"cutoffs": [10, 30], "width": 64, "trellis_features": 9},
    "mixture": {"cutoffs": [10, 30], "n_trellises": 2, "width": 3},
    "random": {"cutoffs": [1, 30], "assignment": "random"},
}


def make(name="three clusters", **options):
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(IN, C, **{"width": 4, **LAYERS[name], **options})
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(4)
    return layer


@pytest.fixture(params=LAYERS)
def layer(request):
    return make(request.param)


def rows(*batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, IN, generator=generator)
    return x, torch.randint(0, C, batch, generator=generator)


def brute_force(layer, x):
    """Return the log-probabilities of all classes: matrix products, and all paths enumerated."""
    head = F.linear(x, layer.head.weight, layer.head.bias).log_softmax(-1)
    shortlist, n_clusters = layer.cutoffs[0], len(layer.cutoffs) - 1
    parts = [head[:, :shortlist]]
    for i in range(n_clusters):
        narrow = F.linear(x, layer.tail[i][0].weight)
        if i < n_clusters - 1:
            scores = F.linear(narrow, layer.tail[i][1].weight).log_softmax(-1)
        else:
            scores = enumerated(layer.tail[i][1], narrow)
        parts.append(scores + head[:, shortlist + i, None])
    return torch.cat(parts, 1)


def enumerated(trellis, x):
    graph = Graph(trellis.n_classes, trellis.width)
    every = []
    h = F.linear(x, trellis.edges.weight, trellis.edges.bias)
    gate = torch.zeros(len(x), 1) if trellis.gate is None else trellis.gate(x).log_softmax(1)
    for r, book in enumerate(trellis.codebooks):
        edges = h[:, r * len(graph.edges) : (r + 1) * len(graph.edges)]
        scores = torch.stack([edges[:, list(path)].sum(1) for path in graph.paths], 1)
        of_labels = scores.log_softmax(1)[:, book.path_of(torch.arange(trellis.n_classes))]
        every.append(of_labels + gate[:, r, None])
    return torch.logsumexp(torch.stack(every), 0)


def test_log_probabilities_are_those_of_the_enumeration(layer):
    x, y = rows(9)
    expected = brute_force(layer, x)
    torch.testing.assert_close(expected.exp().sum(1), torch.ones(9))
    torch.testing.assert_close(layer.log_prob(x), expected)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer.log_prob(x, y), expected[range(9), y])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_cross_entropy(layer, reduction, weighted):
    x, y = rows(12)
    y[3] = y[7] = -100
    layer, x = layer.double(), x.double()
    weight = torch.linspace(0.5, 2, C, dtype=torch.float64) if weighted else None
    layer.reduction = reduction
    layer.weight = weight
    output, loss = layer(x, y)
    every = brute_force(layer, x)
    torch.testing.assert_close(output, -F.cross_entropy(every, y, reduction="none"))
    expected = F.cross_entropy(every, y, weight, reduction=reduction)
    torch.testing.assert_close(loss, expected)
    found = torch.autograd.grad(loss.sum(), list(layer.parameters()))
    for gradient, other in zip(
        found, torch.autograd.grad(expected.sum(), list(layer.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("k", [1, 5, 70, C, C + 1])
def test_topk_is_exact(layer, k):
    x, _ = rows(9)
    labels, log_probs = layer.topk(x, k)
    expected = brute_force(layer, x)
    torch.testing.assert_close(log_probs, expected.topk(min(k, C)).values)
    torch.testing.assert_close(expected.gather(1, labels), log_probs)
    assert layer.predict(x).tolist() == expected.argmax(1).tolist()
    some = torch.arange(0, C, 3)
    restricted = expected[:, some].log_softmax(1)
    labels, log_probs = layer.topk(x, k, among=some)
    torch.testing.assert_close(log_probs, restricted.topk(min(k, len(some))).values)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("three clusters", {}),
        ("three clusters", {"temperature": 2.0}),
        ("one cluster", {"temperature": 0.5}),
        ("three clusters", {"temperature": 1.5, "top_p": 0.8}),
        ("mixture", {}),
        ("mixture", {"top_k": 20, "temperature": 2.0}),
    ],
    ids=str,
)
def test_samples_follow_the_distribution(name, options):
    layer, n = make(name), 40_000
    with torch.no_grad():
        layer.head.weight.div_(4)  # so that clusters are drawn
    x, _ = rows(1)
    drawn = layer.sample(x, n, generator=torch.Generator().manual_seed(0), **options)
    expected = (brute_force(layer, x)[0].detach() / options.get("temperature", 1)).softmax(0)
    ordered, indices = expected.sort(descending=True)
    if "top_k" in options:
        expected[indices[options["top_k"] :]] = 0
    if "top_p" in options:
        expected[indices[ordered.cumsum(0) - ordered >= options["top_p"]]] = 0
    expected /= expected.sum()
    found = torch.bincount(drawn[0], minlength=C) / n
    torch.testing.assert_close(found, expected, rtol=0, atol=5 * float(n) ** -0.5 / 2)
    assert not found[expected == 0].any()


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


def test_compiles_without_a_graph_break(layer):
    x, y = rows(7)
    y[2] = -100
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, expected = compiled(x, y), layer(x, y)
    torch.testing.assert_close(found.output, expected.output)
    (grad,) = torch.autograd.grad(found.loss, layer.head.weight)
    (expected_grad,) = torch.autograd.grad(expected.loss, layer.head.weight)
    torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("name", ["one cluster", "three clusters", "head bias", "wide"])
def test_nothing_synchronizes_where_rows_are_masked(name, monkeypatch):
    """On a GPU no operation may return to the host; `nonzero` and `item` are those that could."""
    from torch.utils._python_dispatch import TorchDispatchMode

    calls = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            calls.append(str(operator))
            return operator(*args, **(kwargs or {}))

    monkeypatch.setattr(AdaptiveTrellisSoftmax, "_gathers", lambda self, rows: False)
    monkeypatch.setattr(AdaptiveTrellisSoftmax, "_check_range", lambda *_: None)
    monkeypatch.setattr(TrellisSoftmax, "_check_range", lambda *_: None)
    layer, (x, y) = make(name), rows(7)
    expected = layer(x, y)
    with Record():
        layer(x, y).loss.backward()
    assert not [name for name in calls if "nonzero" in name or "local_scalar" in name]
    torch.testing.assert_close(expected.output, brute_force(layer, x)[range(7), y])


def test_an_ordinary_module(layer):
    x, y = rows(2, 3)
    assert layer(x, y).output.shape == (2, 3)
    assert layer.topk(x, 4)[0].shape == (2, 3, 4)
    assert layer.sample(x, 5).shape == (2, 3, 5)
    assert layer.topk(x[:0], 4)[0].shape == (0, 3, 4)
    layer.double()
    flat, labels = x.double().flatten(0, 1).requires_grad_(), y.flatten()
    assert torch.autograd.gradcheck(lambda x: layer(x, labels).loss, flat, fast_mode=True)
    before = layer.head.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.head.weight)
    with torch.device("meta"):
        other = AdaptiveTrellisSoftmax(IN, C, [10])
    assert all(parameter.is_meta for parameter in other.parameters())


def test_training_converges():
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = (x @ torch.randn(8, 60)).argmax(1)
    y = torch.bincount(y, minlength=60).argsort(descending=True).argsort()[y]
    layer = AdaptiveTrellisSoftmax(8, 60, [10, 20], div_value=1.0, width=8)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        layer(x, y).loss.backward()
        optimizer.step()
    assert (layer.predict(x) == y).float().mean() > 0.7


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


def test_from_adaptive_in_another_type():
    module = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10, 30])
    layer = AdaptiveTrellisSoftmax.from_adaptive(module, 4, dtype=torch.float64)
    assert {parameter.dtype for parameter in layer.parameters()} == {torch.float64}
    x, y = rows(5)
    assert layer(x.double(), y).loss.isfinite()


def test_classes_are_added_to_the_trellis():
    book = TableCodebook(120, np.arange(90))
    layer = make("one cluster", cutoffs=[30], assignment=book)
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
        make("one cluster", weight=np.ones(C)).add_classes([1])


def test_samples_of_free_paths_are_minus_one():
    torch.manual_seed(0)
    book = TableCodebook(256, range(C - 5))
    layer = AdaptiveTrellisSoftmax(IN, C, [5], width=4, assignment=book)
    x = torch.randn(1, IN)
    drawn = layer.sample(x, 20_000, generator=torch.Generator().manual_seed(0))[0]
    probs = layer.log_prob(x)[0].exp().detach()
    free = 1 - probs.sum()
    assert free > 0.05
    shares = torch.bincount(drawn + 1, minlength=C + 1) / len(drawn)
    expected = torch.cat([free[None], probs])
    assert ((shares - expected).abs() < 5 * (expected / len(drawn)).sqrt() + 1e-4).all()


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
    options = {"reduction": "sum", "ignore_index": 0, "weight": weight}
    layer = AdaptiveTrellisSoftmax.from_adaptive(module, 4, assignment="frequency", **options)
    assert (layer.reduction, layer.ignore_index) == ("sum", 0)
    torch.testing.assert_close(layer.weight, weight)


@pytest.mark.parametrize("device", ["meta", None])
def test_class_weights_survive_a_construction_on_meta(device):
    weight = np.linspace(1, 2, C)
    with torch.device("meta"):
        layers = [
            AdaptiveTrellisSoftmax(IN, C, [10], weight=weight, device=device),
            TrellisSoftmax(IN, C, weight=weight, device=device),
        ]
    for layer in layers:
        assert layer.weight.is_meta
        layer.to_empty(device="cpu")
        layer.weight.fill_(torch.nan)
        layer.reset_parameters()
        np.testing.assert_allclose(layer.weight, weight, rtol=1e-6)


def test_attributes_are_those_of_adaptive_softmax():
    layer = AdaptiveTrellisSoftmax(IN, C, [10, 30], head_bias=True)
    module = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10, 30], head_bias=True)
    for name in ("in_features", "n_classes", "cutoffs", "div_value", "head_bias", "n_clusters",
                 "shortlist_size", "head_size"):  # fmt: skip
        assert getattr(layer, name) == getattr(module, name)


@pytest.mark.parametrize("again", [False, True], ids=["new", "reset"])
@pytest.mark.parametrize("options", [{}, {"n_trellises": 2}, {"unit_length": True}], ids=str)
@torch.no_grad()
def test_features_of_clusters_are_as_long_as_the_input(options, again):
    torch.manual_seed(0)
    layer = AdaptiveTrellisSoftmax(256, 2000, [500, 1000], width=8, **options)
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


def test_a_class_that_targets_ignore_is_an_answer(layer):
    """Padding is class 0 in many vocabularies: it is not counted in the loss, and no more."""
    layer.ignore_index = 0
    x, _ = rows(5)
    expected = brute_force(layer, x)
    torch.testing.assert_close(layer.log_prob(x), expected, rtol=1e-4, atol=1e-4)
    among = torch.tensor([0, 3, 60, 110])
    restricted = expected[:, among].log_softmax(1)
    torch.testing.assert_close(
        layer.topk(x, 4, among=among)[1], restricted.topk(4).values, rtol=1e-4, atol=1e-4
    )
    assert (layer.log_prob(x, torch.zeros(5, dtype=torch.int64)) == 0).all()
