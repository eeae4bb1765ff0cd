"""Columns of texts, numbers and categories become features as scikit-learn makes them."""

import datetime
import math
from decimal import Decimal

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ltls.features.columns import TableColumns
from ltls.features.table import Table, TableVectorizer

TABLE = Table(number=("size", "price"), category=("shop", "day"))
COLUMNS = TABLE.columns()
ROWS = [
    {"size": 1.0, "price": 20.0, "shop": "north", "day": "1"},
    {"size": 3.0, "price": math.nan, "shop": "south", "day": None},
    {"size": 8.0, "price": 26.0, "shop": None, "day": "1"},
    {"size": math.nan, "price": 23.0, "shop": "north", "day": "2"},
]


def cells(rows):
    return np.array([[row[name] for name in COLUMNS.names] for row in rows], object)


def test_the_features_are_those_of_scikit_learn():
    numbers = make_pipeline(StandardScaler(), SimpleImputer(strategy="constant", fill_value=0.0))
    expected = ColumnTransformer(
        [
            ("number", numbers, [0, 1]),
            ("category", OneHotEncoder(handle_unknown="ignore"), [2, 3]),
        ],
        sparse_threshold=0,
    ).fit_transform(cells(ROWS))
    X = TableVectorizer(TABLE, COLUMNS, None).fit_transform(ROWS).toarray()
    # Each kind of column has two of them here.
    np.testing.assert_allclose(X, expected / math.sqrt(2), rtol=1e-6)
    given = cells(ROWS)[:, :2].astype(float)
    imputed = SimpleImputer(strategy="mean").fit_transform(given)
    np.testing.assert_allclose(
        X[:, :2] * math.sqrt(2), StandardScaler().fit(given).transform(imputed), rtol=1e-6
    )


def test_batches_teach_the_same_as_all_rows():
    at_once, in_batches = (
        TableVectorizer(TABLE, COLUMNS, None),
        TableVectorizer(TABLE, COLUMNS, None),
    )
    X = at_once.fit_transform(ROWS)
    in_batches.fit([ROWS[1:2], ROWS[:1], ROWS[3:], ROWS[2:3]])  # one without a price, first
    np.testing.assert_allclose(in_batches.transform(ROWS).toarray(), X.toarray(), rtol=1e-6)
    assert in_batches.names() == at_once.names()


def test_names_and_unknown_values():
    vectorizer = TableVectorizer(TABLE, COLUMNS, None)
    vectorizer.fit_transform(ROWS)
    names = ["size", "price", "shop=north", "shop=south", "shop=", "day=1", "day=2", "day="]
    assert vectorizer.names() == names
    new = {"size": 4.0, "price": 23.0, "shop": "west", "day": None}
    X = vectorizer.transform([new]).toarray()[0]
    assert dict(zip(names, X, strict=True))["day="] > 0
    assert not X[2:7].any()
    far = vectorizer.transform([{**new, "size": 1e99}]).toarray()
    assert np.isfinite(far).all()


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("a", "a"),
        (3, "3"),
        (3.0, "3"),
        ("3", "3"),
        (2.5, "2.5"),
        (np.int64(3), "3"),
        (True, "true"),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2), "2026-01-02"),
        (datetime.datetime(2026, 1, 2, 3, 4), "2026-01-02T03:04:00"),
        ("2026-01-02 00:00:00", "2026-01-02"),
        ("2026-01-02 03:04:00", "2026-01-02T03:04:00"),
        ("-3.0", "-3"),
        ("3.10", "3.10"),
        ("007", "007"),
        ("False", "false"),
        ("Falsehood", "Falsehood"),
        (None, None),
        ("", None),
        (math.nan, None),
    ],
    ids=repr,
)
def test_categories_are_texts(cell, expected):
    assert TableColumns(category=("c",)).read({"c": cell}) == {"c": expected}


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("1.5", 1.5), (" 2 ", 2.0), (True, 1.0), (np.float32(0.5), 0.5), (Decimal("2.5"), 2.5)],
    ids=repr,
)
def test_numbers(cell, expected):
    assert TableColumns(number=("n",)).read({"n": cell}) == {"n": expected}


@pytest.mark.parametrize("cell", [None, "", "NaN", "NA", " null ", math.nan])
def test_missing_numbers(cell):
    assert math.isnan(TableColumns(number=("n",)).read({"n": cell})["n"])


@pytest.mark.parametrize(
    ("kind", "cell", "message"),
    [
        ("number", "abc", "'x' is 'abc', not a finite number"),
        ("number", "long " * 20, r"'x' is 'long [a-z .]*', not a finite number"),
        ("number", math.inf, "not a finite number"),
        ("number", [1, 2], "not a finite number"),
        ("number", -1e300, r"'x' is -1e\+300, not between ±1e\+100"),
        ("text", 3, "'x' is 3, not a text"),
        ("category", ["a"], "neither a text nor a number"),
        ("category", {"a": 1}, "neither a text nor a number"),
    ],
    ids=str,
)
def test_cells_of_other_types(kind, cell, message):
    with pytest.raises(ValueError, match=message):
        TableColumns(**{kind: ("x",)}).read({"x": cell})


def test_columns_must_be_there_and_differ():
    with pytest.raises(ValueError, match="it has no 'n', only 'm'"):
        TableColumns(number=("n",)).read({"m": 1})
    with pytest.raises(ValueError, match="'n' must be given once"):
        TableColumns(number=("n",), category=("n",))
    with pytest.raises(ValueError, match="needs at least one column"):
        TableColumns()
    with pytest.raises(ValueError, match="number column 'n' must have numbers"):
        Table(number="n").fit([{"n": math.nan}])
