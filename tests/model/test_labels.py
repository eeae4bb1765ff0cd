"""Labels and their ids, and targets in every format."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import DataConversionWarning

from ltls import LTLSClassifier
from ltls.model import labels as labels_module
from ltls.model.labels import Labels, Targets, as_targets


def rows_of(targets):
    labels = list(targets.labels)
    ends = zip(targets.indptr[:-1], targets.indptr[1:], strict=True)
    return [labels[begin:end] for begin, end in ends]


# Formats


@pytest.mark.parametrize(
    ("y", "format_", "rows"),
    [
        (["a", "b"], "single", [["a"], ["b"]]),
        (np.array([3, 1]), "single", [[3], [1]]),
        (np.array([3.0, 1.0]), "single", [[3], [1]]),
        (np.array(["a", "b"], object), "single", [["a"], ["b"]]),
        ([(1, "x"), (2, "y")], "single", [[(1, "x")], [(2, "y")]]),
        ([["a"], ["b", "a"], []], "lists", [["a"], ["b", "a"], []]),
        ([{"a"}, {"b"}], "lists", [["a"], ["b"]]),
        ([["a", "a"], ["b"]], "lists", [["a"], ["b"]]),
        ([np.array([1, 2]), np.array([2])], "lists", [[1, 2], [2]]),
        ([[0, 1], [1, 1]], "dense", [[1], [0, 1]]),
        (np.array([[0, 1], [1, 1]]), "dense", [[1], [0, 1]]),
        (np.array([[False, True]]), "dense", [[1]]),
        (sp.csr_matrix([[0, 1], [1, 1]]), "sparse", [[1], [0, 1]]),
        (sp.coo_array([[0, 1], [1, 1]]), "sparse", [[1], [0, 1]]),
    ],
    ids=str,
)
def test_formats(y, format_, rows):
    targets = as_targets(y)
    assert (targets.format, targets.n_rows) == (format_, len(rows))
    assert targets.multilabel == (format_ != "single")
    assert rows_of(targets) == rows
    assert targets.n_columns == (2 if format_ in ("dense", "sparse") else None)
    assert as_targets(targets) is targets


# A single column: one label per row


COLUMNS = {
    "object": np.array([["a"], ["b"], ["a"], ["c"]], object),
    "str": np.array([["a"], ["b"], ["a"], ["c"]]),
    "int": np.array([[3], [5], [3], [7]]),
    "zeros and ones": np.array([[1], [0], [1], [1]]),
    "tuples": np.empty((4, 1), object),
}
COLUMNS["tuples"][:, 0] = [(1, "x"), (2, "y"), (1, "x"), (3, "z")]


@pytest.mark.parametrize("y", COLUMNS.values(), ids=COLUMNS)
def test_a_column_holds_one_label_per_row(y):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        targets = as_targets(y)
    assert targets.format == "single"
    assert rows_of(targets) == [[label] for label in y[:, 0]]


@pytest.mark.parametrize("name", ["object", "int"])
def test_fit_with_a_column_is_fit_with_its_labels(name):
    X, y = np.eye(4), COLUMNS[name]
    flat = y.ravel()
    expected = LTLSClassifier(random_state=0).set_params(trellises__epochs=20).fit(X, flat)
    with pytest.warns(DataConversionWarning) as caught:
        model = LTLSClassifier(random_state=0).set_params(trellises__epochs=20).fit(X, y)
    assert len(caught) == 1
    assert not model.multilabel_
    assert model.predict(X).tolist() == flat.tolist()
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    with pytest.warns(DataConversionWarning):
        assert model.score(X, y) == 1
    with pytest.warns(DataConversionWarning):
        model.partial_fit(X, y)
    with pytest.warns(DataConversionWarning):
        LTLSClassifier(random_state=0).fit_stream([(X, y)])


def test_lists_of_one_label_stay_multilabel():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        targets = as_targets([["a"], ["b"], ["c"]])
    assert targets.format == "lists"


# Errors


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "y is None"),
        ("ab", "y must be an array or a list of labels, got str"),
        ({"a"}, "got set"),
        ({"a": 1}, "got dict"),
        (3, "got int"),
        pytest.param(iter([1, 2]), "got list_iterator", id="an iterator"),
        ([None, "a"], "missing labels, entry 0 is None: leave out such rows"),
        ([["a"], [float("nan")]], "missing labels"),
        ([["a"], "b"], "row 1 is 'b'"),
        (np.full((2, 3), 2), "indicator matrix of 0 and 1, got 2"),
        (np.zeros((2, 2, 2)), "one or two dimensions"),
        ([0.5, 1.0], "Unknown label type"),
        ([np.inf, 1.0], "NaN or infinity"),
        ([1j, 2j], "Complex"),
        (sp.csr_matrix([[2, 0]]), "indicator matrix of 0 and 1, got 2"),
        (np.array([["a", "b"]]), "indicator matrix of 0 and 1, got dtype <U1"),
    ],
    ids=str,
)
def test_invalid_targets_are_rejected(y, message):
    with pytest.raises(ValueError, match=message):
        as_targets(y)


def test_unhashable_labels_are_rejected():
    with pytest.raises(TypeError, match="labels must be hashable"):
        as_targets([[["a"]], [["b"]]])


# Ids

plain = st.one_of(st.integers(-5, 5), st.text("ab", max_size=2), st.tuples(st.integers(0, 2)))


@given(first=st.lists(plain, min_size=1, max_size=10), then=st.lists(plain, max_size=10))
def test_ids_are_places_in_order_of_appearance(first, then):
    labels = Labels()
    for part in (first, then):
        labels.extend(part)
        expected = list(dict.fromkeys([*first, *(then if part is then else [])]))
        assert labels.values == labels.array.tolist() == expected
        assert len(labels) == len(expected)
    for number, label in enumerate(expected):
        assert label in labels
        assert labels.id(label) == number


@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=20), data=st.data())
def test_ids_of_arrays_and_lists_agree(values, data):
    known = Labels(dict.fromkeys(data.draw(st.lists(st.integers(-5, 5), max_size=5))))
    expected = [known.id(value) if value in known else -1 for value in values]
    indptr = np.arange(len(values) + 1)
    for form in (values, np.array(values), np.array(values, object)):
        assert known.ids(Targets(indptr, form, False, "single")).tolist() == expected


kinds = st.one_of(
    st.integers(-9, 9), st.integers(2**63, 2**63 + 2), st.booleans(), st.just("a"), st.just(2.0)
)


@given(
    first=st.lists(st.one_of(st.integers(-9, 9), kinds), max_size=9),
    parts=st.lists(st.lists(st.integers(-9, 9), min_size=1), max_size=3),
    dtype=st.sampled_from(["int8", "int64"]),
)
def test_many_integers_are_looked_up_as_one_by_one(first, parts, dtype):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labels_module, "_MIN_FOR_INDEX", 1)
        labels, expected = Labels(dict.fromkeys(first)), list(dict.fromkeys(first))
        for part in parts:
            targets = as_targets(np.array(part, dtype))
            ids = {label: number for number, label in enumerate(expected)}
            assert labels.ids(targets).tolist() == [ids.get(label, -1) for label in part]
            unseen = list(dict.fromkeys(label for label in part if label not in ids))
            assert labels.unseen(targets) == unseen
            labels.add(targets)
            expected += unseen
            assert labels.values == expected
            assert labels.ids(targets).tolist() == [expected.index(label) for label in part]


def test_labels_are_sorted_if_they_can_be():
    assert Labels.sorted(as_targets(["b", "a", "b"])).values == ["a", "b"]
    assert Labels.sorted(as_targets([["b"], ["a", 3]])).values == ["b", "a", 3]
    assert Labels.sorted(as_targets(np.eye(4, dtype=int))).values == [0, 1, 2, 3]


@given(
    data=st.data(),
    dtype=st.sampled_from(["int8", "uint8", "int16", "uint32", "int64", "uint64", "float64"]),
)
def test_ids_of_numbers_of_any_type_and_range(data, dtype):
    limits = np.iinfo(dtype) if dtype != "float64" else np.iinfo("int32")
    bounds = data.draw(st.sampled_from([(0, 9), (limits.min, limits.max), (limits.max - 9, None)]))
    numbers = data.draw(st.lists(st.integers(bounds[0], bounds[1] or limits.max), min_size=1))
    targets = as_targets(np.array(numbers, dtype))
    labels = Labels.sorted(targets)
    assert labels.values == sorted(set(numbers))
    assert labels.ids(targets).tolist() == [labels.values.index(number) for number in numbers]
    arrived = Labels()
    arrived.add(targets)
    assert arrived.values == list(dict.fromkeys(numbers))


def test_sets_are_read_in_an_order_that_does_not_depend_on_hashes():
    words = [f"label {i}" for i in range(40)]
    assert list(as_targets([set(words), frozenset(words)]).labels) == sorted(words) * 2
    mixed = {1, "a", 2.5, b"b", ("t", 1), "b", 3}
    assert list(as_targets([mixed, ["z"]]).labels) == [b"b", 2.5, 1, 3, "a", "b", ("t", 1), "z"]
    assert list(as_targets([["b", "a", "b"], {2}]).labels) == ["b", "a", 2]  # lists as they are


def test_extended_labels_share_memory_but_nothing_else():
    one = Labels(["a", "b"])
    two = one.extended(["b", "c"])
    assert (one.values, two.values) == (["a", "b"], ["a", "b", "c"])
    assert two._values is one._values  # no copy
    assert "c" not in one
    assert one.ids(as_targets(["c", "a"])).tolist() == [-1, 0]
    assert one.unseen(as_targets(["c", "d"])) == ["c", "d"]
    assert one.array.tolist() == ["a", "b"]
    other = one.extended(["d"])  # from the same labels once more, as after an error
    assert (other.values, two.values) == (["a", "b", "d"], ["a", "b", "c"])
    assert (other.id("d"), two.id("c")) == (2, 2)
    assert "d" not in two
    assert len(one) == 2


def test_more_columns_than_memory_are_an_error_before_they_are_allocated(monkeypatch):
    y = sp.csr_array(([1], [7], [0, 1]), shape=(1, 2**30))
    monkeypatch.setattr(labels_module, "available_memory", lambda: 10**9)
    with pytest.raises(MemoryError, match=r"161\.1 GB for 1,073,741,824 labels \(columns of y\)"):
        Labels.sorted(as_targets(y))
