"""Labels that arrive after training: what happens to the old ones, and whether they are found.

    python -m benchmarks.continual [--sets SET …]

A label is held out of training with all of its rows. Then 1, 10, 100 and 1,000 of these rows
arrive, in one call of partial_fit or one by one, in memory or after saving and loading; the test
rows of the other labels say what was forgotten, those of the label whether it is found (predicted,
or among the five best where rows have several labels). In another run, 20 labels are held out, and
1,000 single rows arrive in random order, half of them of new labels and half of old ones. Beside
ltls: training from scratch on all rows, and, for one of about a hundred labels per row,
scikit-learn's SGDClassifier.partial_fit and river's SoftmaxRegression, which is installed by
``pip install river``; both know all labels beforehand. "vectors" of a set are those of
benchmarks.embeddings.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize

from benchmarks import datasets, machine, tables
from benchmarks.embeddings import embedded
from ltls import LTLSClassifier, load
from ltls.storage.model_file import describe

# Rows that a label to hold out has at least.
SETS = {
    "banking77": 100,
    "icd10cm": 100,
    "icd10cm vectors": 100,
    "stackex_cs": 100,
    "debtags": 1000,
}
SIZES = (1, 10, 100, 1000)
NEW_LABELS, SINGLE_ROWS, ROWS_PER_FILE = 20, 1000, 50
MOST_LABELS = 100  # of a set for the peers, whose weights are dense
MOST_ROWS = 20_000  # for river, which takes milliseconds per row
EPOCHS_OF_PEERS = 5
MOST_SHARE = 0.15  # of the rows that a label to hold out has


class Data:
    """Rows of a set, and which of them have the labels that are held out."""

    def __init__(self, name: str) -> None:
        self.X, self.Y, self.X_test, self.Y_test = read(name)
        self.several = name in datasets.MULTI_LABEL
        self.n_labels = self.Y.shape[1]
        self.counts = np.bincount(self.Y.indices, minlength=self.n_labels)

    def targets(self, rows: Any) -> list[Any]:
        part = self.Y[rows]
        lists = np.split(part.indices, part.indptr[1:-1])
        return [row.tolist() for row in lists] if self.several else [int(row[0]) for row in lists]

    def choose(self, n: int, at_least: int) -> list[int]:
        """Return some labels to hold out."""
        in_test = np.bincount(self.Y_test.indices, minlength=self.n_labels)
        most = MOST_SHARE * self.Y.shape[0]
        possible = (self.counts >= at_least) & (in_test >= 15) & (self.counts < most)
        order = np.random.RandomState(0).permutation(np.flatnonzero(possible))
        return [int(label) for label in order[:n]]

    def rows_of(self, labels: list[int], test: bool = False) -> Any:
        Y = self.Y_test if test else self.Y
        return np.asarray(Y[:, labels].sum(axis=1)).ravel() > 0

    def hits(self, topk: Callable[[Any], Any], labels: list[int]) -> tuple[Any, Any]:
        """Return for every test row without the labels whether the first answer is right.

        And for every row with them, whether one of them is found.
        """
        best = np.asarray(topk(self.X_test)).astype(int)
        rows = np.arange(len(best))[:, None]
        hits = np.asarray(self.Y_test[rows, best].todense()) > 0
        new = self.rows_of(labels, test=True)
        k = 5 if self.several else 1
        return hits[~new, 0], (hits & np.isin(best, labels))[new, :k].any(axis=1)

    def scores(self, topk: Callable[[Any], Any], labels: list[int]) -> dict[str, float]:
        """Return P@1 on rows without the labels, and how often these are found in theirs."""
        old, found = self.hits(topk, labels)
        return {"old": float(old.mean()), "found": float(found.mean())}


def read(name: str) -> tuple[Any, Any, Any, Any]:
    name, _, vectors = name.partition(" ")
    if vectors:
        X, y, X_test, Y_test = embedded(name)
        of_rows = np.ones(len(y), np.float32), y, np.arange(len(y) + 1)
        return X, sp.csr_matrix(of_rows, (len(y), Y_test.shape[1])), X_test, sp.csr_matrix(Y_test)
    train, test = datasets.train_and_test(name)
    known = train.Y.shape[1]
    return tuple(map(sp.csr_matrix, (train.X, train.Y, test.X, test.Y[:, :known])))  # type: ignore[return-value]


def topk(model: LTLSClassifier) -> Callable[[Any], Any]:
    return lambda X: model.predict_topk(X, 5)[0]


def in_batches(data: Data, model: Any, rows: Any, sizes: list[int]) -> Iterator[int]:
    """Train a model on single rows, and yield after the given numbers of them."""
    for number, row in enumerate(rows[: max(sizes)], 1):
        model.partial_fit(data.X[[row]], data.targets([row]))
        if number in sizes:
            yield number


class Sgd:
    """SGDClassifier on rows of unit length."""

    def __init__(self, data: Data, rows: Any) -> None:
        self.model = SGDClassifier(loss="log_loss", alpha=1e-6, random_state=0)
        rng = np.random.RandomState(0)
        for _ in range(EPOCHS_OF_PEERS):
            order = rng.permutation(np.flatnonzero(rows))
            y = data.targets(order)
            self.model.partial_fit(normalize(data.X[order]), y, classes=range(data.n_labels))

    def learn(self, X: Any, y: list[int]) -> None:
        self.model.partial_fit(normalize(X), y)

    def topk(self, X: Any) -> Any:
        return self.model.predict(normalize(X))[:, None]


class River:
    """SoftmaxRegression of river, row by row."""

    def __init__(self, data: Data, rows: Any) -> None:
        from river.linear_model import SoftmaxRegression
        from river.optim import AdaGrad

        self.model = SoftmaxRegression(AdaGrad(0.5))
        order = np.random.RandomState(0).permutation(np.flatnonzero(rows))
        self.learn(data.X[order], data.targets(order))

    def learn(self, X: Any, y: list[int]) -> None:
        for row, label in zip(_dicts(X), y, strict=True):
            self.model.learn_one(row, label)

    def topk(self, X: Any) -> Any:
        return np.array([[self.model.predict_one(row)] for row in _dicts(X)])


def _dicts(X: Any) -> Iterator[dict[int, float]]:
    X = normalize(X)
    for i in range(X.shape[0]):
        part = slice(X.indptr[i], X.indptr[i + 1])
        yield dict(zip(X.indices[part].tolist(), X.data[part].tolist(), strict=True))


def curves(data: Data, label: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the scores of all methods after every number of rows, and facts about the model."""
    new = data.rows_of([label])
    rows, old = np.flatnonzero(new), np.flatnonzero(~new)
    sizes = [size for size in SIZES if size <= len(rows)]
    path, found = folder / "model.ltls", {}
    first = LTLSClassifier(random_state=0).fit(data.X[old], data.targets(old))
    first.save(path)
    before = data.scores(topk(first), [label])["old"]
    facts = {"bytes": path.stat().st_size, "rows": describe(path)["rows_in_memory"]}
    plain = LTLSClassifier(random_state=0, memory=False).fit(data.X[old], data.targets(old))
    plain.save(folder / "plain.ltls")
    facts["bytes_without"] = (folder / "plain.ltls").stat().st_size

    def note(method: str, size: int, topk: Callable[[Any], Any], before: float = before) -> None:
        scores = data.scores(topk, [label])
        of = {"old": scores["old"] - before, "found": scores["found"]}
        found.setdefault(method, {})[str(size)] = of

    starts = {"in memory": lambda: copy.deepcopy(first), "from the file": lambda: load(path)}
    for start, make in starts.items():
        for size in sizes:
            model = make().partial_fit(data.X[rows[:size]], data.targets(rows[:size]))
            note(f"ltls {start}", size, topk(model))
        model = make()
        for size in in_batches(data, model, rows, sizes):
            note(f"ltls {start}, one by one", size, topk(model))
    for size in sizes[1:]:
        several = np.concatenate([old, rows[:size]])
        model = LTLSClassifier(random_state=0).fit(data.X[several], data.targets(several))
        note("from scratch", size, topk(model))
    peers: dict[str, Any] = {}
    if not data.several and data.n_labels <= MOST_LABELS:
        peers = {"SGDClassifier": Sgd}
        if data.X.shape[0] <= MOST_ROWS and find_spec("river"):
            peers["river"] = River
    for name, peer in peers.items():
        machine.say(f"  {name}")
        trained = peer(data, ~new)
        theirs = data.scores(trained.topk, [label])["old"]
        for size in sizes:
            same = copy.deepcopy(trained)
            same.learn(data.X[rows[:size]], data.targets(rows[:size]))
            note(name, size, same.topk, theirs)
    return found, facts


def single_rows(data: Data, folder: Path) -> dict[str, Any]:
    """Return the scores after a thousand single rows, half of them of 20 new labels."""
    labels = data.choose(NEW_LABELS, 100)
    new = data.rows_of(labels)
    random = np.random.RandomState(0)
    has_labels = np.diff(data.Y.indptr) > 0
    of_new, of_old = (random.permutation(np.flatnonzero(part & has_labels)) for part in (new, ~new))
    half = SINGLE_ROWS // 2
    arriving = random.permutation(np.concatenate([of_new[:half], of_old[:half]]))
    old, every = np.sort(of_old[half:]), np.sort(np.concatenate([of_old[half:], arriving]))
    model = LTLSClassifier(random_state=0).fit(data.X[old], data.targets(old))
    scratch = LTLSClassifier(random_state=0).fit(data.X[every], data.targets(every))
    before, path = data.scores(topk(model), labels)["old"], folder / "model.ltls"
    _, retrained = data.hits(topk(scratch), labels)

    def found(model: LTLSClassifier) -> dict[str, float]:
        old, found = data.hits(topk(model), labels)
        of_retrained = float(found[retrained].mean())
        return {"old": old.mean() - before, "found": found.mean(), "of_retrained": of_retrained}

    model.save(path)
    saved = load(path)
    for number, row in enumerate(arriving, 1):
        for each in (model, saved):
            each.partial_fit(data.X[[row]], data.targets([row]))
        if number % ROWS_PER_FILE == 0:
            saved.save(path)
            saved = load(path)
    models = {"ltls in memory": model, "ltls from the file": saved, "from scratch": scratch}
    measured = {name: found(each) for name, each in models.items()}
    return {"labels": len(labels), "before": before, **measured}


def measure(name: str) -> dict[str, Any]:
    data = Data(name)
    with tempfile.TemporaryDirectory() as folder:
        (label,) = data.choose(1, SETS[name])
        machine.say(f"{name}: label {label} of {data.counts[label]} rows")
        found, facts = curves(data, label, Path(folder))
        machine.say(f"{name}: {SINGLE_ROWS:,} single rows")
        rows = single_rows(data, Path(folder))
    shape = {"rows": data.X.shape[0], "labels": data.n_labels, "several": data.several}
    return {**shape, "facts": facts, "curves": found, "single_rows": rows}


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    options = parser.parse_args()
    for name in options.sets:
        measured = measure(name)
        stored = machine.read("continual", options.output)
        sets = {**stored.get("sets", {}), name: measured}
        about = machine.description("scikit-learn")
        about["command"] = "python -m benchmarks.continual"
        ordered = {key: sets[key] for key in SETS if key in sets}
        result = {"about": about, "sets": ordered}
        machine.write("continual", result, options.output)
    print("\n".join([*tables.continual(result), "", *tables.continual_rows(result)]))


if __name__ == "__main__":
    main()
