"""Buckets: balanced groups of similar labels, and codebooks in which labels share paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.preprocessing import normalize

from ltls.structure.buckets import similar_buckets
from ltls.structure.codebook import BucketCodebook


def random_vectors(n_labels, n_dimensions, seed, density=1.0):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n_labels, n_dimensions))
    return normalize(vectors * (rng.random(vectors.shape) < density))


def buckets_of(vectors, n_buckets, seed=0, n_jobs=None):
    [buckets] = similar_buckets(vectors, n_buckets, [seed], n_jobs)
    return buckets


# similar_buckets


@given(
    n_labels=st.integers(1, 200),
    share=st.floats(0, 1),
    n_dimensions=st.integers(1, 8),
    density=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_every_label_has_a_bucket_and_all_buckets_are_of_similar_size(
    n_labels, share, n_dimensions, density, seed
):
    # With a density of 0 all vectors are equal, and only the sizes matter.
    n_buckets = 1 + int(share * (n_labels - 1))
    vectors = random_vectors(n_labels, n_dimensions, seed, density)
    buckets = buckets_of(vectors, n_buckets, seed)
    assert buckets.shape == (n_labels,)
    assert buckets.dtype == np.int64
    sizes = np.bincount(buckets, minlength=n_buckets)
    assert len(sizes) == n_buckets
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 2


@pytest.mark.parametrize("n_labels", [1, 2, 7, 64])
def test_as_many_buckets_as_labels_are_of_one_label_each(n_labels):
    buckets = buckets_of(random_vectors(n_labels, 5, 0), n_labels)
    assert sorted(buckets) == list(range(n_labels))
    assert not buckets_of(random_vectors(n_labels, 5, 0), 1).any()


@given(n_labels=st.integers(4, 30), n_dimensions=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_two_buckets_are_a_fixed_point_of_balanced_2_means(n_labels, n_dimensions, seed):
    vectors = random_vectors(n_labels, n_dimensions, seed).astype(np.float32).astype(float)
    buckets = buckets_of(vectors, 2, seed)
    assert (buckets == 0).sum() == n_labels // 2
    means = [vectors[buckets == bucket].sum(axis=0) for bucket in (0, 1)]
    lengths = [max(np.linalg.norm(mean), 1e-12) for mean in means]
    side = vectors @ (means[0] / lengths[0] - means[1] / lengths[1])
    assert side[buckets == 0].min() >= side[buckets == 1].max() - 1e-4


@pytest.mark.parametrize("form", [np.asarray, csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("seed", range(10))
def test_two_clusters_of_the_same_size_are_found(form, seed):
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.repeat([0, 1], 20))
    vectors = normalize(np.eye(2, 12)[cluster] + 0.1 * rng.random((40, 12)))
    buckets = buckets_of(form(vectors), 2, seed)
    assert (buckets == cluster).all() or (buckets == 1 - cluster).all()


def test_similar_labels_share_a_bucket():
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(16), 8))
    vectors = normalize(rng.normal(size=(16, 40))[cluster] + 0.2 * rng.normal(size=(128, 40)))
    together = []
    for seed in range(5):
        buckets = buckets_of(csr_array(vectors), 16, seed)
        same_bucket = buckets[:, None] == buckets
        similar = (cluster[:, None] == cluster) & ~np.eye(128, dtype=bool)
        together.append(same_bucket[similar].mean())
    assert np.mean(together) > 0.75  # at random it is 7 / 127


def test_buckets_depend_on_the_seed_alone():
    vectors = random_vectors(300, 6, 1)
    first = buckets_of(vectors, 30)
    np.testing.assert_array_equal(first, buckets_of(vectors, 30))
    np.testing.assert_array_equal(first, buckets_of(vectors, 30, n_jobs=2))
    np.testing.assert_array_equal(first, buckets_of(csr_array(vectors), 30, n_jobs=5))
    np.testing.assert_array_equal(first, buckets_of(vectors.astype(np.float32), 30))
    other = buckets_of(vectors, 30, seed=1)
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
    n_buckets = 1 + seed % n_labels
    seeds = list(range(seed, seed + n_seeds))
    found = similar_buckets(vectors, n_buckets, seeds, n_jobs)
    each = [buckets_of(vectors, n_buckets, one) for one in seeds]
    np.testing.assert_array_equal(found, each)


@pytest.mark.parametrize("n_buckets", [0, -1, 6])
def test_the_number_of_buckets_is_checked(n_buckets):
    with pytest.raises(ValueError, match=rf"n_buckets must be between 1 and 5, got {n_buckets}"):
        buckets_of(random_vectors(5, 3, 0), n_buckets)


# BucketCodebook


@settings(max_examples=50)
@given(n_paths=st.integers(1, 40), n_labels=st.integers(0, 60), seed=st.integers(0, 2**31))
def test_labels_and_paths_are_looked_up_both_ways(n_paths, n_labels, seed):
    paths = np.random.default_rng(seed).integers(0, n_paths, n_labels)
    book = BucketCodebook(n_paths, paths)
    assert (book.n_labels, book.n_paths) == (n_labels, n_paths)
    np.testing.assert_array_equal(book.paths, paths)
    first = [min((i for i in range(n_labels) if paths[i] == p), default=-1) for p in range(n_paths)]
    assert book.label_of(np.arange(n_paths)).tolist() == first


def test_extending_returns_a_codebook_with_more_labels():
    book = BucketCodebook(3, [2, 0])
    longer = book.extend([2, 1])
    assert longer.paths.tolist() == [2, 0, 2, 1]
    assert book.paths.tolist() == [2, 0]
    assert longer.n_paths == 3
    assert book.extend([]) == book
    assert book.extend(np.array([], np.int64)) == book
    assert BucketCodebook(3, []).extend([1]).paths.tolist() == [1]
    with pytest.raises(ValueError, match="paths must be between 0 and 2, got 3"):
        book.extend([3])
    assert book.paths.tolist() == [2, 0]


@pytest.mark.parametrize("paths", [[3], [-1], [0, 1, 2, 9]])
def test_paths_out_of_range_are_rejected(paths):
    with pytest.raises(ValueError, match=rf"paths must be between 0 and 2, got {paths[-1]}"):
        BucketCodebook(3, paths)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="n_paths"):
        BucketCodebook(0, [])
    with pytest.raises(TypeError, match="paths"):
        BucketCodebook(3, [0.5])
    with pytest.raises(ValueError, match="paths"):
        BucketCodebook(3, [[0, 1]])
    with pytest.raises(TypeError, match="unhashable"):
        hash(BucketCodebook(3, [0, 1]))
