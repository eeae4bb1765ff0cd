"""Files of every version of the archive load, and predict what they predicted when written."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_models import model_of

from ltls import Checkpoint, load
from ltls.core import _engine
from ltls.parts.base import PARTS
from tests.compat.write_archive import ROWS, TARGETS, checkpoint_model, inputs_for, predictions

FOLDERS = sorted(Path(__file__).parent.glob("v*"))
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.ltls"))
MANIFESTS = {folder: json.loads((folder / "manifest.json").read_text()) for folder in FOLDERS}
with_each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def same_bits(folder):
    """Return whether sums are rounded here as they were when the files were written."""
    return _engine.instruction_sets()[-1] == MANIFESTS[folder]["instruction_set"]


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_predicts_as_it_did(path, mmap, tmp_path):
    expected = json.loads(path.with_suffix(".json").read_text("utf-8"))
    model, items = load(path, mmap=mmap, verify=True), expected.pop("inputs")
    found = predictions(model, items)
    assert found.keys() == expected.keys()
    for name in ("classes", "labels", "predicted"):
        assert found[name] == expected[name]
    tolerance = 0 if same_bits(path.parent) else 1e-5
    for name in ("scores", "proba"):
        if name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=tolerance, atol=tolerance)
    # It is saved by this version, and predicts the same again.
    model.save(tmp_path / "model.ltls")
    assert predictions(load(tmp_path / "model.ltls"), items) == found


def test_rows_of_tables_are_written_as_models_read_them():
    model = model_of("table")
    assert len(predictions(model, inputs_for(model))["labels"]) > 1


@with_each_folder
def test_a_checkpoint_is_resumed(folder, tmp_path):
    path = shutil.copy(folder / "after_one_epoch.checkpoint", tmp_path)  # it is replaced
    model = checkpoint_model(2).fit(ROWS, TARGETS, checkpoint=Checkpoint(path, resume=True))
    tolerance = 0 if same_bits(folder) else 1e-5
    np.testing.assert_allclose(model.coef_, MANIFESTS[folder]["coef"], atol=tolerance)


@with_each_folder
def test_the_archive_has_every_kind_of_part_codebook_and_number(folder):
    models = [load(path).model_ for path in FILES if path.parent == folder]
    trellises = [each for model in models for each in model.trellises()]
    ours = {name for name, part in PARTS.items() if part.__module__.startswith("ltls.")}
    assert {part.name for model in models for part in model.parts} >= ours
    books = {type(book).__name__ for each in trellises for book in each.codebooks}
    assert books == {"RandomCodebook", "TableCodebook", "BucketCodebook"}
    assert {str(each.weights.values.dtype) for each in trellises} == {"float32", "float16", "int8"}
    assert {type(each.weights).__name__ for each in trellises} == {"Weights", "PrunedWeights"}
    assert {each.loss.name for each in trellises} == {"softmax", "separation", "logistic"}
    assert {model.front_end.name for model in models} == {"features", "text", "table"}
    assert {model.target_format for model in models} == {"single", "lists", "dense"}
    for has in (
        lambda model: model.memory is not None,
        lambda model: model.columns.used is not None,
        lambda model: model.columns.standardizer is not None,
        lambda model: model.calibration.curve is not None,
    ):
        assert {has(model) for model in models} == {True, False}
    assert {"resume" in load(path).fitted_.further for path in FILES} == {True, False}
    assert {"optimizer" in load(path).fitted_.further for path in FILES} == {True, False}


@with_each_folder
def test_the_archive_is_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 300_000
