"""Two processes with half of every batch train as one process does."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from ltls import RandomCodebook  # noqa: E402
from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch has no gloo"
)
IN, C = 16, 200


def network(kind):
    torch.manual_seed(0)
    if kind == "adaptive":
        return AdaptiveTrellisSoftmax(IN, C, [20, 60], width=4)
    if kind == "counts":
        return TrellisSoftmax(IN, C, 4, counts=range(C))
    books = [torch.arange(C).flip(0), RandomCodebook(C, seed=3)]  # a table and a key
    return TrellisSoftmax(IN, C, 4, n_trellises=2, assignment=books)


def replicated(kind):
    return DistributedDataParallel(network(kind))


def sharded(kind):
    """Built on "meta", with the state of one process."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    with torch.device("meta"):
        head = network(kind)
    fully_shard(head, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    register_fsdp_forward_method(head, "topk")
    head.to_empty(device="cpu")
    torch.manual_seed(0)
    head.reset_parameters()
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(head, network(kind).state_dict(), options=options)
    return head


def trained(head, rank=0, world=1):
    """Return the mean loss of every step on this process' share of the rows, and best labels."""
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9)
    generator, losses = torch.Generator().manual_seed(1), []
    for _ in range(6):
        x = torch.randn(32, IN, generator=generator)[rank::world]
        y = (x[:, :3] > 0).long() @ torch.tensor([1, 40, 100])
        optimizer.zero_grad()
        loss = head(x, y).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), getattr(head, "module", head).topk(torch.ones(2, IN), 3)[0]


CASES = [(replicated, "mixture"), (sharded, "counts"), (sharded, "adaptive")]


def train(rank, world, folder):
    torch.set_num_threads(1)
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
    found = []
    for wrapped, kind in CASES:
        losses, labels = trained(wrapped(kind), rank, world)
        dist.all_reduce(losses)
        found.append([losses / world, labels])
    if rank == 0:
        torch.save(found, folder / "found")
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_two_processes_train_as_one_does(tmp_path):
    torch.multiprocessing.spawn(train, (2, tmp_path), nprocs=2)
    for (losses, labels), (_, kind) in zip(torch.load(tmp_path / "found"), CASES, strict=True):
        expected, expected_labels = trained(network(kind))
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=0)
        assert losses[-1] < losses[0]
        assert torch.equal(labels, expected_labels)
