"""Models on the Hugging Face Hub: estimators by functions, PyTorch layers by a mixin.

Both write a model card with data, metrics and size, and use no pickle. Requires ``pip install
'ltls[hub]'``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import (
    ModelCard,
    ModelCardData,
    ModelHubMixin,
    PyTorchModelHubMixin,
    hf_hub_download,
)

from .estimators.classifier import LTLSClassifier
from .estimators.load import load

__all__ = ["HubModule", "from_pretrained", "push_to_hub", "save_pretrained"]

MODEL_FILE = "model.ltls"
_TASKS = {"text": "text-classification", "table": "tabular-classification"}


def save_pretrained(
    estimator: LTLSClassifier,
    folder: str | os.PathLike[str],
    *,
    data: str | None = None,
    metrics: Mapping[str, float] | None = None,
    card: Mapping[str, Any] | None = None,
) -> None:
    """Save a fitted estimator and its model card to a folder.

    Parameters
    ----------
    estimator : LTLSClassifier
        A fitted `LTLSClassifier`, `TextClassifier` or `TableClassifier`.
    folder : path-like
        The folder to write. An existing model card is kept.
    data : str, optional
        Description of the training data, for the card.
    metrics : dict, optional
        Names and values of metrics, for the card.
    card : dict, optional
        Metadata of the card, such as ``{"license": "mit", "language": "en"}``.

    Examples
    --------
    >>> import tempfile
    >>> from ltls import TextClassifier
    >>> from ltls.hub import from_pretrained, save_pretrained
    >>> model = TextClassifier(random_state=0).fit(["a card", "a fee"], ["card", "fee"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pretrained(model, folder, data="two tickets", metrics={"accuracy": 1.0})
    ...     from_pretrained(folder, mmap=False).predict(["the card"]).tolist()
    ['card']
    """
    told = {"data": data, "metrics": metrics, **(card or {})}
    _HubEstimator(estimator).save_pretrained(Path(folder), model_card_kwargs=told)


def push_to_hub(
    estimator: LTLSClassifier,
    repo_id: str,
    *,
    data: str | None = None,
    metrics: Mapping[str, float] | None = None,
    card: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Upload a fitted estimator and its model card to the Hub.

    Parameters
    ----------
    estimator, data, metrics, card
        As in `save_pretrained`.
    repo_id : str
        The repository, such as ``"name/tickets"``. It is created if it does not exist.
    **options
        Options of `huggingface_hub.ModelHubMixin.push_to_hub`, such as ``private`` and ``token``.

    Returns
    -------
    str
        The address of the commit.
    """
    told = {"data": data, "metrics": metrics, **(card or {})}
    return str(_HubEstimator(estimator).push_to_hub(repo_id, model_card_kwargs=told, **options))


def from_pretrained(
    repo_id: str | os.PathLike[str], *, mmap: bool = True, **options: Any
) -> LTLSClassifier:
    """Load an estimator from a folder or a repository on the Hub.

    Parameters
    ----------
    repo_id : str or path-like
        A folder, or a repository such as ``"name/tickets"``.
    mmap : bool, default=True
        Memory-map the weights, as `ltls.load` does.
    **options
        Options of `huggingface_hub.ModelHubMixin.from_pretrained`, such as ``revision``.

    Returns
    -------
    LTLSClassifier
        The fitted estimator.
    """
    found: _HubEstimator = _HubEstimator.from_pretrained(repo_id, mmap=mmap, **options)
    return found.estimator


class _WithCard:
    """Mixin for a model card with data, metrics and size."""

    def _facts(self) -> dict[str, Any]:
        """Return what the card says of the model, besides data and metrics."""
        raise NotImplementedError

    def _how_to_use(self) -> str:
        """Return Python code."""
        raise NotImplementedError

    def generate_model_card(
        self,
        data: str | None = None,
        metrics: Mapping[str, float] | None = None,
        **card: Any,
    ) -> ModelCard:
        """Return the model card.

        Parameters
        ----------
        data : str, optional
            Description of the training data.
        metrics : dict, optional
            Names and values of metrics.
        **card
            Metadata of the card, such as ``license="mit"``.
        """
        if not isinstance(metrics or {}, Mapping):
            raise TypeError(f"metrics must be a dict of names and values, got {metrics!r}")
        tags = ["extreme-classification", "ltls"]
        known = ModelCardData(**{"library_name": "ltls", "tags": tags, **card})
        measured = {name: f"{value:.4g}" for name, value in (metrics or {}).items()}
        sections = [
            f"---\n{known.to_yaml()}\n---",
            "# A classifier among very many labels",
            _table(self._facts()),
            f"## Data\n\n{data or 'Not stated.'}",
            f"## Metrics\n\n{_table(measured) if measured else 'Not stated.'}",
            f"## Use\n\n```python\n{self._how_to_use()}\n```\n",
        ]
        return ModelCard("\n\n".join(sections))


class HubModule(_WithCard, PyTorchModelHubMixin):
    """Mixin for layers and networks: `save_pretrained`, `from_pretrained` and `push_to_hub`.

    It is `huggingface_hub.PyTorchModelHubMixin` with a model card that states data, metrics and
    size. Pass ``data`` and ``metrics`` in ``model_card_kwargs``, with the same meaning as in
    `ltls.hub.save_pretrained`. Constructor arguments are stored as JSON. Those that JSON cannot
    represent, such as an array of counts, need not be passed to load a layer of `ltls.torch`: the
    paths of the classes are stored with the weights.

    Examples
    --------
    >>> import tempfile
    >>> from ltls.hub import HubModule
    >>> from ltls.torch import TrellisSoftmax
    >>> class Head(TrellisSoftmax, HubModule):
    ...     pass
    >>> head = Head(16, n_classes=1000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     head.save_pretrained(folder, model_card_kwargs={"data": "1,000 words"})
    ...     same = Head.from_pretrained(folder)
    Loading weights from local directory
    >>> bool((same.edges.weight == head.edges.weight).all())
    True
    """

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **options: Any) -> Any:
        return super()._from_pretrained(strict=strict, **options)

    def _facts(self) -> dict[str, Any]:
        """Return what the card says of the model, besides data and metrics."""
        parameters = list(self.parameters())
        n_bytes = sum(each.numel() * each.element_size() for each in parameters)
        n_classes = getattr(self, "n_classes", None)
        return {
            **({} if n_classes is None else {"labels": f"{n_classes:,}"}),
            "parameters": f"{sum(each.numel() for each in parameters):,}",
            "size": _megabytes(n_bytes),
        }

    def _how_to_use(self) -> str:
        """Return Python code."""
        name = type(self).__name__
        return f"{name}.from_pretrained(repo_id)  # the class {name} is a HubModule of ltls"


class _HubEstimator(_WithCard, ModelHubMixin):
    """An estimator with the save and load methods that the mixin expects."""

    def __init__(self, estimator: LTLSClassifier) -> None:
        self.estimator = estimator

    def _save_pretrained(self, save_directory: Path) -> None:
        path = save_directory / MODEL_FILE
        self.estimator.save(path)
        self.n_bytes = path.stat().st_size
        self._hub_mixin_config = {"model_type": "ltls", "input": self._described()["input"]}

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, mmap: bool, config: Any = None, **options: Any
    ) -> _HubEstimator:
        if os.path.isdir(model_id):
            path = os.path.join(model_id, MODEL_FILE)
        else:
            path = hf_hub_download(model_id, MODEL_FILE, **options)
        return cls(load(path, mmap=mmap, verify=True))

    def _described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.estimator.model_.front_end.describe()
        return found

    def _facts(self) -> dict[str, Any]:
        """Return what the card says of the model, besides data and metrics."""
        model = self.estimator.model_
        return {
            "labels": f"{len(model.labels):,}",
            "labels per row": "several" if model.multilabel else "one",
            "input": self._described()["input"],
            "features": f"{model.columns.n_features:,}",
            "training rows": f"{self.estimator.fitted_.provenance.n_rows:,}",
            "size": _megabytes(self.n_bytes),
        }

    def _how_to_use(self) -> str:
        """Return Python code."""
        return "from ltls.hub import from_pretrained\n\nmodel = from_pretrained(repo_id)"

    def generate_model_card(self, *args: Any, **card: Any) -> ModelCard:
        """Return the model card."""
        task = _TASKS.get(self._described()["input"])
        return super().generate_model_card(*args, **{"pipeline_tag": task, **card})


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


def _table(rows: Mapping[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])
