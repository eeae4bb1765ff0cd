"""Further rows: all parts learn new labels and features, and what was fitted before stays."""

import numpy as np
import pytest
import scipy.sparse as sp

import ltls
from ltls import LTLSClassifier
from ltls.settings import LabelWeights, Memory, Neighbours, Propensity, Prototypes, Trellises, Views

N_FEATURES = 200
NAMES = {
    "views": ["views", "prototypes", "neighbours", "propensity"],
    "classifiers": ["trellises", "label_weights", "prototypes", "neighbours", "propensity"],
}


def draw(labels, seed, several):
    """Rows of three features that tell their label, of a hundred others, and some noise."""
    rng = np.random.default_rng(seed)
    shape = (len(labels), N_FEATURES)
    X = sp.random(*shape, 0.02, "lil", np.float32, rng)
    for row, label in enumerate(labels):
        X[row, [label, (7 * label) % 90, 90 + label % 10]] = 1
    y = [sorted({label, label % 3}) for label in labels] if several else list(labels)
    return sp.csr_array(X), y


def fitted(kind, several):
    rng = np.random.default_rng(0)
    X, y = draw(rng.integers(0, 40, 600), 0, several)
    X = sp.csr_array(X.multiply(np.arange(N_FEATURES) < 150))  # the others come later
    views = Views(n_views=2, cluster_size=8) if kind == "views" else False
    model = LTLSClassifier(
        trellises=Trellises(width=4, n_trellises=2, epochs=3), views=views,
        label_weights=LabelWeights(threshold=0.0), prototypes=Prototypes(),
        neighbours=Neighbours(), propensity=Propensity(strength=0.1), memory=Memory(),
        random_state=0,
    )  # fmt: skip
    return model.fit(X, y), X, y


@pytest.fixture(scope="module", params=[(k, s) for k in NAMES for s in (False, True)], ids=str)
def case(request):
    """A model, the model after a batch of two new labels and new features, and the batch."""
    kind, several = request.param
    model, X, y = fitted(kind, several)
    before, scores = model.model_, model.decision_function(X)
    batch = draw([40] * 12 + [41] * 12 + [3], 1, several)
    model.partial_fit(*batch)
    return kind, several, before, scores, model, (X, y), batch


def label_weights_of(model):
    views = model.part("views")
    return (
        [model.part("label_weights")] if views is None else [v.label_weights for v in views.views]
    )


def test_all_parts_are_there(case):
    kind, _, before, _, model, _, _ = case
    assert [part.name for part in before.parts] == NAMES[kind]
    assert [part.name for part in model.model_.parts] == NAMES[kind]
    assert model.model_.weights == before.weights


def test_what_was_fitted_before_stays(case):
    _, _, before, scores, _, (X, _), _ = case
    found = before.all_scores(before.columns.rows(X), None)
    np.testing.assert_array_equal(found, scores)


def test_new_labels_are_found_and_old_ones_still_are(case):
    _, several, _, _, model, old, batch = case
    assert model.classes_.tolist()[-2:] == [40, 41]
    for X, y in (old, batch):
        best = model.predict_topk(X, 2)[0]
        own = [max(row) if several else row for row in y]
        assert np.mean([label in row for label, row in zip(own, best, strict=True)]) > 0.9


def test_label_weights_of_old_labels_stay(case):
    _, _, before, _, model, _, _ = case
    for old, new in zip(label_weights_of(before), label_weights_of(model.model_), strict=True):
        W, V = old.vectors.matrix().toarray(), new.vectors.matrix().toarray()
        columns = [*range(before.columns.n_columns - 2), V.shape[1] - 2, V.shape[1] - 1]
        # The batch has many rows of the new labels only, compared to those before.
        np.testing.assert_allclose(V[:40, columns], W[:40], rtol=1e-5, atol=1e-6)
        assert not np.delete(V[:40], columns, axis=1).any()
        assert (V[40:] != 0).sum(axis=1).min() > 3


def test_prototypes_neighbours_and_propensities_count_the_batch(case):
    _, several, before, _, model, (X, y), (batch, new) = case
    flat = [label for row in [*y, *new] for label in (row if several else [row])]
    counts = np.bincount(flat, minlength=42)
    after = model.model_
    assert after.part("prototypes").counts.tolist() == counts.tolist()
    memory = after.part("neighbours").memory
    assert memory is after.memory
    assert len(memory) == X.shape[0] + batch.shape[0]
    assert len(before.memory) == X.shape[0]
    bonus = after.part("propensity").bonus
    assert (len(bonus), bonus[0] < bonus[41]) == (42, True)
    found, _ = after.part("neighbours").nearest(after.columns.rows(batch), None)
    assert (found[:, 0] >= X.shape[0]).mean() > 0.9  # a row is its own neighbour


def test_files_hold_all_parts_and_learn_on(case, tmp_path):
    *_, model, (X, _), (batch, new) = case
    path = tmp_path / "model.ltls"
    model.save(path)
    loaded = ltls.load(path)
    for ours, theirs in zip(loaded.predict_topk(X, 5), model.predict_topk(X, 5), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    loaded.partial_fit(batch, new)
    assert len(loaded.model_.memory) == len(model.model_.memory) + batch.shape[0]
