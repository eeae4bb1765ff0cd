"""Files that lie with the right checksums: refused when they are loaded, or models that work.

Every tensor is changed to what its declaration excludes, and every value of the description to
values of other kinds and sizes. What loads must do everything, or say in a `ValueError` that
numbers are too large.
"""

import copy
import functools
import json
import math
import warnings
from contextlib import suppress
from itertools import cycle, islice

import numpy as np
import pytest
from small_models import blocks, model_of, rows_for, targets_for, wide

import ltls
from ltls import ModelFileError
from ltls.settings import Table
from ltls.storage.model_file import MODEL, describe
from ltls.storage.tensor_file import write
from tests.fuzz import seeds
from tests.fuzz.reseal import Contents

KINDS = [
    "plain resumable", "views", "views resumable", "parts", "several", "pruned", "dense", "types",
    "calibrated", "later", "sgd resumable", "text", "hashed", "table", "wide", "names", "learned",
    "label matrix", "blocks, several", "blocks, standardized",
]  # fmt: skip


@functools.cache
def contents_of(kind, folder):
    """Return the description, the tensors and the declarations of a file."""
    model_of(kind.removesuffix(" resumable")).save(folder / "m", resumable="resumable" in kind)
    return Contents.of(folder / "m", MODEL, functools.partial(ltls.load, verify=True, mmap=False))


@pytest.fixture(params=KINDS)
def contents(request, tmp_path_factory):
    return contents_of(request.param, tmp_path_factory.getbasetemp())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ltls"


def is_refused(path, description, tensors):
    """Return whether a file is refused, which is one kind of error."""
    write(path, MODEL, description, tensors)
    try:
        ltls.load(path, mmap=False, verify=True)
    except ModelFileError as error:
        assert str(path) in str(error)  # noqa: PT017
        with suppress(ModelFileError):  # it does not look at parameters of the estimator
            describe(path)
        return True
    ltls.load(path)
    return False


# Tensors


def with_number(tensor, number, place=0):
    wide = {"u": np.uint64, "i": np.int64}.get(tensor.dtype.kind, tensor.dtype)
    changed = tensor.astype(wide)
    changed.flat[place] = number
    return changed


def violations(name, contents):
    """Yield what a tensor is declared not to be."""
    tensor, array = contents.tensors[name], contents.declared.arrays[name]
    yield "another type", tensor.astype(np.float64 if tensor.dtype.kind != "f" else np.int64)
    yield "more dimensions", tensor[None]
    if not tensor.size:
        return
    yield "fewer entries", tensor[:-1]
    limits = contents.declared.limits[name]  # around the smallest and the largest value
    if array.low is not None and tensor.dtype.kind == "f":
        yield "too small", with_number(tensor, np.nextafter(tensor.dtype.type(limits[1]), -np.inf))
    if array.high is not None:
        above = limits[-1] if tensor.dtype.kind != "f" else tensor.dtype.type(limits[-2]) * 1.001
        yield "too large", with_number(tensor, above, tensor.size - 1)
        if tensor.dtype.kind == "u" and array.kind == "uint":
            yield "negative", (with_number(tensor, 0).astype(np.int64) - 1)
            yield "2⁶³", with_number(tensor, 2**63)
    if tensor.dtype.kind == "f":
        yield "not a number", with_number(tensor, np.nan)
        yield "infinite", with_number(tensor, np.inf, tensor.size // 2)
    if array.total is not None:
        yield "one more", with_number(tensor, int(tensor[0]) + 1)
        if len(tensor) > 1:  # the sum is the same modulo 2⁶⁴
            total = int(tensor[0]) + int(tensor[1])
            yield (
                "a sum that overflows",
                with_number(with_number(tensor, 2**64 - 40), (total + 40) % 2**64, 1),
            )
    if array.distinct and len(tensor) > 1:
        yield "twice", with_number(tensor, tensor[1])
    if array.increasing == "all" and len(tensor) > 1:
        yield "backwards", tensor[::-1]


def test_tensors_beyond_what_is_declared_are_refused(contents, path):
    assert not is_refused(path, contents.description, contents.tensors)
    assert set(contents.declared.arrays) == set(contents.tensors)
    for name in contents.tensors:
        for what, tensor in violations(name, contents):
            changed = {**contents.tensors, name: np.ascontiguousarray(tensor)}
            assert is_refused(path, contents.description, changed), f"{name}: {what}"
        rest = {other: each for other, each in contents.tensors.items() if other != name}
        groups = [contents.declared.arrays[other].group for other in rest]
        group = contents.declared.arrays[name].group
        if group is None or group in groups:
            assert is_refused(path, contents.description, rest), f"no {name}"


def ends_of(name, contents):
    """Yield a tensor with some or all numbers at the ends of what is declared."""
    tensor, limits = contents.tensors[name], contents.declared.limits[name]
    usual = [0, 1] if tensor.dtype.kind == "u" else [-128, 0, 127]
    numbers = usual if tensor.dtype.kind != "f" else [0, 1e-30, 1e15, 3e38, -3e38]
    for number in {*numbers, *limits[1::3]}:
        info = np.iinfo(tensor.dtype) if tensor.dtype.kind != "f" else np.finfo(tensor.dtype)
        if float(info.min) <= number <= float(info.max):
            for some in (slice(None), slice(tensor.size // 2, tensor.size // 2 + 1)):
                changed = tensor.copy()
                changed.reshape(-1)[some] = number
                yield f"{name} = {number}", changed
    yield f"{name} in another order", np.random.default_rng(0).permutation(tensor)


def test_tensors_at_the_ends_of_what_is_declared_are_models_that_work(contents, path):
    changes = [change for name in contents.tensors for change in ends_of(name, contents)]
    n_used = 0
    for what, tensor in every_nth(changes, 60):
        changed = {**contents.tensors, what.split()[0]: tensor}
        if not is_refused(path, contents.description, changed):
            use(path)
            n_used += 1
    assert n_used > 5


def every_nth(items, n):
    """Return about n of the items, spread evenly; the same ones in every run."""
    return items[:: max(len(items) // n, 1)]


def use(path):
    """Call everything; numbers that are too large may be a ValueError, and nothing else."""
    model = ltls.load(path, verify=True)
    X, out = rows_for(model, 4), path.with_name("again")
    some = X.iloc[:1] if hasattr(X, "iloc") else X[:1]
    calls = [
        lambda: model.predict_topk(X, 3),
        lambda: model.predict(X),
        lambda: model.decision_function(X),
        lambda: model.predict_proba(X) if hasattr(model, "predict_proba") else None,
        lambda: model.explain(some, k=2),
        lambda: model.set_params(size_budget=None).save(out),
        lambda: model.partial_fit(X, targets_for(model, 5)),
        lambda: model.predict_topk(X, 3),
        lambda: model.save(out),
    ]
    for call in calls:
        with warnings.catch_warnings(), suppress(ValueError):
            warnings.simplefilter("ignore", RuntimeWarning)
            call()
    if out.exists():
        ltls.load(out, verify=True)


# Descriptions

OTHERS = [
    KeyError, None, "x", "auto", -1, 0, 1, 2, 7, 1.5, 2**31, 2**53, 2**62, 2**63, 2**70, math.nan,
    math.inf, 1e300, True, False, [], {}, [1, 2**62], ["a"], {"tuple": [1, 2**63]},
    {"settings": ["Views", {}]}, {"bytes": "?"}, {"dict": [[{"dict": []}, 1]]},
]  # fmt: skip


def places(value, path=()):
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


def with_value(description, place, value):
    changed = copy.deepcopy(description)
    owner = functools.reduce(lambda each, key: each[key], place[:-1], changed)
    if value is KeyError:
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    return changed


def test_other_values_of_the_description_are_refused_or_models_that_work(contents, path):
    n_refused = n_used = 0
    every = list(places(contents.description))
    # Each place has two of the values, each value many of the places.
    values = islice(cycle(OTHERS), 2 * len(every))
    for number, value in enumerate(values):
        place = every[number // 2]
        changed = with_value(contents.description, place, value)
        if is_refused(path, changed, contents.tensors):
            n_refused += 1
        elif changed != contents.description:
            n_used += 1
            if n_used % 3 == 0:
                use(path)
    assert n_refused > len(every)
    assert n_used > 5


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("text", ("front_end", "settings", "ngram_range"), [1, 2**62]),
        ("text", ("front_end", "settings", "ngram_range"), [1, 2**63]),
        ("text", ("front_end", "settings", "char_ngram_range"), [0, 2]),
        ("text", ("front_end", "settings", "char_ngram_range"), "auto"),
        ("text", ("front_end", "settings", "sublinear_tf"), "x"),
        ("text", ("front_end", "settings", "tokenizer"), "["),
        ("text", ("front_end", "settings", "tokenizer"), "(a)(b)"),
        ("hashed", ("front_end", "settings", "n_features"), 2**40),
        ("names", ("front_end", "names"), ["a", "b"]),
        ("several", ("multilabel",), False),
        ("several", ("threshold",), None),
        ("several", ("target_format",), "single"),
        ("plain", ("target_format",), "lists"),
        ("views", ("part_names", 0), "trellises"),
        ("views", ("parts", "views", "1", "trellises", "width"), 3),
        ("views", ("parts", "views", "1", "trellises", "loss"), "logistic"),
        ("views", ("parts", "views", "other"), 1),
        ("views", ("calibration", "other"), 1),
        ("views", ("memory", "other"), 1),
        ("blocks", ("columns", "beside", "n_features"), 2**40),
        ("blocks", ("columns", "beside", "n_features"), 3),
        ("blocks", ("columns", "beside", "intercept"), True),
        ("blocks", ("columns", "beside"), KeyError),
        ("plain", ("columns", "beside"), {"n_features": 1}),
        ("plain", ("weights", 0), 1e300),
        ("plain", ("provenance", "n_rows"), 2**62),
        ("plain", ("provenance", "loss_curve"), [math.nan]),
        ("plain resumable", ("resume", "settings", "density"), "auto"),
        ("plain resumable", ("resume", "step"), 0),
        ("plain", ("parameters", "n_jobs"), 0),
        ("plain", ("parameters", "unknown"), 1),
        ("plain", ("parameters", "trellises"), {"settings": ["Views", {}]}),
        ("plain", ("parameters", "trellises"), 3),
    ],
)
def test_values_that_once_were_accepted(kind, place, value, path, tmp_path):
    contents = contents_of(kind, tmp_path)
    changed = with_value(contents.description, place, value)
    assert is_refused(path, changed, contents.tensors)


def test_labels_that_are_no_labels_are_refused(path, tmp_path):
    contents = contents_of("types", tmp_path)
    known = json.loads(contents.tensors["labels"].tobytes())
    assert len(known) == 9
    for wrong in (
        known[:-1], [*known[:-1], known[0]], [*known[:-1], []], [*known[:-1], {"dict": []}],
        [*known[:-1], {"list": [1]}], [*known[:-1], {"bytes": 3}], [*known[:-1], {"datetime64": 1}],
        {"a": 1}, [[[[]]]] * 9, [*known[:-1], {"tuple": [{"tuple": [{"other": 1}]}]}],
    ):  # fmt: skip
        labels = np.frombuffer(json.dumps(wrong).encode(), np.uint8)
        assert is_refused(path, contents.description, {**contents.tensors, "labels": labels})
    nested = np.frombuffer(b'[{"tuple":' * 5000, np.uint8)
    assert is_refused(path, contents.description, {**contents.tensors, "labels": nested})


@pytest.mark.parametrize("number", [-(2**40), -5, 2**40])
def test_rows_in_memory_cannot_point_elsewhere(number, path, tmp_path):
    """Further training writes where they say."""
    contents = contents_of("views", tmp_path)
    for name in ("features", "labels", "counts", "keys"):
        for dtype in (np.int64, np.uint64):
            changed = contents.tensors[f"memory.{name}"].astype(np.int64)
            changed[0] = number
            tensors = {**contents.tensors, f"memory.{name}": changed.astype(dtype)}
            assert is_refused(path, contents.description, tensors)


def test_a_model_of_sparse_and_dense_batches_is_saved_with_its_neighbours(path):
    X, labels = wide(), seeds.rows()[1]
    model = ltls.LTLSClassifier(trellises=seeds.SMALL, neighbours=True, random_state=0)
    model.fit_stream([(X[:30], labels[:30]), (X[30:].toarray(), labels[30:])])
    model.save(path)
    np.testing.assert_array_equal(ltls.load(path).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("kind", ["wide", "blocks", "text", "table"])
def test_sparse_rows_have_no_dense_neighbours(kind, path):
    """Made dense, they would take gigabytes."""
    given = {"trellises": seeds.SMALL, "neighbours": True, "random_state": 0}
    labels = seeds.names(seeds.rows()[1])
    if kind == "text":
        ltls.TextClassifier(**given).fit(seeds.texts(), labels).save(path)
    elif kind == "table":
        table = Table(text="item", number="price")
        ltls.TableClassifier(features=table, **given).fit(seeds.table(), labels).save(path)
    else:
        X = wide() if kind == "wide" else blocks()
        ltls.LTLSClassifier(**given).fit(X, labels).save(path)
    contents = Contents.of(path, MODEL, ltls.load)
    changed = with_value(contents.description, ("parts", "neighbours", "dense"), True)
    assert is_refused(path, changed, contents.tensors)


@pytest.mark.parametrize("n_rows", [2**53, 2**53 - 1])
def test_a_file_of_very_many_rows_is_trained_further_and_saved(n_rows, path, tmp_path):
    contents = contents_of("plain", tmp_path)
    counts = contents.tensors["provenance.counts"].astype(np.uint64)
    described = with_value(contents.description, ("provenance", "n_rows"), n_rows)
    described = with_value(described, ("provenance", "n_epochs"), 2**53)
    for most in (n_rows + 1, n_rows):
        counts[0] = most
        tensors = {**contents.tensors, "provenance.counts": counts}
        assert is_refused(path, described, tensors) == (most > n_rows)
    model = ltls.load(path, mmap=False)
    model.partial_fit(rows_for(model)[:5], [model.classes_[0]] * 5).save(path)
    assert ltls.load(path, verify=True).fitted_.provenance.n_rows == 2**53


# Damage without new checksums


@pytest.mark.parametrize("kind", ["views", "text"])
def test_random_damage_never_crashes(kind, path):
    model = model_of(kind)
    X, rng = rows_for(model), np.random.default_rng(0)
    model.save(path)
    good = path.read_bytes()
    for _ in range(100):
        bad = bytearray(good)
        for place in rng.integers(len(bad), size=rng.integers(1, 20)):
            bad[place] = rng.integers(256)
        path.write_bytes(bad[: rng.integers(len(bad))] if rng.random() < 0.3 else bad)
        try:
            loaded = ltls.load(path, mmap=False)
        except ModelFileError:
            continue
        loaded.predict_topk(X, 3)


@pytest.mark.parametrize("kind", ["plain", "text", "views", "pruned", "learned", "several"])
def test_rows_are_answered_at_the_largest_scales(tmp_path_factory, path, kind):
    contents = contents_of(kind, tmp_path_factory.getbasetemp()).copy()
    for name, tensor in contents.tensors.items():
        if name.endswith("scales"):
            tensor[:] = contents.declared.arrays[name].high
    write(path, MODEL, contents.description, contents.tensors)
    _, scores = ltls.load(path, verify=True).predict_topk(rows_for(model_of(kind)), 3)
    assert not np.isnan(scores).any()
