"""Samples of the layers, beside the distribution over all classes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, base, decoding  # noqa: E402

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


@pytest.mark.parametrize("options", [{}, {"top_p": 0.8}, {"top_k": 7}], ids=str)
def test_a_node_at_another_temperature(options):
    category = np.arange(60) % 3
    layer, x = make("trellis", hierarchy=category)
    log_probs = layer.log_prob(x)[0].detach().double()
    log_probs[torch.from_numpy(category != 1)] = -torch.inf
    probs = torch.softmax(log_probs / 0.6, 0)
    best = probs.sort(descending=True)
    kept = torch.ones(60, dtype=torch.bool)
    if "top_p" in options:
        kept[best.indices[best.values.cumsum(0) - best.values >= options["top_p"]]] = False
    if "top_k" in options:
        kept[best.indices[options["top_k"] :]] = False
    probs = torch.where(kept, probs, 0)
    drawn = layer.sample(x, 40_000, 0.6, within=1, **options)
    assert follows(drawn, probs / probs.sum())


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


def test_rows_with_and_without_enough_in_the_first_search():
    layer, _ = make("trellis", 3000)
    x = torch.cat([torch.zeros(1, D), 200 * torch.randn(1, D)])
    probs = torch.softmax(layer.log_prob(x).detach().double() / 0.5, 1)
    drawn = layer.sample(x, 20_000, 0.5, top_p=0.9)
    for row in range(2):
        best = probs[row].sort(descending=True)
        expected = torch.zeros(3000, dtype=torch.float64)
        kept = best.indices[best.values.cumsum(0) - best.values < 0.9]
        expected[kept] = probs[row, kept] / probs[row, kept].sum()
        assert follows(drawn[row], expected)


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
        probs = torch.zeros(60, dtype=torch.float64)
        probs[among] = layer.log_prob(x, among=among)[0, among].detach().exp().double()
        assert follows(layer.sample(x, 40_000, among=among), probs)
        assert follows(layer.sample(x, 40_000), layer.log_prob(x)[0].detach().exp().double())


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
    monkeypatch.setattr(base, "_CELLS_PER_CHUNK", 1)
    torch.testing.assert_close(layer.topk(x, 4, among=among), expected)
