"""What all output layers do: a normalized softmax over classes, as an ordinary module.

The oracle is an enumeration of all paths in plain torch operations.
"""

import copy
import io

import numpy as np
import pytest
from reference import Graph

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch.nn import functional as F  # noqa: E402, N812

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

IN, C = 16, 120
FEATURES = torch.randn(C, 6, generator=torch.Generator().manual_seed(0))
HEADS = {
    "frequency": {},
    "counts": {"counts": np.arange(C)},
    "random": {"assignment": "random"},
    "similarity": {"assignment": "similarity", "label_features": FEATURES},
    "counts and similarity": {
        "assignment": "similarity",
        "label_features": FEATURES,
        "counts": np.arange(C) % 17,
    },
    "mixture": {"n_trellises": 3},
    "mixture of counts": {"n_trellises": 2, "counts": torch.arange(C)},
    "random mixture": {"n_trellises": 2, "assignment": "random"},
    "similarity mixture": {
        "n_trellises": 2,
        "assignment": "similarity",
        "label_features": FEATURES,
    },
    "free paths": {"assignment": TableCodebook(150, np.arange(C) + 30)},
    "wide": {"width": 64},
    "paper": {"width": 2},
    "without bias": {"bias": False},
    "not fused": {"fused": False},
    "unit length": {"unit_length": True},
}
ADAPTIVE = {
    "one cluster": {"cutoffs": [10]},
    "three clusters": {"cutoffs": [10, 30, 55]},
    "head bias": {"cutoffs": [7, 20], "head_bias": True, "div_value": 2.0},
    "wide trellis": {"cutoffs": [10, 30], "width": 64, "trellis_features": 9},
    "trellis of a mixture": {"cutoffs": [10, 30], "n_trellises": 2, "width": 3},
    "random trellis": {"cutoffs": [1, 30], "assignment": "random"},
}
LAYERS = HEADS | ADAPTIVE
SOME = ["frequency", "mixture", "free paths", "three clusters"]


def build(name, **options):
    kind = AdaptiveTrellisSoftmax if name in ADAPTIVE else TrellisSoftmax
    return kind(IN, C, **{"width": 4, **LAYERS[name], **options})


def make(name, **options):
    torch.manual_seed(0)
    layer = build(name, **options)
    with torch.no_grad():  # far from uniform
        for parameter in layer.parameters():
            parameter.mul_(4)
    return layer


@pytest.fixture(params=LAYERS)
def name(request):
    return request.param


@pytest.fixture
def layer(name):
    return make(name)


def rows(*batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, IN, generator=generator)
    return x, torch.randint(0, C, batch, generator=generator)


def every_log_prob(layer, x):
    """Return the log-probabilities of all classes: matrix products, and all paths enumerated."""
    if isinstance(layer, TrellisSoftmax):
        return enumerated(layer, x)
    head = F.linear(x, layer.head.weight, layer.head.bias).log_softmax(-1)
    shortlist, n_clusters = layer.cutoffs[0], len(layer.cutoffs) - 1
    parts = [head[:, :shortlist]]
    for i, (narrow, within) in enumerate(layer.tail):
        z = F.linear(x, narrow.weight)
        dense = i < n_clusters - 1
        scores = F.linear(z, within.weight).log_softmax(-1) if dense else enumerated(within, z)
        parts.append(scores + head[:, shortlist + i, None])
    return torch.cat(parts, 1)


def enumerated(trellis, x):
    graph = Graph(trellis.layout.n_classes, trellis.width)
    every = []
    gate = x.new_zeros(len(x), 1) if trellis.gate is None else trellis.gate(x).log_softmax(1)
    scaled = F.normalize(x) if trellis.unit_length else x
    h = F.linear(scaled, trellis.edges.weight, trellis.edges.bias)
    for r, book in enumerate(trellis.codebooks):
        edges = h[:, r * len(graph.edges) : (r + 1) * len(graph.edges)]
        scores = torch.stack([edges[:, list(path)].sum(1) for path in graph.paths], 1)
        of_labels = scores.log_softmax(1)[:, book.path_of(torch.arange(trellis.n_classes))]
        every.append(of_labels + gate[:, r, None])
    return torch.logsumexp(torch.stack(every), 0)


def assert_same_gradients(found, expected, layer):
    parameters = list(layer.parameters())
    pairs = (torch.autograd.grad(loss.sum(), parameters) for loss in (found, expected))
    for gradient, other in zip(*pairs, strict=True):
        torch.testing.assert_close(gradient, other)


# Probabilities and losses


def test_log_probabilities_are_those_of_the_enumeration(layer):
    x, y = rows(9)
    expected = every_log_prob(layer, x)
    total = expected.exp().sum(1)
    if layer._is_full():
        torch.testing.assert_close(total, torch.ones(9))
    else:
        assert (total < 1).all()  # free paths have the rest
    torch.testing.assert_close(layer.log_prob(x), expected)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer.log_prob(x, y), expected[range(9), y])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_cross_entropy(name, reduction, weighted):
    x, y = rows(12)
    y[3] = y[7] = -7
    weight = torch.arange(C, dtype=torch.float64) / 64 + 0.5 if weighted else None
    layer = make(name, weight=weight, reduction=reduction, ignore_index=-7).double()
    x = x.double()
    output, loss = layer(x, y)
    every = every_log_prob(layer, x)
    torch.testing.assert_close(-output, F.nll_loss(every, y, ignore_index=-7, reduction="none"))
    expected = F.nll_loss(every, y, weight, ignore_index=-7, reduction=reduction)
    torch.testing.assert_close(loss, expected)
    assert_same_gradients(loss, expected, layer)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_several_targets_of_a_row_are_averaged(name, weighted, reduction):
    """So are their weights; "mean" divides by the sum of these."""
    x, _ = rows(4)
    target = torch.tensor([[3, 50, -100], [7, -100, -100], [1, 2, 99], [-100, -100, -100]])
    weight = torch.linspace(1, 3, C) if weighted else torch.ones(C)
    layer = make(name, propensities=1 / weight if weighted else None, reduction=reduction)
    log_probs, known = layer.log_prob(x), target >= 0
    n_known = known.sum(1).clamp(min=1)
    of_targets = log_probs.gather(1, target.clamp(min=0)) * known
    weights = weight[target.clamp(min=0)] * known
    expected = -(of_targets * weights).sum(1) / n_known
    if reduction != "none":
        expected = expected.sum()
    if reduction == "mean":
        expected = expected / (weights.sum(1) / n_known).sum()
    output, loss = layer(x, target)
    torch.testing.assert_close(output, of_targets.sum(1) / n_known)
    torch.testing.assert_close(loss, expected)
    assert_same_gradients(loss, expected, layer)
    sets = layer(x, target[target >= 0], offsets=torch.tensor([0, 2, 3, 6]))
    torch.testing.assert_close(sets.loss, loss)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_soft_targets_are_those_of_cross_entropy(name, weighted):
    x, _ = rows(5)
    weight = torch.linspace(0.5, 2, C) if weighted else None
    layer = make(name, weight=weight)
    labels = torch.stack([torch.randperm(C)[:7] for _ in range(5)])
    probs = torch.rand(5, 7).softmax(1)
    dense = torch.zeros(5, C).scatter(1, labels, probs)
    log_probs = layer.log_prob(x)
    scores = log_probs if weight is None else log_probs * weight
    expected = -(scores * dense).sum(1).mean()
    torch.testing.assert_close(layer(x, labels, probs).loss, expected)
    torch.testing.assert_close(layer(x, torch.arange(C).expand(5, -1), dense).loss, expected)
    padded = torch.cat([labels, torch.full((5, 2), -100)], 1)
    with_padding = layer(x, padded, torch.cat([probs, torch.ones(5, 2)], 1)).loss
    torch.testing.assert_close(with_padding, expected)


def test_gradcheck(layer):
    x, y = rows(4)
    layer, x = layer.double(), x.double().requires_grad_()
    y[1] = -100
    parameters = list(layer.parameters())
    assert torch.autograd.gradcheck(lambda *_: layer(x, y).loss, (x, *parameters), fast_mode=True)


# Answers


@pytest.mark.parametrize("k", [1, 5, 40, C, C + 1])
def test_topk_is_exact(layer, k):
    layer.ignore_index = 0  # in targets, and no more: padding is class 0 in many vocabularies
    x, _ = rows(9)
    labels, log_probs = layer.topk(x, k)
    expected = every_log_prob(layer, x)
    torch.testing.assert_close(log_probs, expected.topk(min(k, C)).values)
    torch.testing.assert_close(expected.gather(1, labels), log_probs)
    assert all(len(set(row)) == min(k, C) for row in labels.tolist())
    assert layer.predict(x).tolist() == expected.argmax(1).tolist()
    torch.testing.assert_close(layer.log_prob(x), expected)
    assert (layer.log_prob(x, torch.zeros(9, dtype=torch.int64)) == 0).all()


@pytest.mark.parametrize("kind", ["set", "mask", "sets", "masks"])
def test_answers_among_given_classes_are_exact(layer, kind):
    """The oracle masks the log-probabilities of all classes and normalizes them again."""
    layer.ignore_index = 0  # in targets, and no more
    x, _ = rows(2, 3)
    generator = torch.Generator().manual_seed(5)
    mask = torch.rand(2, 3, C, generator=generator) < 0.1
    mask[..., :5:4] = True
    if kind in ("set", "mask"):
        mask = mask[:1, :1].expand(2, 3, C)
        among = mask[0, 0] if kind == "mask" else mask[0, 0].nonzero()[:, 0].flip(0)
    elif kind == "masks":
        among = mask
    else:
        lists = [row.nonzero()[:, 0].tolist() for row in mask.flatten(0, 1)]
        longest = max(map(len, lists)) + 1
        padded = [[*row, row[0], *[-1] * (longest - len(row))] for row in lists]  # one twice
        among = torch.tensor([row[: longest + 1] for row in padded]).unflatten(0, (2, 3))
    expected = layer.log_prob(x).masked_fill(~mask, -torch.inf).log_softmax(-1)
    torch.testing.assert_close(layer.log_prob(x, among=among), expected)
    labels, log_probs = layer.topk(x, 30, among=among)
    best = expected.topk(labels.shape[-1])
    torch.testing.assert_close(log_probs, best.values)
    assert torch.equal(labels >= 0, best.values > -torch.inf)
    found = layer.log_prob(x, labels.clamp(min=0), among=among)
    torch.testing.assert_close(found[labels > 0], log_probs[labels > 0])
    assert torch.equal(layer.predict(x, among=among), labels[..., 0])


def test_any_batch_shape(layer):
    x, y = rows(2, 3)
    one = layer(x[1, 2], y[1, 2])
    assert one.output.shape == ()
    torch.testing.assert_close(layer(x, y).output[1, 2], one.output)
    assert layer.topk(x, 4)[0].shape == (2, 3, 4)
    assert layer.topk(x[0, 0], 4)[0].shape == (4,)
    assert layer.predict(x).shape == (2, 3)
    assert layer.predict(x[0, 0]).shape == ()
    assert layer.sample(x, 5).shape == (2, 3, 5)
    assert layer.log_prob(x).shape == (2, 3, C)
    assert layer.topk(x[:0], 4)[0].shape == (0, 3, 4)


@pytest.mark.parametrize("shape", [(), (2,)], ids=["one target", "several targets"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_empty_batch_has_an_empty_gradient(name, shape, reduction):
    layer, x = make(name, reduction=reduction), torch.zeros(0, IN, requires_grad=True)
    output, loss = layer(x, torch.zeros(0, *shape, dtype=torch.int64))
    assert output.shape == (0,)
    loss.sum().backward()
    assert x.grad.shape == (0, IN)
    assert not any(p.grad.any() for p in layer.parameters() if p.grad is not None)


# An ordinary module


def test_compiles_without_a_graph_break(layer):
    x, y = rows(7)
    y[2] = -100
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found, expected = compiled(x, y), layer(x, y)
    torch.testing.assert_close(found.output, expected.output)
    assert_same_gradients(found.loss, expected.loss, layer)


def test_transforms_of_torch_func(layer):
    x, y = rows(4)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters, x, y):
        return torch.func.functional_call(layer, parameters, (x, y)).loss

    found = torch.func.grad(loss)(parameters, x, y)
    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(
        parameters, x[:, None], y[:, None]
    )
    layer(x, y).loss.backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
        torch.testing.assert_close(per_sample[name].mean(0), parameter.grad)


def test_state_dict_round_trip(layer):
    x, y = rows(7)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(layer)
    for value in other.state_dict().values():
        value.zero_()
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other(x, y), layer(x, y), rtol=0, atol=0)
    assert other.topk(x, 3)[0].tolist() == layer.topk(x, 3)[0].tolist()


def test_reset_parameters(layer):
    before = copy.deepcopy(layer.state_dict())
    torch.manual_seed(7)
    layer.reset_parameters()
    for key, value in layer.state_dict().items():
        assert torch.equal(value, before[key]) == ("codebooks" in key), key


@pytest.mark.parametrize(
    "make",
    [
        lambda: TrellisSoftmax(8, 60, width=8),
        lambda: TrellisSoftmax(8, 60, width=2, n_trellises=4, assignment="random"),
        lambda: AdaptiveTrellisSoftmax(8, 60, [10, 20], div_value=1.0, width=8),
    ],
    ids=["trellis", "mixture", "adaptive"],
)
def test_training_converges(make):
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = (x @ torch.randn(8, 60)).argmax(1)
    y = torch.bincount(y, minlength=60).argsort(descending=True).argsort()[y]
    layer = make()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        layer(x, y).loss.backward()
        optimizer.step()
    assert (layer.predict(x) == y).float().mean() > 0.7


# Half precision: what is summed is summed in float32

HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)


@HALVES
@pytest.mark.parametrize("autocast", [False, True])
def test_probabilities_in_half_precision_sum_to_one(layer, dtype, autocast):
    kept = torch.float32 if autocast else dtype
    layer, (x, y) = layer.to(kept), rows(50)
    exact = layer.float().log_prob(x)
    layer, x = layer.to(kept), x.to(kept)
    with torch.autocast("cpu", dtype, enabled=autocast):
        log_probs = layer.log_prob(x)
        output, loss = layer(x, y)
        best = layer.topk(x, 5)[1]
        loss.backward()
    assert {each.dtype for each in (log_probs, output, loss, best)} == {torch.float32}
    assert all(parameter.grad.dtype == kept for parameter in layer.parameters())
    if layer._is_full():
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(50), rtol=0, atol=1e-5)
    torch.testing.assert_close(output, log_probs.gather(1, y[:, None])[:, 0])
    torch.testing.assert_close(best, log_probs.topk(5).values)
    torch.testing.assert_close(log_probs, exact, rtol=0.1, atol=0.5)


@HALVES
@pytest.mark.parametrize("name", SOME)
def test_class_weights_do_not_overflow(name, dtype):
    layer = make(name, weight=np.full(C, 100.0)).to(dtype)
    x, y = rows(2003)
    loss = layer(x.to(dtype), y).loss
    torch.testing.assert_close(loss, -layer.log_prob(x.to(dtype), y).mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("temperature", [0.01, 0.7, 3.0])
@pytest.mark.parametrize("name", ["frequency", "three clusters"])
def test_the_normalizer_of_a_temperature(name, temperature, dtype):
    torch.manual_seed(0)
    layer, x = build(name).to(dtype), rows(20)[0].to(dtype)
    expected = torch.logsumexp(layer.log_prob(x).double() / temperature, 1)
    found = layer._log_normalizer(x, temperature, None)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


@HALVES
def test_a_row_of_zeros_has_no_length(dtype):
    layer, (x, y) = make("unit length").to(dtype), rows(3)
    x[1] = 0
    output, loss = layer(x.to(dtype), y)
    assert output.isfinite().all()
    assert loss.isfinite()
