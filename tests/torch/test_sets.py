"""Losses over sets of labels, compared with an enumeration of all paths."""

import math

import pytest
from reference import Graph, log_sum_exp

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import TableCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, to_classifier  # noqa: E402

IN, C, WIDTH = 5, 22, 3
SETS = [[3, 21], [], [0], [7, 8, 9, 20], [], [21]]


def make(kind=TrellisSoftmax, **options):
    torch.manual_seed(0)
    if kind is AdaptiveTrellisSoftmax:
        return kind(IN, C, [4, 9], width=WIDTH, **options).double()
    return kind(IN, C, WIDTH, **options).double()


def inputs():
    return torch.randn(len(SETS), IN, generator=torch.Generator().manual_seed(1)).double()


def flat(sets=SETS):
    labels = torch.tensor([label for some in sets for label in some], dtype=torch.int64)
    starts = torch.tensor([sum(map(len, sets[:i])) for i in range(len(sets))])
    return labels, starts


def matrix(sets=SETS, padding=-100):
    rows = torch.full((len(sets), max(map(len, sets))), padding)
    for row, some in zip(rows, sets, strict=True):
        row[: len(some)] = torch.tensor(some, dtype=torch.int64)
    return rows


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def paths_of(head):
    return head.codebooks[0].path_of(torch.arange(C)).tolist()


def oracle(head, x, sets, weights):
    """The loss of every row, and its weight in the mean; None for a row that does not count."""
    graph, of_label, losses = Graph(C, WIDTH), paths_of(head), []
    for h, labels in zip(head.edge_scores(x)[:, 0].tolist(), sets, strict=True):
        if head.loss_name == "softmax" and not labels:
            losses.append(None)
        elif head.loss_name == "softmax":
            scores = graph.scores(h)
            total = log_sum_exp(scores)
            each = [weights[label] * (total - scores[of_label[label]]) for label in labels]
            losses.append((sum(each) / len(labels), sum(weights[i] for i in labels) / len(labels)))
        else:
            loss = 0.0
            for edge, score in enumerate(h):
                own = [weights[i] for i in labels if edge in graph.paths[of_label[i]]]
                loss += max(own) * softplus(-score) if own else softplus(score)
            losses.append((loss, 1.0))
    return losses


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
@pytest.mark.parametrize("given", ["plain", "weight", "propensities", "both"])
@pytest.mark.parametrize("assignment", ["frequency", "random"])
def test_the_loss_of_sets_is_that_of_an_enumeration(loss, given, assignment):
    generator = torch.Generator().manual_seed(3)
    weight = torch.rand(C, generator=generator) * (torch.arange(C) != 7)  # one class weighs 0
    chances = 0.1 + 0.9 * torch.rand(C, generator=generator)
    options = {"weight": weight, "propensities": chances}
    options = (
        options if given == "both" else {name: options[name] for name in options if name == given}
    )
    expected_weights = options.get("weight", torch.ones(C)) / options.get("propensities", 1)
    head = make(loss=loss, assignment=assignment, reduction="none", **options)
    x = inputs()
    expected = oracle(head, x, SETS, expected_weights.tolist())
    per_row = torch.tensor([0.0 if each is None else each[0] for each in expected]).double()
    labels, starts = flat()
    torch.testing.assert_close(head(x, matrix()).loss, per_row)
    torch.testing.assert_close(head(x, labels, offsets=starts).loss, per_row)
    ends = torch.cat([starts, torch.tensor([len(labels)])])
    torch.testing.assert_close(head(x, labels, offsets=ends).loss, per_row)
    counted = [each for each in expected if each is not None]
    head.reduction = "mean"
    mean = sum(each[0] for each in counted) / sum(each[1] for each in counted)
    found = head(x, labels, offsets=starts).loss
    assert found.item() == pytest.approx(mean)
    found.backward()
    assert all(parameter.grad.isfinite().all() for parameter in head.parameters())


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_gradients_of_sets(loss):
    head, (labels, starts) = make(loss=loss, weight=torch.rand(C) + 0.1, fused=False), flat()
    x = inputs().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: head(x, labels, offsets=starts).loss, x)


def test_empty_sets():
    x, nothing = inputs(), torch.empty(0, dtype=torch.int64)
    starts = torch.zeros(len(x), dtype=torch.int64)
    assert make(reduction="sum")(x, nothing, offsets=starts).loss == 0
    logistic = make(loss="logistic", reduction="none")
    expected = torch.nn.functional.softplus(logistic.edge_scores(x)[:, 0]).sum(1)
    torch.testing.assert_close(logistic(x, nothing, offsets=starts).loss, expected)
    assert logistic(x[:0], nothing, offsets=starts[:0]).loss.shape == (0,)
    # One target per row that is to be ignored is not an empty set.
    ignored = logistic(x, torch.full((len(x),), -100))
    assert ignored.loss.tolist() == ignored.output.tolist() == [0.0] * len(x)


def test_rows_of_any_shape():
    head, x = make(loss="logistic", reduction="none"), inputs()
    labels, starts = flat()
    expected = head(x, labels, offsets=starts).loss
    found = head(x.reshape(2, 3, IN), labels, offsets=starts)
    torch.testing.assert_close(found.loss, expected.reshape(2, 3))
    torch.testing.assert_close(found.output, -found.loss)


def test_logistic_ranks_as_the_estimators_do():
    """By log σ over the path; an early exit also gets the best edge of every slice it skips."""
    head, x, graph = make(loss="logistic", assignment="random"), inputs(), Graph(C, WIDTH)
    of_label = paths_of(head)
    longest = max(map(len, graph.paths))
    levels = {edge: at for path in graph.paths for at, edge in enumerate(path[:-1])}
    labels, log_probs = head.topk(x, C)
    for row, h in enumerate(head.edge_scores(x)[:, 0].tolist()):
        g = [-softplus(-score) for score in h]
        best = [max(g[e] for e in levels if levels[e] == at) for at in range(longest - 1)]
        scores = [sum(g[e] for e in path) + sum(best[len(path) - 1 :]) for path in graph.paths]
        by_label = [scores[path] for path in of_label]
        expected = sorted(range(C), key=lambda label: -by_label[label])
        assert labels[row].tolist() == expected
        total = log_sum_exp(scores)
        assert log_probs[row].tolist() == pytest.approx([by_label[i] - total for i in expected])
    assert log_probs.exp().sum(1).tolist() == pytest.approx([1.0] * len(x))


def test_training_starts_at_the_share_of_paths():
    head, graph = make(loss="logistic"), Graph(C, WIDTH)
    expected = torch.tensor(graph.paths_through_edges()).double() / C
    torch.testing.assert_close(head.edges.bias.sigmoid(), expected, atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        head.edges.bias.zero_()
    head.reset_parameters()
    torch.testing.assert_close(head.edges.bias.sigmoid(), expected, atol=1e-6, rtol=1e-5)
    assert make(loss="logistic", bias=False).edges.bias is None
    assert make(loss="logistic", device="meta").edges.bias.is_meta


def test_ties_go_to_the_smaller_path():
    head = make(loss="logistic")
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
    assert head.topk(inputs(), C)[0].tolist() == [list(range(C))] * len(SETS)


def test_logistic_learns_sets():
    torch.manual_seed(0)
    x, (labels, starts) = torch.eye(len(SETS)), flat()
    head = TrellisSoftmax(len(SETS), C, 4, loss="logistic", assignment="random")
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    for _ in range(300):
        optimizer.zero_grad()
        head(x, labels, offsets=starts).loss.backward()
        optimizer.step()
    for row, some in enumerate(SETS):
        if len(some) == 1:  # the product of several sets' edges may be other labels, too
            assert head.topk(x[row], 1)[0].tolist() == some


def test_what_is_refused():
    x, (labels, starts) = inputs(), flat()
    head = make()
    for wrong in (starts[:-1], starts + 1, starts.flip(0)):
        with pytest.raises(ValueError, match="offsets must"):
            head(x, labels, offsets=wrong)
    with pytest.raises(ValueError, match="offsets needs target"):
        head(x, offsets=starts)
    with pytest.raises(ValueError, match="target_probs needs a padded target"):
        head(x, labels, torch.rand(len(labels)), starts)
    with pytest.raises(ValueError, match="target must be a class index"):
        make(loss="logistic")(x, torch.full((len(x), 1), C))
    with pytest.raises(ValueError, match="target_probs needs loss='softmax'"):
        make(loss="logistic")(x, matrix(), torch.rand(matrix().shape))
    for name, value in {"loss": "hinge", "n_trellises": 2, "label_smoothing": 0.1}.items():
        with pytest.raises(ValueError, match=name):
            make(**{"loss": "logistic", name: value})
    for wrong in (torch.zeros(C), torch.full((C,), 1.5), torch.ones(C - 1)):
        with pytest.raises(ValueError, match="propensities must"):
            make(propensities=wrong)
    with pytest.raises(ValueError, match="does not support loss"):
        make(AdaptiveTrellisSoftmax, loss="logistic")
    with pytest.raises(ValueError, match="head must have loss='softmax'"):
        to_classifier(make(loss="logistic"))


def test_free_paths_and_states():
    book = TableCodebook(30, list(range(C)))
    head = TrellisSoftmax(IN, C, WIDTH, assignment=book, loss="logistic")
    found, _ = head.topk(torch.randn(4, IN), 5)
    assert ((found >= 0) & (found < C)).all()
    again = TrellisSoftmax(IN, C, WIDTH, assignment=book, loss="logistic")
    again.load_state_dict(head.state_dict())
    x = torch.randn(4, IN)
    torch.testing.assert_close(again.log_prob(x), head.log_prob(x))
