import os
import tempfile
from pathlib import Path

import pytest

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # no disk has to be waited for


@pytest.fixture
def tmp_path():
    """A folder in memory, if there is such a file system: everything here is synchronized often."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)
