"""Annif's commands, with the backend: ``python annif_with_ltls.py --help``."""

import annif.backend
from annif.cli import cli
from ltls_backend import LTLSBackend

annif.backend._backend_fns["ltls"] = lambda: LTLSBackend

if __name__ == "__main__":
    cli()
