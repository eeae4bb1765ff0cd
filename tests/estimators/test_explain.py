"""Explanations in the user's words: n-grams with their places, names of columns, JSON."""

import json
import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from ltls import LTLSClassifier, TextClassifier
from ltls.estimators.explain import Contribution
from ltls.features.ngrams import ngram_places
from ltls.features.text import Vectorizer
from ltls.settings import Text

TEXTS = ["the Card is lost", "lost my card", "what is the fee", "a fee was charged"]
LABELS = ["card", "card", "fee", "fee"]


@pytest.fixture(scope="module")
def model():
    return TextClassifier(random_state=0).fit(TEXTS, LABELS)


def test_an_explanation_prints_label_probability_score_and_ten_contributions(model):
    [[best]] = model.explain(["my lost card"], k=1)
    first, *lines = str(best).splitlines()
    assert first == f"card: probability {best.probability:.3f}, score {best.score:.4g}"
    assert len(lines) == 11
    for line, each in zip(lines, best.contributions[:10], strict=False):
        assert line.split("  ")[-1] == each.visible_name
    assert lines[-1].endswith(f"  {len(best.contributions) - 10} other features")


@pytest.mark.parametrize(
    ("kind", "lowercase", "stop_words", "tokenizer"),
    [*product(["words", "characters"], [True, False], [None], [None]),
     ("words", True, ("the",), r"[a-zé]+"), ("words", True, None, str.split)],
)  # fmt: skip
def test_ngrams_are_those_of_scikit_learn(kind, lowercase, stop_words, tokenizer):
    given = Text(
        ngram_range=(1, 2),
        char_ngram_range=(2, 4),
        lowercase=lowercase,
        stop_words=stop_words,
        tokenizer=tokenizer,
    )
    analyze = Vectorizer(given)._counter(kind).build_analyzer()
    for text in [
        "The card, the CARD!",
        "",
        " a\t\n b ",
        "İstanbul ǅ ß",
        "x" * 40,
        "a",
        "Été à l'eau",
    ]:
        places = ngram_places(text, kind, given)
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


@pytest.mark.parametrize(
    "given",
    [{}, {"label_weights": True}, {"views": True, "prototypes": True, "neighbours": True}],
    ids=str,
)
def test_texts_of_every_model_add_up(given):
    texts = [f"{a} {b} {c}" for a in ("my", "the") for b in ("card", "fee", "pin") for c in "xyz"]
    labels = [text.split()[1] for text in texts]
    model = TextClassifier(random_state=0, **given).fit(texts, labels)
    rows = ["the card x", "pins", "nothing known: qq", ""]
    scores = model.decision_function(rows)
    for row, explained in enumerate(model.explain(rows, labels=["card", "fee", "pin"])):
        for each in explained:
            place = model.model_.labels.id(each.label)
            assert each.score == pytest.approx(scores[row, place], abs=5e-3)
            assert math.fsum(p.score for p in each.parts) == pytest.approx(each.score, abs=1e-6)
            total = math.fsum(c.value for c in each.contributions) + each.intercept
            assert total == pytest.approx(each.linear_score, abs=1e-9)
            for one in each.contributions:
                for start, end in one.spans:
                    assert rows[row][start:end].strip()


def test_neighbours_show_texts_labels_and_shared_words():
    texts = [f"{word} {i} {i + 1}" for i in range(12) for word in ("card", "fee")]
    labels = [text.split()[0] for text in texts]
    words = Text(char_ngram_range=None)
    model = TextClassifier(features=words, neighbours=True, random_state=0).fit(texts, labels)
    [[best]] = model.explain(["card 3 4"], k=1)
    part = next(part for part in best.parts if part.part == "neighbours")
    assert part.rows[0]["labels"] == ["card"]
    assert texts[part.rows[0]["row"]] == "card 3 4"
    assert {"card", "3", "4", "3 4", "card 3"} == set(part.rows[0]["shared"])
    assert part.rows[0]["cosine"] == pytest.approx(1, abs=0.02)
    cosines = [row["cosine"] for row in part.rows]
    assert cosines == sorted(cosines, reverse=True)


def test_hashed_ngrams_have_names_too():
    model = TextClassifier(features=Text(n_features=256), random_state=0).fit(TEXTS, LABELS)
    [[best]] = model.explain(["my lost card"], k=1)
    assert any("lost" in each.feature for each in best.contributions)
    total = sum(each.value for each in best.contributions) + best.intercept
    assert total == pytest.approx(best.linear_score)


def test_names_of_columns():
    pandas = pytest.importorskip("pandas", reason="needs pandas, which `make test-all` installs")
    X = pandas.DataFrame(np.eye(4), columns=["legs", "wings", "fur", "bark"])
    model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
    assert model.explain(X[:1], k=1)[0][0].contributions[0].feature == "legs"
    assert model.global_explanation("dog", k=1).contributions[0].feature == "bark"


@pytest.mark.parametrize("given", [{}, {"views": True, "neighbours": True}], ids=str)
def test_json_has_all_of_it(given):
    model = TextClassifier(random_state=0, **given).fit(TEXTS, LABELS)
    [explained] = model.explain(["my lost card"])
    found = json.loads(json.dumps([each.to_dict() for each in explained]))
    assert [each["label"] for each in found] == ["card", "fee"]

    def check(each):
        total = math.fsum(one["value"] for one in each["contributions"]) + each["intercept"]
        assert total == pytest.approx(each["linear_score"], abs=1e-9)
        for part in each.get("parts", ()):
            assert {"part", "score", "linear_score", "formula", "terms"} <= set(part)
            check(part)

    for each, own in zip(found, explained, strict=True):
        check(each)
        assert each["score"] == own.score
        assert each["probability"] == pytest.approx(own.probability)


def test_labels_that_json_lacks_become_strings():
    model = LTLSClassifier(random_state=0).fit(np.eye(3), [("a", 1), ("b", 2), ("c", 3)])
    [[best]] = model.explain(np.eye(3)[:1], k=1)
    assert best.label == ("a", 1)
    assert best.to_dict()["label"] == "('a', 1)"


def test_spaces_of_character_ngrams_are_visible():
    assert Contribution("chars: ard ", 1.0).visible_name == "chars:␣ard␣"
    assert Contribution("card lost", 1.0).visible_name == "card lost"
    assert Contribution("chars:d l", 1.0).to_dict()["feature"] == "chars:d l"


def test_character_ngrams_are_added_to_their_word():
    texts = ["my card is lost", "lost my visa card", "why is there a fee", "fees were charged"]
    model = TextClassifier(random_state=0).fit(texts, ["card", "card", "fee", "fee"])
    text = "lost cards, lost  fees"
    explained = model.explain([text], k=1)[0][0]
    merged = explained.by_word(text)
    assert not any(each.feature.startswith("chars:") for each in merged)
    found = {each.feature: each for each in merged}
    assert {"lost", "fees", "letters of cards"} <= {*found}  # "cards" is no feature
    assert not {"letters of lost", "letters of fees", "letters of cards,"} & {*found}
    alone = next(each.value for each in explained.contributions if each.feature == "lost")
    assert abs(found["lost"].value) > abs(alone)
    total = sum(each.value for each in explained.contributions)
    assert sum(each.value for each in merged) == pytest.approx(total)
    sizes = [abs(each.value) for each in merged]
    assert sizes == sorted(sizes, reverse=True)
    spans = found["lost"].spans
    assert {text[start:end] for start, end in spans} == {"lost"}
    assert len(spans) == 2
    assert len(explained.by_word("")) == len(explained.contributions)
