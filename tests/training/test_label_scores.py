"""Edge scores summed over the rows of every label, and codebooks that follow them."""

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

from ltls import LTLSClassifier, RandomCodebook, TableCodebook
from ltls.model.labels import as_targets
from ltls.structure.exchange import exchange_paths
from ltls.training.examples import make_examples
from ltls.training.label_scores import label_score_sums


def classifier(**parameters):
    fixed = {"width": 2, "embedding_dim": 0, "epochs": 1, "random_state": 0}
    return LTLSClassifier(**fixed, **parameters)


@pytest.mark.parametrize("loss", ["softmax", "logistic"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_batches", [1, 3])
def test_sums_over_the_training_rows(loss, weighted, n_batches):
    X, Y = make_multilabel_classification(
        300, n_features=30, n_classes=40, n_labels=4, random_state=0
    )
    model = classifier(n_trellises=2, loss=loss).fit(X, Y)
    weights = np.random.default_rng(1).uniform(0, 2, len(X)).astype(np.float32)
    h = model.edge_scores(X)
    batches = []
    for part in np.array_split(np.arange(len(X)), n_batches):
        given = weights[part] if weighted else None
        examples = make_examples(model.model_.labels, X[part], as_targets(Y[part]), given, None)
        batches.append((examples, np.arange(0, len(part), 3)))
    sums = label_score_sums(model.model_, batches, None)
    expected = np.zeros((Y.shape[1], h.shape[1]))
    for part in np.array_split(np.arange(len(X)), n_batches):
        for row in part[::3]:
            labels = np.flatnonzero(Y[row])
            share = weights[row] if weighted else 1
            for label in labels:
                expected[label] += h[row] * share / (len(labels) if loss == "softmax" else 1)
    assert sums.shape == (2, 40, model.trellis_.n_edges)
    np.testing.assert_allclose(np.hstack(list(sums)), expected, rtol=1e-3, atol=1e-3)


def test_exchanges_by_the_sums_lower_the_loss(digits):
    X, y = digits
    model = classifier(assignment=RandomCodebook(10, 1)).fit(X, y)
    # Other paths than those the weights were trained for: there is much to gain.
    paths = np.random.default_rng(0).permutation(10)
    fitted = model.model_
    fitted.codebooks[0] = TableCodebook(10, paths)
    before = -model.log_proba(X, y).mean()
    examples = make_examples(fitted.labels, X, as_targets(y), None, None)
    (sums,) = label_score_sums(fitted, [(examples, np.arange(len(X)))], None)
    moved = exchange_paths(fitted.trellis, sums, paths)
    fitted.codebooks[0] = TableCodebook(10, moved)
    assert sorted(moved) == list(range(10))
    assert -model.log_proba(X, y).mean() < before / 2
