import os
import sys

import pytest


def pytest_collection_modifyitems(items):
    """Let Ray warn of its own deprecations."""
    for item in items:
        if "tests/ray/" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def cluster():
    """A local Ray, one for all tests.

    Its object store holds what the largest fit needs. A smaller one spills to disk, which Ray
    refuses where the disk is nearly full.
    """
    import ray

    with pytest.MonkeyPatch.context() as patch:  # workers can import what tests can
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        ray.init(
            num_cpus=2,
            object_store_memory=600_000_000,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    yield ray
    ray.shutdown()


@pytest.fixture
def dataset(cluster):
    """Make a dataset of an Arrow table, in a few blocks."""

    def make(table, n_blocks=3):
        return cluster.data.from_arrow(table).repartition(n_blocks).materialize()

    return make
