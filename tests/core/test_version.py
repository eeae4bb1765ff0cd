"""The version is that of the installed package."""

import importlib
import importlib.metadata

import pytest

import ltls
from ltls.core import version


@pytest.fixture
def reloaded(monkeypatch):
    """Return the version that the module finds with another `importlib.metadata.version`."""

    def reload(find):
        monkeypatch.setattr(importlib.metadata, "version", find)
        return importlib.reload(version).__version__

    yield reload
    monkeypatch.undo()
    importlib.reload(version)


def test_the_version_is_that_of_the_package(reloaded):
    assert reloaded(lambda name: f"1.2.3 of {name}") == "1.2.3 of ltls"


def test_source_that_is_not_installed_has_a_version_too(reloaded):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    assert reloaded(missing) == "0+source"


def test_the_package_has_it():
    assert ltls.__version__ == version.__version__


def test_the_package_lists_its_public_names_alone():
    assert set(dir(ltls)) == {*ltls.__all__, "__version__"}
