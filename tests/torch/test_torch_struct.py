"""If C is a power of the width, the trellis is a linear-chain CRF: torch-struct is an oracle."""

import numpy as np
import pytest

REASON = "needs torch and torch-struct: run make test-all"
torch = pytest.importorskip("torch", reason=REASON)
torch_struct = pytest.importorskip("torch_struct", reason=REASON)

from ltls.torch import functional, make_layout  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*arg_constraints:UserWarning")

N_ROWS = 7


class Chain:
    """A trellis of width ** n_slices classes and the CRF with the same states and scores.

    torch-struct scores transitions only, as [row, position, next state, previous state]. The edges
    of the source join the first transition, those through the auxiliary vertex the last one.
    """

    def __init__(self, width, n_slices):
        self.width, self.n_slices = width, n_slices
        self.layout = make_layout(width**n_slices, width)
        h = np.random.default_rng(0).normal(size=(N_ROWS, self.layout.n_edges))
        self.h = torch.from_numpy(h)
        source, transitions, to_auxiliary, to_sink = self.blocks(h)
        potentials = transitions.transpose(0, 1, 3, 2).copy()
        potentials[:, 0] += source[:, None, :]
        potentials[:, -1] += to_auxiliary[:, :, None] + to_sink[:, :, None]
        self.crf = torch_struct.LinearChainCRF(torch.from_numpy(potentials))

    def blocks(self, edges):
        """Edge values by what the edges join: (row, s), (row, i, s, t), (row, s), (row, 1)."""
        b, n = self.width, self.n_slices
        source, transitions, to_auxiliary, to_sink = np.split(
            edges, np.cumsum([b, (n - 1) * b * b, b]), axis=1
        )
        return source, transitions.reshape(len(edges), n - 1, b, b), to_auxiliary, to_sink

    def path_ids(self, indicators):
        """The paths whose transitions are marked with ones in [..., position, next, previous]."""
        marks = np.moveaxis(np.asarray(indicators), -1, -2)
        assert set(np.unique(marks)) <= {0, 1}
        assert (marks.sum(axis=(-1, -2)) == 1).all()
        first = marks[..., 0, :, :].sum(axis=-1).argmax(axis=-1)
        others = marks.sum(axis=-2).argmax(axis=-1)
        states = np.concatenate([first[..., None], others], axis=-1)
        return states @ self.width ** np.arange(self.n_slices)


@pytest.fixture(
    scope="module",
    params=[(2, 2), (2, 7), (2, 12), (3, 5), (5, 4), (8, 3), (16, 2), (40, 2)],
    ids=lambda size: "width {}, {} slices".format(*size),
)
def chain(request):
    return Chain(*request.param)


def test_log_partition_agrees_with_torch_struct(chain):
    found = functional.log_partition(chain.h, chain.layout)
    torch.testing.assert_close(found, chain.crf.partition.detach(), rtol=1e-9, atol=0)


def test_viterbi_agrees_with_the_argmax_of_torch_struct(chain):
    paths, scores = functional.viterbi(chain.h, chain.layout)
    np.testing.assert_array_equal(paths, chain.path_ids(chain.crf.argmax.detach()))
    np.testing.assert_allclose(scores, chain.crf.max.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_topk_agrees_with_torch_struct(chain, k):
    paths, scores = functional.topk(chain.h, chain.layout, k)
    np.testing.assert_array_equal(paths, chain.path_ids(chain.crf.topk(k).detach()).T)
    np.testing.assert_allclose(scores, chain.crf.kmax(k).detach().numpy().T, rtol=1e-9)


def test_marginals_agree_with_torch_struct(chain):
    expected = chain.crf.marginals.detach().numpy().transpose(0, 1, 3, 2)
    marginals = functional.marginals(chain.h, chain.layout).numpy()
    source, transitions, to_auxiliary, to_sink = chain.blocks(marginals)
    np.testing.assert_allclose(transitions, expected, atol=1e-9)
    np.testing.assert_allclose(source, expected[:, 0].sum(axis=2), atol=1e-9)
    np.testing.assert_allclose(to_auxiliary, expected[:, -1].sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(to_sink, 1, atol=1e-9)
