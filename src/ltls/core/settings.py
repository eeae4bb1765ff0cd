"""Groups of declared settings as scikit-learn knows them: ``set_params(trellises__width=16)``."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import InvalidParameterError

from . import declared
from .declared import AUTO as AUTO
from .declared import FLAG as FLAG
from .declared import NOTHING as NOTHING
from .declared import SIZE as SIZE
from .declared import TEXT as TEXT
from .declared import Allowed as Allowed
from .declared import Declared
from .declared import Instance as Instance
from .declared import Integer as Integer
from .declared import Number as Number
from .declared import OneOf as OneOf
from .declared import setting as setting
from .declared import settings as settings


class ParameterError(declared.ParameterError, InvalidParameterError):  # type: ignore[misc]
    """A parameter of an estimator has an invalid value; scikit-learn's error, too."""


GROUPS: dict[str, type[Settings]] = {}  # all groups by name, as model files name them


class Settings(Declared, BaseEstimator):  # type: ignore[misc]
    """A group of settings; see `settings`."""

    _error = ParameterError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        GROUPS[cls.__name__] = cls

    def stored(self) -> dict[str, Any]:
        """Return the settings as a file stores them; see `from_dict`."""
        given: dict[str, Any] = self.get_params(deep=False)
        return given
