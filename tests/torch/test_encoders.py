"""EncoderClassifier: tiny encoders that the tests make, fine-tuned or not."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from torch import nn  # noqa: E402

from ltls import LTLSClassifier, TextClassifier  # noqa: E402
from ltls.torch import EncoderClassifier, fine_tuning  # noqa: E402
from ltls.torch.hybrid import best_weights  # noqa: E402

WORDS = [f"w{i}" for i in range(40)]


class Bag(nn.Module):
    """A module of the user's own: the mean of embeddings."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(len(WORDS) + 3, 16)

    def forward(self, input_ids, attention_mask=None):
        return self.table(input_ids)


class Words:
    """A tokenizer of words, with the arguments of those of transformers."""

    model_max_length = 12

    def __call__(
        self,
        texts,
        padding=False,
        return_tensors=None,
        truncation=False,
        max_length=None,
        verbose=True,
    ):
        ids = [
            [1, *(2 + WORDS.index(w) for w in text.split())][: max_length or None] for text in texts
        ]
        if return_tensors is None:
            return {"input_ids": ids}
        length = max(map(len, ids))
        padded = torch.tensor([own + [0] * (length - len(own)) for own in ids])
        return {"input_ids": padded, "attention_mask": (padded > 0).long()}


def problem(several=False, n=240):
    """Texts whose first two words tell the label."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, n), rng.integers(4, 8, n)
    texts = [
        " ".join([WORDS[a], WORDS[b], *rng.choice(WORDS[8:], 3)])
        for a, b in zip(first, second, strict=True)
    ]
    if several:
        return texts, [[f"a{a}", f"b{b}"] for a, b in zip(first, second, strict=True)]
    return texts, [f"{a}-{b}" for a, b in zip(first, second, strict=True)]


@pytest.fixture
def accelerate():
    pytest.importorskip("accelerate", reason="needs accelerate: run make test-all")
    from accelerate.state import AcceleratorState

    yield
    AcceleratorState._reset_state(True)


def make(**options):
    torch.manual_seed(0)
    usual = {"tokenizer": Words(), "device": "cpu", "random_state": 0, "batch_size": 16}
    usual |= {"learning_rate": 0.02, "head_learning_rate": 0.05, "epochs": 16}
    return EncoderClassifier(Bag(), **{**usual, **options})


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    "stages", [("fine_tune",), ("vectors",), ("text",), ("fine_tune", "vectors", "text")]
)
def test_every_stage_learns_and_is_saved(several, stages, tmp_path, request):
    if "fine_tune" in stages:
        request.getfixturevalue("accelerate")
    texts, y = problem(several)
    every = ("fine_tune", "vectors", "text")
    model = make(**{name: name in stages for name in every}, head={"width": 4})
    assert model.fit(texts, y) is model
    names = {"fine_tune": "head"}
    assert set(model.weights_) == {names.get(stage, stage) for stage in stages}
    assert sum(model.weights_.values()) == pytest.approx(1)
    labels, scores = model.predict_topk(texts, k=2)
    right = [
        best in (true if several else [true]) for best, true in zip(labels[:, 0], y, strict=True)
    ]
    assert np.mean(right) > (0.7 if stages == ("vectors",) else 0.85)  # of random embeddings
    assert (np.diff(scores, axis=1) <= 0).all()
    found = model.predict(texts)
    if several:
        assert np.mean([bool(set(a) & set(b)) for a, b in zip(found, y, strict=True)]) > 0.8
    else:
        assert model.score(texts, y) == pytest.approx(np.mean(right))
        np.testing.assert_allclose(model.predict_proba(texts[:9]).sum(axis=1), 1, rtol=1e-4)
    _, proba = model.predict_topk(texts[:9], k=2, proba=True)
    np.testing.assert_allclose(
        proba, -np.sort(-model.predict_proba(texts[:9]), axis=1)[:, :2], rtol=1e-5
    )
    model.save(tmp_path / "model")
    assert not list((tmp_path / "model").rglob("*.pkl")) + list((tmp_path / "model").rglob("*.bin"))
    again = EncoderClassifier.load(tmp_path / "model", Bag(), Words(), device="cpu")
    np.testing.assert_array_equal(again.predict_topk(texts, 2)[0], labels)
    np.testing.assert_allclose(again.predict_topk(texts, 2)[1], scores, rtol=1e-4, atol=1e-4)
    assert again.threshold_ == model.threshold_


def test_explanations_add_up():
    texts, y = problem()
    model = make(fine_tune=False).fit(texts, y)
    [[best, _]] = model.explain(texts[:1], k=2)
    assert best.label == model.predict(texts[:1])[0]
    total = sum(part.weight * part.log_probability for part in best.parts)
    assert best.score == pytest.approx(total, rel=1e-4)
    assert [part.part for part in best.parts] == ["vectors", "text"]
    assert best.text.contributions


def test_new_labels():
    texts, y = problem()
    model = make(fine_tune=False).fit(texts, y)
    before = len(model.classes_)
    new = ["w30 w31 w32"] * 20
    for _ in range(5):
        model.partial_fit(new, ["new"] * 20)
    assert len(model.classes_) == before + 1
    assert "new" in model.predict_topk(new[:1], k=before + 1)[0]
    with pytest.raises(ValueError, match="several labels per row"):
        model.partial_fit(new[:1], [["a", "b"]])


def test_an_indicator_matrix_is_predicted_as_such():
    texts, y = problem(several=True)
    columns = sorted({label for row in y for label in row})
    Y = np.array([[label in row for label in columns] for row in y], int)
    model = make(fine_tune=False, text=True).fit(texts, Y)
    assert model.predict(texts).shape == Y.shape
    assert (model.predict(texts) == Y).mean() > 0.8


def test_rows_that_are_not_texts_and_given_estimators():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)).astype(np.float32)
    y = (X[:, :3].argmax(axis=1) + 10).tolist()
    vectors = LTLSClassifier(random_state=3)
    model = EncoderClassifier(
        nn.Linear(6, 6), fine_tune=False, text=False, vectors=vectors, device="cpu", random_state=0
    ).fit(torch.from_numpy(X), y)
    assert model.vectors_.random_state == 3
    assert model.score(X, y) > 0.85
    text = TextClassifier(random_state=5)
    assert make(fine_tune=False, text=text).fit(*problem()).text_.random_state == 5


def test_fine_tuning_resumes(accelerate, tmp_path, monkeypatch):
    texts, y = problem()
    options = {"vectors": False, "text": False, "n_iter_no_change": 9, "epochs": 4}
    whole = make(**options).fit(texts, y)
    saved, count = fine_tuning._save, []

    def interrupted(*args):
        saved(*args)
        count.append(1)
        if len(count) == 2:
            raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(fine_tuning, "_save", interrupted)
    with pytest.raises(MemoryError, match=r"smaller batch_size than 16 .*gradient_checkpointing"):
        make(**options).fit(texts, y, checkpoint=tmp_path)
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 2
    with pytest.raises(ValueError, match="other data or parameters"):
        make(**options).fit(texts[:-1], y[:-1], checkpoint=tmp_path, resume=True)
    resumed = make(**options).fit(texts, y, checkpoint=tmp_path, resume=True)
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 4
    assert (tmp_path / "vectors.npy").exists()
    assert abs(resumed.score(texts, y) - whole.score(texts, y)) < 0.1


def test_the_best_epoch_is_kept(accelerate, monkeypatch):
    precisions = iter([0.5, 0.9, 0.4, 0.3, 0.2])
    states = []

    def precision(network, *_):
        states.append(network.head.edges.weight.detach().clone())
        return next(precisions)

    monkeypatch.setattr(fine_tuning, "_precision", precision)
    model = make(vectors=False, text=False, epochs=9, n_iter_no_change=2).fit(*problem())
    assert len(states) == 4  # two epochs without a better one
    torch.testing.assert_close(model.head_.edges.weight, states[1])


def test_accumulation_and_mixed_precision(accelerate):
    options = {"gradient_accumulation_steps": 2, "mixed_precision": "bf16", "batch_size": 8}
    texts, y = problem()
    model = make(vectors=False, text=False, head={"width": 4}, **options).fit(texts, y)
    assert model.score(texts, y) > 0.7


def test_models_of_transformers(accelerate, tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers: run make test-all"
    )
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    inner = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    texts, y = problem()
    model = EncoderClassifier(
        tmp_path / "bert",
        device="cpu",
        random_state=0,
        epochs=2,
        learning_rate=1e-3,
        gradient_checkpointing=True,
        vectors=False,
    ).fit(texts, y)
    labels, _ = model.predict_topk(texts[:20], 3)
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "encoder" / "model.safetensors").exists()
    again = EncoderClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.predict_topk(texts[:20], 3)[0], labels)
    with pytest.warns(UserWarning, match=r"1 of 240 texts are longer than max_length=16 tokens"):
        EncoderClassifier(tmp_path / "bert", fine_tune=False, device="cpu", random_state=0).fit(
            [" ".join(WORDS), *texts[1:]], y
        )


def test_weights_are_those_that_rank_true_labels_first():
    good = np.log(np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], np.float32))
    bad = np.log(np.array([[0.1, 0.3, 0.6], [0.5, 0.1, 0.4]], np.float32))
    hits = np.array([[True, False, False], [False, True, False]])
    found = best_weights({"bad": bad, "good": good}, hits, np.ones(2, int))
    assert found["good"] > found["bad"]
    even = best_weights({"a": good, "b": good}, hits, np.ones(2, int))
    assert even == {"a": 0.5, "b": 0.5}


def test_bad_input(monkeypatch):
    texts, y = problem()
    wrong = [
        ([*texts[:-1], " "], y, {}, "got an empty one as X\\[239\\]"),
        (texts[:-1], y, {}, "y must have one entry per row"),
        (texts, ["a"] * len(texts), {}, "at least 2 classes"),
        (texts, y, {"fine_tune": False, "text": False, "vectors": False}, "must be on"),
        (texts, y, {"batch_size": 0}, "batch_size must be at least 1"),
        (texts, y, {"validation_fraction": 1}, "validation_fraction must"),
        (texts, y, {"mixed_precision": "int8"}, "mixed_precision must"),
        (texts, y, {"pooling": "max"}, "pooling must"),
    ]
    for X, labels, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            make(**options).fit(X, labels)
    with pytest.raises(TypeError, match=r"got NoneType as X\[0\]"):
        make().fit([None, *texts[1:]], y)
    with pytest.raises(TypeError, match="pass \\[text\\]"):
        make().fit(texts[0], y)
    with pytest.raises(TypeError, match="encoder must be the name"):
        EncoderClassifier(7).fit(texts, y)
    with pytest.raises(ValueError, match="call fit first"):
        make().predict(texts)
    with pytest.raises(ValueError, match="resume=True needs checkpoint"):
        make(fine_tune=False).fit(texts, y, resume=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="use device='cpu'"):
        make(device="cuda").fit(texts, y)
