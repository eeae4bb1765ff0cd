"""``ltls explain``: texts, rows of features and of files, nested parts, neighbours and the page."""

import html
import json
import re

import numpy as np
import pytest

from ltls import LTLSClassifier, TextClassifier
from ltls.settings import Text, Views

TEXTS = [f"word{i % 12} thing{i % 12} filler{i % 5}" for i in range(240)]
LABELS = [f"label{i % 12}" for i in range(240)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model of texts with all parts, and one of features that were counted from 1."""
    folder = tmp_path_factory.mktemp("explain")
    texts = TextClassifier(
        features=Text(char_ngram_range=None),
        views=Views(n_views=2, cluster_size=3),
        prototypes=True,
        neighbours=True,
        random_state=0,
    )
    texts.fit(TEXTS, LABELS).save(folder / "texts.ltls")
    features = LTLSClassifier(random_state=0).fit(np.eye(4), [3, 5, 7, 9])
    features.record_source(zero_based=False)
    features.save(folder / "features.ltls")
    return folder


@pytest.fixture
def folder(files, monkeypatch):
    monkeypatch.chdir(files)
    return files


def bars(lines):
    """Return values, and lengths of bars in eighths of a character, negative on the left."""
    found = [re.search(r"  ([+-][\d.]+)  .*?  ([█▏▎▍▌▋▊▉ ]*)│([█▏▎▍▌▋▊▉]*)", one) for one in lines]
    lengths = [[sum(map(" ▏▎▍▌▋▊▉█".index, f[side])) for side in (2, 3)] for f in found if f]
    values = [float(f[1]) for f in found if f]
    return [(value, right - left) for value, (left, right) in zip(values, lengths, strict=True)]


def test_a_text_that_is_a_file_is_explained_with_a_warning(folder, command):
    (folder / "rows.csv").write_text("text,label\nword3,label3\n")
    result = command("explain", "texts.ltls", "rows.csv", "-k", 1)
    about = "rows.csv is explained as a text; --row N explains a row of the file"
    assert (result.code, result.err) == (0, f"ltls: warning: {about}\n")


def test_words_parts_and_neighbours(folder, command):
    result = command("explain", "texts.ltls", "word3 something filler2", "-k", 2)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith("label3  score ")
    assert lines[1] == "  word3 something filler2"
    assert sum(line.startswith("label") for line in lines) == 2
    for part in ("views  ", "├── view 1  ", "│   └── label weights  ", "prototypes  "):
        assert any(line.startswith(part) for line in lines), part
    near = [line for line in lines if "cosine" in line]
    assert re.fullmatch(r"├── cosine 0\.\d+ with a row of label3: word3, filler2", near[0])


@pytest.mark.parametrize("n", [1, 100])
def test_bars_are_in_proportion_to_values(folder, command, n):
    words = ("explain", "texts.ltls", "word3 something filler2", "-k", 2, "--features", n)
    shown = bars(command(*words).out.splitlines())
    command(*words, "--html", "page.html")
    page = html.unescape((folder / "page.html").read_text("utf-8"))
    assert bars(re.sub(r"<[^>]+>", "", page).splitlines()) == shown
    longest = max(abs(value) for value, _ in shown)
    assert len(shown) == 2 * (min(n, 2) + (n == 1))  # features, and the others, of two labels
    assert ("1 other feature " in command(*words).out) == (n == 1)
    for value, length in shown:
        assert length == pytest.approx(16 * 8 * value / longest, abs=0.51)


def test_the_page_escapes_what_it_shows_and_has_a_picture(folder, command):
    pytest.importorskip("matplotlib")
    words = ("explain", "texts.ltls", "<b>word3</b> & more", "-k", 1, "--html", "page.html")
    assert command(*words).out == ""
    page = (folder / "page.html").read_text("utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert page.count("<svg") == 1
    style, _, body = page.partition("<body>")
    assert "light-dark(#1b1f24, #e6e9ec)" in style
    picture = body.partition("<svg")[2]
    assert "light-dark(#ffffff, #14171a)" in picture
    fixed = re.sub(r"light-dark\(.*?\)", "", picture)  # colours that are the same in the dark
    assert not re.search("#000000|#ffffff|#b8b8b8", fixed)
    assert "views" in page


def test_json_has_everything(folder, command):
    out = command("explain", "texts.ltls", "word3 filler2", "--label", "label5", "--json").out
    [found] = json.loads(out)
    assert found["label"] == "label5"
    assert sum(part["score"] for part in found["parts"]) == pytest.approx(found["score"])
    views, _, neighbours = found["parts"]
    assert [part["part"] for part in views["parts"]] == ["view 1", "view 2"]
    assert all(row["shared"] == ["filler2"] for row in neighbours["rows"])


@pytest.mark.parametrize("row", ["2:1", '{"indices": [1], "values": [1]}', "[0, 1, 0, 0]"])
def test_rows_of_features(folder, command, row):
    [found] = json.loads(command("explain", "features.ltls", row, "-k", 1, "--json").out)
    assert (found["label"], found["contributions"][0]["feature"]) == (5, "x1")


def test_what_cannot_be_explained_is_said(folder, assert_mistakes):
    (folder / "lines.txt").write_text("word1\nword2\n")
    assert_mistakes("explain.txt")


def test_deeply_nested_json_is_not_a_row(folder, command):
    result = command("explain", "features.ltls", "[" * 10_000)
    assert result.code == 2
    assert result.err.startswith("ltls: a row must be a JSON object")


def test_a_row_of_a_file(folder, command):
    (folder / "lines.txt").write_text("word1\nword2\n")
    (folder / "rows.svm").write_text("1 1:1\n1 2:1\n")
    for model, file, row in [("texts", "lines.txt", "word2"), ("features", "rows.svm", "2:1")]:
        expected = command("explain", f"{model}.ltls", row, "-k", 1, "--json").out
        found = command("explain", f"{model}.ltls", file, "--row", 2, "-k", 1, "--json").out
        assert json.loads(found) == json.loads(expected)


def test_a_row_of_a_file_that_is_not_utf_8(folder, command):
    (folder / "latin.txt").write_bytes("word1\ncafé word2\n".encode("latin-1"))
    row = ("explain", "texts.ltls", "latin.txt", "--row", 2)
    assert "--encoding latin-1" in command(*row).err
    assert "café word2" in command(*row, "--encoding", "latin-1").out
