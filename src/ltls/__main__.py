"""``python -m ltls`` is the ``ltls`` command."""

from .cli import main

if __name__ == "__main__":
    main()
