"""Write the archive of this version: small model files of every kind, with what they predict.

    PYTHONPATH=tests/support python -m tests.compat.write_archive

Run it once per release. Files of a released version are never replaced: later versions must read
what it wrote, not what they would write. While a version is not released, `--replace` does so.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import MODELS, model_of, rows_for

import ltls
from ltls import Checkpoint, LTLSClassifier
from ltls.core import _engine
from ltls.settings import Trellises

HERE = Path(__file__).parent
RESUMABLE = ("plain", "views", "sgd")
# Kinds whose files have nothing that those of others lack.
LEFT_OUT = {
    "a generator", "numbers of NumPy", "default", "default several", "default dense",
    "indicator, sparse", "stream", "stream, several", "one cluster, pruned", "codebooks",
    "class weights", "words", "no intercept", "softmax, several", "logistic",
    "separation", "paper several",
    "grown", "grown views",
    "propensity", "label matrix", "label matrix, several", "blocks, several",
    "blocks, standardized", "learned", "calibrated, one label",
}  # fmt: skip
ROWS, TARGETS = np.eye(12, dtype=np.float32), np.arange(12) % 4
CHECKPOINT = {"assignment": "ranking", "average": True, "optimizer": "sgd", "n_trellises": 1}


def inputs_for(model):
    """Return some rows for a model as JSON has them."""
    X = rows_for(model, 5)
    if model.model_.front_end.name == "table":  # JSON must not have other columns
        return [{name: row[name] for name in model.model_.front_end.columns.names} for row in X]
    if isinstance(X, list):
        return X
    rows = [X[[number]] for number in range(X.shape[0])] if hasattr(X, "indptr") else []
    if rows:
        return [{"indices": row.indices.tolist(), "values": row.data.tolist()} for row in rows]
    return np.asarray(X).tolist()


def predictions(model, items):
    """Return what a model predicts for rows, as JSON has it."""
    X = model.model_.front_end.read(items, model.n_features_in_)
    if hasattr(model, "feature_names_in_"):
        pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")

        X = pd.DataFrame(X.toarray(), columns=model.feature_names_in_)
    labels, scores = model.predict_topk(X, 3)
    predicted = model.predict(X)
    predicted = predicted.toarray() if hasattr(predicted, "toarray") else np.asarray(predicted)
    found = {
        "classes": [repr(label) for label in model.model_.labels.values],
        "labels": [[repr(label) for label in row] for row in labels.tolist()],
        "predicted": [repr(row) for row in predicted.tolist()],
        "scores": shortened(scores),
    }
    if hasattr(model, "predict_proba"):
        found["proba"] = shortened(model.predict_proba(X))
    return found


def shortened(numbers):
    """Return float32 numbers with as many digits as tell them apart."""
    return [[float(str(np.float32(number))) for number in row] for row in np.asarray(numbers)]


def checkpoint_model(epochs):
    return LTLSClassifier(trellises=Trellises(epochs=epochs, **CHECKPOINT), random_state=0)


def write_torch_head(folder):
    """Write the state of a layer and what it predicts."""
    import torch
    from safetensors.torch import save_file

    from ltls.torch import TrellisSoftmax

    torch.manual_seed(0)
    parameters = {"in_features": 8, "n_classes": 100, "width": 4, "n_trellises": 2}
    head = TrellisSoftmax(**parameters)
    x = torch.randn(5, 8)
    save_file(head.state_dict(), folder / "torch_head.safetensors")
    with torch.no_grad():
        labels, log_probs = head.topk(x, 3)
        found = {"x": x, "labels": labels, "log_probs": log_probs, "all": head.log_prob(x)}
    labels = found.pop("labels").tolist()
    expected = {"labels": labels, **{name: shortened(each) for name, each in found.items()}}
    write_json(folder / "torch_head.json", {"parameters": parameters, **expected})


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", "utf-8")


def main():
    version = re.search(
        r'^version = "(\d+\.\d+)', (HERE.parents[1] / "pyproject.toml").read_text(), re.M
    )
    folder = HERE / f"v{version[1]}"
    if folder.exists() and "--replace" not in sys.argv:
        sys.exit(f"{folder} is there already")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    kinds = [(name, False) for name in MODELS if name not in LEFT_OUT]
    for name, resumable in [*kinds, *((name, True) for name in RESUMABLE)]:
        stem = re.sub(r"\W+", "_", name) + "_resumable" * resumable
        model = model_of(name)
        model.save(folder / f"{stem}.ltls", resumable=resumable)
        items = inputs_for(model)
        loaded = ltls.load(folder / f"{stem}.ltls")
        write_json(folder / f"{stem}.json", {"inputs": items, **predictions(loaded, items)})
    path = folder / "after_one_epoch.checkpoint"
    checkpoint_model(1).fit(ROWS, TARGETS, checkpoint=Checkpoint(path))
    whole = checkpoint_model(2).fit(ROWS, TARGETS)
    settings = {"coef": shortened(whole.coef_), "instruction_set": _engine.instruction_sets()[-1]}
    write_json(folder / "manifest.json", {"version": ltls.__version__, **settings})
    write_torch_head(folder)
    print(f"{sum(each.stat().st_size for each in folder.iterdir()):,} bytes in {folder}")


if __name__ == "__main__":
    main()
