"""Samples of the layers, beside the distribution over all classes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, answers, decoding  # noqa: E402

D = 8
LAYERS = {
    "trellis": lambda n, **options: TrellisSoftmax(D, n, 4, **options),
    "mixture": lambda n, **options: TrellisSoftmax(D, n, 4, 3, **options),
    "adaptive": lambda n, **options: AdaptiveTrellisSoftmax(D, n, [5, 20], width=4, **options),
}


def make(name, n=60, **options):
    torch.manual_seed(0)
    return LAYERS[name](n, **options), torch.randn(1, D)


def follows(drawn, expected):
    """Whether frequencies are within five standard deviations of probabilities."""
    n = drawn.numel()
    counts = torch.bincount(drawn.flatten(), minlength=len(expected)).double()
    spread = 5 * (n * expected * (1 - expected)).sqrt() + 1e-9
    return bool(((counts - n * expected).abs() <= spread).all())


def restricted(log_probs, temperature=1.0, top_k=None, top_p=None, among=None):
    """Return the probabilities as the warpers of Hugging Face's `generate` define them."""
    log_probs = log_probs.detach().double()
    if among is not None:
        forbidden = torch.ones_like(log_probs, dtype=torch.bool)
        forbidden[among] = False
        log_probs = log_probs.masked_fill(forbidden, -torch.inf)
    log_probs = log_probs / temperature
    if top_k is not None:
        log_probs = log_probs.masked_fill(log_probs < log_probs.topk(top_k)[0][-1], -torch.inf)
    probs = log_probs.softmax(0)
    if top_p is not None:
        ordered, indices = probs.sort(descending=True)
        probs[indices[ordered.cumsum(0) - ordered >= top_p]] = 0
    return probs / probs.sum()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_p": 0.8},
        {"temperature": 2.0, "top_k": 20},
        {"top_k": 5, "top_p": 0.8},
        {"top_p": 0.95},
        {"among": [*range(0, 60, 7)]},
        {"among": [*range(0, 60, 3)], "temperature": 2.0, "top_k": 6},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", LAYERS)
def test_samples_follow_the_distribution(name, options):
    layer, x = make(name)
    if name == "mixture" and "temperature" in options and not options.keys() & {"top_k", "among"}:
        with pytest.raises(ValueError, match="temperature must be 1 for a mixture"):
            layer.sample(x, **options)
        return
    drawn = layer.sample(x, 40_000, generator=torch.Generator().manual_seed(0), **options)
    assert drawn.shape == (1, 40_000)
    assert follows(drawn, restricted(layer.log_prob(x)[0], **options))


@pytest.mark.parametrize("name", LAYERS)
def test_the_search_for_top_p_is_widened_until_it_has_enough(name):
    layer, x = make(name, 3000)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.05)  # nearly uniform
    probs = layer.log_prob(x)[0].detach().exp().double().sort(descending=True)
    nucleus = set(probs.indices[probs.values.cumsum(0) - probs.values < 0.95].tolist())
    assert len(nucleus) > 64
    drawn = layer.sample(x, 40_000, top_p=0.95)
    assert set(drawn[0].tolist()) <= nucleus | set(probs.indices[: len(nucleus) + 3].tolist())
    assert len(set(drawn[0].tolist())) > 0.8 * len(nucleus)


@pytest.mark.parametrize("name", LAYERS)
def test_top_p_of_one_is_no_restriction(name, monkeypatch):
    layer, x = make(name)
    expected = layer.sample(x, 50, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(layer, "_topk", None)  # would rank all classes
    found = layer.sample(x, 50, top_p=1.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 5}, {"top_p": 0.9}, {"among": [1, 7, 40]}], ids=str
)
@pytest.mark.parametrize("name", LAYERS)
def test_samples_are_those_of_the_generator(name, options):
    layer, x = make(name)
    one, same, other = (
        layer.sample(x, 40, generator=torch.Generator().manual_seed(seed), **options)
        for seed in (3, 3, 4)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixture", {}),
        ("trellis", {"temperature": 0.6}),
        ("trellis", {"temperature": 0.6, "top_p": 0.8}),
        ("trellis", {"temperature": 0.6, "top_k": 7}),
    ],
    ids=str,
)
def test_samples_within_a_node_follow_the_distribution(name, options):
    layer, x = make(name, hierarchy=np.arange(60) % 3)
    drawn = layer.sample(x, 40_000, within=1, **options)
    among = [*range(1, 60, 3)]
    assert follows(drawn, restricted(layer.log_prob(x)[0], **options, among=among))


@pytest.mark.parametrize("temperature", [1e-4, 1e-6, 1e-39])
@pytest.mark.parametrize("n", [40, 5000])
@pytest.mark.parametrize("name", ["trellis", "adaptive"])
def test_a_temperature_near_zero_is_the_best_class(name, n, temperature, monkeypatch):
    layer, x = make(name, n)
    best, searched = layer.predict(x), []
    topk = layer._topk
    monkeypatch.setattr(layer, "_topk", lambda x, k, *a: searched.append(k) or topk(x, k, *a))
    for options in ({}, {"top_k": 9}, {"among": [int(best), 3, 30]}, {"top_p": 0.99}):
        assert (layer.sample(x, 20, temperature, **options) == best).all()
    assert max(searched) <= 64  # not all classes


@pytest.mark.parametrize("n", [60, 70])
@pytest.mark.parametrize("top_p", [0.2, 0.5, 1.0])
def test_free_paths_are_part_of_the_sum_of_top_p(n, top_p):
    """Three classes and a free path have all the probability, 0.15, 0.1, 0.05 and 0.7."""
    head = TrellisSoftmax(D, n, n + 1, assignment=TableCodebook(n + 1, np.arange(n)), bias=True)
    probs = torch.full((n + 1,), 1e-12)
    probs[:3], probs[-1] = torch.tensor([0.15, 0.1, 0.05]), 0.7
    paths = torch.arange(n + 1)[None]
    with torch.no_grad():
        head.edges.weight.zero_()
        head.edges.bias.zero_()
        edges = head.layout.path_edges(paths)[0]
        head.edges.bias[edges[:, 0]] = probs.log()
    drawn = head.sample(torch.zeros(1, D), 20_000, top_p=top_p)
    kept = 2 if top_p == 0.2 else 3
    expected = torch.zeros(n, dtype=torch.float64)
    expected[:kept] = probs[:kept].double() / probs[:kept].double().sum()
    assert follows(drawn, expected)


@pytest.mark.parametrize(("name", "n_tail"), [("trellis", 60), ("adaptive", 40)])
def test_samples_of_free_paths_are_minus_one(name, n_tail):
    """They are never predicted."""
    layer, x = make(name, assignment=TableCodebook(256, range(n_tail)))
    probs = layer.log_prob(x)[0].detach().exp().double()
    free = 1 - probs.sum()
    assert free > 0.05
    drawn = layer.sample(x, 40_000, generator=torch.Generator().manual_seed(0))
    assert follows(drawn + 1, torch.cat([free[None], probs]))
    assert layer.topk(x, 60)[0].sort(1).values.tolist() == [[*range(60)]]


def test_rows_with_and_without_enough_in_the_first_search():
    layer, _ = make("trellis", 3000)
    x = torch.cat([torch.zeros(1, D), 200 * torch.randn(1, D)])
    drawn = layer.sample(x, 20_000, 0.5, top_p=0.9)
    for found, log_probs in zip(drawn, layer.log_prob(x), strict=True):
        assert follows(found, restricted(log_probs, 0.5, top_p=0.9))


def test_a_class_of_probability_zero_is_not_drawn(monkeypatch):
    monkeypatch.setattr(decoding, "_MAX_MULTINOMIAL", 1)
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.zeros(size, dtype=torch.float64))
    assert decoding.categorical(torch.tensor([[0.0, 0, 1, 0]]), 3, None).tolist() == [[2, 2, 2]]


def test_temperatures_that_are_none():
    layer, x = make("trellis")
    for temperature in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="greater than 0 and less than infinity"):
            layer.sample(x, temperature=temperature, among=torch.tensor([[1, 2, -1]]))


def test_more_classes_than_multinomial_takes(monkeypatch):
    monkeypatch.setattr(decoding, "_MAX_MULTINOMIAL", 4)
    for name in LAYERS:
        layer, x = make(name)
        among = torch.arange(0, 60, 2)
        log_probs = layer.log_prob(x)[0]
        assert follows(layer.sample(x, 40_000, among=among), restricted(log_probs, among=among))
        assert follows(layer.sample(x, 40_000), restricted(log_probs))


def test_samples_under_vmap():
    layer, _ = make("trellis")
    x = torch.randn(6, 5, D)
    drawn = torch.func.vmap(lambda rows: layer.sample(rows, 3), randomness="different")(x)
    assert drawn.shape == (6, 5, 3)
    assert ((drawn >= 0) & (drawn < 60)).all()


@pytest.mark.parametrize("name", LAYERS)
def test_allowed_classes_that_are_scored_in_parts(name, monkeypatch):
    layer, _ = make(name)
    x = torch.randn(4, D)
    among = torch.tensor([50, 3, 21, 8, 13])
    expected = layer.topk(x, 4, among=among)
    monkeypatch.setattr(answers, "_CELLS_PER_CHUNK", 1)
    torch.testing.assert_close(layer.topk(x, 4, among=among), expected)
