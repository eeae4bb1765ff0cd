"""Statistics of a first pass over batches, against statistics of all rows at once."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from ltls.model.labels import as_targets
from ltls.training.stats import ROWS_FOR_VECTORS, DatasetStats

labels = st.sampled_from(["a", "b", "c", "d", "e"])
rows_of_labels = st.lists(st.lists(labels, max_size=4, unique=True), min_size=1, max_size=30)


@given(rows=rows_of_labels, size=st.integers(1, 7))
def test_counts_are_those_of_all_rows(rows, size):
    stats = DatasetStats()
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        stats.add(np.ones((len(part), 3)), as_targets(part))
    assert (stats.n_rows, stats.n_features, stats.nnz) == (len(rows), 3, 3 * len(rows))
    assert stats.multilabel
    known, label_stats = stats.labels()
    flat = [label for row in rows for label in row]
    assert known.values == sorted(set(flat))
    assert label_stats.counts.tolist() == [flat.count(label) for label in known.values]
    lengths = list(map(len, rows))
    assert stats.typical_labels() == np.quantile(lengths, 0.99, method="higher")


@given(rows=rows_of_labels, size=st.integers(1, 7), seed=st.integers(0, 99))
def test_label_vectors_are_normalized_means_of_the_first_rows(rows, size, seed):
    assume(any(rows))
    X = np.random.default_rng(seed).random((len(rows), 4)) + 0.1
    stats = DatasetStats(sample_per_label=ROWS_FOR_VECTORS)
    for first in range(0, len(rows), size):
        part = slice(first, first + size)
        stats.add(X[part], as_targets(rows[part]))
    known, label_stats = stats.labels()
    for label, vector in zip(known.values, np.asarray(label_stats.vectors), strict=True):
        # All rows are sampled: no label has more than 16 rows unless there are many.
        own = np.array([x for x, row in zip(X, rows, strict=True) if label in row])
        if len(own) <= 16:
            mean = own.sum(axis=0)
            np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), rtol=1e-6)
        else:
            np.testing.assert_allclose(np.linalg.norm(vector), 1)


@given(rows=rows_of_labels, size=st.integers(1, 7), limit=st.integers(1, 3))
def test_merged_statistics_are_those_of_all_batches(rows, size, limit):
    """Each batch may be counted elsewhere; sampled are the first rows of every label."""
    assume(any(rows))
    X = np.arange(4.0 * len(rows)).reshape(len(rows), 4) + 1
    added, merged = DatasetStats(limit), DatasetStats(limit)
    for first in range(0, len(rows), size):
        part = slice(first, first + size)
        added.add(X[part], as_targets(rows[part]))
        own = DatasetStats(limit)
        own.add(X[part], as_targets(rows[part]))
        merged.merge(own)
    for name in ("n_rows", "n_features", "nnz", "multilabel", "target_format", "sparse"):
        assert getattr(merged, name) == getattr(added, name)
    assert merged.typical_labels() == added.typical_labels()
    (known, stats), (expected, expected_stats) = merged.labels(), added.labels()
    assert known.values == expected.values
    assert stats.counts.tolist() == expected_stats.counts.tolist()
    sampled = set(map(tuple, merged.sample.X.tolist()))
    seen = dict.fromkeys(known.values, 0)
    for x, labels_of_row in zip(X.tolist(), rows, strict=True):
        if any(seen[label] < limit for label in labels_of_row):
            assert tuple(x) in sampled
        for label in labels_of_row:
            seen[label] += 1
