"""Single training steps worked out by hand: those of the paper, and initial losses."""

import numpy as np
import pytest
from comparison import (
    EPOCHS,
    MULTILABEL,
    as_target,
    classifier,
    draw,
    plain_learner,
    trellises_only,
    with_each_loss,
)
from reference import Graph

from ltls import TableCodebook
from ltls.settings import Trellises

# Tail and head of e_0 … e_18 in the paper's figures 1 and 2.
PAPER_EDGES = [
    *[(0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 10), (3, 5), (3, 6), (4, 5), (4, 6)],
    *[(5, 10), (5, 7), (5, 8), (6, 7), (6, 8), (7, 9), (8, 9), (9, 10)],
]


def paper_edges(numbers):
    """The engine's numbers of edges that have the paper's numbers."""
    edges = Graph(22).edges
    return [edges.index(PAPER_EDGES[number]) for number in numbers]


@MULTILABEL
def test_figure_2_of_the_paper(multilabel):
    graph = Graph(22)
    positive = graph.path_id(paper_edges([0, 2, 8, 14, 16, 18]))
    negative = graph.path_id(paper_edges([0, 2, 7, 12, 16, 18]))
    # The first example makes the red path the best for its feature, the second one belongs to the
    # green path; the other labels have weight 0.
    labels = [[negative], [positive], *[[c] for c in range(22) if c not in (negative, positive)]]
    X = np.ones((22, 3), np.float32)
    X[0] = [1, 0, 0]
    X[1] = [0.5, -0.25, 2]

    def weights_after(n_examples):
        model = plain_learner(TableCodebook(22, range(22)))
        learned = (np.arange(22) < n_examples).astype(float)
        return model.fit(X, as_target(labels, multilabel), sample_weight=learned).coef_

    expected = np.zeros((19, 3), np.float32)
    expected[paper_edges([8, 14])] = X[1]
    expected[paper_edges([7, 12])] = -X[1]
    np.testing.assert_array_equal(weights_after(2) - weights_after(1), expected)


@MULTILABEL
def test_a_margin_of_exactly_1_updates_multiclass_but_not_multilabel(multilabel):
    # After a step for x = 1 the two paths of C = 2, which share no edge but the last, score ±2x.
    # For x = 1/4 they are 1 apart.
    model = plain_learner(TableCodebook(2, [0, 1]))
    model.fit([[1], [0.25], [1]], as_target([[0], [0], [1]], multilabel), sample_weight=[1, 1, 0])
    weight = 1 if multilabel else 1.25
    np.testing.assert_array_equal(model.coef_[:, 0], [weight, -weight, weight, -weight, 0])


def test_several_labels_update_the_lowest_scoring_one():
    # All paths score 0 at first: the smallest id is the worst positive and the best negative.
    model = plain_learner(TableCodebook(22, range(22)))
    model.fit([[1], [0]], [[9, 4, 0], list(range(22))])
    paths = Graph(22).paths
    expected = np.zeros(19)
    expected[paths[0]] += 1
    expected[paths[1]] -= 1
    np.testing.assert_array_equal(model.coef_[:, 0], expected)


@with_each_loss
def test_only_the_logistic_loss_learns_from_a_row_without_labels(loss):
    model = trellises_only(Trellises(loss=loss, epochs=1, shuffle=False), random_state=0)
    model.fit([[0, 1], [1, 0], [0, 1]], [[0], [], [1]])
    assert np.any(model.coef_[:, 0] != 0) == (loss == "logistic")


@pytest.mark.parametrize("loss", ["separation", "logistic"])
def test_the_mean_loss_is_over_rows_with_weight_and_labels(loss):
    # Without a step every example has the loss of weights 0.
    given = {"learning_rate": 1e-30, "optimizer": "sgd", "shuffle": False, "epochs": 1}
    model = trellises_only(Trellises(loss=loss, n_trellises=1, **given))
    X = np.ones((6, 1))
    y = [[0], [1], [], [2], [], [1, 2]]
    model.fit(X, y, sample_weight=[1, 0, 1, 3, 0, 1])
    if loss == "separation":
        expected = (1 + 3 + 1) / 3
    else:
        n_edges = model.trellis_.n_edges
        expected = n_edges * np.log(2) * (1 + 1 + 3 + 1) / 4
    np.testing.assert_allclose(model.loss_curve_, [expected], rtol=1e-6)


def test_the_mean_loss_of_softmax_at_the_start_is_log_c():
    X, labels = draw(0, 22)
    model = classifier(X, labels, loss="softmax", optimizer="sgd", learning_rate=1e-30)
    np.testing.assert_allclose(model.loss_curve_, [np.log(22)] * EPOCHS, rtol=1e-6)
