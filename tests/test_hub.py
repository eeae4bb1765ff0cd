"""Models in folders as the Hugging Face Hub has them, and their cards."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from ltls import LTLSClassifier, ModelFileError, TextClassifier

pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: run make test-all")
from huggingface_hub import ModelCard, hub_mixin

from ltls import hub

TEXTS, LABELS = ["my card", "lost card", "a fee", "which fee"], ["card", "card", "fee", "fee"]


@pytest.fixture(scope="module")
def model():
    return TextClassifier(random_state=0).fit(TEXTS, LABELS)


def test_a_folder_has_the_model_and_a_card(model, tmp_path):
    folder = tmp_path / "tickets"
    hub.save_pretrained(
        model,
        folder,
        data="Four tickets.",
        metrics={"precision@1": 0.98765},
        card={"license": "mit"},
    )
    size = (folder / "model.ltls").stat().st_size
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "ltls"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.license == "mit"
    for fact in ("Four tickets.", "| precision@1 | 0.9877 |", "| labels | 2 |",
                 "| training rows | 4 |", f"| size | {size / 1e6:.1f} MB |"):  # fmt: skip
        assert fact in card.text
    found = hub.from_pretrained(folder)
    np.testing.assert_array_equal(found.edge_scores(TEXTS), model.edge_scores(TEXTS))
    assert isinstance(found, TextClassifier)


def test_a_card_that_was_written_by_hand_is_kept(model, tmp_path):
    (tmp_path / "README.md").write_text("# Mine\n")
    hub.save_pretrained(model, str(tmp_path))
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_what_is_not_stated(tmp_path):
    hub.save_pretrained(LTLSClassifier(random_state=0).fit(np.eye(3), list("abc")), tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.text.count("Not stated.") == 2
    assert card.data.pipeline_tag is None
    with pytest.raises(TypeError, match="metrics must be a dict"):
        hub.save_pretrained(
            TextClassifier(random_state=0).fit(TEXTS, LABELS), tmp_path / "new", metrics=[1]
        )


def test_a_damaged_model_is_an_error(model, tmp_path):
    hub.save_pretrained(model, tmp_path)
    (tmp_path / "model.ltls").write_bytes(b"no model")
    with pytest.raises(ModelFileError):
        hub.from_pretrained(tmp_path)


class FakeHub:
    """A hub of folders."""

    def __init__(self, root, token=None):
        self.root = root

    def create_repo(self, repo_id, **_):
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, repo_id, folder_path, **_):
        shutil.copytree(folder_path, self.root / repo_id)
        return f"commit of {repo_id}"


def test_models_are_pushed_and_fetched(model, tmp_path, monkeypatch):
    monkeypatch.setattr(hub_mixin, "HfApi", lambda token=None: FakeHub(tmp_path, token))

    def download(repo_id, filename, **_):
        return str(tmp_path / repo_id / filename)

    commit = hub.push_to_hub(model, "me/tickets", data="Four tickets.", card={"language": "en"})
    assert commit == "commit of me/tickets"
    assert {path.name for path in (tmp_path / "me/tickets").iterdir()} == {
        "README.md", "config.json", "model.ltls"
    }  # fmt: skip
    monkeypatch.setattr(hub, "hf_hub_download", download)
    monkeypatch.setattr(
        hub_mixin, "hf_hub_download", lambda repo_id, filename, **_: download(repo_id, filename)
    )
    found = hub.from_pretrained("me/tickets", revision="main")
    assert found.predict(TEXTS).tolist() == LABELS


def test_heads(tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
    from ltls.torch import TrellisSoftmax

    class Head(TrellisSoftmax, hub.HubModule):
        pass

    head = Head(8, n_classes=100, width=4, counts=np.arange(100))
    told = {"data": "A hundred words.", "metrics": {"accuracy": 0.5}, "license": "mit"}
    head.save_pretrained(tmp_path, model_card_kwargs=told)
    found = Head.from_pretrained(tmp_path)
    rows = torch.randn(5, 8)
    torch.testing.assert_close(found.log_prob(rows), head.log_prob(rows))
    card = ModelCard.load(tmp_path / "README.md")
    n_parameters = sum(each.numel() for each in head.parameters())
    for fact in ("A hundred words.", "| accuracy | 0.5 |", "| labels | 100 |",
                 f"| parameters | {n_parameters:,} |", "Head.from_pretrained"):  # fmt: skip
        assert fact in card.text
    with pytest.raises(RuntimeError, match="size mismatch"):
        Head.from_pretrained(tmp_path, width=8)


def test_a_network_with_a_head(tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
    from ltls.torch import TrellisSoftmax

    class Network(torch.nn.Module, hub.HubModule):
        def __init__(self, n_inputs: int, n_classes: int):
            super().__init__()
            self.body = torch.nn.Linear(n_inputs, 8)
            self.head = TrellisSoftmax(8, n_classes)

    network = Network(3, n_classes=50)
    network.save_pretrained(tmp_path)
    found = Network.from_pretrained(tmp_path)
    torch.testing.assert_close(found.state_dict(), network.state_dict())
