"""Hierarchies of classes: answers within a node, beside the distribution over all classes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")

from ltls.torch import TrellisSoftmax  # noqa: E402

IN, C = 12, 100
LEVELS = np.stack([np.arange(C) % 4, np.arange(C) * 7 % 5], 1)
HIERARCHIES = {
    "one level": {"hierarchy": LEVELS[:, 0]},
    "two levels": {"hierarchy": LEVELS, "counts": np.arange(C) % 11},
    "names": {"hierarchy": np.array(["a", "b", "c", "d"])[LEVELS[:, 0]], "width": 3},
    "mixture": {"hierarchy": LEVELS, "n_trellises": 3, "width": 2},
}


def make(name="one level", **options):
    torch.manual_seed(0)
    head = TrellisSoftmax(IN, C, **{"width": 4, **HIERARCHIES[name], **options})
    with torch.no_grad():  # far from uniform
        for parameter in head.parameters():
            parameter.mul_(4)
    return head, torch.randn(4, IN, generator=torch.Generator().manual_seed(1))


def members(name, node):
    """Return which classes a node has."""
    values = np.asarray(HIERARCHIES[name]["hierarchy"]).reshape(C, -1)
    return torch.from_numpy((values[:, : len(node)] == np.array(node)).all(1))


@pytest.mark.parametrize("name", HIERARCHIES)
def test_answers_within_a_node_are_exact(name):
    head, x = make(name)
    every = head.log_prob(x)
    torch.testing.assert_close(every.exp().sum(1), torch.ones(4))
    assert len(head.nodes.intervals) == (4 + 20 if name in ("two levels", "mixture") else 4)
    for node in head.nodes.intervals:
        mask = members(name, node)
        expected = every.masked_fill(~mask, -torch.inf).log_softmax(-1)
        within = node[0] if len(node) == 1 else node
        torch.testing.assert_close(head.log_prob(x, within=within), expected)
        labels, log_probs = head.topk(x, 4, within=within)
        torch.testing.assert_close(log_probs, expected.topk(labels.shape[1]).values)
        torch.testing.assert_close(head.log_prob(x, labels, within=within), log_probs)
        assert mask[head.sample(x, 6, within=within)].all()
        assert mask[head.sample(x, 6, within=within, top_p=0.5)].all()
    with pytest.raises(ValueError, match="within must be a category of the hierarchy, got 'z'"):
        head.topk(x, 4, within="z")


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("kind", ["set", "mask", "sets", "masks"])
def test_answers_among_classes_of_a_node_are_exact(name, kind):
    """The classes of both, as in what is in stock of a category.

    A class that targets ignore, such as padding, is not counted in the loss, and no more.
    """
    head, x = make(name, ignore_index=0)
    mask = torch.rand(4, C, generator=torch.Generator().manual_seed(5)) < 0.2
    every = head.log_prob(x)
    for node in head.nodes.intervals:
        given = mask[0] if kind in ("set", "mask") else mask
        among = given if "mask" in kind else torch.where(given, torch.arange(C), -1)
        both = (given & members(name, node)).expand(4, C)
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
        padding = torch.zeros(4, dtype=torch.int64)
        assert (head.log_prob(x, padding, within=node) == 0).all()


def test_restricted_log_probabilities_are_differentiable():
    head, x = make("two levels")
    head, x = head.double(), x[:2].double().requires_grad_()
    y = torch.tensor([1, 5])
    assert torch.autograd.gradcheck(lambda x: head.log_prob(x, y, within=1), x)
    assert torch.autograd.gradcheck(lambda x: head.log_prob(x, y, among=[1, 5, 50]), x)


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
    head, x = make(hierarchy=hierarchy)
    labels, _ = head.topk(x, C, within=node)
    assert sorted(labels[0].tolist()) == list(expected)


@pytest.mark.parametrize("within", [torch.tensor(1), [1], np.array([1, 2])], ids=str)
def test_a_node_for_all_rows(within):
    head, x = make()
    with pytest.raises(TypeError, match="within must be a value of the hierarchy, or a tuple"):
        head.topk(x, 2, within=within)


@pytest.mark.parametrize("built", ["as usual", "on meta", "on meta, then made"])
def test_a_hierarchy_is_not_loaded_from_a_layer_without_it(built):
    groups = np.arange(C) % 3
    with torch.device("cpu" if built == "as usual" else "meta"):
        head = TrellisSoftmax(IN, C, 4, hierarchy=groups)
    if built == "on meta, then made":
        for value in head.to_empty(device="cpu").state_dict().values():
            value.fill_(7)  # whatever was in memory
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assign = {"assign": built == "on meta"}
    for options in ({}, {"counts": np.arange(C)}, {"hierarchy": groups[::-1].copy()}):
        with pytest.raises(RuntimeError, match="another hierarchy"):
            head.load_state_dict(TrellisSoftmax(IN, C, 4, **options).state_dict(), **assign)
    for name, value in head.state_dict().items():
        assert value.is_meta or torch.equal(value, before[name])
    other = TrellisSoftmax(IN, C, 4, hierarchy=groups, counts=np.arange(C))
    head.load_state_dict(other.state_dict(), **assign)
    x = torch.randn(2, IN)
    assert torch.equal(head.topk(x, 5, within=1)[0], other.topk(x, 5, within=1)[0])
