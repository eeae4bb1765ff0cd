"""Data frames and columns of pandas, polars and Arrow, wherever rows, texts or labels are taken."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning

from ltls import LTLSClassifier, TableClassifier, TextClassifier, load
from ltls.settings import Table, Text

ROWS = {
    "note": ["lost my card", "which fee", "card lost", None],
    "amount": [0.0, 25.5, None, 12.0],
    "country": ["CH", None, "AT", "CH"],
}
TEXTS = ["lost my card", "which fee", "card lost", "a fee"]
LABELS = ["card", "fee", "card", "fee"]


@pytest.fixture(params=["pandas", "polars", "pyarrow"])
def library(request):
    reason = f"needs {request.param}: run make test-all"
    return pytest.importorskip(request.param, reason=reason)


@pytest.fixture
def frame(library):
    return library.table if library.__name__ == "pyarrow" else library.DataFrame


@pytest.fixture
def column(library):
    is_arrow = library.__name__ == "pyarrow"
    return (lambda values: library.chunked_array([values])) if is_arrow else library.Series


def test_tables(frame):
    columns = Table(text="note", number="amount", category="country")
    as_dicts = [dict(zip(ROWS, cells, strict=True)) for cells in zip(*ROWS.values(), strict=True)]
    expected = TableClassifier(features=columns, random_state=0).fit(as_dicts, LABELS)
    model = TableClassifier(features=columns, random_state=0).fit(frame(ROWS), LABELS)
    np.testing.assert_array_equal(model.edge_scores(frame(ROWS)), expected.edge_scores(as_dicts))
    with pytest.raises(ValueError, match="X must have a column 'note', but it has 'amount'"):
        model.predict(frame({"amount": [1.0]}))


def test_texts_and_labels(column, frame):
    expected = TextClassifier(random_state=0).fit(TEXTS, LABELS)
    model = TextClassifier(random_state=0).fit(column(TEXTS), column(LABELS))
    assert model.classes_.tolist() == ["card", "fee"]
    scores = expected.edge_scores(TEXTS)
    np.testing.assert_array_equal(model.edge_scores(column(TEXTS)), scores)
    np.testing.assert_array_equal(model.edge_scores(frame({"text": TEXTS})), scores)
    assert model.score(column(TEXTS), column(LABELS)) == 1
    joined = model.edge_scores(frame({"subject": TEXTS, "body": LABELS}))
    both = [f"{text}\n{label}" for text, label in zip(TEXTS, LABELS, strict=True)]
    np.testing.assert_array_equal(joined, model.edge_scores(both))
    with pytest.raises(ValueError, match="texts must be strings, but row 1 is"):
        model.predict(column(["a", None]))
    with pytest.raises(ValueError, match="y must not hold missing labels, entry 1"):
        TextClassifier().fit(TEXTS[:2], column(["a", None]))


def test_a_frame_of_one_column_has_one_label_per_row(frame):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = TextClassifier(random_state=0).fit(TEXTS, frame({"kind": LABELS}))
    assert not model.multilabel_
    assert model.predict(TEXTS).tolist() == LABELS


def test_several_labels(column, frame):
    lists = [["a"], ["b", "a"], ["c"], ["c", "b"]]
    text = Text(char_ngram_range=None)
    expected = TextClassifier(features=text, random_state=0).fit(TEXTS, lists)
    model = TextClassifier(features=text, random_state=0).fit(TEXTS, column(lists))
    np.testing.assert_array_equal(model.edge_scores(TEXTS), expected.edge_scores(TEXTS))
    indicator = {name: [int(name in row) for row in lists] for name in "abc"}
    model = TextClassifier(features=text, random_state=0).fit(TEXTS, frame(indicator))
    assert model.multilabel_
    np.testing.assert_array_equal(model.edge_scores(TEXTS), expected.edge_scores(TEXTS))


def test_numbers_keep_the_names_of_their_columns(frame):
    X = np.eye(4)
    rows = frame({name: X[:, i] for i, name in enumerate("wxyz")})
    model = LTLSClassifier(random_state=0).fit(rows, LABELS)
    assert model.feature_names_in_.tolist() == model.model_.front_end.given_names == list("wxyz")
    assert model.predict(rows).tolist() == LABELS
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame({name: X[:, i] for i, name in enumerate("abcd")}))


def test_batches_keep_the_names_of_their_columns(frame, tmp_path):
    X = frame({"size": [0.0, 1.0, 2.0], "price": [3.0, 0.0, 1.0]})
    model = LTLSClassifier(random_state=0).fit_stream([(X, ["a", "b", "a"])] * 4)
    model.save(tmp_path / "model.ltls")
    for each in (model, load(tmp_path / "model.ltls")):
        assert each.feature_names_in_.tolist() == ["size", "price"]
        assert each.predict(X).shape == (3,)  # without a warning
        found = each.explain(X, k=1)[1][0].contributions
        assert {one.feature for one in found} <= {"size", "price"}


def test_among(column, frame):
    X = np.eye(4)
    model = LTLSClassifier(random_state=0).fit(X, list("abcd"))
    expected = model.predict_topk(X, 2, among=["b", "d"])
    mask = [False, True, False, True]
    masks = frame({name: [allowed] * 4 for name, allowed in zip("abcd", mask, strict=True)})
    for form in (column(["d", "b"]), column(mask), column([["b", "d"]] * 4), masks):
        labels, scores = model.predict_topk(X, 2, among=form)
        assert labels.tolist() == expected[0].tolist()
        np.testing.assert_array_equal(scores, expected[1])


def test_lazy_frames_are_an_error_that_says_what_to_do():
    polars = pytest.importorskip("polars", reason="needs polars: run make test-all")
    lazy = polars.LazyFrame({"a": [1.0, 2.0]})
    for model, X, y, name in (
        (TableClassifier(features=Table(number="a")), lazy, [0, 1], "X"),
        (TextClassifier(), lazy, [0, 1], "texts"),
        (LTLSClassifier(), lazy, [0, 1], "X"),
        (LTLSClassifier(), np.eye(2), lazy, "y"),
    ):
        with pytest.raises(ValueError, match=rf"{name} must be a data frame in memory.*collect"):
            model.fit(X, y)
    model = LTLSClassifier(random_state=0).fit(np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="X must be a data frame in memory"):
        model.predict(lazy)
    with pytest.raises(ValueError, match="among must be a data frame in memory"):
        model.predict_topk(np.eye(2), among=lazy)


def test_a_column_of_texts_is_an_error_that_names_the_estimator_for_it(frame):
    X = frame({"n": [1.0, 2.0], "country": ["fi", "se"]})
    with pytest.raises(ValueError, match="column 'country' has texts; TableClassifier takes"):
        LTLSClassifier().fit(X, [1, 2])


def test_labels_of_lists_come_back_as_those_of_python(column):
    model = LTLSClassifier(random_state=0).fit(np.eye(4), column([[1], [2, 3], [3], [1]]))
    found = model.predict(np.eye(4), output="lists")
    assert {type(label) for row in found for label in row} == {int}


def test_a_column_of_vectors_is_an_array(column, frame):
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    y = np.arange(60) % 3
    model = LTLSClassifier(random_state=0).fit(column(X.tolist()), y)
    expected = LTLSClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(column(X.tolist())), expected.predict(X))
    with pytest.raises(ValueError, match="row 0 has 5 numbers, row 1 has 4"):
        model.predict(column([X[0].tolist(), X[1, :4].tolist()]))
    for missing, rows in enumerate([[None, X[0].tolist()], [X[0].tolist(), None]]):
        with pytest.raises(ValueError, match=f"every row, but row {missing} has None; drop"):
            model.predict(column(rows))
    alone = LTLSClassifier(random_state=0).fit(frame({"v": X.tolist()}), y)
    np.testing.assert_array_equal(alone.predict(frame({"v": X.tolist()})), expected.predict(X))
    assert not alone.model_.front_end.given_names  # the column is no feature
    with pytest.raises(ValueError, match="column 'v' has vectors; pass this column alone"):
        LTLSClassifier().fit(frame({"v": X.tolist(), "w": X[:, 0].tolist()}), y)


def test_tensors_of_any_precision_are_arrays():
    torch = pytest.importorskip("torch", reason="needs torch: run make test-all")
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float16).astype(np.float32)
    y = np.arange(60) % 3
    expected = LTLSClassifier(random_state=0).fit(X, y).predict(X)
    for given in (torch.tensor(X, requires_grad=True), torch.tensor(X).half()):
        model = LTLSClassifier(random_state=0).fit(given, y)
        np.testing.assert_array_equal(model.predict(given), expected)
    rounded = torch.tensor(X).bfloat16()
    model = LTLSClassifier(random_state=0).fit(rounded, y)
    expected = LTLSClassifier(random_state=0).fit(rounded.float().numpy(), y).predict(X)
    np.testing.assert_array_equal(model.predict(X), expected)


def test_fixed_size_lists_are_an_array(library):
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    if library.__name__ == "pandas":
        given = library.Series(list(X))
    elif library.__name__ == "polars":
        given = library.Series(X)
    else:
        given = library.FixedSizeListArray.from_arrays(library.array(X.ravel()), 5)
    y = np.arange(60) % 3
    expected = LTLSClassifier(random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(LTLSClassifier(random_state=0).fit(given, y).predict(X), expected)
    words = csr_array(np.eye(3)[y])
    both = LTLSClassifier(random_state=0).fit([words, X], y)
    model = LTLSClassifier(random_state=0).fit([words, given], y)
    scores = both.decision_function([words, X])
    np.testing.assert_array_equal(model.decision_function([words, given]), scores)
    assert len(model.explain([words, given], k=1)) == 60
