"""TextClassifier: texts in, labels out."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_score

import ltls
from ltls import TextClassifier

SUBJECTS = {
    "card": ["card", "cards", "plastic", "visa"],
    "fee": ["fee", "fees", "charge", "charged"],
    "account": ["account", "login", "password", "email"],
}
ROWS = [
    (f"{opening} {word} {closing}", label)
    for label, words in SUBJECTS.items()
    for word in words
    for opening in ("my", "the", "About a", "help with")
    for closing in ("please", "is gone", "today?")
]
TEXTS, LABELS = map(list, zip(*ROWS, strict=True))


@pytest.fixture(scope="module")
def model():
    return TextClassifier(random_state=0).fit(TEXTS, LABELS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "text.ltls"


def test_fit_and_predict_texts(model):
    assert model.score(TEXTS, LABELS) == 1
    assert model.predict(["where is my CARD", "passwords"]).tolist() == ["card", "account"]
    labels, scores = model.predict_topk(["a fee"], 2)
    assert labels[0, 0] == "fee"
    assert scores.shape == (1, 2)
    np.testing.assert_allclose(model.predict_proba(["a fee"]).sum(), 1, rtol=1e-5)


def test_character_ngrams_handle_misspelling(model):
    words = TextClassifier(char_ngram_range=None, random_state=0).fit(TEXTS, LABELS)
    known = words.vectorizer_.transform(["passwrods"])
    assert known.nnz == 0
    assert model.predict(["passwrods"]).tolist() == ["account"]


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda x: np.array(x, object)])
def test_texts_in_every_container(model, form):
    assert model.score(form(TEXTS[:5]), LABELS[:5]) == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"n_features": 256}, {"char_ngram_range": None}, {"ngram_range": None}, {"min_df": 3}],
    ids=str,
)
@pytest.mark.parametrize("several", [False, True], ids=["one label", "several"])
def test_a_loaded_model_predicts_the_same(path, options, several):
    y = [[label, "x"] for label in LABELS] if several else LABELS
    model = TextClassifier(random_state=0, **options).fit(TEXTS, y)
    model.save(path, dtype="float32")
    loaded = ltls.load(path, verify=True)
    assert type(loaded) is TextClassifier
    assert loaded.get_params() == model.get_params()
    unseen = ["an unseen card", "?", "", "ÄÖ ß \U0001f600"]
    for one, other in zip(loaded.predict_topk(unseen), model.predict_topk(unseen), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.partial_fit(["something new"], [["new"] if several else "new"]) is loaded


def test_ngrams_of_any_characters_are_stored(path):
    texts = ['"quote" \\ slash', "nul \0 tab \t", "lone \ud800 surrogate", "日本語 テキスト"]
    model = TextClassifier(random_state=0).fit(texts, list("abcd"))
    model.save(path)
    rows = ltls.load(path).vectorizer_.transform(texts)
    np.testing.assert_array_equal(rows.toarray(), model.vectorizer_.transform(texts).toarray())


def test_text_models_have_format_version_2(model, path):
    model.save(path)
    assert b'"format_version":"2"' in path.read_bytes()


def test_a_damaged_vocabulary_is_rejected(model, path):
    model.save(path)
    whole = path.read_bytes()
    place = whole.rindex(b'"fee"')
    path.write_bytes(whole[:place] + b'"fie"' + whole[place + 5 :])
    with pytest.raises(ltls.ModelFileError, match=r"text\.\w+' was changed"):
        ltls.load(path)


def test_clone_repr_and_cross_validation(model):
    assert clone(model).get_params() == model.get_params()
    assert "width=3" in repr(TextClassifier(width=3))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(TextClassifier(random_state=0), TEXTS, LABELS, cv=folds)
    assert scores.min() > 0.9


def test_hashed_ngrams_accept_new_words(path):
    model = TextClassifier(n_features=512, random_state=0).fit(TEXTS, LABELS)
    for _ in range(20):
        model.partial_fit(["zebra crossing", "zebra stripes"], ["zoo", "zoo"])
    assert model.predict(["zebra"]).tolist() == ["zoo"]
    assert "text.words" not in json.loads(_header(model, path))


def _header(model, path):
    model.save(path)
    content = path.read_bytes()
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def test_a_failed_fit_keeps_the_old_model():
    model = TextClassifier(random_state=0).fit(TEXTS, LABELS)
    vectorizer = model.vectorizer_
    with pytest.raises(ValueError):
        model.fit(["other", "texts"], ["a"])
    assert model.vectorizer_ is vectorizer
    assert model.score(TEXTS, LABELS) == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("text", r"must be a list of strings, got str: use \[text\]"),
        (["a", None], "must be strings, row 1 is None"),
        (np.eye(2), "LTLSClassifier takes features"),
        ([], "at least one row"),
        (["?", "!"], "no words are left of the 2 texts"),
        (["a"], "X has 1 rows, y 2"),
    ],
)
def test_inputs_that_are_not_texts_are_rejected(texts, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier().fit(texts, ["x", "y"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram_range": (2, 1)}, "ngram_range must be"),
        ({"char_ngram_range": (1,)}, "char_ngram_range must be two integers"),
        ({"ngram_range": None, "char_ngram_range": None}, "must not both be None"),
        ({"min_df": 0}, "min_df"),
        ({"n_features": -1}, "n_features"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        TextClassifier(**options).fit(TEXTS, LABELS)
