"""TrellisEmbedding: an input table of logarithmic size."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.arrays import as_integer
from .codebooks import adopt_saved, make_codebooks
from .layout import make_layout
from .ops.tracing import has_values

_NO_CLASS = -(2**63)  # an index that nobody passes


class TrellisEmbedding(nn.Module):
    """An embedding whose vectors are sums over the edges of a path, without a row per class.

    With several trellises, the sum is over all of them. The layer replaces `nn.Embedding` where a
    table with a row per class is too large, as in recommendation. If it gets the codebook of a
    `TrellisSoftmax`, both layers have the same paths, but not the same weights.

    Parameters
    ----------
    num_embeddings : int
        Number of classes.
    embedding_dim : int
        Size of each vector.
    width, n_trellises, assignment, counts, label_features
        As in `TrellisSoftmax`, with the same defaults. More trellises make the vectors of classes
        more distinct.
    padding_idx : int, optional
        The class whose vector is 0 and gets no gradient. Negative values count from the end, as in
        `nn.Embedding`; values beyond the last class are allowed.
    device, dtype : optional
        Device and type of the parameters.

    Examples
    --------
    >>> import torch
    >>> from ltls.torch import TrellisEmbedding
    >>> table = TrellisEmbedding(100_000_000, 64, width=32, n_trellises=2)
    >>> sum(parameter.numel() for parameter in table.parameters())
    546304
    >>> table(torch.tensor([[0, 5], [7, 99_999_999]])).shape
    torch.Size([2, 2, 64])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        width: int = 32,
        n_trellises: int = 1,
        assignment: Any = "frequency",
        counts: Any = None,
        label_features: Any = None,
        *,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = as_integer("num_embeddings", num_embeddings, at_least=2)
        self.embedding_dim = as_integer("embedding_dim", embedding_dim, at_least=1)
        if padding_idx is not None:
            padding_idx = as_integer("padding_idx", padding_idx, at_least=-num_embeddings)
            if padding_idx < 0:  # as in nn.Embedding
                padding_idx += num_embeddings
        self.padding_idx = padding_idx
        width = as_integer("width", width, at_least=2)
        n_trellises = as_integer("n_trellises", n_trellises, at_least=1)
        self.codebooks = make_codebooks(
            assignment, num_embeddings, width, n_trellises, counts, label_features, device=device
        )
        self.layout = make_layout(self.codebooks[0].n_paths, width)
        shape = (n_trellises * self.layout.n_edges, embedding_dim)
        self.edges = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw edge vectors such that vectors of classes with the longest path have variance 1."""
        terms = max(1, self.layout.longest_path) * len(self.codebooks)
        nn.init.normal_(self.edges, std=terms**-0.5)
        for book in self.codebooks:
            book.reset_parameters()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *args: Any
    ) -> None:
        """Create codebooks of the kind that was saved, before their tables are loaded."""
        if f"{prefix}edges" in state_dict:
            start, device = f"{prefix}codebooks.", self.edges.device
            adopt_saved(self.codebooks, self.layout, state_dict, start, local_metadata, device)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Return the vectors of classes, shape (…, embedding_dim).

        A class out of range raises an error on a CPU; on a GPU and when compiled, its vector is
        NaN.
        """
        if input.is_floating_point() or input.dtype == torch.bool:
            raise TypeError(f"input must have an integer dtype, got {input.dtype}")
        labels = input.to(torch.int64)
        self._check_range(labels)
        ignored = _NO_CLASS if self.padding_idx is None else self.padding_idx
        n_edges, padding = self.layout.n_edges, len(self.edges)
        bags = []
        for r, book in enumerate(self.codebooks):
            paths = book.path_of(labels.reshape(-1), ignored)
            edges = self.layout.path_edges(paths)
            bags.append(torch.where(edges < 0, padding, edges + r * n_edges))
        # Two rows more: zeros for the padding of short paths, and NaN for a class out of range.
        others = self.edges.new_zeros((2, self.embedding_dim))
        if not has_values(labels):
            others[1] = torch.nan
            bags[-1] = torch.where(paths[:, None] == book.n_paths, padding + 1, bags[-1])
        table = torch.cat([self.edges, others])
        vectors = nn.functional.embedding_bag(torch.cat(bags, 1), table, mode="sum")
        return vectors.reshape(*input.shape, self.embedding_dim)

    def _check_range(self, labels: Tensor) -> None:
        """Raise an error for a class out of range, on a CPU only, as `TrellisSoftmax` does."""
        if not has_values(labels):
            return
        outside = (labels < 0) | (labels >= self.num_embeddings)
        if self.padding_idx is not None:
            outside &= labels != self.padding_idx
        if outside.any():
            raise IndexError(
                f"input must be class indices from 0 to {self.num_embeddings - 1}, got "
                f"{labels[outside][0].item()}"
            )

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.num_embeddings}, {self.embedding_dim}, n_edges={self.layout.n_edges}"
