"""Annif's own commands with `ltls serve` as its http backend, and with the backend of examples."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving import in_process

from ltls import TextClassifier

EXAMPLE = Path(__file__).parents[2] / "examples" / "annif"
URI = "http://example.org/"
WORDS = {"cards": ["card", "visa"], "fees": ["fee", "charge"], "logins": ["login", "password"]}
DOCUMENTS = [
    (f"{opening} {word} {closing}", label)
    for label, words in WORDS.items()
    for word in words
    for opening in ("about the", "another", "whose")
    for closing in ("problem", "question")
]
PROJECTS = """
[tickets-http]
name=tickets over HTTP
language=en
backend=http
analyzer=simple
vocab=tickets
endpoint={url}/v1/projects/tickets/suggest
project=tickets

[tickets-ltls]
name=tickets
language=en
backend=ltls
analyzer=snowball(english)
vocab=tickets
allow_learn=true
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("annif") is None, reason="needs annif: run make annif-test"
)


@pytest.fixture(scope="module")
def annif(tmp_path_factory):
    """Return a function that runs a command of Annif; its server and vocabulary are there."""
    folder = tmp_path_factory.mktemp("annif")
    # Annif would download what NLTK has learned of sentences; there is nothing to learn.
    punkt = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
    punkt.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (punkt / name).touch()
    rows = [f"<{URI}{label}>\t{label}\n" for label in WORDS]
    (folder / "vocabulary.tsv").write_text("".join(rows))
    rows = [f"{text}\t<{URI}{label}>\n" for text, label in DOCUMENTS]
    (folder / "documents.tsv").write_text("".join(rows))
    texts, labels = zip(*DOCUMENTS, strict=True)
    model = TextClassifier(random_state=0).fit(texts, [[URI + label] for label in labels])
    model.save(folder / "tickets.ltls")

    def run(*words, text=None):
        environment = {"ANNIF_DATADIR": str(folder / "data"), "NLTK_DATA": str(folder / "nltk")}
        done = subprocess.run(
            [sys.executable, EXAMPLE / "annif_with_ltls.py", *words],
            cwd=folder,
            env={**os.environ, **environment},
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with in_process(folder / "tickets.ltls") as server:
        (folder / "projects.cfg").write_text(PROJECTS.format(url=server.url))
        run("load-vocab", "--language", "en", "tickets", "vocabulary.tsv")
        yield run


def first_suggestion(annif, project):
    found = annif("suggest", "--limit", "2", project, text="whose visa is that")
    uri, label, score = found.splitlines()[0].split("\t")
    assert (uri, label) == (f"<{URI}cards>", "cards")
    return float(score)


def f1(annif, project):
    found = annif("eval", "--limit", "1", "--metric", "F1@5", project, "documents.tsv")
    assert f"{len(DOCUMENTS)}" in found
    return float(re.search(r"F1@5:\s+([\d.]+)$", found, re.M)[1])


def test_the_server_is_an_http_backend(annif):
    shown = annif("show-project", "tickets-http")
    assert re.search(r"Trained: +True", shown), shown
    assert re.search(r"Modification time: +20\d\d-", shown), shown
    assert 0.5 < first_suggestion(annif, "tickets-http") <= 1
    assert f1(annif, "tickets-http") == 1


def test_the_backend_trains_learns_and_suggests(annif):
    annif("train", "tickets-ltls", "documents.tsv")
    annif("learn", "tickets-ltls", "documents.tsv")
    assert 0.3 < first_suggestion(annif, "tickets-ltls") <= 1
    assert f1(annif, "tickets-ltls") == 1
