"""Nodes that join a cluster while it trains: they take what the others have no room for."""

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

SCRIPT = """
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray_workers import clusters_of_rows
import ltls.ray
from ltls import LTLSClassifier
from ltls.ray.workers import ClusterWorkers

options = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
run_epoch = ClusterWorkers.run_epoch

@ray.remote(num_cpus=1)
class Other:
    def begin(self):
        pass

def with_new_node(workers, training, *arguments):
    if training.weights.epochs != 2:
        return run_epoch(workers, training, *arguments)
    first = NodeAffinitySchedulingStrategy(ray.nodes()[0]["NodeID"], soft=False)
    other = Other.options(scheduling_strategy=first).remote()
    ray.get(other.begin.remote())  # takes the only CPU, and keeps it
    cluster.add_node(**options)
    try:
        return run_epoch(workers, training, *arguments)
    finally:
        print("an epoch on the new node")
        ray.kill(other)

ClusterWorkers.run_epoch = with_new_node
table, _ = clusters_of_rows(1000)
model = LTLSClassifier(random_state=0).set_params(trellises__epochs=4)
ltls.ray.fit(model, ray.data.from_arrow(table), label="label", features=["i", "v"], n_workers=2)
print("epochs", model.n_iter_)
ray.shutdown()
cluster.shutdown()
"""


def test_a_node_that_joins_late_is_used():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True,
                          cwd=__file__.rpartition("/")[0] + "/../support", timeout=150)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "an epoch on the new node\nepochs 4" in done.stdout
