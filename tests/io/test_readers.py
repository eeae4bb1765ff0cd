"""Files are read and written correctly; errors name the file and the line."""

import bz2
import gzip
import lzma
import os

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ltls.readers import read, write

COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@st.composite
def rows(draw):
    """A feature matrix and an indicator matrix with the same number of rows."""
    n_rows, n_features, n_labels = (draw(st.integers(1, 6)) for _ in range(3))
    value = st.just(0.0) | st.floats(width=32, allow_nan=False, allow_infinity=False)
    n_values = n_rows * n_features
    values = draw(st.lists(value, min_size=n_values, max_size=n_values))
    flags = draw(st.lists(st.booleans(), min_size=n_rows * n_labels, max_size=n_rows * n_labels))
    X = np.array(values, dtype=np.float32).reshape(n_rows, n_features)
    return X, np.array(flags).reshape(n_rows, n_labels)


@same_folder
@given(rows(), st.sampled_from(sorted(COMPRESS)))
def test_xmc_round_trip(tmp_path, data, suffix):
    X, Y = data
    path = tmp_path / f"round{suffix}"
    write(path, sp.csr_matrix(X), sp.csr_matrix(Y), "xmc")
    back = read(path)
    assert np.array_equal(back.X.toarray(), X)
    assert np.array_equal(back.Y.toarray(), Y)
    assert (back.X.dtype, back.Y.dtype) == (np.float32, np.float32)
    assert back.zero_based
    assert back.classes is None
    assert os.listdir(tmp_path) == [path.name]
    path.unlink()


@same_folder
@given(rows())
def test_svmlight_round_trip(tmp_path, data):
    X, Y = data
    kept = X.any(axis=1) | Y.any(axis=1)
    path = tmp_path / "round"
    if not kept.all():
        with pytest.raises(ValueError, match="no features and no labels"):
            write(path, X, Y, "svmlight")
    if kept.any():
        X, Y = X[kept], Y[kept]
        write(path, X, Y, "svmlight")
        back = read(path, n_features=X.shape[1])
        assert np.array_equal(back.X.toarray(), X)
        used = Y.any(axis=0)
        assert np.array_equal(back.classes, np.flatnonzero(used))
        assert np.array_equal(back.Y.toarray(), Y[:, used])


def test_svmlight_as_people_write_it(put):
    path = put("# made by hand\n\n+3 1:0.5 4:-2e-1 # first\r\n-1.0 2:1\n\n3\n")
    data = read(path)
    assert data.X.toarray() == pytest.approx(np.array([[0.5, 0, 0, -0.2], [0, 1, 0, 0], [0] * 4]))
    assert data.y.tolist() == [3, -1, 3]
    assert data.classes.tolist() == [-1, 3]
    assert data.single_label
    assert data.n_labels == 2


def test_rows_with_several_labels_and_with_none(put):
    data = read(put("3 5 4\n0,2 1:1\n 0:2\n\n"))
    assert data.Y.toarray().tolist() == [[1, 0, 1, 0], [0] * 4, [0] * 4]
    assert data.X.toarray().tolist() == [[0, 1, 0, 0, 0], [2, 0, 0, 0, 0], [0] * 5]
    assert data.labels_per_row.tolist() == [2, 0, 0]
    assert [row.tolist() for row in data.labels()] == [[0, 2], [], []]
    with pytest.raises(ValueError, match="y must have one label per row, got 2 in row 0; use Y"):
        _ = data.y
    data = read(put("9,7 1:1\n2:2\n7,7 1:1\n"))
    assert [row.tolist() for row in data.labels()] == [[7, 9], [], [7]]
    assert data.Y.toarray().tolist() == [[1, 1], [0, 0], [1, 0]]


def test_features_are_counted_from_one_unless_index_zero_occurs(put):
    one, zero = put("1 1:1 3:1\n", "one"), put("1 0:1 3:1\n", "zero")
    assert (read(one).X.shape, read(one).zero_based) == ((1, 3), False)
    assert (read(zero).X.shape, read(zero).zero_based) == ((1, 4), True)
    assert read(one, zero_based=True).X.toarray().tolist() == [[0, 1, 0, 1]]
    assert read(one, n_features=9).X.shape == (1, 9)
    with pytest.raises(ValueError, match=r"zero, line 1: feature index '0' is not .* from 1"):
        read(zero, zero_based=False)


def test_an_xmc_file_is_distinguished_from_svmlight_by_its_header(put):
    assert read(put("1 9 4\n3 2:1\n")).X.shape == (1, 9)
    assert read(put("1 9 4\n3 2:1\n"), n_features=12).X.shape == (1, 12)
    assert read(put("3 2:1\n")).X.shape == (1, 2)
    with pytest.raises(ValueError, match=r"rows: an xmc file starts with three counts"):
        read(put("3 2:1\n"), format="xmc")
    with pytest.raises(ValueError, match="line 1: '9' is not of the form index:value"):
        read(put("1 9 4\n3 2:1\n"), format="svmlight")


def test_features_in_any_order_are_sorted(put):
    data = read(put("2 9 4\n1 2:1\n3,0 qid:4 7:1 0:2 10:3\n".replace("10", "8")))
    assert data.X.has_sorted_indices
    assert data.X[1].indices.tolist() == [0, 7, 8]
    assert data.X[1].data.tolist() == [2, 1, 3]
    assert data.labels()[1].tolist() == [0, 3]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_compression_is_detected_from_the_content_and_damage_is_named(put, suffix):
    text = b"2000 9 4\n" + b"".join(b"3 2:%d\n" % i for i in range(2000))
    whole = COMPRESS[suffix](text)
    assert read(put(whole)).y.tolist() == [3] * 2000
    with pytest.raises(ValueError, match="cut: the compressed file is truncated or corrupt"):
        read(put(whole[: len(whole) // 2], "cut"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 1:1\n1 2:x\n", "line 2: value 'x' of feature 2 is not a finite number"),
        ("1 1:1\n1 2:\n", "line 2: value '' of feature 2 is not a finite number"),
        ("1 1:1\n\n1 2:nan\n", "line 3: value 'nan' of feature 2"),
        ("1 1:1\n1 2:-inf\n", "line 2: value '-inf' of feature 2"),
        ("1 1:1\n1 2:1e39\n", "line 2: value '1e39' of feature 2"),
        ("1 1:1\n1 -2:1\n", "line 2: feature index '-2' is not an integer from 0"),
        ("1 1:1\n1 1.5:1\n", "line 2: feature index '1.5' is not an integer"),
        ("1 1:1\n1 +-1:1\n", "line 2: feature index '\\+-1' is not an integer"),
        ("1 1:1\n1 99999999999:1\n", "line 2: feature index '99999999999' is not"),
        (f"1 1:1\n1 {'9' * 5000}:1\n", "line 2: feature index '9+' is not"),
        ("1 1:1\n1 2:1 2:1\n", "line 2: feature index 2 occurs twice"),
        ("1 1:1\n1 2\n", "line 2: '2' is not of the form index:value"),
        ("1 1:1\na 2:1\n", "line 2: label 'a' is not an integer"),
        ("1 1:1\n1.5 2:1\n", "line 2: label '1.5' is not an integer"),
        ("1 1:1\nnan 2:1\n", "line 2: label 'nan' is not an integer"),
        ("1 1:1\n9007199254740993 2:1\n", "line 2: label '9007199254740993' is not"),
        ("1 1:1\n1,,2 2:1\n", "line 2: label '' is not an integer"),
        ("1 1:1\n1, 2:1\n", "line 2: label '' is not an integer"),
        (b"1 1:1\n\xff\xfe 2:1\n", r"line 2: label '\\\\xff\\\\xfe' is not an integer"),
        ("2 3 4\n0 0:1\n4 0:1\n", "line 3: label '4' is not an integer from 0 to 3"),
        ("2 3 4\n0 0:1\n-1 0:1\n", "line 3: label '-1' is not an integer from 0 to 3"),
        ("2 3 4\n0 0:1\n1 3:1\n", "line 3: feature index '3' is not an integer from 0 to 2"),
        ("2 3 4\n0 0:1\n", "the header says 2 rows, but there are 1"),
        ("1 3 4\n0 0:1\n1 0:1\n", "the header says 1 rows, but there are 2"),
        ("999999999999999999 3 4\n0 0:1\n", "the header says 999999999999999999 rows"),
        ("", "the file has no rows"),
        ("# nothing\n", "the file has no rows"),
        ("0 3 4\n", "the file has no rows"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(put, content, message):
    path = put(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


odd = ["#", "\0", "qid", "7:7:7", "1_0:2", "\u00b2:1", "4 1:1 2:2", "\t", "\r", "3 9 9", "x:1"]
words = st.sampled_from(
    ["0", "1", "-1", "2.0", "1,2", ",", ":", "1:2", "0:1", "2:1", "3:1e50", "1:nan", "qid:2", *odd]
)


@same_folder
@given(st.lists(st.lists(words, max_size=5), max_size=4))
@example([["3 9 9"], ["1:2"], ["0:1"], []])
def test_any_file_is_read_or_refused_in_words(put, lines):
    path = put("\n".join(" ".join(line) for line in lines))
    try:
        data = read(path)
    except ValueError as error:
        refusal = str(error)
    else:
        assert np.isfinite(data.X.data).all()
        assert data.X.shape[0] == data.Y.shape[0] == len(data.labels())
        assert data.X.has_canonical_format
        assert (data.Y.data == 1).all()
        data.X.check_format()
        data.Y.check_format()
        return
    assert refusal.startswith(str(path))


def test_bad_arguments_are_named(put, tmp_path):
    path = put("1 1:1 5:1\n")
    with pytest.raises(ValueError, match="format must be one of svmlight, xmc, got 'csv'"):
        read(path, format="csv")
    with pytest.raises(ValueError, match="n_features must be at least 1, got 0"):
        read(path, n_features=0)
    with pytest.raises(ValueError, match=r"line 1: feature index '5' is not .* from 1 to 4"):
        read(path, n_features=4)
    with pytest.raises(ValueError, match=r"n_features must be at least 9, as in the file, got 4"):
        read(put("1 9 4\n3 2:1\n", "xmc"), n_features=4)
    with pytest.raises(ValueError, match="zero_based must be True, False or 'auto', got 2"):
        read(path, zero_based=2)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "rows"
    write(path, [[1.0]], [0], "xmc")
    for X, Y, kind, message in [
        ([[np.nan]], [0], "xmc", "X must have finite numbers"),
        ([[1e300]], [0], "xmc", "X must have finite numbers"),
        ([[1.0], [2.0]], [0], "xmc", r"Y must have as many rows as X \(2\), got 1"),
        ([[1.0]], [0], "csv", "format must be one of svmlight, xmc, got 'csv'"),
        ([[1.0]], [-1], "xmc", "Y must hold label ids"),
    ]:
        with pytest.raises(ValueError, match=message):
            write(path, X, Y, kind)
    assert path.read_text() == "1 1 1\n0 0:1\n"
    assert os.listdir(tmp_path) == ["rows"]


def test_an_interrupted_write_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "rows", [[1.0]], [0], "xmc")
    assert os.listdir(tmp_path) == []


def test_numbers_are_written_short(tmp_path):
    write(tmp_path / "rows", np.float32([[0.1, 0, 1e-8]]), [[0, 1]], "svmlight")
    assert (tmp_path / "rows").read_text() == "1 1:0.1 3:1e-08\n"
