"""ONNX export with torch's own exporter; onnxruntime gives the same answers."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: run make test-all")
pytest.importorskip("onnxscript", reason="needs onnxscript: run make test-all")

from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

IN, C = 8, 60
HEADS = {
    "counts": lambda: TrellisSoftmax(IN, C, 4, counts=np.arange(C)),
    "mixture": lambda: TrellisSoftmax(IN, C, 4, n_trellises=2).tabulate(),
    "adaptive": lambda: AdaptiveTrellisSoftmax(IN, C, [10, 25], width=4),
}


class Answers(torch.nn.Module):
    """Everything that a server may want, in one graph."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, x):
        labels, log_probs = self.head.topk(x, 5)
        return self.head.predict(x), labels, log_probs, self.head.log_prob(x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HEADS)
def test_onnxruntime_gives_the_same_answers(name, tmp_path):
    torch.manual_seed(0)
    model = Answers(HEADS[name]()).eval()
    path = tmp_path / "head.onnx"
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        model, (torch.randn(3, IN),), path, dynamo=True, dynamic_shapes=({0: batch},), verbose=False
    )
    session = onnxruntime.InferenceSession(path)
    x = torch.randn(7, IN)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for given, expected in zip(found, model(x), strict=True):
        np.testing.assert_allclose(given, expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_table_instead_of_a_keyed_codebook_answers_the_same():
    head = TrellisSoftmax(IN, C, 4, n_trellises=2, assignment="random")
    x = torch.randn(3, IN)
    before = head.topk(x, 5)
    after = head.tabulate().topk(x, 5)
    assert torch.equal(before[0], after[0])
    assert "codebooks.0.paths" in head.state_dict()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("n_classes", "width"), [(2**25, 8), (2**40, 32)])
def test_onnxruntime_scores_targets_among_very_many_classes(n_classes, width, tmp_path):
    """Path numbers beyond the integers that float32 can hold."""

    class LogProb(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = TrellisSoftmax(IN, n_classes, width)

        def forward(self, x, target):
            return self.head.log_prob(x, target)

    torch.manual_seed(0)
    model, path = LogProb().eval(), tmp_path / "head.onnx"
    x, target = torch.randn(100, IN), torch.randint(n_classes, (100,))
    torch.onnx.export(model, (x, target), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    names = [given.name for given in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, (x.numpy(), target.numpy()), strict=True)))
    np.testing.assert_allclose(found, model(x, target).detach(), rtol=1e-4, atol=1e-4)
