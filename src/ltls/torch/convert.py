"""Conversion between `ltls.LTLSClassifier` and `TrellisSoftmax`.

This is the only module of `ltls.torch` that needs the estimators and the compiled engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from ..estimators.classifier import LTLSClassifier
from ..linear.weights import Weights, aligned_zeros, padded
from ..model.fitted import FittedModel
from ..model.labels import Labels
from ..structure.codebook import Codebook, RandomCodebook, TableCodebook
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis
from .codebooks import KeyedPaths, LabelPaths, TablePaths
from .head import TrellisSoftmax


def from_classifier(classifier: LTLSClassifier, **options: Any) -> TrellisSoftmax:
    """Convert a fitted classifier to a module with the same log-probabilities.

    Parameters
    ----------
    classifier : LTLSClassifier
        Fitted with loss="softmax", bucket_size=1, label_weights=False, embedding_dim=0 and
        propensity=0, on features that are not standardized. Class i of the module is
        ``classifier.classes_[i]``.
    **options
        Keyword arguments of `TrellisSoftmax`, such as `reduction`, `ignore_index` and `device`.

    Returns
    -------
    head : TrellisSoftmax
        `head.log_prob` equals `classifier.log_proba` if that is not calibrated. With one trellis,
        predictions agree too. With several, the gate is initialized to equal weights and is
        trainable; the module ranks labels by their mean probability, the classifier by the sum of
        their log-probabilities, so predictions can differ.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> from ltls.torch import from_classifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(4, 1, embedding_dim=0, random_state=0).fit(X / 16, y)
    >>> head = from_classifier(classifier)
    >>> labels = head.predict(torch.tensor(X[:100] / 16, dtype=torch.float32))
    >>> bool((classifier.classes_[labels] == classifier.predict(X[:100] / 16)).all())
    True
    """
    check_is_fitted(classifier, "model_")
    model: FittedModel = classifier.model_
    if not model.loss.normalized:
        raise ValueError(f"classifier must have loss='softmax', got {model.loss.name!r}")
    if model.rerankers or model.shares_paths:
        raise ValueError(
            "classifier must rank labels by its trellises alone: fit it with bucket_size=1, "
            "label_weights=False, embedding_dim=0 and propensity=0"
        )
    if model.standardizer is not None:
        raise ValueError("classifier must take features as they are: fit it with standardize=False")
    weights = model.weights
    head = TrellisSoftmax(
        model.n_features,
        len(model.labels),
        model.trellis.width,
        len(model.codebooks),
        model.codebooks,
        bias=weights.intercept,
        unit_length=weights.unit_length,
        **options,
    )
    with torch.no_grad():
        rows = weights.dense()
        head.edges.weight.copy_(torch.from_numpy(model.expand(rows[: weights.n_features])).T)
        if head.edges.bias is not None:
            head.edges.bias.copy_(torch.from_numpy(rows[-1]))
        if head.gate is not None:
            head.gate.weight.zero_()
            head.gate.bias.zero_()
    return head


def to_classifier(head: TrellisSoftmax, classes: Iterable[Any] | None = None) -> LTLSClassifier:
    """Convert a module to a fitted classifier, to save it, use it without torch or keep training.

    Parameters
    ----------
    head : TrellisSoftmax
        With one trellis, or with several and a gate that weights them equally.
    classes : iterable, optional
        The labels, in the order of the module's classes; 0 … n_classes − 1 if None.

    Returns
    -------
    classifier : LTLSClassifier
        Fitted, with loss="softmax". See `from_classifier` on predictions of several trellises.

    Examples
    --------
    >>> import torch
    >>> from ltls.torch import TrellisSoftmax, to_classifier
    >>> head = TrellisSoftmax(8, 100, width=4)
    >>> classifier = to_classifier(head)
    >>> x = torch.randn(5, 8)
    >>> bool((classifier.predict(x.numpy()) == head.predict(x).numpy()).all())
    True
    """
    gate = head.gate
    if gate is not None and (gate.weight.any() or (gate.bias != gate.bias[0]).any()):
        raise ValueError("head must have a gate that weights its trellises equally")
    labels = Labels(range(head.n_classes) if classes is None else classes)
    if len(labels) != head.n_classes:
        raise ValueError(f"classes must be {head.n_classes} distinct labels, got {len(labels)}")
    trellis = Trellis(head.layout.n_classes, head.width)
    model = FittedModel(
        labels,
        trellis,
        [_codebook(book) for book in head.codebooks],
        loss=LOSSES["softmax"],
        l1=0.0,
        multilabel=False,
        target_format="single",
        frozen=_weights(head),
    )
    return LTLSClassifier.from_model(
        model,
        width=max(trellis.width, 2),
        n_trellises=head.n_trellises,
        loss="softmax",
        embedding_dim=0,
        normalize=head.unit_length,
        fit_intercept=model.weights.intercept,
    )


def _weights(head: TrellisSoftmax) -> Weights:
    """Return the linear layer as the weights of a classifier, one padded block per trellis."""
    n_edges, n_trellises = head.layout.n_edges, head.n_trellises
    rows = head.edges.weight.detach().T
    intercept = head.edges.bias is not None
    if intercept:
        rows = torch.cat([rows, head.edges.bias.detach()[None]])
    dense = rows.to("cpu", torch.float32).numpy()
    values = aligned_zeros((len(dense), n_trellises * padded(n_edges)), np.float32)
    blocks = values.reshape(len(dense), n_trellises, -1)
    blocks[:, :, :n_edges] = dense.reshape(len(dense), n_trellises, n_edges)
    return Weights(values, None, n_edges, n_trellises, intercept, head.unit_length)


def _codebook(book: LabelPaths) -> Codebook:
    if isinstance(book, KeyedPaths):
        *grown_from, n_paths = book.sizes
        return RandomCodebook(n_paths, int(book.seed) % 2**64, grown_from=grown_from)
    if isinstance(book, TablePaths):
        return TableCodebook(book.n_paths, book.paths[: book.n_labels].cpu().numpy())
    return TableCodebook(book.n_paths, np.arange(book.n_labels))
