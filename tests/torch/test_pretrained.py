"""Encoders of transformers and sentence-transformers: tiny ones that the tests make and save."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
transformers = pytest.importorskip("transformers", reason="needs transformers: run make test-all")

from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from torch import nn  # noqa: E402
from word_texts import WORDS, problem  # noqa: E402

from ltls.torch import EncoderClassifier  # noqa: E402

VOCABULARY = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "</s>", *WORDS])}
SIZES = {"vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 1}
BERT = transformers.BertConfig(
    **SIZES, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16
)


@pytest.fixture
def accelerate():
    pytest.importorskip("accelerate", reason="needs accelerate: run make test-all")


@pytest.fixture
def tokenizer():
    inner = Tokenizer(models.WordLevel(VOCABULARY, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )


@pytest.fixture
def bert(tokenizer, tmp_path):
    """A folder with a model and its tokenizer."""
    return saved(transformers.BertModel, BERT, tokenizer, tmp_path / "bert")


def saved(kind, config, tokenizer, folder, dtype=torch.float32):
    torch.manual_seed(0)
    kind(config).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make(encoder, **options):
    usual = {"device": "cpu", "random_state": 0, "epochs": 2, "learning_rate": 1e-3}
    return EncoderClassifier(encoder, **usual | options)


def vectors(model, texts, **options):
    """Return the vectors of texts by a classifier that does not change its encoder."""
    options = {"fine_tune": False, "text": False, **options}
    return make(model, **options).fit(*problem()).encode(texts)


def test_models_of_transformers(accelerate, bert, tmp_path):
    texts, y = problem()
    model = make(bert, gradient_checkpointing=True, vectors=False).fit(texts, y)
    labels, _ = model.predict_topk(texts[:20], 3)
    model.save(tmp_path / "model")
    (weights,) = tmp_path.glob("model/version-*/encoder/model.safetensors")
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.predict_topk(texts[:20], 3)[0], labels)
    torch.save(again.encoder_.model.state_dict(), weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):  # no pickle is read
        EncoderClassifier.load(tmp_path / "model", device="cpu")


def test_models_without_a_tokenizer(tokenizer, tmp_path):
    texts, y = problem()
    ids = tokenizer(texts, return_tensors="np")["input_ids"]
    model = make(transformers.BertModel(BERT), fine_tune=False, text=False).fit(ids, y)
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.predict(ids), model.predict(ids))


def test_long_texts_are_reported(bert):
    texts, y = problem()
    message = r"1 of 240 texts are longer than max_length=16 tokens"
    with pytest.warns(UserWarning, match=message) as found:
        make(bert, fine_tune=False).fit([" ".join(WORDS), *texts[1:]], y)
    assert found[0].filename == __file__


@pytest.mark.parametrize("mixed_precision", ["no", "bf16"])
def test_weights_of_half_precision_are_trained_in_float32(
    accelerate, mixed_precision, tokenizer, tmp_path, monkeypatch
):
    folder = saved(transformers.BertModel, BERT, tokenizer, tmp_path / "bert", torch.bfloat16)
    texts, y = problem()
    losses = []
    backward = torch.Tensor.backward
    monkeypatch.setattr(
        torch.Tensor, "backward", lambda self, *a, **k: (losses.append(self.item()), backward(self))
    )
    options = {"vectors": False, "text": False, "mixed_precision": mixed_precision}
    model = make(folder, epochs=8, learning_rate=3e-3, head={"width": 4}, **options).fit(texts, y)
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:8])
    trained = [*model.encoder_.parameters(), *model.head_.parameters()]
    assert {each.dtype for each in trained} == {torch.float32}
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    assert again.encoder_.model.dtype == torch.float32
    for ours, theirs in zip(again.predict_topk(texts), model.predict_topk(texts), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_weights_of_half_precision_encode_as_they_are(tokenizer, tmp_path):
    folder = saved(transformers.BertModel, BERT, tokenizer, tmp_path / "bert", torch.bfloat16)
    texts, y = problem()
    model = make(folder, fine_tune=False).fit(texts, y)
    assert model.encoder_.model.dtype == torch.bfloat16
    assert model.encode(texts).dtype == np.float32
    assert model.score(texts, y) > 0.8


@pytest.mark.parametrize("side", ["right", "left"])
def test_poolings_leave_out_padding(side, bert, tokenizer):
    tokenizer.padding_side = side
    texts = problem()[0][:4]
    both = [texts[0], f"{texts[1]} w3 w4 w5"]
    for pooling in ("mean", "cls", "max", "lasttoken"):
        model = transformers.BertModel.from_pretrained(bert)
        found = vectors(model, both, tokenizer=tokenizer, pooling=pooling)
        tokens = tokenizer(both[1], return_tensors="pt")
        with torch.no_grad():
            hidden = model.eval()(**tokens).last_hidden_state[0].numpy()
        expected = {
            "mean": hidden.mean(0), "cls": hidden[0], "max": hidden.max(0), "lasttoken": hidden[-1]
        }  # fmt: skip
        np.testing.assert_allclose(found[1], expected[pooling], rtol=1e-4, atol=1e-5)
        if side == "right":  # else BERT sees other positions
            alone = vectors(model, both[:1], tokenizer=tokenizer, pooling=pooling)
            np.testing.assert_allclose(found[:1], alone, rtol=1e-4, atol=1e-5)


def test_texts_without_tokens_have_vectors_of_zeros(bert):
    texts, y = problem()
    model = make(bert, fine_tune=False, text=False).fit(texts, y)
    for some in ([""], ["", " "], ["", texts[0]], [texts[0], ""]):
        found = model.encode(some)
        is_empty = [not text.strip() for text in some]
        assert not found[is_empty].any()
        assert np.isfinite(found).all()
        assert set(model.predict(some)) <= set(y)
        own = found[np.logical_not(is_empty)]
        np.testing.assert_allclose(own, model.encode(texts[:1])[: len(own)], rtol=1e-4, atol=1e-5)


def test_of_an_encoder_with_a_decoder_the_encoder_is_used(accelerate, tokenizer, tmp_path):
    config = transformers.T5Config(
        vocab_size=len(VOCABULARY), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    folder = saved(transformers.T5Model, config, tokenizer, tmp_path / "t5")
    texts, y = problem()
    found = vectors(folder, texts[:3], pooling="cls")
    with torch.no_grad():
        encoder = transformers.T5EncoderModel.from_pretrained(folder).eval()
        expected = encoder(**tokenizer(texts[:3], return_tensors="pt")).last_hidden_state[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    model = make(folder, vectors=False, head={"width": 4}).fit(texts, y)
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.encode(texts[:9]), model.encode(texts[:9]))


# sentence-transformers


def write_modules(folder, pooling, *others, path=""):
    """Make a folder one of sentence-transformers, as version 6 writes it."""
    names = ["base.modules.transformer.Transformer", "sentence_transformer.modules.Pooling"]
    paths = [path, "1_Pooling", *(f"{i}_{name}" for i, name in enumerate(others, 2))]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{name}"}
        for i, (name, path) in enumerate(zip([*names, *others], paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "lasttoken"])
def test_a_folder_of_sentence_transformers_says_how_it_pools(pooling, bert, tmp_path):
    texts, y = problem()
    expected = vectors(bert, texts, pooling=pooling)
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}
    old = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens", "lasttoken": "lasttoken"}
    modes[f"pooling_mode_{old[pooling]}"] = True  # before version 6
    for config in ({"embedding_dimension": 16, "pooling_mode": pooling}, modes):
        write_modules(bert, config, "base.modules.normalize.Normalize")
        np.testing.assert_array_equal(vectors(bert, texts), expected)
    other = "cls" if pooling == "mean" else "mean"
    assert not np.allclose(vectors(bert, texts, pooling=other), expected, atol=1e-3)
    model = make(bert, fine_tune=False).fit(texts, y)
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.encode(texts), expected)


def test_the_transformer_may_be_in_a_subfolder(tokenizer, tmp_path):
    saved(transformers.BertModel, BERT, tokenizer, tmp_path / "model" / "0_Transformer")
    write_modules(tmp_path / "model", {"pooling_mode": "cls"}, path="0_Transformer")
    expected = vectors(tmp_path / "model" / "0_Transformer", ["w1"], pooling="cls")
    np.testing.assert_array_equal(vectors(tmp_path / "model", ["w1"]), expected)
    limit = tmp_path / "model" / "0_Transformer" / "sentence_bert_config.json"
    limit.write_text(json.dumps({"max_seq_length": 4, "do_lower_case": False}))
    with pytest.warns(UserWarning, match="longer than max_length=4 tokens"):
        make(tmp_path / "model", fine_tune=False).fit(*problem())


def test_modules_that_are_not_supported(bert):
    texts, y = problem()
    write_modules(bert, {"pooling_mode": "cls"}, "base.modules.dense.Dense")
    with pytest.raises(ValueError, match=r"not supported: Dense; pass encoder=SentenceTransformer"):
        make(bert).fit(texts, y)
    vectors(bert, texts, pooling="cls")  # what is wanted without them
    for modes in ({"pooling_mode": "weightedmean"}, {"pooling_mode": ["cls", "mean"]}):
        write_modules(bert, modes)
        with pytest.raises(ValueError, match=r"not supported: Pooling with .*choose pooling"):
            make(bert).fit(texts, y)


class Sentences(nn.Module):
    """The interface of a `SentenceTransformer`: it tokenizes, pools, and takes and gives dicts."""

    def __init__(self, bert, tokenizer):
        super().__init__()
        self.bert, self.dense = bert, nn.Linear(16, 8)
        self.tokenizer, self.max_seq_length = tokenizer, 16

    def tokenize(self, texts):
        limit = {"truncation": True, "max_length": self.max_seq_length}
        tokens = self.tokenizer(texts, padding=True, return_tensors="pt", **limit)
        return {**tokens, "modality": "text"}

    def forward(self, features):
        found = self.bert(features["input_ids"], features["attention_mask"]).last_hidden_state
        features["sentence_embedding"] = self.dense(found[:, 0])
        return features

    def encode(self, texts):
        with torch.no_grad():
            return self.eval()(self.tokenize(texts))["sentence_embedding"].numpy()

    def save_pretrained(self, folder):
        raise AssertionError("its modules may be code of others")


def real(bert, tokenizer):
    """A `SentenceTransformer` with the modules of `Sentences`."""
    package = pytest.importorskip(
        "sentence_transformers", reason="needs sentence_transformers: run make test-all"
    )
    from sentence_transformers.models import Dense, Pooling, Transformer

    torch.manual_seed(0)
    layers = [Transformer(str(bert)), Pooling(16, "cls"), Dense(16, 8)]
    return package.SentenceTransformer(modules=layers, device="cpu")


def stand_in(bert, tokenizer):
    torch.manual_seed(0)
    return Sentences(transformers.BertModel.from_pretrained(bert), tokenizer)


@pytest.mark.filterwarnings("ignore")  # of sentence-transformers
@pytest.mark.parametrize("made", [stand_in, real])
def test_a_sentence_transformer_is_an_encoder(accelerate, made, bert, tokenizer, tmp_path):
    texts, y = problem()
    encoder = made(bert, tokenizer)
    before = encoder.encode(texts)
    np.testing.assert_allclose(vectors(encoder, texts), before, rtol=1e-4, atol=1e-5)
    model = make(encoder, head={"width": 4}, epochs=4).fit(texts, y)
    np.testing.assert_array_equal(encoder.encode(texts), before)  # a copy was trained
    assert model.score(texts, y) > 0.8
    assert model.encode(texts).shape == (240, 8)
    assert not model.encode([""]).any()
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", made(bert, tokenizer), device="cpu")
    np.testing.assert_allclose(again.encode(texts), model.encode(texts), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(again.predict(texts), model.predict(texts))
    short = vectors(encoder, texts, max_length=5)
    np.testing.assert_array_equal(
        short, vectors(encoder, [f"{text} w1" for text in texts], max_length=5)
    )
    with pytest.warns(UserWarning, match=r"longer than max_length=4 tokens"):
        make(encoder, max_length=4, fine_tune=False).fit(texts, y)


@pytest.mark.filterwarnings("ignore")  # of sentence-transformers
def test_a_real_folder_of_sentence_transformers(bert, tokenizer, tmp_path):
    encoder = real(bert, tokenizer)
    encoder.save_pretrained(str(tmp_path / "dense"))
    with pytest.raises(ValueError, match="not supported: Dense"):
        make(tmp_path / "dense").fit(*problem())
    del encoder[2]
    encoder.save_pretrained(str(tmp_path / "cls"))
    texts = problem()[0]
    expected = encoder.encode(texts)
    np.testing.assert_allclose(vectors(tmp_path / "cls", texts), expected, rtol=1e-4, atol=1e-5)
