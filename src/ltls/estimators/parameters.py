"""The parameters of the estimators: groups of settings, and what concerns all of them."""

from __future__ import annotations

import re
from dataclasses import field, fields
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import clone

from ..core.settings import (
    AUTO,
    FLAG,
    NOTHING,
    Allowed,
    Instance,
    Integer,
    Number,
    Settings,
    setting,
    settings,
)
from ..features.front_ends import FrontEndSettings, Numbers, Table, Text
from ..model.examples import LARGEST_WEIGHT
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

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_ON = Allowed("True", lambda value: value is True)
_OFF = Allowed("False", lambda value: value is False)
_FRONT_END = Instance("settings.Numbers, settings.Text or settings.Table", Numbers, Text, Table)
_SEED = Instance(
    "a seed, a RandomState or None", int, np.integer, np.random.RandomState, type(None)
)


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
    """Return the defaults of a part that was registered besides."""
    others = set(PARTS if part in PARTS else load_parts()) - set(Parameters.groups())
    if part not in others:
        raise ValueError(f"parts must be registered, got {part!r}, not one of {sorted(others)}")
    made: Settings = PARTS[part].settings()
    return made


def _n_bytes(size: Any) -> int | None:
    """Return a size such as "5MB" in bytes, None for what is none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B)\s*", str(size).upper())
    if not match or match[2] not in _UNITS or float(match[1]) == 0:
        return None
    return int(float(match[1]) * _UNITS[match[2]])


_PARTS = Allowed("a dict of registered parts and their settings", _are_parts)


@settings
class Parameters(Settings):
    """Groups of settings, and what concerns all of them."""

    default_features: ClassVar[type[FrontEndSettings]] = Numbers

    features: FrontEndSettings | str = setting(
        _FRONT_END,
        AUTO,
        default=AUTO,
        help="The kind of input (numbers, texts or rows of a table) and how it becomes features.",
    )
    trellises: Trellises | str = _part(
        Trellises, required=True, help="How trellises are built and trained."
    )
    views: Views | str | bool = _part(
        Views,
        help="Clusterings of the labels. False gives every label its own path, as in the paper.",
    )
    label_weights: LabelWeights | str | bool = _part(
        LabelWeights,
        help="Sparse classifiers of labels. False leaves out views, too: the model then has "
        "logarithmic size.",
    )
    label_matrix: LabelMatrix | str | bool = _part(
        LabelMatrix,
        help="A dense vector for every label, for dense rows such as embeddings, alone or beside "
        "sparse features.",
    )
    prototypes: Prototypes | str | bool = _part(
        Prototypes,
        help='The mean row of every label, which finds labels with few rows. "auto" keeps them if '
        "they help on held-out rows.",
    )
    neighbours: Neighbours | str | bool = _part(
        Neighbours,
        help='The labels of similar training rows, which the model then keeps. "auto" uses them if '
        "they help on held-out rows.",
    )
    propensity: Propensity | str | bool = _part(
        Propensity,
        default=False,
        help="Rank rare labels higher. Probabilities stay the same.",
    )
    calibration: Calibration | str | bool = _part(
        Calibration,
        help='Calibrate probabilities on held-out rows. "auto" does so from 1,000 rows on. '
        "`partial_fit` keeps the calibration of `fit`.",
    )
    memory: Memory | str | bool = _part(
        Memory,
        help="Training rows that the model keeps, for neighbours and to replay them in "
        "`partial_fit`. False keeps none, in memory and in files.",
    )
    parts: dict[str, Settings] | None = setting(
        _PARTS,
        NOTHING,
        default=None,
        help="Settings of parts that other packages registered, by name.",
    )
    size_budget: str | int | None = setting(
        Integer(1),
        Allowed("a size such as '5MB' or '300KB'", lambda value: _n_bytes(value) is not None),
        NOTHING,
        default=None,
        help="Largest size of the file that `save` writes. Small weights, parts or views are left "
        "out until it fits, whichever costs least on held-out rows. A budget that is larger than "
        "the file changes nothing.",
    )
    class_weight: dict[Any, float] | str | None = setting(
        Instance("a dict of weights", dict),
        "balanced",
        NOTHING,
        default=None,
        help="Weights of labels. A row with several labels has the mean of their weights.",
    )
    validation_fraction: float | str = setting(
        Number(0, below=1),
        AUTO,
        default=AUTO,
        help="Fraction of rows held out for early stopping: when P@1 on them has not improved for "
        '`trellises.n_iter_no_change` epochs, the weights of the best epoch are kept. "auto" runs '
        "all epochs; rows are held out only to choose weights and calibration, then trained on.",
    )
    n_jobs: int | None = setting(
        NOTHING,
        Integer(1, 1 << 16),
        Integer(-(1 << 16), -1),
        default=None,
        help="Number of threads: None is one, −1 all cores. Results do not depend on it.",
    )
    random_state: Any = setting(
        _SEED,
        default=None,
        help="Seed of shuffling, clusterings, random codebooks and held-out rows.",
    )
    verbose: int = setting(
        Integer(0), FLAG, default=0, help="Above 0, show the plan, and progress of every phase."
    )
    warm_start: bool = setting(
        FLAG,
        default=False,
        help="Continue from the weights of the last `fit`, which must have had the same classes.",
    )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; groups that are "auto" have the defaults of their settings."""
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
        """Set parameters; ``trellises__width=16`` sets one of a group, which is then on.

        ``parts__name__setting=value`` sets one of a part that another package registered.
        """
        kinds = self.groups()
        for key in list(params):
            name, nested, own = key.partition("__")
            if nested and name == "parts":
                part, _, own = own.partition("__")
                parts = dict(params.get("parts", self.parts) or {})
                given = clone(parts[part]) if part in parts else _settings_of(part)
                params["parts"] = {**parts, part: given.set_params(**{own: params.pop(key)})}
            elif nested and name in kinds:
                group = params.setdefault(name, getattr(self, name))
                if not isinstance(group, Settings):
                    params[name] = kinds[name]()
        super().set_params(**params)
        return self

    def _group(self, name: str) -> Settings | None:
        """Return the settings of a group, its defaults if it is "auto"; None if it has none."""
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

    def check_parameters(self, groups: bool = True) -> None:
        """Raise an error if a parameter is invalid, before any data is read.

        Without `groups`, their settings are not checked. A codebook policy need not be registered
        then, as nothing but training takes it.
        """
        self.check(type(self).__name__)
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        given |= {f"parts[{name!r}]": own for name, own in (self.parts or {}).items()}
        for name, value in given.items() if groups else ():
            if isinstance(value, Settings):
                value.check(name)
        for label, weight in (
            self.class_weight.items() if isinstance(self.class_weight, dict) else ()
        ):
            if not isinstance(weight, Real) or not 0 <= float(weight) <= LARGEST_WEIGHT:
                raise ValueError(
                    f"class_weight must hold numbers from 0 to {LARGEST_WEIGHT:g}, got {weight!r} "
                    f"for {label!r}"
                )

    def budget(self) -> int | None:
        """Return `size_budget` in bytes."""
        given = self.size_budget
        return _n_bytes(given) if isinstance(given, str) else given

    def front_end_settings(self) -> FrontEndSettings:
        """Return the settings of the front end; "auto" are the defaults."""
        given = self.features
        return self.default_features() if isinstance(given, str) else given
