"""TrellisSoftmax: a normalized softmax over classes, and an ordinary module."""

import copy
import io
from itertools import permutations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from ltls import RandomCodebook, TableCodebook  # noqa: E402
from ltls.torch import TrellisSoftmax, functional  # noqa: E402

IN, C = 12, 100


def features(n_classes=C, seed=0):
    return torch.randn(n_classes, 6, generator=torch.Generator().manual_seed(seed))


HEADS = {
    "frequency": {},
    "counts": {"counts": np.arange(C)},
    "random": {"assignment": "random"},
    "similarity": {"assignment": "similarity", "label_features": features()},
    "frequency and similarity": {
        "assignment": "similarity",
        "label_features": features(),
        "counts": np.arange(C) % 17,
    },
    "mixture": {"n_trellises": 3},
    "mixture of counts": {"n_trellises": 2, "counts": torch.arange(C)},
    "random mixture": {"n_trellises": 2, "assignment": "random"},
    "similarity mixture": {
        "n_trellises": 2,
        "assignment": "similarity",
        "label_features": features(),
    },
    "free paths": {"assignment": TableCodebook(130, np.arange(C) + 30)},
    "wide": {"width": 64},
    "paper": {"width": 2},
    "without bias": {"bias": False},
    "not fused": {"fused": False},
}


def make(name="frequency", seed=0, **options):
    torch.manual_seed(seed)
    head = TrellisSoftmax(IN, C, **{"width": 4, **HEADS[name], **options})
    with torch.no_grad():  # far from uniform
        for parameter in head.parameters():
            parameter.mul_(4)
    return head


@pytest.fixture(params=HEADS)
def head(request):
    return make(request.param)


def rows(*batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, IN, generator=generator)
    return x, torch.randint(0, C, batch, generator=generator)


# Probabilities


def test_probabilities_of_all_classes_sum_to_one(head):
    x, y = rows(7)
    log_probs = head.log_prob(x)
    expected = torch.ones(7)
    if head.layout.n_classes > C:
        assert (log_probs.exp().sum(1) < expected).all()  # free paths have the rest
    else:
        torch.testing.assert_close(log_probs.exp().sum(1), expected)
    torch.testing.assert_close(log_probs[range(7), y], head.log_prob(x, y))


def test_forward_has_the_interface_of_adaptive_softmax(head):
    x, y = rows(7)
    output, loss = head(x, y)
    torch.testing.assert_close(output, head.log_prob(x, y))
    torch.testing.assert_close(loss, -output.mean())
    other = nn.AdaptiveLogSoftmaxWithLoss(IN, C, [10])(x, y)
    assert output.shape == other.output.shape
    assert loss.shape == other.loss.shape


def test_a_mixture_weights_its_trellises_by_the_gate():
    x, y = rows(7)
    head = make("mixture")
    parts = []
    for r, book in enumerate(head.codebooks):
        one = TrellisSoftmax(IN, C, 4, assignment=book)
        n = one.layout.n_edges
        one.edges.weight.data = head.edges.weight[r * n : (r + 1) * n]
        one.edges.bias.data = head.edges.bias[r * n : (r + 1) * n]
        parts.append(one.log_prob(x, y).exp())
    expected = (torch.stack(parts, 1) * head.gate(x).softmax(1)).sum(1)
    torch.testing.assert_close(head.log_prob(x, y).exp(), expected)


# Loss


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_is_cross_entropy_of_all_log_probabilities(reduction, smoothing):
    x, y = rows(3, 5)
    y[0, 1] = y[2, 2] = -7
    head = make(reduction=reduction, ignore_index=-7, label_smoothing=smoothing)
    found = head(x, y).loss
    logits = head.log_prob(x).flatten(0, 1)
    options = {"reduction": reduction, "ignore_index": -7, "label_smoothing": smoothing}
    expected = F.cross_entropy(logits, y.flatten(), **options)
    torch.testing.assert_close(found.flatten(), expected.flatten())
    (grad,) = torch.autograd.grad(found.sum(), head.edges.weight)
    (expected,) = torch.autograd.grad(expected.sum(), head.edges.weight)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["frequency", "mixture"])
def test_class_weights_are_those_of_cross_entropy(name, reduction):
    x, y = rows(8)
    y[2] = -100
    weight = torch.rand(C, generator=torch.Generator().manual_seed(3)) + 0.1
    head = make(name, weight=weight, reduction=reduction)
    output, found = head(x, y)
    expected = F.cross_entropy(head.log_prob(x), y, weight, reduction=reduction)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(output, head.log_prob(x, y))
    assert head.state_dict()["weight"].tolist() == weight.tolist()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_of_several_targets_are_averaged(reduction):
    """A row's loss and weight are means over its targets; "mean" divides by the sum of weights."""
    x, _ = rows(4)
    target = torch.tensor([[3, 50, -100], [7, -100, -100], [1, 2, 99], [-100, -100, -100]])
    weight = torch.linspace(0.5, 3, C)
    head = make(weight=weight, reduction=reduction)
    log_probs = head.log_prob(x)
    losses, weights = [], []
    for row, labels in zip(log_probs, target.tolist(), strict=True):
        known = [label for label in labels if label >= 0]
        n = max(1, len(known))
        losses.append(sum([-weight[label] * row[label] for label in known], torch.tensor(0.0)) / n)
        weights.append(sum([weight[label] for label in known], torch.tensor(0.0)) / n)
    expected = torch.stack(losses)
    if reduction != "none":
        expected = expected.sum()
    if reduction == "mean":
        expected = expected / torch.stack(weights).sum()
    torch.testing.assert_close(head(x, target).loss, expected)


@pytest.mark.parametrize(("weighted", "smoothing"), [(False, 0.0), (True, 0.0), (False, 0.2)])
def test_soft_targets_are_those_of_cross_entropy(weighted, smoothing):
    x, _ = rows(5)
    weight = torch.linspace(0.5, 2, C) if weighted else None
    head = make(weight=weight, label_smoothing=smoothing)
    labels = torch.stack([torch.randperm(C)[:7] for _ in range(5)])
    probs = torch.rand(5, 7).softmax(1)
    dense = torch.zeros(5, C).scatter(1, labels, probs)
    found = head(x, labels, probs).loss
    expected = F.cross_entropy(head.log_prob(x), dense, weight, label_smoothing=smoothing)
    torch.testing.assert_close(found, expected)
    every = torch.arange(C).expand(5, -1)
    torch.testing.assert_close(head(x, every, dense).loss, expected)
    padded = torch.cat([labels, torch.full((5, 2), -100)], 1)
    with_padding = head(x, padded, torch.cat([probs, torch.ones(5, 2)], 1)).loss
    torch.testing.assert_close(with_padding, expected)


def test_label_smoothing_of_a_mixture_is_an_upper_bound():
    x, y = rows(6)
    head = make("mixture", label_smoothing=0.3, reduction="none")
    exact = F.cross_entropy(head.log_prob(x), y, label_smoothing=0.3, reduction="none")
    assert (head(x, y).loss >= exact).all()
    # It is the mean over the trellises' own mean log-probabilities, weighted by the gate.
    h, paths = head.edge_scores(x), torch.arange(C).expand(6, head.n_trellises, C)
    means = functional.log_prob(h, paths, head.layout).mean(2)
    uniform = (head.gate(x).softmax(1) * means).sum(1)
    expected = -0.7 * head.log_prob(x, y) - 0.3 * uniform
    torch.testing.assert_close(head(x, y).loss, expected)
    with torch.no_grad():  # equal where the trellises agree: here all are uniform
        for parameter in head.edges.parameters():
            parameter.zero_()
    exact = F.cross_entropy(head.log_prob(x), y, label_smoothing=0.3, reduction="none")
    torch.testing.assert_close(head(x, y).loss, exact)


@pytest.mark.parametrize("name", ["frequency", "mixture"])
def test_ignored_rows_have_no_loss_and_no_gradient(name):
    x, y = rows(6)
    head = make(name)
    some = head(x[:4], y[:4]).loss
    y[4:] = -100
    output, loss = head(x, y)
    torch.testing.assert_close(loss, some)
    assert output[4:].tolist() == [0, 0]
    x.requires_grad_()
    (grad,) = torch.autograd.grad(head(x, y).loss, x)
    assert grad[:4].all()
    assert not grad[4:].any()


@pytest.mark.parametrize("name", ["frequency", "mixture"])
def test_several_targets_per_row_are_averaged(name):
    head = make(name)
    x, _ = rows(3)
    y = torch.tensor([[5, 7, -100], [3, -100, -100], [-100, -100, -100]])
    output, loss = head(x, y)
    every = head.log_prob(x)
    expected = torch.stack([every[0, [5, 7]].mean(), every[1, 3]])
    torch.testing.assert_close(output[:2], expected)
    assert output[2] == 0
    torch.testing.assert_close(loss, -expected.mean())
    (grad,) = torch.autograd.grad(loss, head.edges.weight, retain_graph=True)
    (expected,) = torch.autograd.grad(-expected.mean(), head.edges.weight)
    torch.testing.assert_close(grad, expected)


def test_gradcheck(head):
    x, y = rows(4)
    head = head.double()
    x = x.double().requires_grad_()
    y[1] = -100
    parameters = list(head.parameters())
    assert torch.autograd.gradcheck(lambda *_: head(x, y).loss, (x, *parameters), fast_mode=True)


def test_fused_false_supports_double_backward():
    x, y = rows(3)
    head, x = make("not fused").double(), x.double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: head(x, y).loss, x, fast_mode=True)


# Prediction


@pytest.mark.parametrize("k", [1, 5, 40, C, C + 1])
def test_topk_is_exact(head, k):
    x, _ = rows(9)
    labels, log_probs = head.topk(x, k)
    expected = head.log_prob(x).topk(min(k, C))
    torch.testing.assert_close(log_probs, expected.values)
    torch.testing.assert_close(head.log_prob(x, labels), expected.values)
    assert all(len(set(row)) == min(k, C) for row in labels.tolist())
    assert head.predict(x).tolist() == head.topk(x, 1)[0][:, 0].tolist()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("frequency", {}),
        ("paper", {"temperature": 3.0}),
        ("random mixture", {}),
        ("mixture", {"temperature": 0.5, "top_k": 9}),
        ("frequency", {"top_k": 5, "top_p": 0.8}),
        ("frequency", {"temperature": 2.0, "top_p": 0.7}),
        ("mixture", {"top_p": 0.95}),
        ("mixture", {"among": torch.arange(0, C, 7)}),
        ("frequency", {"among": torch.arange(0, C, 3), "temperature": 2.0, "top_k": 6}),
    ],
    ids=str,
)
def test_samples_follow_the_distribution(name, options):
    from scipy import stats

    head = make(name)
    x, _ = rows(1)
    n = 20_000
    labels = head.sample(x, n, generator=torch.Generator().manual_seed(0), **options)
    assert labels.shape == (1, n)
    expected = restricted(head.log_prob(x)[0].detach().double(), **options)
    assert not set(labels[0].tolist()) - set(expected.nonzero()[:, 0].tolist())
    frequencies = n * expected.numpy()
    found = np.bincount(labels[0], minlength=C).astype(float)
    common = frequencies >= 5
    found = np.append(found[common], found[~common].sum() + 1)
    frequencies = np.append(frequencies[common], frequencies[~common].sum() + 1)
    frequencies *= found.sum() / frequencies.sum()
    assert stats.chisquare(found, frequencies).pvalue > 1e-4


def restricted(log_probs, temperature=1.0, top_k=None, top_p=None, among=None):
    """Return the probabilities as the warpers of Hugging Face's `generate` define them."""
    if among is not None:
        allowed = torch.zeros(C, dtype=torch.bool)
        allowed[among] = True
        log_probs = log_probs.masked_fill(~allowed, -torch.inf)
    log_probs = log_probs / temperature
    if top_k is not None:
        log_probs = log_probs.masked_fill(log_probs < log_probs.topk(top_k)[0][-1], -torch.inf)
    probs = log_probs.softmax(0)
    if top_p is not None:
        ordered, indices = probs.sort(descending=True)
        before = ordered.cumsum(0) - ordered
        probs[indices[before >= top_p]] = 0
    return probs / probs.sum()


def test_any_batch_shape(head):
    x, y = rows(2, 3)
    one = head(x[1, 2], y[1, 2])
    assert one.output.shape == ()
    torch.testing.assert_close(head(x, y).output[1, 2], one.output)
    assert head.topk(x, 4)[0].shape == (2, 3, 4)
    assert head.topk(x[0, 0], 4)[0].shape == (4,)
    assert head.predict(x).shape == (2, 3)
    assert head.predict(x[0, 0]).shape == ()
    assert head.sample(x, 5).shape == (2, 3, 5)
    assert head.log_prob(x).shape == (2, 3, C)
    assert head.topk(x[:0], 4)[0].shape == (0, 3, 4)


# Restricted answers

RESTRICTED = ["frequency", "random", "mixture", "similarity mixture", "free paths", "not fused"]


@pytest.mark.parametrize("name", RESTRICTED)
@pytest.mark.parametrize("kind", ["set", "mask", "sets", "masks"])
def test_answers_among_given_classes_are_exact(name, kind):
    """The oracle masks the log-probabilities of all classes and normalizes them again."""
    head = make(name)
    x, _ = rows(2, 3)
    generator = torch.Generator().manual_seed(5)
    mask = torch.rand(2, 3, C, generator=generator) < 0.1
    mask[..., 4] = True
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
    expected = head.log_prob(x).masked_fill(~mask, -torch.inf).log_softmax(-1)
    torch.testing.assert_close(head.log_prob(x, among=among), expected)
    labels, log_probs = head.topk(x, 30, among=among)
    best = expected.topk(labels.shape[-1])
    torch.testing.assert_close(log_probs, best.values)
    assert torch.equal(labels >= 0, best.values > -torch.inf)
    torch.testing.assert_close(
        head.log_prob(x, labels.clamp(min=0), among=among)[labels >= 0], log_probs[labels >= 0]
    )
    assert torch.equal(head.predict(x, among=among), labels[..., 0])


LEVELS = np.stack([np.arange(C) % 4, np.arange(C) * 7 % 5], 1)
HIERARCHIES = {
    "one level": {"hierarchy": LEVELS[:, 0]},
    "two levels": {"hierarchy": LEVELS, "counts": np.arange(C) % 11},
    "names": {"hierarchy": np.array(["a", "b", "c", "d"])[LEVELS[:, 0]], "width": 3},
    "mixture": {"hierarchy": LEVELS, "n_trellises": 3, "width": 2},
}


@pytest.mark.parametrize("name", HIERARCHIES)
def test_answers_within_a_node_are_exact(name):
    head, (x, _) = make(**HIERARCHIES[name]), rows(4)
    every = head.log_prob(x)
    torch.testing.assert_close(every.exp().sum(1), torch.ones(4))
    values = np.asarray(HIERARCHIES[name]["hierarchy"]).reshape(C, -1)
    assert len(head.nodes) == (4 if values.shape[1] == 1 else 4 + 20)
    for node in head.nodes:
        mask = torch.from_numpy((values[:, : len(node)] == np.array(node)).all(1))
        expected = every.masked_fill(~mask, -torch.inf).log_softmax(-1)
        within = node[0] if len(node) == 1 else node
        torch.testing.assert_close(head.log_prob(x, within=within), expected)
        labels, log_probs = head.topk(x, 4, within=within)
        torch.testing.assert_close(log_probs, expected.topk(labels.shape[1]).values)
        torch.testing.assert_close(head.log_prob(x, labels, within=within), log_probs)
        assert mask[head.sample(x, 6, within=within)].all()
        assert mask[head.sample(x, 6, within=within, top_p=0.5)].all()
    with pytest.raises(ValueError, match="within must be a node of the hierarchy, got 'z'"):
        head.topk(x, 4, within="z")


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("kind", ["set", "mask", "sets", "masks"])
def test_answers_among_classes_of_a_node_are_exact(name, kind):
    """The classes of both, as in what is in stock of a category."""
    head, (x, _) = make(**HIERARCHIES[name]), rows(4)
    mask = torch.rand(4, C, generator=torch.Generator().manual_seed(5)) < 0.2
    values = np.asarray(HIERARCHIES[name]["hierarchy"]).reshape(C, -1)
    every = head.log_prob(x)
    for node in head.nodes:
        allowed = torch.from_numpy((values[:, : len(node)] == np.array(node)).all(1))
        if kind in ("set", "mask"):
            given = mask[0]
            among = given if kind == "mask" else given.nonzero()[:, 0]
        else:
            given = mask
            ids = torch.where(mask, torch.arange(C), -1)
            among = mask if kind == "masks" else ids
        both = (given & allowed).expand(4, C)
        some = both.any(1)
        restricted = {"among": among, "within": node}
        expected = every.masked_fill(~both, -torch.inf).log_softmax(-1)
        found = head.log_prob(x, **restricted)
        torch.testing.assert_close(found[some], expected[some])
        assert (found[~some] == -torch.inf).all()
        labels, log_probs = head.topk(x, 3, **restricted)
        assert labels.shape == (4, 3)
        best = expected.topk(3).values
        torch.testing.assert_close(log_probs[some], best[some])
        assert torch.equal(labels[some] >= 0, best[some] > -torch.inf)
        assert (labels[~some] == -1).all()
        assert torch.equal(head.predict(x, **restricted), labels[:, 0])
        for options in ({}, {"top_k": 2}, {"top_p": 0.5}, {"temperature": 0.5}):
            drawn = head.sample(x, 6, **restricted, **options)
            assert (drawn[~some] == -1).all()
            assert both[some].gather(1, drawn[some]).all()


@pytest.mark.parametrize("name", HIERARCHIES)
def test_a_class_that_targets_ignore_is_an_answer(name):
    """Padding is class 0 in many vocabularies: it is not counted in the loss, and no more."""
    head, (x, _) = make(**HIERARCHIES[name]), rows(4)
    expected = head.log_prob(x)
    head.ignore_index = 0
    torch.testing.assert_close(head.log_prob(x), expected)
    among = torch.tensor([0, 4, 5, 20])
    node = next(node for node in head.nodes if len(node) == 1 and node[0] in (0, "a"))
    for restricted, allowed in (
        ({"among": among}, among),
        ({"among": among, "within": node}, torch.tensor([0, 4, 20])),
    ):
        best = expected[:, allowed].log_softmax(1).topk(3)
        labels, log_probs = head.topk(x, 3, **restricted)
        torch.testing.assert_close(log_probs, best.values)
        assert torch.equal(labels, allowed[best.indices])
    assert (head.log_prob(x, torch.zeros(4, dtype=torch.int64), within=node) == 0).all()


def test_samples_within_a_node_follow_the_distribution():
    head, (x, _) = make(**HIERARCHIES["mixture"]), rows(1)
    drawn = head.sample(x, 20_000, generator=torch.Generator().manual_seed(0), within=2)
    expected = head.log_prob(x, within=2)[0].exp()
    found = torch.bincount(drawn[0], minlength=C) / 20_000
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_restricted_log_probabilities_are_differentiable():
    head, (x, _) = make(**HIERARCHIES["two levels"]).double(), rows(2)
    x = x.double().requires_grad_()
    y = torch.tensor([1, 5])
    assert torch.autograd.gradcheck(lambda x: head.log_prob(x, y, within=1), x)
    assert torch.autograd.gradcheck(lambda x: head.log_prob(x, y, among=[1, 5, 50]), x)


# An ordinary module


def test_forward_without_a_target_is_the_log_probabilities_of_all_classes(head):
    x, _ = rows(2, 3)
    torch.testing.assert_close(head(x), head.log_prob(x))


def test_transforms_of_torch_func(head):
    x, y = rows(4)
    parameters = {name: p.detach() for name, p in head.named_parameters()}

    def loss(parameters, x, y):
        return torch.func.functional_call(head, parameters, (x, y)).loss

    found = torch.func.grad(loss)(parameters, x, y)
    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(
        parameters, x[:, None], y[:, None]
    )
    head(x, y).loss.backward()
    for name, parameter in head.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)
        torch.testing.assert_close(per_sample[name].mean(0), parameter.grad)


def test_reset_parameters(head):
    before = copy.deepcopy(head.state_dict())
    torch.manual_seed(7)
    head.reset_parameters()
    assert not torch.equal(head.edges.weight, before["edges.weight"])
    assert head.edges.weight.abs().max() <= IN**-0.5
    for key, value in head.state_dict().items():
        if key.startswith("codebooks"):
            assert torch.equal(value, before[key])


@pytest.mark.parametrize("context", [True, False])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_made_on_meta_is_restored_on_the_cpu(name, context):
    """As FSDP does: build without memory, allocate, reset, or load a state."""
    head = make(name)
    if context:
        with torch.device("meta"):
            other = TrellisSoftmax(IN, C, **{"width": 4, **HEADS[name]})
    else:
        other = TrellisSoftmax(IN, C, **{"width": 4, **HEADS[name]}, device="meta")
    assert all(value.is_meta for value in other.state_dict().values())
    other.to_empty(device="cpu")
    for value in other.state_dict().values():
        value.zero_()
    other.reset_parameters()
    for key, value in head.state_dict().items():
        if key.startswith("codebooks"):
            assert torch.equal(other.state_dict()[key], value)
    other.load_state_dict(head.state_dict())
    x, y = rows(7)
    torch.testing.assert_close(other(x, y), head(x, y), rtol=0, atol=0)


@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("kinds", permutations(["counts", "frequency", "random"], 2), ids=str)
def test_states_move_between_heads_with_and_without_counts(kinds, n_trellises):
    options = {
        "counts": {"counts": np.random.default_rng(0).integers(50, size=C)},
        "frequency": {},
        "random": {"assignment": "random"},
    }
    saved, other = (TrellisSoftmax(IN, C, 3, n_trellises, **options[kind]) for kind in kinds)
    x, y = rows(7)
    for module, state in (
        (other, saved.state_dict()),
        (torch.nn.Sequential(other), torch.nn.Sequential(saved).state_dict()),
    ):
        module.load_state_dict(state)
        torch.testing.assert_close(other(x, y), saved(x, y), rtol=0, atol=0)
        assert torch.equal(other.predict(x), saved.predict(x))


@pytest.mark.parametrize(
    "other",
    [{"assignment": "random"}, {"counts": np.arange(C)}, {}],
    ids=["random", "counts", "frequency"],
)
@pytest.mark.parametrize(
    "books",
    [
        [np.arange(C), RandomCodebook(C, 5)],
        [RandomCodebook(C, 5), RandomCodebook(C, 6)],
    ],
    ids=["table and random", "random"],
)
def test_a_key_is_loaded_only_where_its_blocks_are_known(books, other):
    """Codebooks of the user's own: the layer predicts the same, or torch reports the keys."""
    saved = TrellisSoftmax(IN, C, 4, 2, books)
    head = TrellisSoftmax(IN, C, 4, 2, **other)
    if other.get("assignment") != "random":
        with pytest.raises(RuntimeError, match=r"codebooks\.1"):
            head.load_state_dict(saved.state_dict())
        return
    head.load_state_dict(saved.state_dict())
    x, y = rows(7)
    torch.testing.assert_close(head(x, y), saved(x, y), rtol=0, atol=0)


def test_parameters_alone_leave_the_codebook_as_it_is():
    x, _ = rows(7)
    head = make("counts")
    before = head.predict(x)
    head.load_state_dict(dict(head.named_parameters()), strict=False)
    assert torch.equal(head.predict(x), before)
    with pytest.raises(RuntimeError, match=r'Missing key.*"codebooks\.0\.paths"'):
        head.load_state_dict(dict(head.named_parameters()))
    assert torch.equal(head.predict(x), before)


def test_training_converges():
    torch.manual_seed(0)
    x = torch.randn(400, 8)
    y = (x @ torch.randn(8, 30)).argmax(1)
    for options in ({"width": 8}, {"width": 2, "n_trellises": 4, "assignment": "random"}):
        head = TrellisSoftmax(8, 30, **options)
        optimizer = torch.optim.Adam(head.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            head(x, y).loss.backward()
            optimizer.step()
        assert (head.predict(x) == y).float().mean() > 0.7


def test_compiles_without_a_graph_break(head):
    x, y = rows(7)
    torch.compiler.reset()
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    found, expected = compiled(x, y), head(x, y)
    torch.testing.assert_close(found.output, expected.output)
    (grad,) = torch.autograd.grad(found.loss, head.edges.weight)
    (expected_grad,) = torch.autograd.grad(expected.loss, head.edges.weight)
    torch.testing.assert_close(grad, expected_grad)


def test_several_heads_compile_their_topk():
    torch.compiler.reset()
    for n_classes in (200, 300, 400):
        head = TrellisSoftmax(IN, n_classes, 4, n_trellises=2)
        x = torch.randn(6, IN)
        found = torch.compile(head.topk, backend="aot_eager")(x, 3)
        torch.testing.assert_close(found, head.topk(x, 3))


def test_autocast_accumulates_in_float32(head):
    x, y = rows(7)
    with torch.autocast("cpu", torch.bfloat16):
        found = head(x, y)
        assert found.loss.dtype == torch.float32
        found.loss.backward()
    assert head.edges.weight.grad.dtype == torch.float32
    torch.testing.assert_close(found.output, head(x, y).output, rtol=0.02, atol=0.2)


def test_state_dict_round_trip(head):
    x, y = rows(7)
    file = io.BytesIO()
    torch.save(head.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(head)
    for value in other.state_dict().values():
        value.zero_()
    other.load_state_dict(torch.load(file, weights_only=True))
    torch.testing.assert_close(other(x, y), head(x, y), rtol=0, atol=0)
    assert other.topk(x, 3)[0].tolist() == head.topk(x, 3)[0].tolist()


def test_device_and_dtype():
    head = TrellisSoftmax(IN, C, device="meta", assignment="random", label_smoothing=0.1)
    assert all(value.is_meta for value in head.state_dict().values())
    assert TrellisSoftmax(IN, C, dtype=torch.float64)(*double_rows()).loss.dtype == torch.float64


def double_rows():
    x, y = rows(2)
    return x.double(), y


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": 1}, "n_classes must be at least 2, got 1"),
        ({"width": 1}, "width must be at least 2, got 1"),
        ({"width": 2.0}, "width must be an integer"),
        ({"n_trellises": 0}, "n_trellises must be at least 1"),
        ({"reduction": "max"}, "reduction must be one of"),
        ({"label_smoothing": 2}, "label_smoothing must be between 0 and 1"),
        (
            {"label_smoothing": 0.1, "assignment": TableCodebook(130, np.arange(C) + 30)},
            "label_smoothing requires a codebook without free paths",
        ),
        ({"weight": [1, 2]}, r"weight must have shape \(100,\)"),
        ({"weight": np.ones(C), "label_smoothing": 0.1}, "cannot be combined"),
        ({"hierarchy": [1, 2]}, r"hierarchy must have shape \(100,\) or \(100, n_levels\)"),
        ({"hierarchy": np.ones(C), "assignment": "random"}, "requires assignment='frequency'"),
        ({"assignment": "ranking"}, "assignment must be one of .*, which needs the fit"),
        ({"assignment": "learned"}, "assignment must be one of .*, which needs the fit"),
        ({"assignment": "alphabetical"}, "assignment must be one of .*, got 'alphabetical'$"),
        ({"assignment": "similarity"}, "'similarity' needs label_features"),
        ({"label_features": features()}, "'frequency' does not take label_features"),
        ({"counts": [1, 2]}, r"counts must have shape \(100,\)"),
        ({"counts": [-1] * C}, "counts must be 0 or more, got -1"),
        ({"counts": [float("nan")] * C}, "counts must be 0 or more, got nan"),
        ({"assignment": torch.zeros(C).long()}, "distinct path .* path 0 for label"),
        ({"assignment": torch.arange(C) + 1}, "distinct path .* path 100 for label 99"),
        ({"assignment": RandomCodebook(99)}, "codebooks for 100 labels"),
        ({"assignment": [RandomCodebook(C)] * 2}, "one codebook per trellis, got 2 for 1"),
        ({"assignment": 1.5}, "assignment must be"),
    ],
)
def test_invalid_parameters_raise(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrellisSoftmax(**{"in_features": IN, "n_classes": C, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda head, x, y: head(x[:, 1:], y), r"input must have shape \(…, 12\)"),
        (lambda head, x, y: head(x, y[1:]), r"target must have shape"),
        (lambda head, x, y: head(x, y.float()), "target must have an integer dtype"),
        (lambda head, x, y: head(x, y.tolist()), "target must be a tensor, got list"),
        (lambda head, x, y: head(x.detach().numpy(), y), "input must be a tensor, got ndarray"),
        (lambda head, x, y: head(x, F.one_hot(y, C)), "one-hot for 100 classes"),
        (lambda head, x, y: head(x, F.one_hot(y, C).float()), "one-hot for 100 classes"),
        (lambda head, x, y: head(x, y, torch.ones(3)), "target_probs must be"),
        (lambda head, x, y: head.sample(x, top_p=0.0), "top_p must be greater than 0"),
        (lambda head, x, y: head.sample(x, top_k=0), "top_k must be at least 1"),
        (lambda head, x, y: head.sample(x, 1, 2.0, top_p=0.5), "temperature must be 1"),
        (lambda head, x, y: head.topk(x, 1, within=3), "within needs a layer with a hierarchy"),
        (lambda head, x, y: head.topk(x, 1, among=x[0]), "among must be class indices"),
        (lambda head, x, y: head.topk(x, 1, among=y[:, None].bool()), "among must be class"),
        (
            lambda head, x, y: head.topk(x, 1, among=[5, C]),
            "indices from 0 to 99, or -1 as padding, got 100",
        ),
        (lambda head, x, y: head.topk(x, 1, among=np.zeros(C, bool)), "at least one class"),
        (lambda head, x, y: head(x, y - 200), "target must be a class index from 0 to 99"),
        (lambda head, x, y: head(x, y + 100), "target must be a class index from 0 to 99"),
        (lambda head, x, y: head.topk(x, 0), "k must be at least 1"),
        (lambda head, x, y: head.sample(x, 1, 2.0), "temperature must be 1 for a mixture"),
    ],
)
def test_invalid_inputs_raise(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(make("mixture"), *rows(7))


def test_a_row_without_allowed_classes_scores_minus_infinity():
    head, x = TrellisSoftmax(IN, C, 4), torch.randn(2, IN)
    labels, log_probs = head.topk(x, 2, among=torch.tensor([[3, 5], [-1, -1]]))
    assert sorted(labels[0].tolist()) == [3, 5]
    assert labels[1].tolist() == [-1, -1]
    assert log_probs[1].tolist() == [-torch.inf, -torch.inf]
    torch.testing.assert_close(log_probs[0].exp().sum(), torch.tensor(1.0))


@pytest.mark.parametrize(("among", "message"), [([3, -2], "got -2"), ([], "got none")])
def test_classes_that_cannot_be_allowed_are_refused(among, message):
    head, x = TrellisSoftmax(IN, C, 4), torch.randn(2, IN)
    with pytest.raises(ValueError, match=message):
        head.topk(x, 2, among=among)


def test_soft_targets_need_their_classes():
    head, x = TrellisSoftmax(IN, C, 4), torch.randn(2, IN)
    with pytest.raises(ValueError, match="target_probs needs target"):
        head(x, None, torch.ones(2, 1))


@pytest.mark.parametrize(
    ("hierarchy", "node", "expected"),
    [
        (pd.Series(["a", "b"] * 50), "b", range(1, 100, 2)),
        (pd.Categorical(["a", "b"] * 50), "a", range(0, 100, 2)),
        (pd.DataFrame({"s": ["a", "b"] * 50, "i": [1, 2, 3, 4] * 25}), ("a", 3), range(2, 100, 4)),
        ([("a", 1), ("b", 2)] * 50, ("b", 2), range(1, 100, 2)),
        (torch.arange(100) % 4, 3, range(3, 100, 4)),
    ],
    ids=["series", "categorical", "frame", "tuples", "tensor"],
)
def test_values_of_a_hierarchy(hierarchy, node, expected):
    labels, _ = make(hierarchy=hierarchy).topk(rows(1)[0], C, within=node)
    assert sorted(labels[0].tolist()) == list(expected)


@pytest.mark.parametrize("within", [torch.tensor(1), [1], np.array([1, 2])], ids=str)
def test_a_node_for_all_rows(within):
    head = make(hierarchy=np.arange(C) % 3)
    with pytest.raises(TypeError, match="within must be a value of the hierarchy, or a tuple"):
        head.topk(rows(1)[0], 2, within=within)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.float32, np.float16, bool])
def test_counts_of_any_type(dtype):
    counts = np.random.default_rng(0).integers(2 if dtype is bool else 200, size=C).astype(dtype)
    found = TrellisSoftmax(IN, C, 4, counts=counts)
    expected = TrellisSoftmax(IN, C, 4, counts=counts.astype(np.int64))
    assert torch.equal(found.codebooks[0].paths, expected.codebooks[0].paths)


def test_a_mask_of_integers_is_refused():
    head, (x, _) = make(), rows(2)
    mask = np.arange(C) > 50
    for kind in (int, np.uint8):
        with pytest.raises(ValueError, match=r"got a mask of torch.* pass it as bool"):
            head.topk(x, 2, among=mask.astype(kind))
    assert (head.topk(x, 2, among=mask)[0] > 50).all()
    for n in (1, 2):  # the first classes alone, which are not a mask in disguise
        assert set(head.topk(x, n, among=np.arange(C) < n)[0].flatten().tolist()) == set(range(n))


def test_an_empty_batch_with_classes_per_row():
    head = make()
    labels, log_probs = head.topk(torch.empty(0, IN), 2, among=torch.empty(0, 3, dtype=torch.int64))
    assert labels.shape == log_probs.shape == (0, 2)


def test_a_hierarchy_is_not_loaded_from_a_layer_without_it():
    groups = np.arange(C) % 3
    head = TrellisSoftmax(IN, C, 4, hierarchy=groups)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    for options in ({}, {"counts": np.arange(C)}, {"hierarchy": groups[::-1].copy()}):
        with pytest.raises(RuntimeError, match="another hierarchy"):
            head.load_state_dict(TrellisSoftmax(IN, C, 4, **options).state_dict())
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name])
    other = TrellisSoftmax(IN, C, 4, hierarchy=groups, counts=np.arange(C))
    head.load_state_dict(other.state_dict())
    x = torch.randn(2, IN)
    assert torch.equal(head.topk(x, 5, within=1)[0], other.topk(x, 5, within=1)[0])
