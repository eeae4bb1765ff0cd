"""The parameters of the estimators: groups of settings, and settings of the whole model."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..core.settings import (
    AUTO,
    FLAG,
    NOTHING,
    SIZE,
    Allowed,
    Instance,
    Integer,
    Number,
    Settings,
    setting,
    settings,
)
from ..features.front_ends import FrontEndSettings, Numbers, Table, Text
from ..parts.base import PARTS, load_parts
from ..parts.calibration import Calibration
from ..parts.label_matrix import LabelMatrix
from ..parts.label_weights import LabelWeights
from ..parts.memory import Memory
from ..parts.neighbours import Neighbours
from ..parts.propensity import Propensity
from ..parts.prototypes import Prototypes
from ..parts.trellises import Trellises
from ..parts.views import Views

Self = TypeVar("Self", bound="Parameters")

_ON = Allowed("True", lambda value: value is True)
_OFF = Allowed("False", lambda value: value is False)
_FRONT_END = Instance("settings.Numbers, settings.Text or settings.Table", Numbers, Text, Table)
SEED = Instance("a seed, a RandomState or None", int, np.integer, np.random.RandomState, type(None))


def _part(
    kind: type[Settings],
    *,
    help: str,  # noqa: A002
    default: Any = AUTO,
    required: bool = False,
) -> Any:
    """Declare a group of settings: an object, "auto" or, unless it is required, True or False."""
    group = Instance(f"settings.{kind.__name__}", kind)
    declared = setting(group, AUTO, *(() if required else (_ON, _OFF)), default=default, help=help)
    return field(default=default, metadata={**declared.metadata, "group": kind})


def _are_parts(value: Any) -> bool:
    return isinstance(value, dict) and all(
        name in PARTS
        and name not in Parameters.groups()
        and isinstance(given, PARTS[name].settings)
        for name, given in value.items()
    )


def _settings_of(part: str) -> Settings:
    """Return the default settings of a part registered by another package."""
    others = set(PARTS if part in PARTS else load_parts()) - set(Parameters.groups())
    if part not in others:
        raise ValueError(f"parts must be registered (one of {sorted(others)}), got {part!r}")
    made: Settings = PARTS[part].settings()
    return made


_PARTS = Allowed("a dict of registered parts and their settings", _are_parts)


@settings
class Parameters(Settings):
    """Groups of settings, and settings of the whole model; estimators have them."""

    default_features: ClassVar[type[FrontEndSettings]] = Numbers

    features: FrontEndSettings | str = setting(
        _FRONT_END,
        AUTO,
        default=AUTO,
        help="The kind of input (numbers, texts or table rows) and how it is turned into features.",
    )
    trellises: Trellises | str = _part(
        Trellises, required=True, help="How trellises are built and trained."
    )
    views: Views | str | bool = _part(
        Views,
        help="Clusterings of the labels, whose clusters are found by trellises. False gives every "
        "label its own path, as in the paper.",
    )
    label_weights: LabelWeights | str | bool = _part(
        LabelWeights,
        help="Sparse linear classifiers, one per label. False also leaves out views: the model "
        "then has logarithmic size.",
    )
    label_matrix: LabelMatrix | str | bool = _part(
        LabelMatrix,
        help="A dense vector for every label, for dense features such as embeddings, with or "
        "without sparse features.",
    )
    prototypes: Prototypes | str | bool = _part(
        Prototypes,
        help='The mean row of every label, which helps to find labels with few rows. "auto" keeps '
        "prototypes if they help on held-out rows.",
    )
    neighbours: Neighbours | str | bool = _part(
        Neighbours,
        help='The labels of similar training rows, which the model stores. "auto" keeps '
        "neighbours if they help on held-out rows.",
    )
    propensity: Propensity | str | bool = _part(
        Propensity,
        default=False,
        help="Rank rare labels higher. Does not change probabilities.",
    )
    calibration: Calibration | str | bool = _part(
        Calibration,
        help='Calibrate probabilities on held-out rows. "auto" does so with at least 1,000 rows. '
        "`partial_fit` keeps the calibration of `fit`.",
    )
    memory: Memory | str | bool = _part(
        Memory,
        help="Training rows that the model stores, for neighbours and for replay in "
        "`partial_fit`. False stores none, neither in memory nor in files.",
    )
    parts: dict[str, Settings] | None = setting(
        _PARTS,
        NOTHING,
        default=None,
        help="Settings of parts registered by other packages, by name.",
    )
    size_budget: str | int | None = setting(
        Integer(1),
        SIZE,
        NOTHING,
        default=None,
        help="Maximum size of the file that `save` writes. Small weights, parts or views are "
        "dropped until it fits, whichever costs the least accuracy on held-out rows. A budget "
        "larger than the file has no effect.",
    )
    class_weight: dict[Any, float] | str | None = setting(
        Instance("a dict of weights", dict),
        "balanced",
        NOTHING,
        default=None,
        help='Weights of labels, 1 for a label that is not in the dict. "balanced" weights are '
        "inversely proportional to the number of rows of a label. A row with several labels has "
        "the mean of their weights.",
    )
    validation_fraction: float | str = setting(
        Number(0, below=1),
        AUTO,
        default=AUTO,
        help="Fraction of rows held out for early stopping: training stops when precision "
        "at 1 on them has not improved for `trellises.n_iter_no_change` epochs, and keeps the "
        'weights of the best epoch. "auto" runs all epochs; rows are held out only to choose part '
        "weights and calibration, and are then trained on.",
    )
    n_jobs: int | None = setting(
        NOTHING,
        Integer(1, 1 << 16),
        Integer(-(1 << 16), -1),
        default=None,
        help="Number of threads; None means 1, −1 means all cores. Results do not depend on it.",
    )
    random_state: Any = setting(
        SEED,
        default=None,
        help="Seed for shuffling, clusterings, random codebooks and held-out rows.",
    )
    verbose: int = setting(
        Integer(0),
        FLAG,
        default=0,
        help="If above 0, print the plan and the progress of every phase.",
    )
    warm_start: bool = setting(
        FLAG,
        default=False,
        help="Continue from the trellises of the last `fit`, which must have had the same classes. "
        "Other parts are trained anew.",
    )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep : bool, default=True
            Also return the settings of groups, such as ``trellises__width``. A group that is
            "auto" or True has its default settings.

        Returns
        -------
        dict of str to object
        """
        params: dict[str, Any] = super().get_params(deep=False)
        for name in list(params) if deep else ():
            group = self._group(name)
            if group is not None:
                params |= {f"{name}__{key}": value for key, value in group.get_params().items()}
        others = self.parts if deep and isinstance(self.parts, dict) else {}
        for name, given in others.items():
            params |= {f"parts__{name}__{key}": value for key, value in given.get_params().items()}
        return params

    def set_params(self: Self, **params: Any) -> Self:
        """Set parameters, or single settings of groups.

        Parameters
        ----------
        **params
            Parameters by name. ``trellises__width=16`` changes one setting of a group, and enables
            the group if it was disabled. ``parts__name__setting=value`` changes a setting of a part
            that another package registers.

        Returns
        -------
        self
        """
        kinds, of_groups = self.groups(), []
        for key in list(params):
            name, nested, own = key.partition("__")
            if nested and name == "parts":
                part, _, own = own.partition("__")
                from sklearn.base import clone  # slow to import, and only needed here

                parts = dict(params.get("parts", self.parts) or {})
                given = clone(parts[part]) if part in parts else _settings_of(part)
                params["parts"] = {**parts, part: given.set_params(**{own: params.pop(key)})}
            elif nested and name in kinds:
                group = params.setdefault(name, getattr(self, name))
                if not isinstance(group, Settings):
                    params[name] = kinds[name]()
                of_groups.append((name, {own: params.pop(key)}))
        super().set_params(**params)
        for name, given in of_groups:
            getattr(self, name).set_params(**given)
        return self

    def _group(self, name: str) -> Settings | None:
        """Return the settings of a group, by default its default settings; None if disabled."""
        value = getattr(self, name, None)
        if isinstance(value, Settings):
            return value
        kind = self.groups().get(name)
        return None if kind is None or value is False or value is None else kind()

    @classmethod
    def groups(cls) -> dict[str, type[Settings]]:
        """Return the groups of settings by name."""
        named = {each.name: each.metadata.get("group") for each in fields(cls)}
        return {
            "features": cls.default_features,
            **{name: kind for name, kind in named.items() if kind is not None},
        }
