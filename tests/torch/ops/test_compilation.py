"""The Triton kernels compile for a GPU where there is none: the interpreter checks no types."""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
triton = pytest.importorskip("triton", reason="needs triton: run make test-all")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime import driver, jit  # noqa: E402

from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax, functional, make_layout  # noqa: E402
from ltls.torch.ops import custom, launch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # those of other versions of triton


class Hopper:
    """The driver of a GPU that is not there."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


@pytest.fixture
def compiled(monkeypatch):
    """The names of the kernels that are compiled; none is launched."""
    names, run = [], jit.JITFunction.run

    def compile_only(self, *args, **kwargs):
        kwargs["warmup"] = True
        names.append(self.fn.__name__)
        run(self, *args, **kwargs)

    monkeypatch.setattr(jit.JITFunction, "run", compile_only)
    monkeypatch.setattr(custom, "_use_triton", lambda values: True)
    monkeypatch.setattr(driver, "_active", Hopper())
    for empty in ("empty", "empty_like"):  # what kernels do not fill is 0
        monkeypatch.setattr(torch, empty, getattr(torch, empty.replace("empty", "zeros")))
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)
    return names


@pytest.mark.parametrize("width", [2, 8, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_kernels_of_a_trellis(compiled, width, dtype):
    layout = make_layout(10**6, width)
    h = torch.zeros(16, layout.n_edges, dtype=dtype, requires_grad=True)
    paths = torch.zeros(16, 3, dtype=torch.int64)
    functional.log_prob(h, paths, layout).sum().backward()
    functional.logistic_loss(h, paths, layout).sum().backward()
    functional.logistic_loss(h, paths, layout, torch.ones(16, 3)).sum().backward()
    functional.topk(h, layout, 5)
    assert {"forward", "backward", "logistic", "topk"} <= set(compiled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kernels_of_the_layers(compiled, dtype):
    x = torch.zeros(16, 64, dtype=dtype, requires_grad=True)
    y = torch.zeros(16, dtype=torch.int64)
    for layer in (AdaptiveTrellisSoftmax(64, 10**5), TrellisSoftmax(64, 10**5)):
        layer.to(dtype)(x, y).loss.backward()
    launch.permute(y, torch.zeros(1, dtype=torch.int64), [10**5], False)
    expected = {"targets", "dense", "edges", "join", "join_grads", "permute"}
    assert expected <= set(compiled)
