"""TrellisSoftmax: what it has beyond other output layers, its state, and what it refuses."""

from itertools import permutations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch.nn import functional as F  # noqa: E402, N812

from ltls import RandomCodebook, TableCodebook  # noqa: E402
from ltls.torch import TrellisEmbedding, TrellisSoftmax, functional  # noqa: E402

IN, C = 12, 100


def make(**options):
    torch.manual_seed(0)
    head = TrellisSoftmax(IN, C, **{"width": 4, **options})
    with torch.no_grad():  # far from uniform
        for parameter in head.parameters():
            parameter.mul_(4)
    return head


def rows(*batch, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, IN, generator=generator)
    return x, torch.randint(0, C, batch, generator=generator)


# Label smoothing and double backward


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_label_smoothing_is_that_of_cross_entropy(reduction):
    x, y = rows(3, 5)
    y[0, 1] = y[2, 2] = -100
    head = make(reduction=reduction, label_smoothing=0.3)
    found = head(x, y).loss
    logits = head.log_prob(x).flatten(0, 1)
    expected = F.cross_entropy(logits, y.flatten(), reduction=reduction, label_smoothing=0.3)
    torch.testing.assert_close(found.flatten(), expected.flatten())
    (grad,) = torch.autograd.grad(found.sum(), head.edges.weight)
    (expected,) = torch.autograd.grad(expected.sum(), head.edges.weight)
    torch.testing.assert_close(grad, expected)


def test_label_smoothing_of_soft_targets():
    x, _ = rows(5)
    head = make(label_smoothing=0.2)
    probs = torch.rand(5, C).softmax(1)
    found = head(x, torch.arange(C).expand(5, -1), probs).loss
    torch.testing.assert_close(found, F.cross_entropy(head.log_prob(x), probs, label_smoothing=0.2))


def test_label_smoothing_of_a_mixture_is_an_upper_bound():
    x, y = rows(6)
    head = make(n_trellises=3, label_smoothing=0.3, reduction="none")
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


def test_fused_false_supports_double_backward():
    x, y = rows(3)
    head, x = make(fused=False).double(), x.double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: head(x, y).loss, x, fast_mode=True)


# Decoding


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


@pytest.mark.parametrize("where", ["weight", "bias"])
def test_a_gate_of_nan_does_not_widen_the_search(where, monkeypatch):
    head = TrellisSoftmax(8, 10_000, width=4, n_trellises=2)
    with torch.no_grad():
        getattr(head.gate, where).fill_(torch.nan)
    topk, widths = functional.topk, []

    def recorded(h, layout, k, within=None):
        widths.append(k)
        return topk(h, layout, k, within)

    monkeypatch.setattr(functional, "topk", recorded)
    labels, log_probs = head.topk(torch.ones(3, 8), 2)
    assert widths == [12]
    assert labels.shape == (3, 2)
    assert log_probs.isnan().all()


def test_several_heads_compile_their_topk():
    torch.compiler.reset()
    for n_classes in (200, 300, 400):
        head = TrellisSoftmax(IN, n_classes, 4, n_trellises=2)
        x = torch.randn(6, IN)
        found = torch.compile(head.topk, backend="aot_eager")(x, 3)
        torch.testing.assert_close(found, head.topk(x, 3))


# State


@pytest.mark.parametrize("n_trellises", [1, 3])
@pytest.mark.parametrize("kinds", permutations(["counts", "frequency", "random"], 2), ids=str)
def test_states_move_between_layers_with_and_without_counts(kinds, n_trellises):
    options = {
        "counts": {"counts": np.random.default_rng(0).integers(50, size=C)},
        "frequency": {},
        "random": {"assignment": "random"},
    }
    x, y = rows(7)
    for layer, given in ((TrellisSoftmax, (x, y)), (TrellisEmbedding, (y,))):
        sizes = (IN, C) if layer is TrellisSoftmax else (C, IN)
        saved, other = (layer(*sizes, 3, n_trellises, **options[kind]) for kind in kinds)
        for module, state in (
            (other, saved.state_dict()),
            (torch.nn.Sequential(other), torch.nn.Sequential(saved).state_dict()),
        ):
            module.load_state_dict(state)
            torch.testing.assert_close(other(*given), saved(*given), rtol=0, atol=0)
            if layer is TrellisSoftmax:
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
    head = make(counts=np.arange(C))
    before = head.predict(x)
    head.load_state_dict(dict(head.named_parameters()), strict=False)
    assert torch.equal(head.predict(x), before)
    with pytest.raises(RuntimeError, match=r'Missing key.*"codebooks\.0\.paths"'):
        head.load_state_dict(dict(head.named_parameters()))
    assert torch.equal(head.predict(x), before)


def test_device_and_dtype():
    head = TrellisSoftmax(IN, C, device="meta", assignment="random", label_smoothing=0.1)
    assert all(value.is_meta for value in head.state_dict().values())
    x, y = rows(2)
    assert TrellisSoftmax(IN, C, dtype=torch.float64)(x.double(), y).loss.dtype == torch.float64


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64, np.float32, np.float16, bool])
def test_counts_of_any_type(dtype):
    counts = np.random.default_rng(0).integers(2 if dtype is bool else 200, size=C).astype(dtype)
    found = TrellisSoftmax(IN, C, 4, counts=counts)
    expected = TrellisSoftmax(IN, C, 4, counts=counts.astype(np.int64))
    assert torch.equal(found.codebooks[0].paths, expected.codebooks[0].paths)


# What is refused


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
        ({"label_features": np.eye(C)}, "'frequency' does not take label_features"),
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
        (lambda head, x, y: head(x, None, torch.ones(7)), "target_probs needs target"),
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
        (lambda head, x, y: head.topk(x, 1, among=[3, -2]), "got -2"),
        (lambda head, x, y: head.topk(x, 1, among=[]), "at least one class, got none"),
        (lambda head, x, y: head.topk(x, 1, among=np.zeros(C, bool)), "at least one class"),
        (lambda head, x, y: head(x, y - 200), "target must be a class index from 0 to 99"),
        (lambda head, x, y: head(x, y + 100), "target must be a class index from 0 to 99"),
        (lambda head, x, y: head.topk(x, 0), "k must be at least 1"),
        (lambda head, x, y: head.sample(x, 1, 2.0), "temperature must be 1 for a mixture"),
    ],
)
def test_invalid_inputs_raise(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(make(n_trellises=2), *rows(7))


def test_a_row_without_allowed_classes_scores_minus_infinity():
    head, x = TrellisSoftmax(IN, C, 4), torch.randn(2, IN)
    labels, log_probs = head.topk(x, 2, among=torch.tensor([[3, 5], [-1, -1]]))
    assert sorted(labels[0].tolist()) == [3, 5]
    assert labels[1].tolist() == [-1, -1]
    assert log_probs[1].tolist() == [-torch.inf, -torch.inf]
    torch.testing.assert_close(log_probs[0].exp().sum(), torch.tensor(1.0))


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
