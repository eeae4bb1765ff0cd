"""TrellisEmbedding, and classes that are added without training."""

import numpy as np
import pytest
from reference import Graph

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import TableCodebook  # noqa: E402
from ltls.torch import TrellisEmbedding, TrellisSoftmax  # noqa: E402

C, D = 50, 6
TABLES = {
    "frequency": {},
    "counts": {"counts": np.arange(C)},
    "several": {"n_trellises": 3, "assignment": "random"},
    "semantic": {"assignment": TableCodebook.from_embeddings(np.eye(C), 3), "width": 3},
}


@pytest.fixture(params=TABLES)
def table(request):
    torch.manual_seed(0)
    return TrellisEmbedding(C, D, **{"width": 4, **TABLES[request.param]})


def test_a_vector_is_the_sum_of_its_edges_vectors(table):
    graph = Graph(table.layout.n_classes, table.layout.width)
    labels = torch.arange(C)
    expected = torch.zeros(C, D)
    n = len(graph.edges)
    for r, book in enumerate(table.codebooks):
        for label, path in enumerate(book.path_of(labels).tolist()):
            expected[label] += table.edges[[r * n + e for e in graph.paths[path]]].sum(0)
    torch.testing.assert_close(table(labels), expected)
    torch.testing.assert_close(table(labels.reshape(5, 10))[3, 7], expected[37])
    assert table(labels[0]).shape == (D,)


def test_padding_has_no_vector_and_no_gradient():
    table = TrellisEmbedding(C, D, 4, padding_idx=C)
    out = table(torch.tensor([C, 3]))
    assert not out[0].any()
    assert out[1].all()
    table.edges.grad = None
    table(torch.tensor([C, C])).sum().backward()
    assert not table.edges.grad.any()


def test_other_input_than_classes(table):
    n = table.num_embeddings
    for index in (n, 10**7, -1, -600):
        with pytest.raises(IndexError, match=f"from 0 to {n - 1}, got {index}"):
            table(torch.tensor([0, index]))
    for dtype in (torch.float32, torch.bool):
        with pytest.raises(TypeError, match="input must have an integer dtype, got torch"):
            table(torch.zeros(2, dtype=dtype))


def test_gradcheck_and_compile(table):
    table = table.double()
    labels = torch.tensor([[0, 3], [7, 49]])
    assert torch.autograd.gradcheck(lambda _: table(labels), table.edges, fast_mode=True)
    torch.compiler.reset()
    compiled = torch.compile(table, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(labels), table(labels))


def test_vectors_start_with_about_the_variance_of_an_embedding():
    many = TrellisEmbedding(5000, 16, 8)(torch.arange(5000))
    assert 0.5 < many.std() < 1.5


@pytest.mark.parametrize("padding_idx", [None, 3])
def test_a_class_out_of_range_has_no_vector_when_compiled(padding_idx):
    table = TrellisEmbedding(C, D, 4, padding_idx=padding_idx)
    labels = torch.tensor([0, -1, C, C + 7, 3])
    torch.compiler.reset()
    found = torch.compile(table, fullgraph=True, backend="aot_eager")(labels)
    assert found.isnan().all(1).tolist() == [False, True, True, True, False]
    torch.testing.assert_close(found[[0, 4]], table(labels[[0, 4]]))
    with pytest.raises(IndexError, match="class indices from 0 to"):
        table(labels)


def test_classes_are_added_without_training():
    rng = np.random.RandomState(0)
    centres = rng.standard_normal((6, 4)) * 5
    of = rng.randint(6, size=80)
    items = centres[of] + 0.3 * rng.standard_normal((80, 4))
    book = TableCodebook.from_embeddings(items[:70], width=6)
    torch.manual_seed(0)
    head = TrellisSoftmax(4, 70, 6, assignment=book)
    x, y = torch.tensor(items[:70], dtype=torch.float32), torch.arange(70)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        head(x, y).loss.backward()
        optimizer.step()
    before = head.log_prob(x)
    new = head.add_classes(book.path_of(book.assign_embeddings(items[70:])))
    assert new.tolist() == list(range(70, 80))
    assert head.n_classes == 80
    torch.testing.assert_close(head.log_prob(x)[:, :70], before)  # they were free paths
    # Among the new classes, an item is most probable where vectors of its own cluster are.
    queries = torch.tensor(centres[of[70:]], dtype=torch.float32)
    found = head.predict(queries, among=new) - 70
    assert np.mean(of[70:][found.numpy()] == of[70:]) > 0.6
    labels, _ = head.topk(x, 80)
    assert sorted(labels[0].tolist()) == list(range(80))


@pytest.mark.parametrize(
    ("head", "paths", "message"),
    [
        (lambda: TrellisSoftmax(4, 20, 3), [3], "paths must be free, got 3, which has a class"),
        (lambda: TrellisSoftmax(4, 20, 3), [20], "distinct path from 0 to 19"),
        (lambda: TrellisSoftmax(4, 20, 3, n_trellises=2), [3], "one column for each of 2"),
        (lambda: TrellisSoftmax(4, 20, 3, weight=np.ones(20)), [3], "without weight"),
        (lambda: TrellisSoftmax(4, 20, 3, hierarchy=np.ones(20)), [3], "without a hierarchy"),
    ],
)
def test_classes_that_cannot_be_added_raise(head, paths, message):
    with pytest.raises(ValueError, match=message):
        head().add_classes(paths)


def test_semantic_ids_are_used_with_their_own_width():
    book = TableCodebook.from_embeddings(np.eye(20), width=4)
    for kind in (TrellisEmbedding, TrellisSoftmax):
        with pytest.raises(ValueError, match="width must be 4, that of the codebook's embeddings"):
            kind(20 if kind is TrellisEmbedding else 8, 20, width=8, assignment=book)


def test_a_negative_padding_index_counts_from_the_end():
    table = TrellisEmbedding(C, D, padding_idx=-1)
    assert table.padding_idx == C - 1
    assert (table(torch.tensor([C - 1])) == 0).all()
    with pytest.raises(ValueError, match="padding_idx must be at least -50, got -51"):
        TrellisEmbedding(C, D, padding_idx=-C - 1)


def test_paths_of_new_classes_are_integers():
    book = TableCodebook.from_embeddings(np.eye(10), width=4)
    head = TrellisSoftmax(4, 10, width=4, assignment=book)
    free = next(path for path in range(book.n_paths) if book.is_free(path))
    with pytest.raises(TypeError, match="paths must be integers"):
        head.add_classes([free + 0.5])
    assert head.n_classes == 10
    assert head.add_classes(free).tolist() == [10]
    with pytest.raises(ValueError, match="vectors must be finite"):
        book.assign_embeddings(np.full((1, 10), np.nan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectors_may_be_those_of_a_layer(dtype):
    vectors = torch.nn.Embedding(50, 4, dtype=dtype).weight
    book = TableCodebook.from_embeddings(vectors, width=4)
    expected = TableCodebook.from_embeddings(vectors.detach().double().numpy(), width=4)
    assert book == expected
    assert book.assign_embeddings(vectors[:2]).tolist() == [50, 51]
