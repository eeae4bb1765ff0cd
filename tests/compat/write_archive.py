"""Write the archive of this version: small model files of every kind, with their predictions.

    PYTHONPATH=tests/support python -m tests.compat.write_archive

Run it once per release, and for new kinds before it. Files that are there already are never
replaced: later versions must read what this version wrote, not what it would write.
"""

import json
from pathlib import Path

import numpy as np
import problems

import ltls
from ltls import Checkpoint, LTLSClassifier, TextClassifier, presets
from ltls.core import _engine

N_ROWS, K = 30, 3
PLAIN = {"bucket_size": 1, "label_weights": False}
SMALL = {"width": 2, "n_trellises": 1, "epochs": 2}


def kind(problem, how="fit", dtype=None, resumable=False, **parameters):
    recipe = {"problem": problem, "how": how, "dtype": dtype, "parameters": parameters}
    return {**recipe, "resumable": True} if resumable else recipe


KINDS = {
    "default": kind("sparse"),
    "default_dense": kind("digits"),
    "default_multi": kind("sparse_multilabel"),
    "text": kind("texts", "text", max_features=200),
    "plain": kind("sparse", **SMALL, **PLAIN),
    "float32": kind("sparse", dtype="float32", **SMALL, **PLAIN),
    "float16": kind("sparse", dtype="float16", **SMALL, **PLAIN),
    "float32_label_weights": kind("sparse", dtype="float32", **SMALL, label_weights=True),
    "label_weights": kind("sparse", **SMALL, bucket_size=1, label_weights=True),
    "label_weights_multi": kind("sparse_multilabel", **SMALL, bucket_size=1, label_weights=True),
    "buckets": kind("sparse", **SMALL, bucket_size=4, label_weights=True),
    "buckets_multi": kind("sparse_multilabel", **SMALL, bucket_size=4, label_weights=True),
    "embedding": kind("sparse", **SMALL, **PLAIN, embedding_dim=4),
    "embedding_multi_float32": kind(
        "sparse_multilabel", dtype="float32", **SMALL, **PLAIN, embedding_dim=4
    ),
    "propensity": kind("sparse_multilabel", **SMALL, label_weights=True, propensity=0.5),
    "indicator": kind("indicator", **SMALL),
    "text_words": kind("texts", "text", **SMALL, char_ngram_range=None),
    "text_hashed": kind("texts", "text", **SMALL, n_features=256, char_ngram_range=None),
    "pruned": kind("wide", **SMALL, **PLAIN, density=0.3),
    "pruned_label_weights": kind("wide_multilabel", **SMALL, density=0.3, label_weights=True),
    "some_features_float32": kind("wide", dtype="float32", **SMALL, **PLAIN),
    "size_budget": kind("wide", size_budget="12KB", epochs=2),
    "labels_of_all_types": kind("labels_of_all_types", **SMALL),
    "ranking": kind("sparse", **SMALL, **PLAIN, assignment="ranking"),
    "frequency": kind("sparse", **SMALL, **PLAIN, assignment="frequency"),
    "similarity": kind("sparse", **SMALL, **PLAIN, assignment="similarity"),
    "learned": kind("sparse", **SMALL, **PLAIN, assignment="learned"),
    "separation": kind("sparse", **SMALL, **PLAIN, loss="separation", average=True),
    "logistic": kind("sparse_multilabel", **SMALL, **PLAIN, loss="logistic", l1=0.01),
    "no_intercept": kind("sparse", **SMALL, **PLAIN, fit_intercept=False, normalize=False),
    "class_weight": kind("digits", **SMALL, class_weight={0: 2.0, 1: 0.5}),
    "paper": kind("sparse", "paper", epochs=2),
    "partial_fit": kind("sparse", "partial_fit", width=3, n_trellises=2),
    "standardized": kind("digits", **SMALL, standardize=True),
    "calibrated_multi": kind("repeated_multilabel", **SMALL),
    "resumable": kind("sparse", resumable=True, **SMALL, **PLAIN, average=True),
    "fit_stream": kind("sparse", "fit_stream", **SMALL),
    "fit_stream_multi": kind("sparse_multilabel", "fit_stream", **SMALL),
}


def trained(recipe):
    """Train the model of a recipe."""
    X, y = problems.rows_of(recipe["problem"])
    parameters = {"random_state": 0, **recipe["parameters"]}
    if recipe["how"] == "paper":
        return presets.paper(**parameters).fit(X, y)
    if recipe["how"] == "text":
        return TextClassifier(**parameters).fit(X, y)
    model = LTLSClassifier(**parameters)
    if recipe["how"] == "fit":
        return model.fit(X, y)
    batches = [(X[i : i + 150], y[i : i + 150]) for i in range(0, len(y), 150)]
    if recipe["how"] == "fit_stream":
        return model.fit_stream(batches)
    for batch in batches:
        model.partial_fit(*batch)
    return model


def predictions(model, X):
    """Return what a model predicts for the first rows, as arrays without objects."""
    X = X[:N_ROWS]
    labels, scores = model.predict_topk(X, K)
    found = {"labels": np.vectorize(repr, otypes=[str])(labels), "scores": scores}
    predicted = model.predict(X)
    if hasattr(predicted, "toarray"):
        predicted = predicted.toarray()
    found["predicted"] = np.array([repr(row) for row in np.asarray(predicted).tolist()])
    if hasattr(model, "predict_proba"):
        found["proba"] = model.predict_proba(X).astype(np.float32)
    return found


def write_checkpoint(folder):
    """Write the state after one of two epochs, and the weights after the second."""
    X, y = problems.digits()
    path = folder / "after_one_epoch.checkpoint"
    parameters = {**SMALL, **PLAIN, "random_state": 0, "assignment": "ranking", "density": 1}
    LTLSClassifier(**{**parameters, "epochs": 1}).fit(X, y, checkpoint=path)
    model = LTLSClassifier(**parameters).fit(X, y, checkpoint=Checkpoint(path, resume=False))
    np.savez_compressed(folder / "after_one_epoch.npz", coef=model.coef_)
    LTLSClassifier(**{**parameters, "epochs": 1}).fit(X, y, checkpoint=path)
    return parameters


def write_model(folder, name, recipe):
    """Write the model of a recipe, and what it predicts once it is loaded."""
    path = folder / f"{name}.ltls"
    trained(recipe).save(path, recipe["dtype"], resumable=recipe.get("resumable", False))
    X, _ = problems.rows_of(recipe["problem"])
    np.savez_compressed(folder / f"{name}.npz", **predictions(ltls.load(path), X))


def main():
    version = ".".join(ltls.__version__.split(".")[:2])
    folder = Path(__file__).parent / f"v{version}"
    path = folder / "manifest.json"
    folder.mkdir(exist_ok=True)
    if path.exists():
        manifest = json.loads(path.read_text("utf-8"))
    else:
        checkpoint = write_checkpoint(folder)
        manifest = {"version": ltls.__version__, "checkpoint": checkpoint, "models": {}}
        manifest["instruction_set"] = _engine.instruction_sets()[-1]
    for name in sorted(KINDS.keys() - manifest["models"].keys()):
        write_model(folder, name, KINDS[name])
        manifest["models"][name] = KINDS[name]
    path.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
