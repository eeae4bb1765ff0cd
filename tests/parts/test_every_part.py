"""What is true of all parts: scores, candidates and explanations agree, and states are refused
unless every number of them is as declared.
"""

import json
import math
import pickle
from copy import deepcopy

import numpy as np
import pytest
from formulas import value_of
from small_parts import EVERY_PART, N_LABELS, SIZES, every, make_rows, restored, with_more_columns

from ltls.core import _engine
from ltls.core.declarations import Described
from ltls.parts.base import PARTS, register_part
from ltls.parts.propensity import PropensityPart

DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)  # in files
NOTHING = object()


@pytest.fixture(params=EVERY_PART.values(), ids=EVERY_PART)
def part(request):
    return request.param(np.random.default_rng(0))


@pytest.fixture
def rows():
    return make_rows(np.random.default_rng(1), 7)


# Scores


def test_labels_are_scored_one_by_one_as_all_at_once(part, rows):
    ids = every(7)
    scores = part.score(rows, ids, None)
    assert (scores.shape, scores.dtype) == (ids.shape, np.float32)
    np.testing.assert_array_equal(part.score(rows, ids, 2), scores)
    some = np.array([[5, -1, 0, 29, 17]] * len(rows))
    found = part.score(rows, some, None)
    np.testing.assert_allclose(found[:, [0, 2, 3, 4]], scores[:, [5, 0, 29, 17]], rtol=1e-5)
    for row in range(len(rows)):
        one = rows[np.array([row])]
        np.testing.assert_allclose(part.score(one, ids[:1], None)[0], scores[row], rtol=1e-5)
    dense = rows.like(rows.X.toarray())
    np.testing.assert_allclose(part.score(dense, ids, None), scores, rtol=1e-5)


def test_every_instruction_set_scores_alike(instruction_set, part, rows):
    found = part.score(make_rows(np.random.default_rng(1), 7), every(7), None)
    _engine.use_instruction_set("baseline")  # the fixture puts the old one back
    np.testing.assert_allclose(found, part.score(rows, every(7), None), rtol=1e-5, atol=1e-5)


def test_candidates_are_distinct_labels(part, rows):
    assert hasattr(part, "candidates") == (part.name not in ("label_weights", "propensity"))
    if not hasattr(part, "candidates"):
        return
    for n in (1, 4, N_LABELS):
        for own in part.candidates(rows, n, None).tolist():
            known = [label for label in own if label >= 0]
            n_sources = len(getattr(part, "views", [1]))
            assert len(own) <= n * n_sources
            assert len(set(known)) >= len(known) / n_sources
            assert all(label < N_LABELS for label in known)


# What a label without rows has, in the parts whose growth adds labels to vectors.
OF_NEW_LABELS = {"label weights": -1, "prototypes": np.log(0.05)}


@pytest.mark.parametrize("name", OF_NEW_LABELS)
@pytest.mark.parametrize(("n_more", "n_new"), [(0, 0), (3, 0), (0, 2), (70_000, 4)])
def test_growing_changes_no_old_score(name, rows, n_more, n_new):
    part = EVERY_PART[name](np.random.default_rng(0))
    grown, wider = part.grow(N_LABELS + n_more, n_new), with_more_columns(rows, n_new)
    scores = part.score(rows, every(7), None)
    np.testing.assert_array_equal(grown.score(wider, every(7), None), scores)
    if n_more:
        new = np.full((7, 1), N_LABELS + n_more - 1)
        np.testing.assert_allclose(grown.score(wider, new, None), OF_NEW_LABELS[name], rtol=1e-6)


# Explanations


def assert_adds_up(explanation):
    assert explanation.score == pytest.approx(value_of(explanation), rel=1e-4, abs=1e-4)
    assert len(explanation.features) == len(explanation.contributions)
    for part in explanation.parts:
        assert_adds_up(part)


def test_explanations_add_up_to_the_score(part, rows):
    scores = part.score(rows, every(7), None)
    for row in range(len(rows)):
        for label in range(0, N_LABELS, 4):
            found = part.explain(rows[np.array([row])], label)
            assert found.score == pytest.approx(scores[row, label], rel=1e-4, abs=1e-4)
            assert_adds_up(found)
            half = found.times(0.5)
            assert half.score == 0.5 * found.score
            assert half.linear_score == pytest.approx(0.5 * found.linear_score)
            assert_adds_up(half)


def test_contributions_are_those_of_features_of_the_row(part, rows):
    found = part.explain(rows[np.array([2])], 3)
    if part.name == "propensity":
        assert not len(found.features)
        return
    np.testing.assert_array_equal(found.features, np.flatnonzero(rows.X.toarray()[2]))
    # A feature that no weight is for adds nothing, whatever its value.
    for place, feature in enumerate(found.features.tolist()):
        if found.contributions[place] == 0 and part.name in ("label_weights", "prototypes"):
            assert part.vectors.of_label(3, np.array([feature]))[0] == 0


# States


def test_states_and_pickles_score_alike(part, rows):
    scores = part.score(rows, every(7), None)
    for other in (restored(part), pickle.loads(pickle.dumps(part))):
        np.testing.assert_array_equal(other.score(rows, every(7), None), scores)
        assert other.describe() == part.describe()
    json.dumps(part.state()[0])
    json.dumps(part.describe())


def test_all_of_a_state_is_declared(part):
    description, tensors = part.state()
    section = Described(description, {name: lambda t=t: t for name, t in tensors.items()})
    type(part).from_state(section, SIZES, getattr(part, "memory", None))
    section.check_all_read()
    section.check_all_taken()


def with_value(tensor, place, value):
    changed = tensor.astype(np.uint64) if tensor.dtype.kind == "u" else tensor.copy()
    changed.flat[place] = value
    return changed


def violations(part, name, tensors):
    """Tensors that must be refused in place of one, by what is wrong with them."""
    tensor, (*outer, last) = tensors[name], name.split(".")
    yield "type", tensor.astype(np.int16)
    yield "dimensions", tensor[None]
    yield "length", tensor[:-1]
    if part.name == "neighbours":  # tests of stored rows have the others
        return
    if tensor.dtype.kind == "f":
        yield "not a number", with_value(tensor, -1, np.nan)
        yield "infinite", with_value(tensor, 0, np.inf)
    trellises = part.views[0].trellises if part.name == "views" else part
    if last in ("labels", "columns"):  # of lists, in which they increase
        n = N_LABELS if last == "labels" else trellises.weights.stride
        yield "too large", with_value(tensor, -1, n)
        ends = np.cumsum(tensors[".".join([*outer, "counts"])])
        inside = np.setdiff1d(np.arange(1, len(tensor)), ends)[0]
        yield "twice", with_value(tensor, inside, tensor[inside - 1])
    elif outer and outer[-1] == "paths":
        yield "too large", with_value(tensor, -1, trellises.trellis.n_classes)
        if not trellises.shares_paths:
            yield "twice", with_value(tensor, 1, tensor[0])
    elif last in ("scales", "bonus"):
        yield "negative", with_value(tensor, 0, -1)
        if last == "bonus":
            yield "too large", with_value(tensor, 0, 2e6)
    elif last in ("counts", "rows"):
        yield "too large", with_value(tensor, 0, 2**63 if last == "rows" else int(tensor[0]) + 1)
    else:
        assert last == "values"


def test_tensors_that_are_not_as_declared_are_refused(part):
    description, tensors = part.state()
    for name in tensors:
        for reason, wrong in violations(part, name, tensors):
            changed = {**tensors, name: wrong}
            assert is_refused(part, (description, changed), ValueError), f"{name}: {reason}"
        rest = {other: tensor for other, tensor in tensors.items() if other != name}
        assert is_refused(part, (description, rest), ValueError), f"no {name}"


def is_refused(part, state, errors):
    try:
        restored(part, state)
    except errors:
        return True
    return False


def changes_of(description, path=()):
    """Descriptions with one value missing or of another kind."""
    for key in range(len(description)) if isinstance(description, list) else description:
        value = description[key]
        for other in (NOTHING, None, "other", -1, math.nan, 2**70):
            yield (*path, key), other
        if isinstance(value, (dict, list)):
            yield from changes_of(value, (*path, key))


def test_descriptions_that_are_not_as_declared_are_refused(part):
    description, tensors = part.state()
    for path, other in changes_of(description):
        changed = deepcopy(description)
        owner = changed
        for key in path[:-1]:
            owner = owner[key]
        if other is NOTHING:
            del owner[path[-1]]
        else:
            owner[path[-1]] = other
        assert is_refused(part, (changed, tensors), DAMAGE), f"{path} = {other!r}"


# The registry


def test_a_name_is_registered_once():
    assert register_part(PropensityPart) is PropensityPart

    class Other:
        name = "propensity"

    with pytest.raises(ValueError, match="there is already a part named 'propensity'"):
        register_part(Other)
    assert PARTS["propensity"] is PropensityPart
