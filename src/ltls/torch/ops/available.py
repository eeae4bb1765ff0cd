"""Which backends of the operators are installed.

`ltls.torch` also runs from source, without the compiled engine, and without Triton.
"""

from importlib.util import find_spec

HAS_ENGINE = find_spec("ltls.core._engine") is not None
HAS_TRITON = find_spec("triton") is not None
