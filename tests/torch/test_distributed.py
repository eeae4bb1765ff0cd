"""DistributedDataParallel: two processes with half of every batch train as one process does."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ltls import RandomCodebook  # noqa: E402
from ltls.torch import TrellisSoftmax  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo"
)
STEPS, ROWS = 6, 32


class Network(torch.nn.Module):
    """A mixture of a table codebook and a keyed one, so that it has both kinds of buffers."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(8, 16)
        books = [torch.arange(500).flip(0), RandomCodebook(500, seed=3)]
        self.head = TrellisSoftmax(16, 500, 4, n_trellises=2, assignment=books)

    def forward(self, x, y):
        return self.head(torch.relu(self.hidden(x)), y).loss


def losses(rank=0, world=1):
    """Train on this process' share of every batch; return the mean loss of every step."""
    torch.manual_seed(0)
    network = Network()
    model = DistributedDataParallel(network) if world > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    curve = []
    for _ in range(STEPS):
        x = torch.randn(ROWS, 8, generator=generator)[rank::world]
        y = 61 * (x[:, :3] > 0).long() @ torch.tensor([1, 2, 4])
        optimizer.zero_grad()
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if world > 1:
            dist.all_reduce(mean)
        curve.append(mean.item() / world)
    return curve


def train(rank, world, folder):
    torch.set_num_threads(1)
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
    curve = losses(rank, world)
    if rank == 0:
        torch.save(curve, folder / "curve")
    dist.destroy_process_group()


def test_two_processes_train_as_one_does(tmp_path):
    torch.multiprocessing.spawn(train, (2, tmp_path), nprocs=2)
    expected = losses()
    assert torch.load(tmp_path / "curve") == pytest.approx(expected, rel=1e-5)
    assert expected[-1] < expected[0]
