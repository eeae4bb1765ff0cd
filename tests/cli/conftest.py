"""Files for the commands to read, and models that they have written."""

import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """The working directory, with the rows of the module in all of its `FORMS`."""
    monkeypatch.chdir(tmp_path)
    for name, text in request.module.FORMS.items():
        (tmp_path / f"rows.{name}").write_text(text)
    return tmp_path


@pytest.fixture(scope="module")
def model_file():
    """What the first training wrote, for all tests that only need a model."""
    return []
