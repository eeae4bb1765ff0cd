"""What is true of all front ends: features of inputs, names and places, JSON, and states."""

import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from small_parts import section_of

from ltls import LTLSClassifier
from ltls.features.front_ends import FRONT_ENDS, Numbers, Table, Text
from ltls.features.numbers import NumberInputs
from ltls.features.text import as_texts

X = np.array([[1.0, 0, 2], [0, 3, 0]])
TEXTS = ["lost my card", "what is the fee?"]
RECORDS = [
    {"note": "lost my card", "size": 3.0, "shop": "north"},
    {"note": "what fee", "size": math.nan, "shop": None},
]
CASES = {
    "features": (Numbers(), X, X.tolist(), {}),
    "text": (Text(max_features=20), TEXTS, TEXTS, {}),
    "text, hashed": (Text(n_features=16, char_ngram_range=None), TEXTS, TEXTS, {}),
    "table": (
        Table(text=("note",), number=("size",), category=("shop",)),
        RECORDS,
        [RECORDS[0], {**RECORDS[1], "size": None}],
        {"columns": {"text": ("note",), "number": ("size",), "category": ("shop",)}},
    ),
    "table without texts": (
        Table(number=("size",)),
        RECORDS,
        [{"size": 3}, {"size": None}],
        {"columns": {"text": (), "number": ("size",), "category": ()}},
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
    settings, inputs, items, facts = request.param
    return *settings.fit(inputs), inputs, items, facts


def dense(matrix):
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


def test_the_matrix_of_inputs_is_that_of_the_fit(case):
    front_end, matrix, inputs, _, _ = case
    found = dense(front_end.matrix(inputs))
    np.testing.assert_allclose(found, dense(matrix), rtol=1e-6)
    for row in range(2):
        one = inputs[row : row + 1]
        np.testing.assert_allclose(dense(front_end.matrix(one))[0], found[row], rtol=1e-5)


def test_batches_fit_the_same_front_end(case):
    front_end, matrix, inputs, _, _ = case
    settings = front_end.settings
    if front_end.name == "text":
        settings = Text(**settings.get_params())
    streamed = settings.fit_batches(iter([inputs[:1], inputs[1:]]))
    np.testing.assert_allclose(dense(streamed.matrix(inputs)), dense(matrix), rtol=1e-5)


def test_rows_come_with_the_names_of_their_features(case):
    front_end, matrix, inputs, _, _ = case
    names = front_end.feature_names()
    for row, found in enumerate(front_end.places(inputs)):
        for feature in np.flatnonzero(dense(matrix)[row]).tolist():
            name, spans = found[feature]
            assert name == names[feature][0] or "hash" in names[feature][0]
            text = inputs[row] if front_end.name == "text" else ""
            for start, end in spans if text else ():
                assert 0 <= start < end <= len(text)
                assert text[start:end].lower() in name or name.startswith("chars:")


def test_json_is_read(case):
    front_end, matrix, _, items, facts = case
    read = front_end.read(json.loads(json.dumps(items)), dense(matrix).shape[1])
    np.testing.assert_allclose(dense(front_end.matrix(read)), dense(matrix), rtol=1e-6)
    described = front_end.describe()
    assert described.pop("input") == front_end.name
    assert {name: value for name, value in described.items() if value} == facts


def test_states_give_the_same_features(case):
    front_end, matrix, inputs, _, _ = case
    described, tensors = front_end.state()
    section = section_of(json.loads(json.dumps(described)), tensors)
    assert FRONT_ENDS[front_end.name] is type(front_end)
    found = type(front_end).from_state(section)
    section.check_all_read()
    section.check_all_taken()
    np.testing.assert_allclose(dense(found.matrix(inputs)), dense(matrix), rtol=1e-6)
    assert found.describe() == front_end.describe()
    assert str(found.settings) == str(front_end.settings)
    for name in described:
        rest = {key: value for key, value in described.items() if key != name}
        with pytest.raises(ValueError, match=r"must|needs"):
            type(front_end).from_state(section_of(rest, tensors))
    for name, tensor in tensors.items():
        for wrong in (tensor[:-1], tensor[None], tensor.astype(np.int16)):
            with pytest.raises(ValueError):
                type(front_end).from_state(section_of(described, {**tensors, name: wrong}))


# Numbers


NAMED = NumberInputs(Numbers(), ["size", "price", "age"])


def test_numbers_are_read_as_lists_places_or_names():
    sparse = [{"indices": [2, 0], "values": [2, 1]}, {"indices": [1], "values": [3.0]}]
    named = [{"age": 2, "size": 1}, {"price": 3}]
    for items in (X.tolist(), sparse, named):
        np.testing.assert_array_equal(NAMED.read(items, 3).toarray(), X)
    assert sp.issparse(NAMED.read(X.tolist(), 3))
    assert NAMED.feature_names()[1] == ("price", ())
    assert NumberInputs(Numbers()).feature_names()[7] == ("x7", ())


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([[1, 2]], "row 0 must be a list of 3 numbers, got 2 entries"),
        ([[1, 2, 3], "a"], "row 1 must be a list of 3 numbers, got 'a'"),
        ([[1, 2, "x"]], "rows must be numbers"),
        ([{"indices": [3], "values": [1]}], "indices must be integers from 0 to 2"),
        ([{"indices": [0.5], "values": [1]}], "indices must be integers from 0 to 2"),
        ([{"indices": [0], "values": []}], "as many indices as values, got 1 and 0"),
        ([{"indices": 0, "values": [1]}], "lists of indices and values"),
        ([{"indices": [0], "values": ["x"]}], "values must be numbers"),
        ([{"indices": [0, 1], "values": [[1], [2]]}], "values must be numbers"),
        ([[[1], [2], [3]]], "rows must be numbers"),
        ([{"nobody": 1}], "there is no feature 'nobody'"),
    ],
)
def test_items_that_are_no_rows_are_rejected(items, message):
    with pytest.raises(ValueError, match=message):
        NAMED.read(items, 3)


def test_features_without_names_cannot_be_named():
    with pytest.raises(ValueError, match="the features have no names: send lists of 3 numbers"):
        NumberInputs(Numbers()).read([{"size": 1}], 3)


# Texts and tables


def test_columns_of_texts_are_joined():
    assert as_texts([["a", "b"], ["c", "d"]]) == ["a\nb", "c\nd"]
    assert as_texts(np.array(["a", "b"], object)) == ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "texts must be a list of strings, got str: use"),
        (3, "texts must be a list of strings, got int"),
        (sp.csr_array(X), "use LTLSClassifier for numeric features"),
        (X, "texts must be strings, but row 0 has 1.0; use LTLSClassifier for numeric features"),
        (["a", None], "texts must be strings, but row 1 is None; .*empty ones"),
        (["a", b"b"], r"row 1 is b'b'; decode it, for example with text.decode\(\)"),
        (["a", 2], r"row 1 is 2; use LTLSClassifier for numeric features, or make it a string"),
        (["a", float("nan")], "texts must be strings, but row 1 is nan; .*empty ones"),
        ([["a", "b"], ["c", None]], "texts must be strings, but row 1 has None; .*empty ones"),
        ([], "texts must have at least one row, got none"),
    ],
)
def test_what_is_no_list_of_texts_is_rejected(texts, message):
    with pytest.raises(ValueError, match=message):
        as_texts(texts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Text(ngram_range=None, char_ngram_range=None), "must not both be None"),
        (Text(ngram_range=(2, 1)), "'ngram_range' parameter of Text must be a pair"),
        (Text(ngram_range=(1, 2**62)), "'ngram_range' parameter of Text must be a pair"),
        (Text(char_ngram_range=(1,)), "'char_ngram_range' parameter of Text must be a pair"),
        (Text(min_df=0), "'min_df' parameter of Text must be"),
        (Text(n_features=-1), "'n_features' parameter of Text must be"),
        (Text(stop_words="german"), "'stop_words' parameter of Text must be 'english' or a list"),
        (Table(text="a", number="a"), "column 'a' must be given once"),
        (Table(), "a table needs at least one column"),
    ],
)
def test_settings_that_contradict_each_other(settings, message):
    with pytest.raises(ValueError, match=message):
        settings.check()


def test_no_batches_are_an_error():
    for settings in (Text(), Table(number="n")):
        with pytest.raises(ValueError, match="batches must hold at least one batch"):
            settings.fit_batches(iter([]))


def test_a_function_cannot_be_saved():
    front_end, _ = Text(tokenizer=str.split).fit(TEXTS)
    with pytest.raises(ValueError, match="tokenizer is a function cannot be saved"):
        front_end.state()


def test_columns_that_are_not_known_are_rejected():
    front_end, _ = Table(number="n").fit([{"n": 1.0}, {"n": 3.0}])
    with pytest.raises(ValueError, match="there is no column 'm'"):
        front_end.read([{"n": 1, "m": 2}], 1)
    with pytest.raises(ValueError, match="row 0: it has no 'n'"):
        front_end.read([{}], 1)
    with pytest.raises(ValueError, match="rows must be dicts, but row 0 is 3"):
        front_end.read([3], 1)


@pytest.mark.parametrize("texts", [["a b", "c"], np.array(["a b", "c"]), ("a b", "c")])
def test_features_that_are_texts_name_the_classifier_of_texts(texts):
    with pytest.raises(ValueError, match="use TextClassifier for texts"):
        LTLSClassifier().fit(texts, ["a", "c"])
