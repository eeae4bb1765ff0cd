"""Label weights trained in shards, against those of one machine."""

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

from ray_workers import clusters_of_rows, dense

from ltls import LTLSClassifier
from ltls.model.labels import as_targets
from ltls.ray.chunks import ChunkSource
from ltls.ray.label_weights import Sharding, train_label_weights
from ltls.ray.tasks import Tasks
from ltls.training import label_weights as local
from ltls.training.examples import make_examples


def fitted(**settings):
    """A model with label weights, and its rows."""
    table, labels = clusters_of_rows(400, n_labels=30)
    X = dense(table)
    model = LTLSClassifier(
        width=3, n_trellises=2, epochs=2, random_state=0, label_weights=True, **settings
    ).fit(X, labels)
    examples = make_examples(model.model_.labels, X, as_targets(labels), None, None)
    model.model_.label_weights = None
    return model.model_, examples


def in_shards(model, examples, n_workers):
    tasks = Tasks()
    cuts = np.array_split(np.arange(len(examples)), 5)
    sizes = np.array([0, *map(len, cuts)])  # the first chunk is empty
    chunks = [tasks.put(examples.take(rows)) for rows in (cuts[0][:0], *cuts)]
    source = ChunkSource(sizes, chunks, None, np.empty(0, np.int64), None, tasks)
    weights, seconds = train_label_weights(model, source, examples.X.size, n_workers, None, tasks)
    assert len(seconds) == 1 + n_workers
    assert min(seconds) > 0
    return weights


@pytest.mark.parametrize("n_workers", [1, 3])
def test_shards_are_one_machine(cluster, n_workers):
    model, examples = fitted(bucket_size=1)
    found = in_shards(model, examples, n_workers)
    expected = local.train_label_weights(model, examples, None)
    assert (found.matrix() != expected.matrix()).nnz == 0
    assert (found.weight, found.n_candidates) == (expected.weight, expected.n_candidates)


def test_buckets_stay_together(cluster):
    model, examples = fitted(bucket_size=4)
    sharding = Sharding.of(model, 3)
    assert sorted(sharding.order) == list(range(30))
    assert sharding.order[sharding.places].tolist() == list(range(30))
    paths = model.codebooks[0].path_of(sharding.order)
    assert (np.diff(paths) >= 0).all()
    assert (np.diff(sharding.bounds) > 0).all()
    one, three = (in_shards(model, examples, n_workers).matrix() for n_workers in (1, 3))
    assert (one != three).nnz == 0
