"""The dynamic programs on tensors, against the enumeration of all paths."""

import re

import numpy as np
import pytest
from reference import Graph

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import Trellis  # noqa: E402
from ltls.torch import functional, make_layout  # noqa: E402
from ltls.torch.ops import custom, reference  # noqa: E402

SIZES = [(1, 2), (2, 2), (3, 2), (22, 2), (64, 2), (7, 3), (100, 5), (64, 8), (300, 8), (40, 64)]
INFINITY = float("inf")


def edge_scores(n_edges, *batch, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*batch, n_edges, generator=generator, dtype=torch.float64).to(dtype)


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: "{} classes, width {}".format(*size))
def size(request):
    """(trellis, oracle) of a few dozen paths."""
    return Trellis(*request.param), Graph(*request.param)


@pytest.fixture(params=["engine", "reference"])
def backend(request, monkeypatch):
    """The compiled engine, and plain torch operations as without it."""
    if request.param == "reference":
        monkeypatch.setattr(custom, "HAS_ENGINE", False)
    return request.param


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_equals_the_enumeration_of_all_paths(size, backend, dtype):
    trellis, graph = size
    h = edge_scores(trellis.n_edges, 3, dtype=dtype)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    total = functional.log_partition(h, trellis)
    assert total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    marginals = functional.marginals(h, trellis)
    paths, scores = functional.topk(h, trellis, 5)
    best, best_score = functional.viterbi(h, trellis)
    every = torch.arange(trellis.n_classes).expand(3, -1)
    all_scores = functional.path_scores(h, every, trellis)
    log_probs = functional.log_prob(h, every, trellis)
    for row, numbers in enumerate(h.double().tolist()):
        assert total[row].item() == pytest.approx(graph.log_partition(numbers), rel=tolerance)
        expected = graph.marginals(numbers)
        np.testing.assert_allclose(marginals[row], expected, rtol=tolerance, atol=1e-7)
        top = graph.topk(numbers, 5)
        np.testing.assert_allclose(scores[row], [s for _, s in top], rtol=tolerance, atol=1e-6)
        np.testing.assert_allclose(
            all_scores[row], graph.scores(numbers), rtol=tolerance, atol=1e-6
        )
        if dtype == torch.float64:
            assert paths[row].tolist() == [p for p, _ in top]
    np.testing.assert_array_equal(best, paths[:, 0])
    np.testing.assert_array_equal(best_score, scores[:, 0])
    np.testing.assert_allclose(log_probs.exp().sum(1), 1, rtol=1e-4)


def test_mean_score_is_the_mean_over_all_paths(size):
    trellis, graph = size
    h = edge_scores(trellis.n_edges, 3)
    expected = [np.mean(graph.scores(numbers)) for numbers in h.tolist()]
    np.testing.assert_allclose(functional.mean_score(h, trellis), expected, rtol=1e-10, atol=1e-12)


def test_an_interval_of_paths_equals_its_enumeration(size):
    """Every interval of every trellis: sums, the best paths and samples of it alone."""
    trellis, graph = size
    h = edge_scores(trellis.n_edges, 2)
    scores = np.array([graph.scores(numbers) for numbers in h.tolist()])
    n = trellis.n_classes
    step = max(1, n // 13)
    for first in range(0, n, step):
        for end in {first + 1, min(first + step + 1, n), n}:
            inside = scores[:, first:end]
            total = functional.log_partition(h, trellis, within=(first, end))
            np.testing.assert_allclose(total, np.logaddexp.reduce(inside, 1), rtol=1e-10)
            paths, found = functional.topk(h, trellis, 4, within=(first, end))
            np.testing.assert_allclose(found, -np.sort(-inside, 1)[:, :4], rtol=1e-10)
            np.testing.assert_array_equal(paths, first + np.argsort(-inside, 1)[:, :4])
            drawn = functional.sample(h, trellis, 5, within=(first, end))
            assert ((drawn >= first) & (drawn < end)).all()


def test_blocks_of_an_interval_are_logarithmic():
    layout = make_layout(10**18, 8)
    blocks = layout.blocks(123_456_789, 987_654_321_987_654_321)
    assert len(blocks) <= 3 * (layout.n_slices + 1)
    sizes = [(each.end - each.first) * layout.width**each.level for each in blocks]
    assert sum(sizes) == 987_654_321_987_654_321 - 123_456_789
    with pytest.raises(ValueError, match="interval of paths within 0 … 22, got 3 and 23"):
        make_layout(22, 2).blocks(3, 23)


def test_ties_go_to_the_smaller_path(backend):
    paths, _ = functional.topk(torch.zeros(2, 19), Trellis(22), 22)
    assert paths.tolist() == [[*range(22)]] * 2


def test_edges_of_minus_infinity(backend):
    trellis = Trellis(22)
    h = torch.full((2, trellis.n_edges), -INFINITY)
    h[1, trellis.path_edges(13)] = 0.5
    score = 0.5 * len(trellis.path_edges(13))
    paths, scores = functional.topk(h, trellis, 2)
    assert paths.tolist() == [[-1, -1], [13, -1]]
    assert scores.tolist() == [[-INFINITY, -INFINITY], [score, -INFINITY]]
    assert functional.log_partition(h, trellis).tolist() == pytest.approx([-INFINITY, score])
    marginals = functional.marginals(h, trellis)
    assert not marginals[0].any()
    np.testing.assert_allclose(marginals[1] > 0.5, h[1] > -INFINITY)
    assert functional.path_scores(h, torch.tensor([13, 13]), trellis).tolist() == [-INFINITY, score]


@pytest.mark.parametrize("n_classes_width", [(2, 2), (22, 2), (30, 3), (70, 8)], ids=str)
def test_gradcheck(n_classes_width, backend):
    layout = make_layout(*n_classes_width)
    h = edge_scores(layout.n_edges, 3).requires_grad_()
    paths = torch.tensor([[0, 1], [-1, layout.n_classes - 1], [1, 1]])
    assert torch.autograd.gradcheck(lambda h: functional.log_partition(h, layout), h)
    assert torch.autograd.gradcheck(lambda h: functional.path_scores(h, paths, layout), h)
    assert torch.autograd.gradcheck(lambda h: functional.log_prob(h, paths, layout), h)


def test_gradient_is_the_marginals_in_the_dtype_of_h():
    trellis = Trellis(1000, 4)
    h = edge_scores(trellis.n_edges, 5, dtype=torch.bfloat16).requires_grad_()
    functional.log_partition(h, trellis).sum().backward()
    assert h.grad.dtype == torch.bfloat16
    expected = trellis.marginals(h.detach().float().numpy())
    np.testing.assert_allclose(h.grad.float(), expected, rtol=2**-7, atol=1e-6)


def test_any_batch_shape(backend):
    trellis = Trellis(22)
    h = edge_scores(trellis.n_edges, 2, 3)
    one = functional.log_partition(h[1, 2], trellis)
    assert one.shape == ()
    assert functional.log_partition(h, trellis)[1, 2] == one
    assert functional.log_partition(h[:, :0], trellis).shape == (2, 0)
    paths, _ = functional.topk(h, trellis, 4)
    assert paths.shape == (2, 3, 4)
    assert functional.path_scores(h, paths, trellis).shape == (2, 3, 4)
    assert functional.path_scores(h, paths[..., 0], trellis).shape == (2, 3)
    assert functional.sample(h, trellis, 6).shape == (2, 3, 6)
    transposed = h.transpose(0, 1)
    np.testing.assert_array_equal(
        functional.log_partition(transposed, trellis), functional.log_partition(h, trellis).T
    )


@pytest.mark.parametrize(
    ("n_classes", "width", "temperature", "within"),
    [(22, 2, 1.0, None), (50, 5, 2.5, None), (22, 2, 1.0, (3, 17)), (50, 5, 2.5, (7, 48))],
)
def test_samples_follow_the_distribution(n_classes, width, temperature, within):
    from scipy import stats

    layout = make_layout(n_classes, width)
    h = edge_scores(layout.n_edges, 2)
    n = 20_000
    generator = torch.Generator().manual_seed(0)
    paths = functional.sample(h, layout, n, temperature, generator, within)
    every = torch.arange(n_classes).expand(2, -1)
    expected = functional.log_prob(h / temperature, every, layout).exp()
    if within is not None:
        expected[:, : within[0]] = expected[:, within[1] :] = 0
        expected /= expected.sum(1, keepdim=True)
    for row in range(2):
        found = np.bincount(paths[row], minlength=n_classes)
        frequencies = expected[row].numpy() * n
        assert not found[frequencies == 0].any()
        common, rare = frequencies >= 5, (frequencies > 0) & (frequencies < 5)
        rest = [frequencies[rare].sum()] if rare.any() else []
        found_rest = [found[rare].sum()] if rare.any() else []
        test = stats.chisquare([*found[common], *found_rest], [*frequencies[common], *rest])
        assert test.pvalue > 1e-4


def test_samples_of_huge_trellises_are_paths():
    layout = make_layout(2**62 - 1, 64)
    paths = functional.sample(edge_scores(layout.n_edges, 2), layout, 5)
    assert ((paths >= 0) & (paths < layout.n_classes)).all()
    assert len(paths.unique()) == 10
    assert functional.sample(torch.zeros(3, 0), make_layout(1, 2), 2).tolist() == [[0, 0]] * 3


def test_compiles_without_a_graph_break():
    trellis = Trellis(1000, 4)
    h = edge_scores(trellis.n_edges, 5).requires_grad_()

    def loss(h, paths):
        best, scores = functional.topk(h, trellis, 3)
        total = functional.log_prob(h, paths, trellis).sum()
        return total, best, scores

    paths = torch.tensor([0, 1, 500, -1, 999])
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for found, expected in zip(compiled(h, paths), loss(h, paths), strict=True):
        torch.testing.assert_close(found, expected)
    (grad,) = torch.autograd.grad(compiled(h, paths)[0], h)
    (expected,) = torch.autograd.grad(loss(h, paths)[0], h)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h: functional.log_partition(h[:, 1:], Trellis(22)), r"h must have shape \(…, 19\)"),
        (lambda h: functional.log_partition(h.long(), Trellis(22)), "floating-point"),
        (lambda h: functional.topk(h, Trellis(22), 0), "k must be at least 1, got 0"),
        (lambda h: functional.sample(h, Trellis(22), 0), "n must be at least 1, got 0"),
        (lambda h: functional.sample(h, Trellis(22), 1, 0.0), "temperature must be greater than 0"),
        (lambda h: functional.path_scores(h, torch.zeros(2).long(), Trellis(22)), "paths must"),
        (lambda h: functional.log_prob(h, torch.full((3,), 22), Trellis(22)), "paths must be"),
        (lambda h: functional.log_prob(h, torch.tensor([0, 1, -5]), Trellis(22)), "got -5"),
        (lambda h: functional.log_prob(h, torch.full((3,), 1.7), Trellis(22)), "integer dtype"),
        (lambda h: functional.path_scores(h, torch.ones(3).bool(), Trellis(22)), "integer dtype"),
        (lambda h: functional.log_partition(h * INFINITY, Trellis(22)), "below [+]inf"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(edge_scores(19, 3))


@pytest.mark.parametrize("n_classes", [2, 22])
def test_marginals_in_inference_mode(n_classes):
    trellis = Trellis(n_classes)
    h = edge_scores(trellis.n_edges, 3)
    expected = reference.marginals(h, make_layout(n_classes, 2))
    with torch.inference_mode():
        torch.testing.assert_close(functional.marginals(h.clone(), trellis), expected)
        found = reference.marginals(h.clone(), make_layout(n_classes, 2))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [(10**6, 8), (2**62, 2), (2**62 - 1, 64), (3**39, 3)], ids=str)
def test_reference_equals_the_engine(size):
    trellis, layout = Trellis(*size), make_layout(*size)
    h = edge_scores(trellis.n_edges, 2)
    np.testing.assert_allclose(reference.log_partition(h, layout), trellis.log_partition(h.numpy()))
    paths, scores = reference.topk(h, layout, 4)
    expected_paths, expected_scores = trellis.topk(h.numpy(), 4)
    np.testing.assert_array_equal(paths, expected_paths)
    np.testing.assert_allclose(scores, expected_scores)
    np.testing.assert_allclose(
        reference.marginals(h, layout), trellis.marginals(h.numpy()), atol=1e-9
    )


def test_reference_supports_double_backward():
    layout = make_layout(22, 2)
    h = edge_scores(layout.n_edges, 1).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda h: reference.log_partition(h, layout), h)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sampling_from_nan_is_an_error_that_names_the_row(value):
    layout = make_layout(100, 4)
    h = torch.zeros(3, layout.n_edges)
    h[1, 2] = value
    with pytest.raises(ValueError, match="row 1 holds NaN or"):
        functional.sample(h, layout, 5)
    h[1, 2] = -INFINITY
    assert functional.sample(h, layout, 5).min() >= 0


# The logistic loss


def test_the_logistic_loss_is_the_cross_entropy_of_every_edge(size):
    trellis, graph = size
    rng, n = np.random.default_rng(0), trellis.n_classes
    h = edge_scores(trellis.n_edges, 2, 3)
    paths = torch.from_numpy(rng.integers(-1, n, (2, 3, 4)))
    weights = torch.from_numpy(rng.random(paths.shape))
    found = functional.logistic_loss(h, paths, trellis, weights)
    for at in np.ndindex(2, 3):
        own = np.full(trellis.n_edges, -1.0)  # a negative
        for path, weight in zip(paths[at].tolist(), weights[at].tolist(), strict=True):
            for edge in graph.paths[path] if path >= 0 else ():
                own[edge] = max(own[edge], weight)
        x = h[at].numpy()
        each = np.where(own < 0, np.logaddexp(0, x), own * np.logaddexp(0, -x))
        assert found[at].item() == pytest.approx(each.sum(), rel=1e-9)
    alone = functional.logistic_loss(h, paths[..., 0], trellis)
    torch.testing.assert_close(alone, functional.logistic_loss(h, paths[..., :1], trellis))
    paths[0, 1, 2] = n
    found = functional.logistic_loss(h, paths, trellis)
    assert found.isnan().tolist() == [[False, True, False], [False] * 3]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3, 18), (3, 2), None), "h must have shape"),
        (((3, 19), (4, 2), None), "paths must have shape"),
        (((3, 19), (3, 2), (3, 1)), "weights must have the shape of paths, (3, 2), got (3, 1)"),
        (((3, 19), (3, 2), (2,)), "weights must have the shape of paths"),
    ],
)
def test_shapes_of_the_logistic_loss(shapes, message):
    h, paths, weights = (None if each is None else torch.zeros(each) for each in shapes)
    with pytest.raises(ValueError, match=re.escape(message)):
        functional.logistic_loss(h, paths.long(), Trellis(22), weights)
