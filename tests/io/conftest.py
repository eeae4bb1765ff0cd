"""Files for readers."""

import pytest


@pytest.fixture
def put(tmp_path):
    """Write some content to a file and return its path."""

    def put(content, name="rows"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put
