"""EncoderClassifier: tiny encoders that the tests make, fine-tuned or not."""

import contextlib
import json
import os
import pickle
import socket
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: run make test-all")

from sklearn.base import clone, is_classifier  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils import get_tags  # noqa: E402
from torch import nn  # noqa: E402
from word_texts import WORDS, problem  # noqa: E402

from ltls import LTLSClassifier, TextClassifier  # noqa: E402
from ltls.torch import EncoderClassifier, encoders, encoding, fine_tuning, hybrid  # noqa: E402
from ltls.torch.devices import as_device  # noqa: E402
from ltls.torch.stage_weights import best_weights  # noqa: E402


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


@pytest.fixture
def accelerate():
    pytest.importorskip("accelerate", reason="needs accelerate: run make test-all")


def make(**options):
    torch.manual_seed(0)
    usual = {"tokenizer": Words(), "device": "cpu", "random_state": 0, "batch_size": 16}
    usual |= {"learning_rate": 0.02, "head_learning_rate": 0.05, "epochs": 16}
    return EncoderClassifier(Bag(), **{**usual, **options})


SMALL = {"width": 4, "div_value": 2, "trellis_features": 16}
HEADS = {
    "trellis": {"width": 4},
    "logistic": {"width": 4, "loss": "logistic"},
    "a cluster": {"cutoffs": [2], **SMALL},
    "two clusters": {"cutoffs": [2, 4], **SMALL},
    "clusters by default": {"cutoffs": None, **SMALL},
}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("stages", "head"),
    [*((("head",), name) for name in HEADS), (("vectors",), None), (("text",), None),
     (("head", "vectors", "text"), "trellis")],
    ids=str,
)  # fmt: skip
def test_a_model_learns_and_is_saved(several, stages, head, tmp_path, request):
    if "head" in stages:
        request.getfixturevalue("accelerate")
    texts, y = problem(several)
    chances = np.linspace(0.5, 1, 8 if several else 16).astype(np.float32)
    given = {name: name in stages for name in ("vectors", "text")}
    options = {**HEADS.get(head, {}), "propensities": chances}
    model = make(fine_tune="head" in stages, head=options, **given)
    assert model.fit(texts, y) is model
    assert set(model.weights_) == set(stages)
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
        same = [set(a) == set(b) for a, b in zip(found, y, strict=True)]
        assert model.score(texts, y) == pytest.approx(np.mean(same))
    else:
        assert model.score(texts, y) == pytest.approx(np.mean(right))
        np.testing.assert_allclose(model.predict_proba(texts[:9]).sum(axis=1), 1, rtol=1e-4)
    _, proba = model.predict_topk(texts[:9], k=2, proba=True)
    assert ((proba >= 0) & (proba <= 1)).all()
    every = model.predict_proba(texts[:9])
    np.testing.assert_allclose(proba, -np.sort(-every, axis=1)[:, :2], rtol=1e-5)
    model.save(tmp_path / "model")
    assert not list((tmp_path / "model").rglob("*.pkl")) + list((tmp_path / "model").rglob("*.bin"))
    again = EncoderClassifier.load(tmp_path / "model", Bag(), Words(), device="cpu")
    np.testing.assert_array_equal(again.predict_topk(texts, 2)[0], labels)
    close = {"rtol": 0, "atol": 0} if stages == ("head",) else {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(again.predict_topk(texts, 2)[1], scores, **close)
    assert list(again.predict(texts)) == list(found)
    assert not several or again.threshold_ == model.threshold_
    layer = model.head_
    if hasattr(layer, "softmax"):
        counts = [sum(label in np.atleast_1d(own) for own in y) for label in model.classes_]
        order = layer.label_of.numpy()
        assert (np.diff(np.array(counts)[order]) <= 0).all()  # the most frequent ones are first
        assert again.head_.softmax.cutoffs == layer.softmax.cutoffs
        layer, chances = layer.softmax, chances[order]
    elif layer is not None:
        assert again.head_.loss_name == layer.loss_name == options.get("loss", "softmax")
    if layer is not None:
        torch.testing.assert_close(layer.weight, torch.from_numpy(1 / chances))


@pytest.mark.parametrize("several", [False, True])
def test_candidates_are_scored_of_very_many_labels(several, monkeypatch):
    texts, y = problem(several)
    model = make(fine_tune=False).fit(texts, y)
    labels, _ = model.predict_topk(texts, k=1)
    monkeypatch.setattr("ltls.model.model.FEW_LABELS", 2)
    monkeypatch.setattr("ltls.model.model.CANDIDATES", 3)
    assert (model.predict_topk(texts, k=1)[0] == labels).mean() > 0.9
    proba = model.predict_proba(texts)
    assert (proba == 0).any()
    if not several:
        np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-4)
    some = model.classes_[[0, -1]].tolist()
    assert set(model.predict_topk(texts, k=2, among=some)[0].flatten()) == set(some)


def test_explanations_add_up():
    texts, y = problem()
    model = make(fine_tune=False).fit(texts, y)
    [[best, _]] = model.explain(texts[:1], k=2)
    assert best.label == model.predict(texts[:1])[0]
    total = sum(part.weight * part.log_probability for part in best.parts)
    assert best.score == pytest.approx(total, rel=1e-4)
    assert [part.part for part in best.parts] == ["vectors", "text"]
    assert best.text.contributions
    ids = {label: number for number, label in enumerate(model.classes_)}
    for each in model.explain(texts[1:2], k=8)[0]:
        assert each.text.label == ids[each.label]
    pandas = pytest.importorskip("pandas", reason="needs pandas: run make test-all")
    shuffled = pandas.Series(texts[:2], index=[1, 0])
    assert model.explain(shuffled, k=2) == model.explain(texts[:2], k=2)


@pytest.mark.parametrize("fine_tune", [False, True])
def test_new_labels(fine_tune, request):
    if fine_tune:
        request.getfixturevalue("accelerate")
    texts, y = problem()
    model = make(fine_tune=fine_tune, head={"width": 4}).fit(texts, y)
    before = len(model.classes_)
    new = ["w30 w31 w32"] * 20
    for _ in range(5):
        model.partial_fit(new, ["new"] * 20)
    assert len(model.classes_) == before + 1
    assert model.predict(new[:1]) == ["new"]  # though the head does not know it
    assert model.score(texts, y) > 0.8
    [[best]] = model.explain(new[:1], k=1)
    assert [part.part for part in best.parts] == ["vectors", "text"]
    assert sum(part.weight for part in best.parts) == pytest.approx(1)
    with pytest.raises(ValueError, match="several labels per row"):
        model.partial_fit(new[:1], [["a", "b"]])


def test_a_prediction_is_of_one_model(monkeypatch):
    texts, y = problem()
    model = make(fine_tune=False).fit(texts, y)
    other = make(fine_tune=False).fit(texts[:100], y[:100])
    first, read = model.fitted_, EncoderClassifier._model
    labels, scores = model.predict_topk(texts, k=3)
    explained = model.explain(texts[:9], k=3)

    def read_and_replaced(self):
        """Return the model, which another thread then replaces."""
        found = read(self)
        self.fitted_ = other.fitted_
        return found

    monkeypatch.setattr(EncoderClassifier, "_model", read_and_replaced)
    found = model.predict_topk(texts, k=3)
    np.testing.assert_array_equal(found[0], labels)
    np.testing.assert_array_equal(found[1], scores)
    model.fitted_ = first
    assert model.explain(texts[:9], k=3) == explained


def test_a_partial_fit_that_fails_changes_no_stage(monkeypatch):
    texts, y = problem()
    model = make(fine_tune=False, text=True).fit(texts, y)
    before = [model.vectors_, model.text_, model.fitted_, model.predict_topk(texts, k=3)[1]]
    with monkeypatch.context() as patched:
        patched.setattr(type(model.text_), "partial_fit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.partial_fit(["w30 w31"] * 20, ["new"] * 20)
    assert [model.vectors_, model.text_, model.fitted_] == before[:3]
    np.testing.assert_array_equal(model.predict_topk(texts, k=3)[1], before[3])


def test_an_indicator_matrix_is_predicted_as_such():
    texts, y = problem(several=True)
    columns = sorted({label for row in y for label in row})
    Y = np.array([[label in row for label in columns] for row in y], int)
    model = make(fine_tune=False, text=True).fit(texts, Y)
    found = model.predict(texts)
    assert found.shape == Y.shape
    assert (found == Y).mean() > 0.8
    assert model.score(texts, Y) == pytest.approx((found == Y).all(axis=1).mean())
    model.partial_fit(texts, np.hstack([Y, Y]))
    model.threshold_ = -30
    assert model.predict(texts).shape == (len(texts), 2 * len(columns))
    model.partial_fit(texts[:1], [[99]])
    assert model.predict(texts).shape == (len(texts), len(model.classes_))


def test_rows_that_are_not_texts_and_given_estimators():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)).astype(np.float32)
    y = (X[:, :3].argmax(axis=1) + 10).tolist()
    vectors = LTLSClassifier(random_state=3)
    torch.manual_seed(0)
    model = EncoderClassifier(
        nn.Linear(6, 6), fine_tune=False, text=False, vectors=vectors, device="cpu", random_state=0
    ).fit(torch.from_numpy(X), y)
    assert model.vectors_.random_state == 3
    assert model.score(X, y) > 0.85
    np.testing.assert_array_equal(model.encode(X.astype(float)), model.encode(X))
    text = TextClassifier(random_state=5)
    assert make(fine_tune=False, text=text).fit(*problem()).text_.random_state == 5
    only_dense = LTLSClassifier(label_matrix=True, random_state=3)
    model = make(fine_tune=False, vectors=only_dense).fit(*problem())
    assert (model.vectors_.random_state, model.text_.random_state) == (3, 0)


def test_scikit_learn_knows_it_as_a_classifier():
    texts, y = problem()
    model = make(fine_tune=False, text=TextClassifier(random_state=3))
    assert is_classifier(model)
    assert get_tags(model).estimator_type == "classifier"
    assert min(cross_val_score(model, texts, y, cv=2)) > 0.5  # of 16 labels
    assert make_pipeline(model)._repr_html_()
    copy = clone(model).set_params(text__random_state=5, text__trellises__width=4, epochs=2)
    found = copy.get_params()
    assert (found["text__random_state"], found["text__trellises__width"]) == (5, 4)
    assert (copy.text.random_state, model.text.random_state) == (5, 3)
    assert "epochs=2" in repr(copy)
    with pytest.raises(ValueError, match="Invalid parameter 'epoch'"):
        model.set_params(epoch=2)


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
    advice = r"smaller batch_size than 16 .*gradient_checkpointing.* resume=True continues"
    with pytest.raises(MemoryError, match=advice):
        make(**options).fit(texts, y, checkpoint=tmp_path)
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 2
    other_steps = {"batch_size": 8}
    for given, n in [(options, -1), ({**options, **other_steps}, None)]:
        with pytest.raises(ValueError, match="other data or parameters"):
            make(**given).fit(texts[:n], y[:n], checkpoint=tmp_path, resume=True)
    less = {"batch_size": 8, "gradient_accumulation_steps": 2, "mixed_precision": "bf16"}
    resumed = make(**options, **less).fit(texts, y, checkpoint=tmp_path, resume=True)
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 4
    assert abs(resumed.score(texts, y) - whole.score(texts, y)) < 0.1
    assert (tmp_path / "epoch-4").exists()
    make(**{**options, "epochs": 1}).fit(texts, y, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.glob("epoch-*")] == ["epoch-1"]


class Evil:
    """A pickle that makes a folder when it is read."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", ["optimizer.bin", "scheduler.bin", "random_states_0.pkl"])
def test_checkpoints_execute_no_code(accelerate, name, tmp_path):
    options = {"vectors": False, "text": False, "epochs": 1}
    make(**options).fit(*problem(), checkpoint=tmp_path)
    assert (tmp_path / "epoch-1" / name).exists()
    torch.save(Evil(tmp_path / "evil"), tmp_path / "epoch-1" / name)
    # Accelerate does without random states.
    refused = contextlib.nullcontext() if ".pkl" in name else pytest.raises(pickle.UnpicklingError)
    with refused:
        make(**options).fit(*problem(), checkpoint=tmp_path, resume=True)
    assert not (tmp_path / "evil").exists()


def test_an_adaptive_head_of_similar_labels(accelerate):
    texts, y = problem()
    vectors = np.eye(16, dtype=np.float32)[:, :4]
    sizes = {"width": 4, "trellis_features": 16}
    head = {"cutoffs": [4], "assignment": "similarity", "label_features": vectors, **sizes}
    assert make(vectors=False, text=False, head=head).fit(texts, y).score(texts, y) > 0.85
    with pytest.raises(ValueError, match="cutoffs must be increasing"):
        make(head={"cutoffs": [40]}).fit(texts, y)


class Noisy(Bag):
    """With dropout, as encoders of transformers have."""

    def forward(self, input_ids, attention_mask=None):
        return nn.functional.dropout(super().forward(input_ids), 0.3, self.training)


@pytest.mark.parametrize("accumulated", [1, 3])
def test_fine_tuning_is_repeated_and_resumed_bit_for_bit(
    accelerate, accumulated, tmp_path, monkeypatch
):
    texts, y = problem()
    torch.manual_seed(0)
    encoder = Noisy()

    def fitted(**given):
        options = {"vectors": False, "text": False, "n_iter_no_change": 9, "epochs": 4}
        model = make(**options, gradient_accumulation_steps=accumulated)
        return model.set_params(encoder=encoder).fit(texts, y, **given)

    def state(model):
        return [*model.encoder_.state_dict().values(), *model.head_.state_dict().values()]

    before = torch.get_rng_state()
    whole = state(fitted())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    assert all(map(torch.equal, state(fitted()), whole))
    stepped, step = [], torch.optim.AdamW.step

    def interrupted(self, *args, **options):
        stepped.append(self)
        if len(stepped) == 2.5 * len(problem()[0]) * 0.9 // (16 * accumulated):
            raise KeyboardInterrupt
        return step(self, *args, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(checkpoint=tmp_path)
    monkeypatch.undo()
    assert json.loads((tmp_path / "state.json").read_text())["epoch"] == 2
    assert all(map(torch.equal, state(fitted(checkpoint=tmp_path, resume=True)), whole))


@pytest.mark.parametrize("random_state", [0, None])
def test_vectors_are_computed_once(random_state, accelerate, tmp_path, monkeypatch):
    texts, y = problem()
    options = {"random_state": random_state, "epochs": 1, "text": False, "head": {"width": 4}}
    first = make(**options).fit(texts, y, checkpoint=tmp_path)
    cached = np.load(tmp_path / "vectors.npy")

    def refuse(*_):
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(encoding.Encoder, "vectors", refuse)
        again = make(**options).fit(texts, y, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), cached)
    assert again.weights_ == first.weights_  # the same rows are held out
    before = again.predict(texts).tolist()
    with monkeypatch.context() as patch:
        patch.setattr(encoding.Encoder, "vectors", refuse)
        with pytest.raises(MemoryError, match="smaller batch_size than 16, or a smaller max_len"):
            again.predict(texts)
        with pytest.raises(MemoryError):
            again.set_params(fine_tune=False).fit(texts[:9], list("abcabcabc"))
    assert again.predict(texts).tolist() == before
    monkeypatch.setattr(encoding.Encoder, "vector", refuse)
    with pytest.raises(MemoryError, match="encoding does not fit"):
        again.predict(texts)
    for fine_tune in (False, True):
        with pytest.raises(MemoryError, match="training does not fit"):
            again.set_params(fine_tune=fine_tune).fit(texts, y)


class Huge(Bag):
    """With activations that no memory holds."""

    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids) + torch.empty(1 << 50)[:16]


def test_memory_of_a_cpu_is_not_enough(tmp_path):
    texts, y = problem()
    model = make(fine_tune=False).set_params(encoder=Huge())
    for checkpoint, advice in [
        (None, "smaller batch_size than 16, or a smaller max_length; with checkpoint, resume=True"),
        (tmp_path, "smaller batch_size than 16, with which resume=True continues from the check"),
    ]:
        with pytest.raises(MemoryError, match=f"memory of device='cpu': use a {advice}"):
            model.fit(texts, y, checkpoint=checkpoint)


class Broken(Bag):
    """With an error of its own."""

    def forward(self, input_ids, attention_mask=None):
        raise RuntimeError("shapes do not match")


def test_other_errors_are_as_they_are():
    with pytest.raises(RuntimeError, match="shapes do not match"):
        make(fine_tune=False).set_params(encoder=Broken()).fit(*problem())


@pytest.mark.parametrize("share", [0.05, 0.5])
@pytest.mark.parametrize("several", [False, True])
def test_held_out_rows_are_learned_when_the_weights_are_chosen(several, share, monkeypatch):
    texts, y = problem(several)
    if several:
        y[::4] = [[] for _ in y[::4]]
    happened = []

    def recorded(kind, method):
        original = getattr(kind, method)

        def call(self, X, y=None, *args, **options):
            happened.append((type(self).__name__, method, len(X)))
            return original(self, X, y, *args, **options)

        monkeypatch.setattr(kind, method, call)

    def chosen(*args):
        happened.append("weights")
        return best_weights(*args)

    recorded(TextClassifier, "fit")
    recorded(LTLSClassifier, "partial_fit")
    monkeypatch.setattr(hybrid, "best_weights", chosen)
    monkeypatch.setattr(encoders, "_SHARE", share)  # 24 rows are held out
    probed = encoders.probe
    monkeypatch.setattr(
        encoders,
        "probe",
        lambda X, *a, **k: happened.append(("probe", len(X))) or probed(X, *a, **k),
    )
    model = make(fine_tune=False).fit(texts, y)
    text, further = ("TextClassifier", "fit"), "partial_fit"
    if share == 0.05 and not several:
        learned = [("probe", 240), (*text, 240)]
    else:  # few rows, or probabilities that are not calibrated
        learned = [("TextClassifier", further, 24)]
    assert happened == [("probe", 216), (*text, 216), "weights", *learned]
    assert sum(model.weights_.values()) == pytest.approx(1)


@pytest.mark.parametrize("several", [False, True])
def test_no_row_is_held_out(several, accelerate):
    texts, y = problem(several)
    model = make(head={"width": 4}, validation_fraction=0).fit(texts, y)
    assert model.weights_ == pytest.approx(dict.fromkeys(["head", "vectors", "text"], 1 / 3))
    labels, _ = model.predict_topk(texts, k=1)
    right = [best in np.atleast_1d(own) for [best], own in zip(labels, y, strict=True)]
    assert np.mean(right) > 0.85


def test_every_label_has_one_row():
    model = make(fine_tune=False).fit(WORDS[:4], list("abcd"))
    assert model.predict(WORDS[:4]).tolist() == list("abcd")


def test_the_first_partial_fit_is_fit():
    texts, y = problem()
    model = make(fine_tune=False).partial_fit(texts, y)
    expected = make(fine_tune=False).fit(texts, y)
    np.testing.assert_array_equal(model.predict_topk(texts)[1], expected.predict_topk(texts)[1])


def test_vectors_of_another_encoder_are_refused(tmp_path):
    texts, y = problem()
    model = make(fine_tune=False, text=False).fit(texts, y, checkpoint=tmp_path)
    model.encoder = Bag()
    with pytest.raises(ValueError, match=r"vectors\.npy has vectors of another encoder"):
        model.fit(texts, y, checkpoint=tmp_path, resume=True)


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


class Matrix(Bag):
    """With a matrix product, whose precision is reduced."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, input_ids, attention_mask=None):
        return self.linear(super().forward(input_ids))


def test_accumulation_and_mixed_precision(accelerate, tmp_path):
    options = {"gradient_accumulation_steps": 2, "mixed_precision": "bf16", "batch_size": 8}
    texts, y = problem()
    model = make(vectors=False, text=False, head={"width": 4}, **options)
    model.set_params(encoder=Matrix()).fit(texts, y)
    assert model.score(texts, y) > 0.7
    model.save(tmp_path / "model")
    again = EncoderClassifier.load(tmp_path / "model", Matrix(), Words(), device="cpu")
    np.testing.assert_array_equal(again.encode(texts[:9]), model.encode(texts[:9]))
    rounded = model.encode(texts[:9]), model.set_params(mixed_precision="no").encode(texts[:9])
    assert 0 < np.abs(np.subtract(*rounded)).max() < 0.05 * np.abs(rounded[0]).max()
    model.set_params(epochs=1).fit(texts, y)  # in the same process


def test_progress_is_shown_with_the_name_of_the_stage(accelerate, capsys):
    model = make(epochs=2, verbose=1).fit(*problem())
    lines = capsys.readouterr().err.splitlines()
    stages = [line.partition(": ")[0] for line in lines]
    assert list(dict.fromkeys(stages))[:1] == ["head"]
    assert {"head", "vectors", "text"} < set(stages)
    heads = [line for line in lines if line.startswith("head: ")]
    assert [line.split("  ")[0] for line in heads] == ["head: epoch 1/2", "head: epoch 2/2"]
    assert all("validation P@1" in line for line in heads)
    (others,) = [line for line in lines if line.partition(": ")[0] not in model.weights_]
    assert others.startswith("encoding  240 rows  ")


def test_encoding_has_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "100")
    make(fine_tune=False, text=False, verbose=1).fit(*problem())
    shown = capsys.readouterr().err
    assert "encoding" in shown
    assert "100 %" in shown


class Pooled(Bag):
    """With parameters that the vectors do not depend on, as BERT has."""

    def __init__(self):
        super().__init__()
        self.pooler = nn.Linear(16, 16)


def train(rank, folder, options):
    """Fit in one of two processes, which learn of each other as under `accelerate launch`."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": (folder / "port").read_text()}
    os.environ.update(rendezvous, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    encoded, trained = [], []
    counted, fit = encoding.Encoder.vectors, encoders.EncoderClassifier._learned

    def vectors(self, rows, *args):
        encoded.append(len(rows))
        counted(self, rows, *args)

    def learn(self, *args):
        trained.append(rank)
        return fit(self, *args)

    encoding.Encoder.vectors = vectors
    encoders.EncoderClassifier._learned = learn
    model = make(epochs=4, head={"width": 4}, **options).set_params(encoder=Pooled())
    kind, message = [
        (FileNotFoundError, "there is no checkpoint"),
        (RuntimeError, "the first process failed: .*there is no checkpoint"),
    ][rank]
    with pytest.raises(kind, match=message):
        model.fit(*problem(), checkpoint=folder / "run", resume=True)
    # Without a checkpoint, vectors are in a temporary folder.
    model.fit(*problem(), checkpoint=folder / "run" if model.fine_tune else None)
    head = None if model.head_ is None else model.head_.edges.weight
    topk = model.predict_topk(problem()[0], 3)
    found = {
        "weights": [model.encoder_.model.table.weight, head],
        "rows": encoded[-2],  # before the prediction
        "trained": trained,
        "scores": torch.from_numpy(topk[1]),
        "score": model.score(*problem()),
        "stages": model.weights_,
    }
    torch.save(found, folder / str(rank))
    torch.distributed.destroy_process_group()


def in_two_processes(target, folder, *args):
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("this torch has no gloo")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        (folder / "port").write_text(str(port.getsockname()[1]))
    torch.multiprocessing.spawn(target, (folder, *args), nprocs=2)
    return [torch.load(folder / rank) for rank in "01"]


@pytest.mark.parametrize("fine_tune", [False, True])
def test_several_processes_train_one_model(accelerate, fine_tune, tmp_path):
    first, second = in_two_processes(train, tmp_path, {"fine_tune": fine_tune})
    assert (first["rows"], second["rows"]) == (120, 120)  # each encodes its share
    assert (first["trained"], second["trained"]) == ([0], [])
    torch.testing.assert_close(first["weights"], second["weights"], rtol=0, atol=0)
    torch.testing.assert_close(first["scores"], second["scores"], rtol=0, atol=0)
    assert first["stages"] == second["stages"]
    assert set(first["stages"]) == {"vectors", "text", *(["head"] if fine_tune else [])}
    assert first["score"] > 0.85
    if fine_tune:
        assert np.load(tmp_path / "run" / "vectors.npy").any(axis=1).all()
        assert json.loads((tmp_path / "run" / "state.json").read_text())["epoch"] == 4


def test_long_texts_have_many_tokens_not_characters():
    def by_bytes(texts, **_):
        return {"input_ids": [list(text.encode()) for text in texts]}

    encoder = encoding.Encoder(Bag(), by_bytes, "mean", 4)
    with pytest.warns(UserWarning, match=r"1 of 2 texts are longer than max_length=4 tokens"):
        encoder.warn_of_long(["äöü", "abcd"])


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
        (texts, y, {"fine_tune": False, "text": False, "vectors": False}, "must not all be False"),
        (texts, y, {"head": {"n_trellises": 2}}, "n_trellises=1"),
        (texts, y, {"batch_size": 0}, "'batch_size' .* must be an integer from 1 to .*, got 0"),
        (texts, y, {"validation_fraction": 1}, "'validation_fraction' .* below 1, got 1"),
        (texts, y, {"mixed_precision": "int8"}, "'mixed_precision' .* 'bf16' .* got 'int8'"),
        (texts, y, {"learning_rate": 0}, "'learning_rate' .* must be a number above 0, got 0"),
        (texts, y, {"warmup": 2}, "'warmup' .* of at most 1, got 2"),
        (texts, y, {"pooling": "sum"}, "'pooling' .* or 'lasttoken' or None, got 'sum'"),
        (texts, y, {"max_length": 0}, "'max_length' .* from 1 to .* or None, got 0"),
        (texts, y, {"text": TextClassifier(verbose=-1)}, "'verbose' parameter of text must"),
        (texts, y, {"device": "gpu"}, "device must be a torch.device or its name, got 'gpu'"),
        (texts, y, {"device": "meta"}, "device must be available, got 'meta'.*use device='cpu'"),
        ([], [], {}, "at least one row"),
    ]
    for X, labels, options, message in wrong:
        with pytest.raises(ValueError, match=message):
            make(**options).fit(X, labels)
    for name, wrong in [("head", 3), ("vectors", 3), ("text", "yes"), ("fine_tune", "no")]:
        with pytest.raises(TypeError, match=f"'{name}' parameter .* must be .*, got {wrong!r}"):
            make(**{name: wrong}).fit(texts, y)
    short = Bag()
    short.config = types.SimpleNamespace(max_position_embeddings=12)
    with pytest.raises(ValueError, match="max_length must be at most 12, got 13"):
        make(max_length=13).set_params(encoder=short).fit(texts, y)
    with pytest.raises(TypeError, match=r"got NoneType as X\[0\]"):
        make().fit([None, *texts[1:]], y)
    with pytest.raises(TypeError, match="pass \\[x\\]"):
        make().fit(texts[0], y)
    with pytest.raises(
        TypeError, match=r"'encoder' .* must be a name, a folder or an nn\.Module, got 7"
    ):
        EncoderClassifier(7).fit(texts, y)
    with pytest.raises(ValueError, match="call fit first"):
        make().predict(texts)
    with pytest.raises(ValueError, match="y must have one entry per row"):
        make(fine_tune=False).fit(texts, y).score(texts, y[1:])
    with pytest.raises(ValueError, match="resume=True needs checkpoint"):
        make(fine_tune=False).fit(texts, y, resume=True)
    with monkeypatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        with pytest.raises(ValueError, match="random_state must be an integer if several"):
            make(random_state=None).fit(texts, y)
    if not torch.backends.mps.is_available():
        with pytest.raises(ValueError, match="device must be available, got 'mps'"):
            make(device="mps").fit(texts, y)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="use device='cpu'"):
        make(device="cuda").fit(texts, y)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="got 'cuda:2' and 2 GPUs"):
        make(device="cuda:2").fit(texts, y)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [str(as_device(each)) for each in (None, "cuda", "cuda:0", "cpu")] == [
        "cuda:1", "cuda:1", "cuda:0", "cpu"
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"device must be None or 'cuda:1' .*, got 'cuda:0'"):
        make(device="cuda:0").fit(texts, y)
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cuda:0")
    assert as_device("cuda") == torch.device("cuda:0")


def test_labels_without_rows_and_rows_without_labels(accelerate):
    texts, y = problem(several=True)
    columns = [*sorted({label for row in y for label in row}), "never"]
    Y = np.array([[label in row for label in columns] for row in y], int)
    Y[::3] = 0
    model = make(epochs=2, head={"width": 4}).fit(texts, Y)
    assert model.predict(texts).shape == Y.shape
    assert not model.predict(texts)[:, -1].any()
    assert torch.isfinite(model.head_.edges.weight).all()


def test_gradient_checkpointing_needs_transformers(accelerate):
    with pytest.raises(ValueError, match="needs a model of transformers, got Bag"):
        make(gradient_checkpointing=True).fit(*problem())
