"""Clusters: balanced groups of similar labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from ltls.parts.views import similar_clusters


def random_vectors(n_labels, n_dimensions, seed, density=1.0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_labels, n_dimensions))
    return normalize(vectors * (rng.random(vectors.shape) < density))


def clusters_of(vectors, n_clusters, seed=0, n_jobs=None):
    [clusters] = similar_clusters(vectors, n_clusters, [seed], n_jobs)
    return clusters


@given(
    n_labels=st.integers(1, 200),
    share=st.floats(0, 1),
    n_dimensions=st.integers(1, 8),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_every_label_has_a_cluster_and_all_clusters_are_of_similar_size(
    n_labels, share, n_dimensions, density, seed
):
    # With a density of 0 all vectors are equal, and only the sizes matter.
    n_clusters = 1 + int(share * (n_labels - 1))
    vectors = random_vectors(n_labels, n_dimensions, seed, density)
    clusters = clusters_of(vectors, n_clusters, seed)
    assert clusters.shape == (n_labels,)
    assert clusters.dtype == np.int64
    sizes = np.bincount(clusters, minlength=n_clusters)
    assert len(sizes) == n_clusters
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 2


@pytest.mark.parametrize("n_labels", [1, 2, 7, 64])
def test_as_many_clusters_as_labels_are_of_one_label_each(n_labels):
    clusters = clusters_of(random_vectors(n_labels, 5, 0), n_labels)
    assert sorted(clusters) == list(range(n_labels))
    assert not clusters_of(random_vectors(n_labels, 5, 0), 1).any()


@given(n_labels=st.integers(4, 30), n_dimensions=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_two_clusters_are_a_fixed_point_of_balanced_2_means(n_labels, n_dimensions, seed):
    vectors = random_vectors(n_labels, n_dimensions, seed).astype(np.float32).astype(float)
    clusters = clusters_of(vectors, 2, seed)
    assert (clusters == 0).sum() == n_labels // 2
    means = [vectors[clusters == cluster].sum(axis=0) for cluster in (0, 1)]
    lengths = [max(np.linalg.norm(mean), 1e-12) for mean in means]
    side = vectors @ (means[0] / lengths[0] - means[1] / lengths[1])
    assert side[clusters == 0].min() >= side[clusters == 1].max() - 1e-4


@pytest.mark.parametrize("form", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(10))
def test_two_clusters_of_the_same_size_are_found(form, seed):
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.repeat([0, 1], 20))
    vectors = normalize(np.eye(2, 12)[cluster] + 0.1 * rng.random((40, 12)))
    clusters = clusters_of(form(vectors), 2, seed)
    assert (clusters == cluster).all() or (clusters == 1 - cluster).all()


def test_similar_labels_share_a_cluster():
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(16), 8))
    vectors = normalize(rng.normal(size=(16, 40))[cluster] + 0.2 * rng.normal(size=(128, 40)))
    together = []
    for seed in range(5):
        clusters = clusters_of(csr_array(vectors), 16, seed)
        same_cluster = clusters[:, None] == clusters
        similar = (cluster[:, None] == cluster) & ~np.eye(128, dtype=bool)
        together.append(same_cluster[similar].mean())
    assert np.mean(together) > 0.75  # at random it is 7 / 127


def test_clusters_depend_on_the_seed_alone():
    vectors = random_vectors(300, 6, 1)
    first = clusters_of(vectors, 30)
    np.testing.assert_array_equal(first, clusters_of(vectors, 30))
    np.testing.assert_array_equal(first, clusters_of(vectors, 30, n_jobs=2))
    np.testing.assert_array_equal(first, clusters_of(csr_array(vectors), 30, n_jobs=5))
    np.testing.assert_array_equal(first, clusters_of(vectors.astype(np.float32), 30))
    other = clusters_of(vectors, 30, seed=1)
    pairs = np.triu(first[:, None] == first, 1), np.triu(other[:, None] == other, 1)
    assert (pairs[0] != pairs[1]).any()


@settings(max_examples=30)
@given(
    n_labels=st.integers(1, 120),
    n_seeds=st.integers(1, 4),
    n_jobs=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
def test_several_seeds_are_independent(n_labels, n_seeds, n_jobs, seed):
    vectors = random_vectors(n_labels, 5, seed, density=0.5)
    n_clusters = 1 + seed % n_labels
    seeds = list(range(seed, seed + n_seeds))
    found = similar_clusters(vectors, n_clusters, seeds, n_jobs)
    each = [clusters_of(vectors, n_clusters, one) for one in seeds]
    np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("n_clusters", [0, -1, 6])
def test_the_number_of_clusters_is_checked(n_clusters):
    with pytest.raises(ValueError, match=rf"n_buckets must be between 1 and 5, got {n_clusters}"):
        clusters_of(random_vectors(5, 3, 0), n_clusters)
