"""The recipes with sentence encoders run, with an encoder that needs no download."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text("utf-8")
RECIPES = re.findall(r"^```py\n(.*?)^```", PAGE, re.M | re.S)
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
