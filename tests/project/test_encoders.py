"""The recipes with encoders run, with encoders that need no download."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PY = re.compile(r"^```py\n(.*?)^```", re.M | re.S)
RECIPES = PY.findall((DOCS / "integrations.md").read_text("utf-8"))
FINE_TUNED = PY.findall((DOCS / "encoders.md").read_text("utf-8"))
WORDS = ["my", "card", "is", "lost", "visa", "why", "there", "a", "fee", "fees", "were", "charged"]

pytest.importorskip(
    "sentence_transformers", reason="needs sentence_transformers: run make test-all"
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder with an encoder: counts of words, and a layer that can be trained."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import BoW, Dense

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder")
    layers = [BoW(vocab=WORDS), Dense(len(WORDS), 64)]
    SentenceTransformer(modules=layers, device="cpu").save(str(folder))
    return folder


@pytest.mark.filterwarnings("ignore")  # of sentence-transformers
@pytest.mark.parametrize("code", RECIPES, ids=["embeddings", "few examples"])
def test_recipe(code, encoder, capsys):
    code = code.replace("all-MiniLM-L6-v2", encoder.as_posix())
    exec(compile(code, "integrations.md", "exec"), {})
    assert "['card']" in capsys.readouterr().out


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """A folder with a tiny transformer and its tokenizer."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("transformer")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 32}
    layers = {"num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=len(words), **sizes, **layers)).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("code", FINE_TUNED)
def test_fine_tuning(code, transformer, tmp_path, monkeypatch, capsys):
    pytest.importorskip("accelerate", reason="needs accelerate: run make test-all")
    monkeypatch.chdir(tmp_path)
    code = code.replace("answerdotai/ModernBERT-base", transformer.as_posix())
    exec(compile(code, "encoders.md", "exec"), {})
    assert "['card']" in capsys.readouterr().out
