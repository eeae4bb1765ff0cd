"""Codebooks as modules: policies, conversion and lookups."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from ltls import RandomCodebook, TableCodebook, Trellis  # noqa: E402
from ltls.torch import TrellisSoftmax  # noqa: E402
from ltls.torch.codebooks import IdentityPaths, KeyedPaths, TablePaths, make_codebooks  # noqa: E402

IN, C = 12, 100


def features(n_classes=C, seed=0):
    return torch.randn(n_classes, 6, generator=torch.Generator().manual_seed(seed))


BOOKS = {
    "identity": IdentityPaths(C, C),
    "identity with free paths": IdentityPaths(C, 130),
    "keyed": KeyedPaths(C, [C], 7),
    "keyed with free paths": KeyedPaths(C, [40, 130], 2**64 - 1),
    "table": TablePaths(torch.arange(C).flip(0), C),
    "table with free paths": TablePaths(torch.arange(C) + 30, 130),
}


@pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
def test_lookups_are_inverse(book):
    labels = torch.arange(C).view(4, -1)
    paths = book.path_of(labels)
    assert len(paths.unique()) == C
    assert ((paths >= 0) & (paths < book.n_paths)).all()
    assert torch.equal(book.label_of(paths), labels)
    found = book.label_of(torch.arange(book.n_paths))
    assert (found >= 0).sum() == C
    assert found.min() >= -(book.n_paths > C)


@pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
def test_ignored_and_unknown_labels(book):
    paths = book.path_of(torch.tensor([-100, -1, C, 2**40]), ignore_index=-100)
    assert paths.tolist() == [-1, *[book.n_paths] * 3]
    assert book.label_of(torch.tensor([-1])).tolist() == [-1]


MIXTURES = {
    "frequency": {},
    "counts": {"counts": torch.arange(C)},
    "random": {"assignment": "random"},
    "similarity": {"assignment": "similarity", "label_features": features()},
    "counts and similarity": {
        "assignment": "similarity",
        "label_features": features(),
        "counts": np.arange(C),
    },
}


@pytest.mark.parametrize("options", MIXTURES.values(), ids=MIXTURES)
def test_codebooks_are_reproducible(options):
    """All processes of a distributed run must make the same ones."""
    options = {"assignment": "frequency", **options, "n_classes": C, "width": 4, "n_trellises": 2}
    for one, other in zip(make_codebooks(**options), make_codebooks(**options), strict=True):
        assert torch.equal(one.path_of(torch.arange(C)), other.path_of(torch.arange(C)))


def test_frequent_labels_have_short_paths():
    counts = np.random.default_rng(0).permutation(C)
    trellis = Trellis(C, 3)
    lengths = [len(trellis.path_edges(path)) for path in range(C)]
    for options in (
        {},
        {"n_trellises": 2},
        {"assignment": "similarity", "label_features": features(), "n_trellises": 2},
    ):
        for book in TrellisSoftmax(IN, C, 3, counts=counts, **options).codebooks:
            paths = book.path_of(torch.arange(C))
            found = np.array(lengths)[paths.numpy()[np.argsort(-counts)]]
            assert found.tolist() == sorted(lengths)


def test_similar_labels_share_edges():
    """Four clusters at width 2: every cluster shares its first two states."""
    centres = torch.tensor([[4.0, 1.0], [4.0, -1.0], [-4.0, 1.0], [-4.0, -1.0]])
    cluster = torch.randperm(64, generator=torch.Generator().manual_seed(0)) % 4
    points = centres[cluster] + 0.01 * features(64)[:, :2]
    for counts in (None, np.ones(64)):
        head = TrellisSoftmax(
            IN, 64, 2, assignment="similarity", label_features=points, counts=counts
        )
        first = head.codebooks[0].path_of(torch.arange(64)) % 4
        assert len(set(zip(first.tolist(), cluster.tolist(), strict=True))) == 4


@pytest.mark.parametrize(
    "book",
    [RandomCodebook(C, 5), RandomCodebook(40, 2**64 - 1).grow(C), TableCodebook(C, range(C))],
)
def test_codebooks_of_the_package_are_accepted(book):
    head = TrellisSoftmax(IN, C, 4, assignment=book)
    labels = np.arange(C)
    found = head.codebooks[0].path_of(torch.from_numpy(labels))
    np.testing.assert_array_equal(found, book.path_of(labels))
    np.testing.assert_array_equal(head.codebooks[0].label_of(found), labels)


@pytest.mark.parametrize("options", [{}, {"assignment": "random"}, {"n_trellises": 2}])
def test_the_largest_number_of_classes_needs_no_table(options):
    n = 2**62
    torch.manual_seed(0)
    head = TrellisSoftmax(IN, n, 4, **options)
    assert sum(value.numel() for value in head.state_dict().values()) < 20_000
    x = torch.randn(3, IN, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, 12345, n - 1])
    loss = head(x, y).loss
    loss.backward()
    assert loss.item() == pytest.approx(math.log(n), rel=0.3)
    labels, log_probs = head.topk(x[:1], 2)
    torch.testing.assert_close(head.log_prob(x[:1], labels), log_probs)


@pytest.mark.parametrize(
    "change",
    [
        lambda paths, labels: paths[:2].copy_(paths[:2].flip(0)),
        lambda paths, labels: paths[1].copy_(paths[0]),
        lambda paths, labels: paths[3].fill_(C),
        lambda paths, labels: paths[3].fill_(-1),
        lambda paths, labels: labels[5].fill_(99),
    ],
    ids=["swapped", "repeated", "out of range", "negative", "other labels"],
)
def test_tables_that_are_no_codebook_are_not_loaded(change):
    head = TrellisSoftmax(IN, C, 4, assignment=torch.arange(C).flip(0))
    state = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    head.load_state_dict(state)
    before = head.codebooks[0].paths.clone()
    change(state["codebooks.0.paths"], state["codebooks.0.labels"])
    with pytest.raises(RuntimeError, match=r"codebooks\.0\.paths and .* not each other's inverse"):
        head.load_state_dict(state)
    assert torch.equal(head.codebooks[0].paths, before)


def test_missing_and_misshapen_tables_are_reported_by_torch():
    head = TrellisSoftmax(IN, C, 4, assignment=torch.arange(C).flip(0))
    state = head.state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        head.load_state_dict({**state, "codebooks.0.paths": torch.arange(99)})
    with pytest.raises(RuntimeError, match="Missing key"):
        head.load_state_dict({k: v for k, v in state.items() if k != "codebooks.0.labels"})
