"""Explanations of texts, at the terminal and as a page."""

import json
from collections import Counter
from itertools import product

import numpy as np
import pytest
from typer.testing import CliRunner

from ltls import LTLSClassifier, TextClassifier
from ltls.cli.app import app
from ltls.estimators.explain import Contribution
from ltls.features.ngrams import ngram_places
from ltls.features.vectorizer import Vectorizer, VectorizerSettings

TEXTS = ["the Card is lost", "lost my card", "what is the fee", "a fee was charged"]
LABELS = ["card", "card", "fee", "fee"]


@pytest.fixture(scope="module")
def model():
    return TextClassifier(random_state=0).fit(TEXTS, LABELS)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.ltls")
    return tmp_path / "model.ltls"


@pytest.mark.parametrize(
    ("kind", "lowercase", "stop_words", "tokenizer"),
    [*product(["words", "characters"], [True, False], [None], [None]),
     ("words", True, ("the",), r"[a-zé]+"), ("words", True, None, str.split)],
)  # fmt: skip
def test_ngrams_are_those_of_scikit_learn(kind, lowercase, stop_words, tokenizer):
    settings = VectorizerSettings(
        (1, 2), (2, 4), 1, None, None, True, lowercase, stop_words, tokenizer
    )
    analyze = Vectorizer(settings)._counter(kind).build_analyzer()
    for text in [
        "The card, the CARD!",
        "",
        " a\t\n b ",
        "İstanbul ǅ ß",
        "x" * 40,
        "a",
        "Été à l'eau",
    ]:
        places = ngram_places(text, kind, settings)
        if "İ" not in text:
            assert {n: len(spans) for n, spans in places.items()} == Counter(analyze(text))
        assert set(places) == set(analyze(text))
        for start, end in (span for spans in places.values() for span in spans):
            assert 0 <= start < end <= len(text)
        if kind == "words" and "İ" not in text:
            for ngram, spans in places.items():
                first = ngram.split()[0]
                for start, end in spans:
                    assert (text.lower() if lowercase else text)[start:end].startswith(first)


def test_spans_are_places_in_the_text(model):
    [[best]] = model.explain(["my Lost CARD"], k=1)
    assert best.label == "card"
    spans = {each.feature: each.spans for each in best.contributions}
    assert spans["card"] == ((8, 12),)
    assert spans["lost"] == ((3, 7),)
    words = best.words("my Lost CARD")
    assert [word[:2] for word in words] == [(0, 2), (3, 7), (8, 12)]
    total = sum(value for _, _, value in words)
    assert total == pytest.approx(sum(each.value for each in best.contributions))


def test_hashed_ngrams_have_names_too():
    model = TextClassifier(n_features=256, random_state=0).fit(TEXTS, LABELS)
    [[best]] = model.explain(["my lost card"], k=1)
    assert any("lost" in each.feature for each in best.contributions)
    total = sum(each.value for each in best.contributions) + best.intercept
    assert total == pytest.approx(best.linear_score)


def test_names_of_columns():
    pandas = pytest.importorskip("pandas", reason="needs pandas, which `make test-all` installs")
    X = pandas.DataFrame(np.eye(4), columns=["legs", "wings", "fur", "bark"])
    model = LTLSClassifier(epochs=20, random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
    assert model.explain(X[:1], k=1)[0][0].contributions[0].feature == "legs"


def test_the_terminal_prints_words_and_sums(path):
    done = CliRunner().invoke(app, ["explain", str(path), "my lost card", "-k", "1"])
    assert done.exit_code == 0, done.output
    assert "card  score" in done.output
    assert "lost" in done.output
    assert "linear score" in done.output


def test_json_adds_up(path):
    done = CliRunner().invoke(app, ["explain", str(path), "my lost card", "--json"])
    explained = json.loads(done.stdout)
    assert [each["label"] for each in explained] == ["card", "fee"]
    for each in [*explained, *(part for one in explained for part in one["parts"])]:
        total = sum(one["value"] for one in each["contributions"]) + each["intercept"]
        assert total == pytest.approx(each["linear_score"], abs=1e-9)
    for each in explained:
        assert set(each) >= {
            "label",
            "score",
            "linear_score",
            "intercept",
            "contributions",
            "parts",
        }
        total = sum(part["linear_score"] for part in each["parts"])
        assert total == pytest.approx(each["linear_score"])
        assert sum(part["score"] for part in each["parts"]) == pytest.approx(each["score"])


def test_a_page_escapes_what_it_shows(path, tmp_path):
    page = tmp_path / "page.html"
    command = ["explain", str(path), "<script>alert(1)</script> card", "--html", str(page)]
    assert CliRunner().invoke(app, command).exit_code == 0
    text = page.read_text("utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<mark" in text
    assert "<svg" in text


def test_spaces_of_character_ngrams_are_visible():
    assert Contribution("chars: ard ", 1.0).visible_name == "chars:␣ard␣"
    assert Contribution("card lost", 1.0).visible_name == "card lost"
    assert Contribution("chars:d l", 1.0).to_dict()["feature"] == "chars:d l"


def test_a_row_of_features_at_the_terminal(tmp_path):
    X = np.eye(4, dtype=np.float32)
    LTLSClassifier(epochs=20, random_state=0).fit(X, list("abcd")).save(tmp_path / "model.ltls")
    command = ["explain", str(tmp_path / "model.ltls"), "2:1", "--label", "c", "--json"]
    [each] = json.loads(CliRunner().invoke(app, command).stdout)
    assert each["label"] == "c"
    assert [one["feature"] for one in each["contributions"]] == ["x2"]
    for bad in ("7:1", "one", "2:x"):
        done = CliRunner().invoke(app, ["explain", str(tmp_path / "model.ltls"), bad])
        assert "a row must be pairs such as 3:0.5" in str(done.exception)


def test_text_parameters(tmp_path):
    assert repr(TextClassifier()) == "TextClassifier()"
    assert repr(TextClassifier(min_df=2, width=4)) == "TextClassifier(min_df=2, width=4)"
    with pytest.raises(TypeError, match="TextClassifier has no parameter 'breadth'"):
        TextClassifier(breadth=2)
    model = TextClassifier(
        char_ngram_range=None, stop_words=["The", "is"], tokenizer="[a-z]+", random_state=0
    ).fit(TEXTS, LABELS)
    names = model.get_feature_names_out().tolist()
    assert "card" in names
    assert not {"the", "is"} & set(names)
    model.save(tmp_path / "model.ltls")
    import ltls

    loaded = ltls.load(tmp_path / "model.ltls")
    assert loaded.get_feature_names_out().tolist() == names
    assert loaded.predict(TEXTS).tolist() == LABELS
    predictor = loaded.predictor(1)
    assert predictor("my card")[0].tolist() == ["card"]
    assert predictor(TEXTS)[0][:, 0].tolist() == LABELS
    function = TextClassifier(tokenizer=str.split, random_state=0).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="cannot be saved"):
        function.save(tmp_path / "other.ltls")
    columns = np.array([TEXTS, TEXTS[::-1]], object).T
    assert TextClassifier(random_state=0).fit(columns, LABELS).predict(columns).shape == (4,)
