"""Codebooks in which labels share paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltls.structure.codebook import BucketCodebook


@settings(max_examples=50)
@given(n_paths=st.integers(1, 40), n_labels=st.integers(0, 60), seed=st.integers(0, 2**31))
def test_labels_of_a_bucket_share_a_path(n_paths, n_labels, seed):
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
