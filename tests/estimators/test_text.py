"""TextClassifier: texts in, labels out."""

import json

import numpy as np
import pytest

import ltls
from ltls import TextClassifier
from ltls.settings import Text

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
    words = TextClassifier(features=Text(char_ngram_range=None), random_state=0).fit(TEXTS, LABELS)
    known = words.model_.front_end.matrix(["passwrods"])
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
    model = TextClassifier(features=Text(**options), random_state=0).fit(TEXTS, y)
    model.save(path)
    loaded = ltls.load(path, verify=True)
    assert type(loaded) is TextClassifier
    assert repr(loaded) == repr(model)
    unseen = ["an unseen card", "?", "", "ÄÖ ß \U0001f600"]
    for one, other in zip(loaded.predict_topk(unseen), model.predict_topk(unseen), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.partial_fit(["something new"], [["new"] if several else "new"]) is loaded


def test_ngrams_of_any_characters_are_stored(path):
    texts = ['"quote" \\ slash', "nul \0 tab \t", "lone \ud800 surrogate", "日本語 テキスト"]
    model = TextClassifier(random_state=0).fit(texts, list("abcd"))
    model.save(path)
    rows = ltls.load(path).model_.front_end.matrix(texts)
    np.testing.assert_array_equal(rows.toarray(), model.model_.front_end.matrix(texts).toarray())


def test_hashed_ngrams_accept_new_words(path):
    model = TextClassifier(features=Text(n_features=512), random_state=0).fit(TEXTS, LABELS)
    for _ in range(20):
        model.partial_fit(["zebra crossing", "zebra stripes"], ["zoo", "zoo"])
    assert model.predict(["zebra"]).tolist() == ["zoo"]
    assert "front_end.words" not in json.loads(_header(model, path))


def _header(model, path):
    model.save(path)
    content = path.read_bytes()
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def test_stop_words_tokenizers_and_columns_of_texts(path):
    given = Text(char_ngram_range=None, stop_words=["The", "is"], tokenizer="[a-z]+")
    model = TextClassifier(features=given, random_state=0).fit(TEXTS, LABELS)
    names = model.get_feature_names_out().tolist()
    assert "card" in names
    assert not {"the", "is"} & set(names)
    model.save(path)
    loaded = ltls.load(path)
    assert loaded.get_feature_names_out().tolist() == names
    assert loaded.predict(TEXTS).tolist() == LABELS
    predictor = loaded.predictor(1)
    assert predictor("my card")[0].tolist() == ["card"]
    assert predictor(TEXTS)[0][:, 0].tolist() == LABELS
    columns = np.array([TEXTS, TEXTS[::-1]], object).T
    assert TextClassifier(random_state=0).fit(columns, LABELS).predict(columns).shape == (144,)


def test_a_warm_start_keeps_the_vocabulary():
    model = TextClassifier(warm_start=True, random_state=0).fit(TEXTS, LABELS)
    names = model.get_feature_names_out().tolist()
    model.fit([*TEXTS, "other words"], [*LABELS, LABELS[0]])
    assert model.get_feature_names_out().tolist() == names
    assert model.score(TEXTS, LABELS) == 1


def test_a_failed_fit_keeps_the_old_model():
    model = TextClassifier(random_state=0).fit(TEXTS, LABELS)
    before = model.model_
    with pytest.raises(ValueError):
        model.fit(["other", "texts"], ["a"])
    assert model.model_ is before
    assert model.score(TEXTS, LABELS) == 1


def test_errors_of_the_front_end_reach_the_user():
    with pytest.raises(ValueError, match="X has 1 rows, y 2"):
        TextClassifier().fit(["a"], ["x", "y"])
    with pytest.raises(ValueError, match="'ngram_range' parameter of features must be a pair"):
        TextClassifier(features=Text(ngram_range=(2, 1))).fit(TEXTS, LABELS)
