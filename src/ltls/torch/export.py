"""Between `ltls.LTLSClassifier` and a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .head import TrellisSoftmax
from .labels import KeyedPaths, LabelPaths, TablePaths

if TYPE_CHECKING:
    from ..structure.policies import Codebook
    from ..estimators.classifier import LTLSClassifier


def from_classifier(classifier: LTLSClassifier, **options: Any) -> TrellisSoftmax:
    """Return a fitted classifier as a torch module with the same scores and probabilities.

    Parameters
    ----------
    classifier : LTLSClassifier
        Fitted, with loss="softmax" and rescore=0. Label i of the module is
        ``classifier.classes_[i]``.
    **options
        `reduction`, `ignore_index`, `device` and such of `TrellisSoftmax`.

    Returns
    -------
    head : TrellisSoftmax
        `head.log_prob` is `classifier.log_proba`. The gate of several trellises weighs them
        equally; it can be trained.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> from ltls.torch import from_classifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(4, 1, rescore=0, random_state=0).fit(X / 16, y)
    >>> head = from_classifier(classifier)
    >>> labels = head.predict(torch.tensor(X[:100] / 16, dtype=torch.float32))
    >>> bool((classifier.classes_[labels] == classifier.predict(X[:100] / 16)).all())
    True
    """
    model = classifier._fitted()
    if model.loss != "softmax":
        raise ValueError(f"classifier must have loss='softmax', its loss is {model.loss!r}")
    if model.embedding is not None:
        raise ValueError("classifier must rank by its trellises alone: fit it with rescore=0")
    coefficients, intercept = classifier.coef_, classifier.intercept_
    head = TrellisSoftmax(
        coefficients.shape[1],
        len(model.labels),
        model.trellis.width,
        len(model.codebooks),
        model.codebooks,
        bias=model.linear.intercept,
        unit_length=model.linear.unit_length,
        **options,
    )
    with torch.no_grad():
        head.edges.weight.copy_(torch.from_numpy(np.ascontiguousarray(coefficients)))
        if head.edges.bias is not None:
            head.edges.bias.copy_(torch.from_numpy(intercept))
        if head.gate is not None:
            head.gate.weight.zero_()
            head.gate.bias.zero_()
    return head


def to_classifier(head: TrellisSoftmax, classes: Any = None) -> LTLSClassifier:
    """Return a head as a fitted classifier, to be saved, used without torch, or trained further.

    Parameters
    ----------
    head : TrellisSoftmax
        With one trellis, or several that its gate weighs equally.
    classes : sequence, optional
        The labels, in the order of the head's; 0 … n_classes − 1 if not given.

    Returns
    -------
    classifier : LTLSClassifier
        Fitted, with loss="softmax".

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
    from ..estimators.classifier import LTLSClassifier
    from ..model.labels import Labels
    from ..linear.weights import LinearModel, aligned_zeros, padded
    from ..model.fitted import Model
    from ..structure.trellis import Trellis

    gate = head.gate
    if gate is not None and (gate.weight.any() or (gate.bias != gate.bias[0]).any()):
        raise ValueError("head must weigh its trellises equally: its gate has learned weights")
    labels = Labels(range(head.n_classes) if classes is None else classes)
    if len(labels) != head.n_classes:
        raise ValueError(f"classes must be {head.n_classes} different labels, got {len(labels)}")
    trellis = Trellis(head.layout.n_classes, head.width)
    n, r, intercept = trellis.n_edges, head.n_trellises, head.edges.bias is not None
    edges = head.edges.weight.detach().T
    if intercept:
        edges = torch.cat([edges, head.edges.bias.detach()[None]])
    edges = edges.to("cpu", torch.float32).numpy()
    weights = aligned_zeros((len(edges), r * padded(n)), np.float32)
    weights.reshape(len(edges), r, -1)[:, :, :n] = edges.reshape(len(edges), r, n)
    classifier = LTLSClassifier(
        width=max(trellis.width, 2),
        n_trellises=r,
        loss="softmax",
        rescore=0,
        normalize=head.unit_length,
        fit_intercept=intercept,
    )
    classifier._learned = Model(
        labels,
        trellis,
        [_codebook(book) for book in head.codebooks],
        loss="softmax",
        l1=0.0,
        multilabel=False,
        form="single",
        scoring=LinearModel(weights, None, n, r, intercept, head.unit_length),
    )
    classifier.n_features_in_ = head.in_features
    return classifier


def _codebook(book: LabelPaths) -> Codebook:
    from ..structure.codebook import RandomCodebook, TableCodebook

    if isinstance(book, KeyedPaths):
        *grown_from, n = book.sizes
        return RandomCodebook(n, int(book.seed) % 2**64, grown_from=grown_from)
    if isinstance(book, TablePaths):
        return TableCodebook(book.n_paths, book.paths[: book.n_labels].cpu().numpy())
    return TableCodebook(book.n_paths, np.arange(book.n_labels))
