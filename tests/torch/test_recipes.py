"""The layers in other people's frameworks; docs/deep_head.md has the same recipes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402

from ltls.torch import AdaptiveTrellisSoftmax, TrellisSoftmax  # noqa: E402

IN, C = 16, 200


def network(kind):
    torch.manual_seed(0)
    if kind == "adaptive":
        return AdaptiveTrellisSoftmax(IN, C, [20, 60], width=4)
    if kind == "tensors":  # as a model that is built on "meta" makes them
        return TrellisSoftmax(IN, C, 4, counts=torch.arange(C), weight=torch.full((C,), 2.0))
    counts = np.arange(C) if kind == "counts" else None
    return TrellisSoftmax(IN, C, 4, counts=counts)


# Hugging Face


def hugging_face():
    transformers = pytest.importorskip("transformers", reason="needs transformers: make test-all")
    from transformers.modeling_outputs import CausalLMOutput

    class Config(transformers.PretrainedConfig):
        model_type = "ltls_test"

        def __init__(self, kind="counts", vocab_size=C, hidden_size=IN, **options):
            super().__init__(**options)
            self.kind, self.vocab_size, self.hidden_size = kind, vocab_size, hidden_size
            self.num_hidden_layers = 1

    class Model(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.lm_head = network(config.kind)
            self.post_init()

        def forward(self, input_ids, labels=None, **_):
            hidden = self.tokens(input_ids).cumsum(1)
            if labels is not None:
                loss = self.lm_head(hidden[:, :-1], labels[:, 1:]).loss
                return CausalLMOutput(loss=loss)
            return CausalLMOutput(logits=self.lm_head(hidden[:, -1:]))

        def prepare_inputs_for_generation(self, input_ids, **_):
            return {"input_ids": input_ids}

    return Config, Model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["counts", "tensors", "frequency", "adaptive"])
def test_hugging_face_from_pretrained_and_generate(kind, tmp_path):
    make_config, make_model = hugging_face()
    model = make_model(make_config(kind, pad_token_id=0, eos_token_id=C - 1))
    with torch.no_grad():  # far from the state of a new model
        for parameter in model.parameters():
            parameter.mul_(3)
    model.save_pretrained(tmp_path)
    loaded = make_model.from_pretrained(tmp_path)
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
    ids = torch.tensor([[5, 7, 9]])
    assert loaded(ids, labels=ids).loss == model(ids, labels=ids).loss
    loaded.lm_head.reset_parameters()  # draws parameters, and leaves what was loaded
    for name, value in model.named_buffers():
        assert torch.equal(loaded.get_buffer(name), value), name
    loaded = make_model.from_pretrained(tmp_path)
    written = loaded.generate(ids, max_new_tokens=4, do_sample=False)
    for step in range(3, written.shape[1]):
        hidden = model.tokens(written[:, :step]).cumsum(1)[:, -1]
        assert model.lm_head.predict(hidden) == written[0, step]


# Lightning


@pytest.mark.filterwarnings("ignore")
def test_lightning_trains(tmp_path):
    lightning = pytest.importorskip("lightning", reason="needs lightning: run make test-all")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.losses = nn.Linear(4, IN), network("counts"), []

        def training_step(self, batch, _):
            loss = self.head(torch.tanh(self.body(batch[0])), batch[1]).loss
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.05)

    torch.manual_seed(0)
    x = torch.randn(128, 4)
    y = (x @ torch.randn(4, C)).argmax(1)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64)
    module = Module()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=15, accelerator="cpu", default_root_dir=tmp_path, **quiet
    )
    trainer.fit(module, data)
    assert module.losses[-1] < 0.7 * module.losses[0]
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    other = Module()
    state = torch.load(tmp_path / "model.ckpt", weights_only=False)["state_dict"]
    other.load_state_dict(state)
    assert torch.equal(
        other.head.predict(x @ torch.ones(4, IN)), module.head.predict(x @ torch.ones(4, IN))
    )
