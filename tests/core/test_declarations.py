"""What a section declares is checked: types, shapes, ranges, sums, orders, and nothing else."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_parts import section_of

from ltls.core.declarations import Array, Described

U8, F4 = np.uint8, np.float32


def taken(declared, tensors, sizes=None, verify=True):
    known = {"n": 3} if sizes is None else sizes
    return section_of({}, tensors, verify).tensors(declared, known)


@pytest.mark.parametrize(
    ("array", "tensor", "message"),
    [
        (Array("u1", ("n",)), np.zeros(3, np.int8), "must be uint8, got int8"),
        (Array("f4|i1", ("n",)), np.zeros(3), "must be float32 or int8, got float64"),
        (Array("uint", ("n",)), np.zeros(3, np.int64), "must be uint8 or uint16 or"),
        (Array("u1", ("n",)), np.zeros((3, 1), U8), "must have 1 dimension"),
        (Array("u1", ("n",)), np.zeros(4, U8), "with n 3, got"),
        (Array("u1", ("n + 1",)), np.zeros(3, U8), r"with n \+ 1 4, got"),
        (Array("u1", (2, "n")), np.zeros((3, 3), U8), "with 2 2, got"),
        (Array("u1", ("n",), high="n - 1"), np.array([0, 3, 1], U8), "at most 2, got 3"),
        (Array("u1", ("n",), low=1), np.array([1, 0, 1], U8), "at least 1, got 0"),
        (Array("f4", ("n",)), np.array([1, np.nan, 1], F4), "not finite"),
        (Array("f4", ("n",)), np.array([1, np.inf, -np.inf], F4), "not finite"),
        (Array("f2", ("n",)), np.array([1, np.inf, 1], np.float16), "not finite"),
        (Array("u1", ("n",), total="n"), np.array([1, 1, 2], U8), "add up to n 3, got 4"),
        (Array("u1", ("n",), increasing="all"), np.array([1, 1, 2], U8), "that increase"),
        (Array("u1", ("n",), distinct=True), np.array([2, 1, 2], U8), "distinct values"),
    ],
)
def test_tensors_that_are_not_as_declared(array, tensor, message):
    with pytest.raises(ValueError, match=f"tensor 'x' .*{message}"):
        taken({"x": array}, {"x": tensor})


def test_sums_that_begin_again_at_0_are_refused():
    """Lengths of 64 bits whose sum is right modulo 2⁶⁴ would point anywhere."""
    lists = {"counts": Array("uint", ("n",), total="n_all"), "x": Array("u1", ("n_all",))}
    wrong = np.array([2**64 - 40, 42, 1], np.uint64)
    with pytest.raises(ValueError, match="must add up to at most"):
        taken(lists, {"counts": wrong, "x": np.zeros(3, U8)})
    assert int(wrong.sum()) == 3


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=8))
def test_values_increase_within_lists(lists):
    counts = np.array([len(each) for each in lists], U8)
    values = np.array([number for each in lists for number in each], U8)
    declared = {
        "counts": Array("uint", ("n_lists",), total="n_values"),
        "x": Array("u1", ("n_values",), increasing="counts"),
    }
    increase = all(a < b for each in lists for a, b in pairwise(each))
    try:
        taken(declared, {"counts": counts, "x": values}, {})
    except ValueError:
        assert not increase
    else:
        assert increase


def test_sizes_are_learned_from_the_first_tensor_that_has_them():
    sizes = {}
    declared = {"x": Array("u1", ("n", "m")), "y": Array("f4", ("m",))}
    found = taken(declared, {"x": np.zeros((2, 5), U8), "y": np.zeros(5, F4)}, sizes)
    assert sizes == {"n": 2, "m": 5}
    assert set(found) == {"x", "y"}
    with pytest.raises(ValueError, match="with m 5, got"):
        taken(declared, {"x": np.zeros((2, 5), U8), "y": np.zeros(4, F4)}, {})


def test_a_group_is_there_as_a_whole():
    one, two = Array("u1", ("n",), group="g"), Array("u1", ("n",), group="g")
    zeros = np.zeros(3, U8)
    assert taken({"x": one, "y": two}, {}) == {}
    assert set(taken({"x": one, "y": two}, {"x": zeros, "y": zeros})) == {"x", "y"}
    with pytest.raises(ValueError, match="tensor 'y' is missing"):
        taken({"x": one, "y": two}, {"x": zeros})
    with pytest.raises(ValueError, match="tensor 'z' is missing"):
        taken({"z": Array("u1", ("n",))}, {})


def test_numbers_of_mapped_tensors_are_read_only_to_verify():
    declared, wrong = {"x": Array("f4", ("n",), mapped=True)}, np.array([1, np.nan, 1], F4)
    taken(declared, {"x": wrong}, verify=False)
    with pytest.raises(ValueError, match="not finite"):
        taken(declared, {"x": wrong})


def test_numbers_whose_sum_overflows_are_finite():
    taken({"x": Array("f8", ("n",))}, {"x": np.full(3, 1.7e308)})


# Descriptions

BAD = {
    "integer": [True, 1.0, "1", None, -1, 6, 2**70],
    "number": [True, "1", None, math.nan, math.inf, -1, 5.1],
    "flag": [0, 1, "true", None],
    "choice": ["c", 0, None, ["a"]],
    "texts": ["ab", None, [1], [None]],
    "numbers": [1, None, ["1"], [True], [math.nan], [math.inf], [6]],
    "section": [3, None, [], "x"],
}
GOOD = {"integer": 5, "number": 2.5, "flag": True, "choice": "a", "texts": ["x"],
        "numbers": [1, 2.5], "section": {"inner": 1}}  # fmt: skip
LIMITS = {"integer": (0, 5), "number": (0, 5), "choice": (("a", "b"),), "numbers": (0, 5)}


@pytest.mark.parametrize(("method", "value"), [(m, v) for m, values in BAD.items() for v in values])
def test_values_that_are_not_as_declared(method, value):
    section = Described({"x": value}, {}, "outer.")
    with pytest.raises(ValueError, match=r"outer\.x must be"):
        getattr(section, method)("x", *LIMITS.get(method, ()))
    with pytest.raises(ValueError, match=r"outer\.y must be"):
        getattr(section, method)("y", *LIMITS.get(method, ()))


def test_values_that_are_as_declared():
    section = Described(GOOD, {})
    for method, value in GOOD.items():
        found = getattr(section, method)(method, *LIMITS.get(method, ()))
        assert method == "section" or found == value
    assert section.has("flag")
    assert not section.has("other")


def test_what_nobody_asks_for_is_an_error_in_every_section():
    section = Described({"x": 1, "inner": {"y": {"z": 2}, "w": 3}}, {"inner.t": lambda: None})
    assert section.integer("x", 0) == 1
    with pytest.raises(ValueError, match="inner is not known"):
        section.check_all_read()
    inner = section.section("inner")
    assert inner.integer("w", 0) == 3
    deepest = section.section("inner").section("y")
    with pytest.raises(ValueError, match=r"inner\.y\.z is not known"):
        section.check_all_read()
    assert deepest.integer("z", 0) == 2
    section.check_all_read()
    with pytest.raises(ValueError, match=r"tensor 'inner\.t' is not known"):
        section.check_all_taken()


def test_a_section_is_an_object():
    with pytest.raises(ValueError, match="section 'model' must be an object"):
        Described([1], {})
