"""Codebooks and class weights of layers that are built on "meta", then loaded or reset."""

from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from ltls.torch import AdaptiveTrellisSoftmax, TrellisEmbedding, TrellisSoftmax  # noqa: E402

C, D = 100, 8
COUNTS = np.random.default_rng(0).permutation(C)
WEIGHT = np.random.default_rng(1).random(C)

LAYERS = {
    "softmax": lambda **options: TrellisSoftmax(D, C, 4, counts=COUNTS, weight=WEIGHT, **options),
    "mixture": lambda **options: TrellisSoftmax(D, C, 4, 3, **options),
    "random": lambda **options: TrellisSoftmax(D, C, 4, assignment="random", **options),
    "hierarchy": lambda **options: TrellisSoftmax(D, C, 4, hierarchy=np.arange(C) % 3, **options),
    "adaptive": lambda **options: AdaptiveTrellisSoftmax(
        D, C + 20, [5, 20], width=4, counts=COUNTS, weight=np.ones(C + 20) * 3, **options
    ),
    "embedding": lambda **options: TrellisEmbedding(C, D, 4, counts=COUNTS, **options),
}


def build_on_meta(make, how):
    if how == "argument":
        return make(device="meta")
    with torch.device("meta"):
        return make()


def fixed(layer):
    """The buffers: codebooks and class weights."""
    return {name: buffer.clone() for name, buffer in layer.named_buffers()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0)


def materialized(layer):
    layer.to_empty(device="cpu")
    for buffer in layer.buffers():
        buffer.fill_(7)  # whatever was in memory
    return layer


@pytest.mark.parametrize("how", ["argument", "context"])
@pytest.mark.parametrize("name", LAYERS)
def test_reset_restores_what_was_given(name, how):
    layer = materialized(build_on_meta(LAYERS[name], how))
    layer.reset_parameters()
    assert_same(fixed(layer), fixed(LAYERS[name]()))


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_what_was_loaded_stays_after_a_reset(name, assign):
    saved = LAYERS[name]()
    book = next(module for module in saved.modules() if hasattr(module, "codebooks")).codebooks[-1]
    if name == "random":
        book.seed.fill_(12345)
    elif name not in ("mixture", "hierarchy"):
        book.paths.copy_(book.paths.flip(0))
        book.labels[book.paths.long()] = torch.arange(C, dtype=torch.int32)
    if name == "softmax":
        saved.weight.mul_(2)
    for layer in (build_on_meta(LAYERS[name], "context"), LAYERS[name]()):
        if layer.state_dict()[next(iter(layer.state_dict()))].is_meta and not assign:
            materialized(layer)
        layer.load_state_dict(saved.state_dict(), assign=assign)
        layer.reset_parameters()
        assert_same(fixed(layer), fixed(saved))


@pytest.mark.parametrize("name", ["counts", "label_features", "assignment", "weight"])
def test_arguments_that_are_on_meta_as_well(name):
    """A model that makes its own tensors, built by `from_pretrained`."""
    shape = (C, 3) if name == "label_features" else (C,)
    options = {"assignment": "similarity"} if name == "label_features" else {}

    def make():
        kind = {"dtype": torch.int64} if name == "assignment" else {}
        return TrellisSoftmax(D, C, 4, **options, **{name: torch.zeros(shape, **kind)})

    with torch.device("meta"):
        layer = make()
    generator = np.random.default_rng(0)
    given = generator.permutation(C) if name == "assignment" else generator.random(shape)
    saved = TrellisSoftmax(D, C, 4, **options, **{name: given})
    with pytest.raises(RuntimeError, match="built from tensors on meta"):
        materialized(layer).reset_parameters()
    layer.load_state_dict(saved.state_dict())
    layer.reset_parameters()
    assert_same(fixed(layer), fixed(saved))
    given = torch.zeros(shape, dtype=torch.int64, device="meta")
    with pytest.raises(ValueError, match="must have values, got a tensor on meta"):
        TrellisSoftmax(D, C, 4, **options, **{name: given}, device="cpu")


@pytest.mark.parametrize("name", LAYERS)
def test_loading_under_another_default_device(name):
    layer, saved = LAYERS[name](), LAYERS[name]()
    with torch.device("meta"):
        layer.load_state_dict(saved.state_dict())
        if name in ("mixture", "random"):
            layer.tabulate()
    assert not any(value.is_meta for value in layer.state_dict().values())


@pytest.mark.parametrize("mode", ["meta", "fake"])
@pytest.mark.parametrize("name", LAYERS)
def test_shapes_without_values(name, mode):
    """A model is run on "meta" or on fake tensors to plan its memory."""
    layer, loss = LAYERS[name](), None
    device = "meta" if mode == "meta" else "cpu"
    fake = FakeTensorMode(allow_non_fake_inputs=True) if mode == "fake" else nullcontext()
    with fake, torch.no_grad():
        layer.to(device)
        x = torch.empty(7, D, device=device)
        y = torch.empty(7, dtype=torch.int64, device=device)
        if name == "embedding":
            assert layer(y).shape == (7, D)
        else:
            output, loss = layer(x, y)
            assert (output.shape, loss.shape) == ((7,), ())


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_was_moved_to_meta_is_restored(name):
    layer = LAYERS[name]()
    expected = fixed(layer)
    materialized(layer.to("meta")).reset_parameters()
    assert_same(fixed(layer), expected)


def test_a_load_that_failed_leaves_what_was_given():
    layer = materialized(build_on_meta(LAYERS["softmax"], "context"))
    state = LAYERS["softmax"]().state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        layer.load_state_dict({**state, "weight": torch.ones(3)}, strict=False)
    layer.reset_parameters()
    torch.testing.assert_close(layer.weight, torch.from_numpy(WEIGHT).float())


def test_layers_that_share_a_codebook_have_tensors_of_their_own():
    head = TrellisSoftmax(D, C, 4, counts=COUNTS)
    table = TrellisEmbedding(C, D, 4, assignment=head.codebooks)
    model = nn.ModuleList([head, table])
    places = [value.data_ptr() for value in model.state_dict().values()]
    assert len(set(places)) == len(places)
    assert torch.equal(head.codebooks[0].paths, table.codebooks[0].paths)
    with torch.device("meta"):
        again = TrellisEmbedding(C, D, 4, assignment=head.codebooks[0])
    materialized(again).reset_parameters()
    assert torch.equal(head.codebooks[0].paths, again.codebooks[0].paths)
