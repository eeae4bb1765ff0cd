"""Conversion between `ltls.LTLSClassifier` and `TrellisSoftmax`.

Like `probing` and `encoders`, this module needs the estimators and the compiled engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from ..estimators.classifier import LTLSClassifier
from ..features.numbers import NumberInputs, Numbers
from ..features.rows import Columns
from ..model.labels import Labels
from ..model.model import Fitted, Model, Provenance
from ..parts.calibration import Calibrator
from ..parts.edge_weights import Weights, aligned, padded
from ..parts.trellises import Trellises, TrellisPart
from ..structure.codebook import Codebook, RandomCodebook, TableCodebook
from ..structure.losses import LOSSES
from ..structure.trellis import Trellis
from .codebooks import KeyedPaths, LabelPaths
from .head import TrellisSoftmax


def from_classifier(classifier: LTLSClassifier, **options: Any) -> TrellisSoftmax:
    """Convert a fitted classifier to a module with the same log-probabilities.

    Parameters
    ----------
    classifier : LTLSClassifier
        Fitted with trellises alone (``label_weights=False``), of loss="softmax", on features that
        are not standardized. Class i of the module is ``classifier.classes_[i]``. The module takes
        dense features; for texts and tables, those of ``classifier.model_.front_end.matrix(X)``.
    **options
        Keyword arguments of `TrellisSoftmax`, such as `reduction`, `ignore_index` and `device`.

    Returns
    -------
    head : TrellisSoftmax
        `head.log_prob` equals `classifier.path_log_proba`. With one trellis, predictions agree too.
        With several, the gate is initialized to equal weights and is trainable; the module ranks
        labels by their mean probability, the classifier by the sum of their log-probabilities, so
        predictions can differ.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from ltls import LTLSClassifier
    >>> from ltls.torch import from_classifier
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = LTLSClassifier(random_state=0).set_params(trellises__width=4)
    >>> head = from_classifier(classifier.fit(X / 16, y))
    >>> labels = head.predict(torch.tensor(X[:100] / 16, dtype=torch.float32))
    >>> bool((classifier.classes_[labels] == classifier.predict(X[:100] / 16)).all())
    True
    """
    model = classifier.model_
    part = model.part("trellises")
    if len(model.parts) > 1 or part is None:
        others = ", ".join(each.name for each in model.parts if each is not part)
        raise ValueError(
            f"classifier must rank labels by trellises alone, got {others}: fit it with "
            "label_weights=False, and without prototypes, neighbours and propensity"
        )
    if not part.loss.normalized:
        raise ValueError(f"classifier must have loss='softmax', got {part.loss.name!r}")
    columns = model.columns
    if columns.standardizer is not None:
        raise ValueError(
            "classifier must take features as they are: fit it with features__standardize=False"
        )
    head = TrellisSoftmax(
        columns.n_features,
        len(model.labels),
        part.trellis.width,
        len(part.codebooks),
        part.codebooks,
        bias=columns.intercept,
        unit_length=columns.unit_length,
        **options,
    )
    with torch.no_grad():
        weight = classifier.coef_
        dense = weight.toarray() if hasattr(weight, "toarray") else weight
        head.edges.weight.copy_(torch.from_numpy(dense))
        if head.edges.bias is not None:
            head.edges.bias.copy_(torch.from_numpy(classifier.intercept_))
        if head.gate is not None:
            head.gate.weight.zero_()
            head.gate.bias.zero_()
    return head


def to_classifier(head: TrellisSoftmax, classes: Iterable[Any] | None = None) -> LTLSClassifier:
    """Convert a module to a fitted classifier, to save it, use it without torch or keep training.

    Parameters
    ----------
    head : TrellisSoftmax
        With one trellis, or with several that the gate weights equally.
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
    if head.loss_name != "softmax":
        raise ValueError(f"head must have loss='softmax', got {head.loss_name!r}")
    gate = head.gate
    if gate is not None and (gate.weight.any() or (gate.bias != gate.bias[0]).any()):
        raise ValueError("head must have a gate that weights its trellises equally")
    labels = Labels(range(head.n_classes) if classes is None else classes)
    if len(labels) != head.n_classes:
        raise ValueError(f"classes must be {head.n_classes} distinct labels, got {len(labels)}")
    intercept, n_trellises = head.edges.bias is not None, head.n_trellises
    features = Numbers(normalize=head.unit_length, standardize=False, fit_intercept=intercept)
    trellises = Trellises(
        width=head.width, n_trellises=n_trellises, loss="softmax", dtype="float32"
    )
    part = TrellisPart(
        Trellis(head.layout.n_classes, head.width),
        _codebooks(head),
        LOSSES["softmax"],
        _weights(head),
        head.n_classes,
    )
    model = Model(
        labels,
        NumberInputs(features),
        Columns(head.in_features, intercept, head.unit_length),
        (part,),
        (1.0,),
        multilabel=False,
        target_format="single",
        probabilistic=True,
        calibration=Calibrator(False, 1 / n_trellises),
    )
    classifier = LTLSClassifier(features=features, trellises=trellises, label_weights=False)
    classifier.fitted_ = Fitted(model, Provenance(0, np.zeros(len(labels), np.int64)))
    classifier.n_features_in_ = head.in_features
    return classifier


def _weights(head: TrellisSoftmax) -> Weights:
    """Return the linear layer as the weights of a classifier, one padded block per trellis."""
    n_edges, n_trellises = head.layout.n_edges, head.n_trellises
    rows = head.edges.weight.detach().T
    intercept = head.edges.bias is not None
    if intercept:
        rows = torch.cat([rows, head.edges.bias.detach()[None]])
    blocks = rows.to("cpu", torch.float32).unflatten(1, (n_trellises, n_edges))
    values = nn.functional.pad(blocks, (0, padded(n_edges) - n_edges)).flatten(1).numpy()
    shape = n_edges, n_trellises, intercept, head.unit_length
    return Weights(aligned(values), None, *shape)


def _codebooks(head: TrellisSoftmax) -> list[Codebook]:
    """Return the codebooks, all of the same type, as model files require."""
    books: list[LabelPaths] = list(head.codebooks)
    if all(isinstance(book, KeyedPaths) for book in books):
        keyed = [(book.sizes, int(book.seed) % 2**64) for book in books]
        return [RandomCodebook(sizes[-1], seed, grown_from=sizes[:-1]) for sizes, seed in keyed]
    labels = torch.arange(head.n_classes, device=head.edges.weight.device)
    return [TableCodebook(book.n_paths, book.path_of(labels).cpu().numpy()) for book in books]
