"""Labels and predictions in the types that people have."""

from decimal import Decimal

import numpy as np
import pytest

import ltls
from ltls import LTLSClassifier

X = np.eye(4, dtype=np.float32)[[0, 1, 2, 3] * 5]


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates_come_back_as_they_went_in(unit, tmp_path):
    y = np.array(
        ["2020-01-01", "2021-06-05", "2022-02-02", "1969-07-20"] * 5, f"datetime64[{unit}]"
    )
    model = LTLSClassifier(random_state=0).fit(X, y)
    model.save(tmp_path / "model.ltls")
    for each in (model, ltls.load(tmp_path / "model.ltls")):
        found = each.predict(X)
        assert found.dtype == y.dtype
        np.testing.assert_array_equal(found, y)
        assert each.score(X, y) == 1
        assert each.global_explanation(y[1]).label == y[1]
        assert {found.label for found in each.explain(X[:1], labels=y[:4])[0]} == set(y[:4])
    spans = LTLSClassifier(random_state=0).fit(X, y - y[0])
    spans.save(tmp_path / "spans.ltls")
    for each in (spans, ltls.load(tmp_path / "spans.ltls")):
        found = each.predict(X)
        assert found.dtype == (y - y[0]).dtype
        np.testing.assert_array_equal(found, y - y[0])


@pytest.mark.parametrize(
    "labels",
    [
        [f"digit {i}" for i in range(10)],
        [i * 10**12 for i in range(10)],
        [(i, "x") for i in range(10)],
        [bool(i % 2) for i in range(10)],
        [f"{i}" if i % 2 else i for i in range(10)],
        [float(i) for i in range(10)],
    ],
    ids=["str", "large int", "tuple", "bool", "mixed", "float"],
)
def test_labels_of_any_hashable_type_are_returned_unchanged(digits, labels):
    rows, y = digits
    given = [labels[i] for i in y]
    model = LTLSClassifier(random_state=0).fit(rows, given)
    assert set(model.classes_.tolist()) == set(given)
    predicted = model.predict(rows).tolist()
    assert np.mean([a == b for a, b in zip(predicted, given, strict=True)]) > 0.9
    assert {type(label) for label in predicted} <= {type(label) for label in given}


def test_labels_that_no_file_holds(tmp_path):
    model = LTLSClassifier(random_state=0).fit(X, [Decimal(i) for i in range(4)] * 5)
    with pytest.raises(TypeError, match=r"got Decimal\('0'\) of type Decimal; train on str"):
        model.save(tmp_path / "model.ltls")
    assert not list(tmp_path.iterdir())


def test_a_missing_date_is_an_error():
    with pytest.raises(ValueError, match="missing labels, got NaT: leave out"):
        LTLSClassifier().fit(X, np.array(["2020-01-01", "NaT"] * 10, "datetime64[D]"))


def test_one_long_label_does_not_make_all_predictions_long():
    names = np.array(["a", "b", "c", "d" * 10_000], object)
    model = LTLSClassifier(random_state=0).fit(X, names[[0, 1, 2, 3] * 5])
    assert model.predict(X).dtype == object
    assert model.predict(X).tolist() == names[[0, 1, 2, 3] * 5].tolist()
    short = LTLSClassifier(random_state=0).fit(X, ["a", "b", "c", "d" * 40] * 5)
    assert short.predict(X).dtype == "<U40"


def test_lists_in_lists_out():
    tags = [["red"], ["red", "round"], ["blue", "round"], ["blue"]]
    model = LTLSClassifier(random_state=0).fit(X, tags * 5)
    assert [sorted(row) for row in model.predict(X[:4], output="lists")] == [
        sorted(t) for t in tags
    ]
    single = LTLSClassifier(random_state=0).fit(X, list("abcd") * 5)
    assert single.predict(X[:4], output="lists") == [["a"], ["b"], ["c"], ["d"]]
    with pytest.raises(ValueError, match="output must be 'auto' or 'lists', got 'tuples'"):
        model.predict(X, output="tuples")
