"""The head with empty batches, NaN, and state dicts that are no codebook."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls.torch import TrellisSoftmax, functional  # noqa: E402
from ltls.torch.layout import make_layout  # noqa: E402

MIXTURES = pytest.mark.parametrize("n_trellises", [1, 3])


@MIXTURES
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("shape", [(), (2,)], ids=["one target", "several targets"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_empty_batch_has_an_empty_gradient(n_trellises, fused, shape, reduction):
    head = TrellisSoftmax(
        8, 100, width=4, n_trellises=n_trellises, fused=fused, reduction=reduction
    )
    x = torch.zeros(0, 8, requires_grad=True)
    output, loss = head(x, torch.zeros(0, *shape, dtype=torch.int64))
    assert output.shape == (0,)
    loss.sum().backward()
    assert x.grad.shape == (0, 8)
    grad = head.edges.weight.grad
    assert grad is None or not grad.any()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sampling_from_nan_is_an_error_that_names_the_row(value):
    layout = make_layout(100, 4)
    h = torch.zeros(3, layout.n_edges)
    h[1, 2] = value
    with pytest.raises(ValueError, match="row 1 holds NaN or"):
        functional.sample(h, layout, 5)
    h[1, 2] = -torch.inf
    assert functional.sample(h, layout, 5).min() >= 0


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


def swapped(paths, labels):
    paths[:2] = paths[:2].flip(0)


def repeated(paths, labels):
    paths[1] = paths[0]


def out_of_range(paths, labels):
    paths[3] = 100


def negative(paths, labels):
    paths[3] = -1


def other_labels(paths, labels):
    labels[5] = 99


@pytest.mark.parametrize("change", [swapped, repeated, out_of_range, negative, other_labels])
def test_tables_that_are_no_codebook_are_not_loaded(change):
    head = TrellisSoftmax(8, 100, width=4, assignment=torch.randperm(100))
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    head.load_state_dict(state)
    before = head.codebooks[0].paths.clone()
    change(state["codebooks.0.paths"], state["codebooks.0.labels"])
    with pytest.raises(RuntimeError, match=r"codebooks\.0\.paths and .* not each other's inverse"):
        head.load_state_dict(state)
    assert torch.equal(head.codebooks[0].paths, before)


def test_missing_and_misshapen_tables_are_reported_by_torch():
    head = TrellisSoftmax(8, 100, width=4, assignment=torch.randperm(100))
    state = head.state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        head.load_state_dict({**state, "codebooks.0.paths": torch.arange(99)})
    with pytest.raises(RuntimeError, match="Missing key"):
        head.load_state_dict({k: v for k, v in state.items() if k != "codebooks.0.labels"})
