"""The hyperparameters of training, as one typed object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..structure.codebook import Codebook
from ..structure.policies import POLICIES, CodebookPolicy

# Hyperparameters that determine the shape and state of a model: they cannot change while it is
# trained further.
FIXED = ("width", "n_trellises", "size_budget", "loss", "optimizer", "average", "normalize",
         "fit_intercept", "l1")  # fmt: skip


@dataclass(frozen=True)
class TrainConfig:
    """How to train; the fields are parameters of `LTLSClassifier` of the same name.

    `keep_on_interrupt` says whether Ctrl-C ends training with a warning and keeps the weights, or
    propagates as `KeyboardInterrupt`.
    """

    width: int | str = "auto"
    n_trellises: int | str = "auto"
    bucket_size: int | str = "auto"
    label_weights: bool | str = "auto"
    embedding_dim: int = 0
    propensity: float | str = 0.0
    calibrate: bool = True
    density: float | str = "auto"
    size_budget: str | int | None = None
    loss: str = "auto"
    assignment: str | Codebook | list[Codebook] = "random"
    epochs: int | str = "auto"
    learning_rate: float = 0.7
    optimizer: str = "adagrad"
    average: bool = False
    shuffle: bool = True
    normalize: bool | str = "auto"
    standardize: bool | str = "auto"
    fit_intercept: bool = True
    l1: float = 0.0
    ranking_multiplier: int = 1
    class_weight: dict[Any, float] | str | None = None
    validation_fraction: float | str = "auto"
    n_iter_no_change: int = 1
    batch_size: int = 1
    replay_size: int = 10_000
    n_jobs: int | None = None
    verbose: int = 0
    keep_on_interrupt: bool = True

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], keep_on_interrupt: bool) -> TrainConfig:
        """Return the configuration of an estimator with these parameters."""
        names = [field.name for field in fields(cls) if field.name in parameters]
        own = {name: parameters[name] for name in names}
        return cls(**own, keep_on_interrupt=keep_on_interrupt)

    @property
    def policy(self) -> CodebookPolicy | None:
        """The codebook policy; None if codebooks are given."""
        return POLICIES[self.assignment] if isinstance(self.assignment, str) else None

    @property
    def fixed(self) -> dict[str, Any]:
        """The hyperparameters that must not change while a model is trained further."""
        return {name: getattr(self, name) for name in FIXED}

    def may_standardize(self, X: Any) -> bool:
        """Return whether features like these may be standardized: dense ones, unless told not to.

        It is an error if sparse ones shall be.
        """
        sparse = hasattr(X, "indptr")
        if sparse and self.standardize is True:
            raise ValueError(
                "standardize=True would make sparse features dense: use 'auto' or False, or "
                "scale them with sklearn.preprocessing.MaxAbsScaler"
            )
        return not sparse and self.standardize is not False

    def use_unit_length(self, sparse: bool) -> bool:
        """Return whether rows are scaled to unit length."""
        return sparse if self.normalize == "auto" else bool(self.normalize)
