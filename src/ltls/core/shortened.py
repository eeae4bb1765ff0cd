"""Values as error messages show them: at most about 40 characters of each."""

import reprlib

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 40

shortened = _REPR.repr
