"""Nodes that join a cluster while it trains: they take what the others have no room for."""

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs ray: run make test-all")

SCRIPT = """
import threading
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray_workers import clusters_of_rows
from ltls import LTLSClassifier
from ltls.ray import fitting

options = {"num_cpus": 1, "object_store_memory": 80_000_000}
cluster = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
jobs = []

class Job(fitting.Job):
    def run(self, *arguments):
        jobs.append(self)
        return super().run(*arguments)

fitting.Job = Job
run_round = fitting.ClusterTrainer._run_round

@ray.remote(num_cpus=1)
class Other:
    def begin(self):
        pass

def with_new_node(trainer, *arguments):
    if len(trainer.reports) != 2:
        return run_round(trainer, *arguments)
    first = NodeAffinitySchedulingStrategy(ray.nodes()[0]["NodeID"], soft=False)
    cluster.add_node(**options)
    cluster.wait_for_nodes()
    other = Other.options(scheduling_strategy=first).remote()  # takes the CPU of the first node
    ray.get(other.begin.remote())
    try:
        return run_round(trainer, *arguments)
    finally:
        ray.kill(other)

fitting.ClusterTrainer._run_round = with_new_node
table, _ = clusters_of_rows(6000)
rows = ray.data.from_arrow(table)
model = LTLSClassifier(epochs=4, random_state=0, width=8, n_trellises=3)
fitting.fit(model, rows, label="label", features=["i", "v"], n_workers=2, split="rows")
nodes = [{report.node for report in reports} for reports in jobs[0].trainer.reports]
print("before", len(set.union(*nodes[:2])), "new", len(nodes[2] - nodes[0]), "of", len(nodes[2]))
ray.shutdown()
cluster.shutdown()
"""


def test_a_node_that_joins_late_is_used():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True,
                          cwd=__file__.rpartition("/")[0] + "/../support", timeout=150)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "before 1 new 1 of 1" in done.stdout
