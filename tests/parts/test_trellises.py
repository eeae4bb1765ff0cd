"""Trellises as a part: pruning, states of codebooks, and edges in explanations."""

import numpy as np
import pytest
from small_parts import N_LABELS, SIZES, make_rows, restored, section_of, trellis_part

from ltls import TableCodebook
from ltls.parts.trellises import TrellisPart


def test_pruning_keeps_the_largest_weights_and_again_a_fraction_of_these():
    part = trellis_part(np.random.default_rng(0), n_labels=200, exact=False)
    half = part.pruned(0.5)
    assert half.weights.density == pytest.approx(0.5, abs=0.02)
    quarter = half.pruned(0.5)
    assert quarter.weights.density == pytest.approx(0.25, abs=0.02)
    magnitudes = np.abs(part.weights.dense())
    kept = quarter.weights.dense() != 0
    assert magnitudes[kept].min() > 0.9 * magnitudes[~kept].max()
    assert part.weights.density == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_states_have_weights_of_any_type(dtype):
    part = trellis_part(np.random.default_rng(0), exact=False)
    part = TrellisPart(
        part.trellis, part.codebooks, part.loss, part.weights.astype(dtype), N_LABELS
    )
    found, rows = restored(part), make_rows(np.random.default_rng(1))
    assert found.weights.values.dtype == dtype
    for ours, theirs in zip(found.topk(rows, 5, None), part.topk(rows, 5, None), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_codebooks_that_grew_are_restored():
    part = trellis_part(np.random.default_rng(0), "random", n_labels=20, n_paths=20)
    grown = [book.grow(25).grow(40) for book in part.codebooks]
    larger = trellis_part(np.random.default_rng(0), "random", n_labels=N_LABELS, n_paths=40)
    larger.codebooks[:] = grown
    labels = np.arange(N_LABELS)
    for ours, theirs in zip(restored(larger).codebooks, grown, strict=True):
        np.testing.assert_array_equal(ours.path_of(labels), theirs.path_of(labels))


def test_contradictions_are_refused():
    described, tensors = trellis_part(np.random.default_rng(0), "random").state()
    with pytest.raises(ValueError, match="29 paths are too few for 30 labels"):
        TrellisPart.from_state(section_of({**described, "n_classes": 29}, tensors), SIZES)
    described, tensors = trellis_part(np.random.default_rng(0)).state()
    mixed = {**described, "codebooks": [{"kind": "table"}, {"kind": "buckets"}]}
    with pytest.raises(ValueError, match="codebooks must be a list of codebooks"):
        TrellisPart.from_state(section_of(mixed, tensors), SIZES)
    whole = {**tensors, "weights.values": tensors["weights.values"].astype(np.int8)}
    with pytest.raises(ValueError, match="scales if, and only if, they are int8"):
        TrellisPart.from_state(section_of(described, whole), SIZES)


def test_a_file_may_not_ask_for_much_memory():
    huge = 1 << 40
    described, tensors = trellis_part(np.random.default_rng(0)).state()
    with pytest.raises(
        ValueError, match=r"may have at most 65536 paths in a file, got 1099511627776"
    ):
        TrellisPart.from_state(section_of({**described, "n_classes": huge}, tensors), SIZES)
    part = trellis_part(np.random.default_rng(0), n_labels=3, n_paths=10)
    part.codebooks[:] = [TableCodebook(1 << 17, [0, 1, 2])] * 2
    with pytest.raises(ValueError, match="may have at most 65536 paths in a file, got 131072"):
        part.state()


def test_explanations_have_the_edges_of_the_path():
    part, rows = trellis_part(np.random.default_rng(0)), make_rows(np.random.default_rng(1), 1)
    (h,) = part.weights.without_padding(part.edge_scores(rows)).reshape(1, 2, -1)
    for r, each in enumerate(part.explain(rows, 7).parts):
        assert each.path == part.codebooks[r].path_of([7])[0]
        edges = part.trellis.path_edges(each.path)
        assert [edge.edge for edge in each.edges] == edges.tolist()
        ends = [(edge.tail, edge.head) for edge in each.edges]
        assert ends == list(map(tuple, part.trellis.edges[edges].tolist()))
        assert [edge.score for edge in each.edges] == h[r, edges].tolist()
        W = part.weights.dense().reshape(9, 2, -1)[:, r, edges].sum(axis=1)
        x = rows.X.toarray()[0]
        np.testing.assert_allclose(each.contributions, (x * W[:-1])[each.features])
        assert each.intercept == W[-1]


def test_sizes_of_paths():
    part = trellis_part(np.random.default_rng(0), "buckets", 50, 12)
    paths = part.codebooks[0].path_of(np.arange(50)).tolist()
    assert part.sizes_of_paths.tolist() == [paths.count(path) for path in range(12)]
    assert part.shares_paths
    assert not trellis_part(np.random.default_rng(0)).shares_paths
