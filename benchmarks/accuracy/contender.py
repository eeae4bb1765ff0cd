"""Train and evaluate one method on one data set in its own process.

    python contender.py CONTENDER DATA OUT SETTINGS

DATA is a folder that `datasets.prepare` wrote, SETTINGS is JSON. Into the folder OUT go the five
best labels of every test row (top5.npy), what was measured (measures.json) and the model itself.
With "speed" in the settings, single rows are timed instead of looking at the labels.
This file runs in the contender's environment, which may be Python 2.7: it imports nothing of ours
and uses nothing that came later.
"""

import json
import multiprocessing
import os
import resource
import sys
import time

import numpy as np
import scipy.sparse as sp

K = 5
LONG = 5.0  # seconds; predicting is repeated where it is shorter
CELLS = 1 << 24  # of a dense block of scores
SINGLE_ROWS = 2000  # that are timed one by one

clock = getattr(time, "perf_counter", time.time)  # Python 2.7 has no other


class Data:
    """The matrices of a data set; training rows also as a text file for tools that want one."""

    def __init__(self, folder):
        names = ("X", "Y", "X_test", "Y_test")
        parts = [sp.load_npz(os.path.join(folder, name + ".npz")) for name in names]
        self.X, self.Y, self.X_test, self.Y_test = parts
        self.train_file = os.path.join(folder, "train.txt")
        self.n_labels = self.Y.shape[1]
        self.single_label = bool((np.diff(self.Y.indptr) == 1).all())

    def labels(self):
        """Give the labels of every training row."""
        Y = self.Y
        return [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:])]


def ranked(rows):
    """Bring lists of labels, best first, into an array; -1 where there are fewer than K."""
    result = np.full((len(rows), K), -1, dtype=np.int32)
    for to, row in zip(result, rows):
        to[: len(row[:K])] = row[:K]
    return result


def best_columns(scores, labels):
    """Give the labels of the K highest scores of every row."""
    k = min(K, scores.shape[1])
    part = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(scores, part, axis=1), axis=1, kind="stable")
    return ranked(labels[np.take_along_axis(part, order, axis=1)])


class Omikuji:
    """Three balanced k-means trees (Parabel); learns from a text file, predicts row by row."""

    def __init__(self, data, folder, settings):
        self.X_test, self.train_file, self.folder = data.X_test, data.train_file, folder
        if not np.diff(data.X.indptr).all():
            self.train_file = os.path.join(os.path.dirname(folder), "train.txt")
            self.write_rows_with_features(data)

    def write_rows_with_features(self, data):
        """Leave out the rows that have none: omikuji refuses a file with such a row."""
        kept = np.diff(data.X.indptr) > 0
        with open(data.train_file) as lines, open(self.train_file, "w") as out:
            counts = next(lines).split()
            out.write(" ".join([str(kept.sum())] + counts[1:]) + "\n")
            out.writelines(line for line, keep in zip(lines, kept) if keep)

    def train(self):
        from omikuji import Model

        self.model = Model.train_on_data(self.train_file)

    def save(self):
        self.model.save(self.folder)
        X = self.X_test
        spans = zip(X.indptr[:-1], X.indptr[1:])
        self.rows = [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist())) for a, b in spans]

    def top(self):
        predict = self.model.predict
        return ranked([[label for label, _ in predict(row, top_k=K)] for row in self.rows])

    def load(self):
        from omikuji import Model

        self.model = Model.load(self.folder)

    def one(self, row):
        return self.model.predict(self.rows[row], top_k=K)


class Napkinxc:
    """A probabilistic label tree; the model is on disk when training ends."""

    def __init__(self, data, folder, settings):
        from napkinxc.models import PLT

        self.data, self.labels, self.model = data, data.labels(), PLT(folder)
        self.folder = folder

    def train(self):
        self.model.fit(self.data.X, self.labels)

    def save(self):
        self.model.load()

    def top(self):
        return ranked(self.model.predict(self.data.X_test, top_k=K))

    def load(self):
        from napkinxc.models import PLT

        self.model = PLT(self.folder)
        self.model.load()

    def one(self, row):
        return self.model.predict(self.data.single[row], top_k=K)


class Pecos:
    """XR-Linear as in the README of PECOS: PIFA embeddings, hierarchical k-means, rankers."""

    def __init__(self, data, folder, settings):
        self.data, self.folder = data, folder

    def train(self):
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel

        X, Y = self.data.X, self.data.Y
        clusters = Indexer.gen(LabelEmbeddingFactory.create(Y, X))
        self.model = XLinearModel.train(X, Y, C=clusters)

    def save(self):
        self.model.save(self.folder)
        self.model = type(self.model).load(self.folder, is_predict_only=True)

    def top(self):
        scores = self.model.predict(self.data.X_test, only_topk=K).tocsr()
        spans = zip(scores.indptr[:-1], scores.indptr[1:])
        return ranked(
            [scores.indices[a:b][np.argsort(-scores.data[a:b], kind="stable")] for a, b in spans]
        )

    def load(self):
        from pecos.xmc.xlinear.model import XLinearModel

        self.model = XLinearModel.load(self.folder, is_predict_only=True)

    def one(self, row):
        return self.model.predict(self.data.single[row], only_topk=K)


class LinearSVC:
    """One-vs-all linear support vector machines of scikit-learn."""

    def __init__(self, data, folder, settings):
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        self.data, self.folder = data, folder
        if data.single_label:
            self.model, self.y = LinearSVC(), data.Y.indices
        else:
            # A label without rows would have the constant score 0, above most others.
            self.columns = np.flatnonzero(np.bincount(data.Y.indices, minlength=data.n_labels))
            self.model, self.y = OneVsRestClassifier(LinearSVC()), data.Y[:, self.columns]

    def train(self):
        self.model.fit(self.data.X, self.y)

    def save(self):
        import joblib

        joblib.dump(self.model, os.path.join(self.folder, "model.joblib"))

    def top(self):
        X = self.data.X_test
        labels = self.model.classes_ if self.data.single_label else self.columns
        step = max(1, CELLS // len(labels))
        blocks = [
            best_columns(self.model.decision_function(X[at : at + step]), labels)
            for at in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks)


class FastXML:
    """The package of that name, with the defaults of its command: 50 trees, propensity weights."""

    def __init__(self, data, folder, settings):
        pairs = [pair for pair in zip(data.X, data.labels()) if pair[1]]
        self.X, self.labels = [X for X, _ in pairs], [labels for _, labels in pairs]
        self.X_test, self.folder = data.X_test, folder

    def train(self):
        from fastxml import Trainer
        from fastxml.weights import propensity

        self.model = Trainer(
            n_trees=50,
            max_labels_per_leaf=50,
            re_split=1,
            alpha=1e-3,
            n_jobs=multiprocessing.cpu_count(),
        )
        self.model.fit(self.X, self.labels, weights=propensity(self.labels))

    def save(self):
        from fastxml import Inferencer

        self.model.save(self.folder)
        self.model = Inferencer(self.folder)

    def top(self):
        return ranked([list(row) for row in self.model.predict(self.X_test, "dict")])


class LTLS:
    """Ours; settings are parameters of the estimator, such as trellises__width, and "preset"."""

    def __init__(self, data, folder, settings):
        # scikit-learn imports pandas, 90 MB with pyarrow, wherever it is installed; it is not in
        # the environments of the peers.
        sys.modules["pandas"] = None
        import ltls

        self.data, self.X, self.X_test = data, data.X, data.X_test
        self.y = data.Y.indices if data.single_label else data.Y
        self.path = os.path.join(folder, "model.ltls")
        if settings.pop("preset", None) == "paper":  # it takes the rows as they come
            order = np.random.default_rng(settings["random_state"]).permutation(self.X.shape[0])
            self.X, self.y = self.X[order], self.y[order]
            self.model = ltls.presets.paper()
        else:
            self.model = ltls.LTLSClassifier()
        del sys.modules["pandas"]
        self.model.set_params(n_jobs=-1, **settings)

    def train(self):
        self.model.fit(self.X, self.y)

    def save(self):
        import ltls

        self.model.save(self.path)
        self.model = ltls.load(self.path).set_params(n_jobs=-1)

    def top(self):
        k = min(K, len(self.model.classes_))
        return ranked(self.model.predict_topk(self.X_test, k)[0])

    def load(self):
        import ltls

        self.model = ltls.load(self.path)
        self.predictor = self.model.predictor(K)

    def one(self, row):
        return self.predictor(self.data.single[row].indices, self.data.single[row].data)


CONTENDERS = {
    "omikuji": Omikuji,
    "napkinxc": Napkinxc,
    "pecos": Pecos,
    "linearsvc": LinearSVC,
    "fastxml": FastXML,
    "ltls": LTLS,
}


def seconds(work):
    """Do some work; return its result, wall seconds and processor seconds with child processes."""

    def processor():
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        return sum(sum(resource.getrusage(kind)[:2]) for kind in kinds)

    start, used = clock(), processor()
    result = work()
    return result, clock() - start, processor() - used


def peak_bytes():
    """Return the most memory that this process or a child of it has held."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    try:  # the other count may begin with the memory of the process that started this one
        with open("/proc/self/status") as lines:
            own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (IOError, OSError):
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024
    return max(own, most) * unit


def bytes_below(folder):
    """Return the size of all files in a folder."""
    return sum(
        os.path.getsize(os.path.join(path, name))
        for path, _, names in os.walk(folder)
        for name in names
    )


def accuracy(contender):
    """Return the best labels of the test rows, and the time that they take."""
    times = []
    while not times or (len(times) < 3 and sum(wall for wall, _ in times) < LONG):
        top, wall, cpu = seconds(contender.top)
        times.append((wall, cpu))
    predict, predict_cpu = sorted(times)[len(times) // 2]
    return top, {"predict_seconds": predict, "predict_cpu_seconds": predict_cpu}


def speed(contender, data):
    """Return the processor time to load a model and predict a row, and those of single rows.

    On a quiet machine, the clock says the same; beside other work, it counts interruptions.
    """

    def spent(work):
        start = time.process_time()
        work()
        return time.process_time() - start

    n_rows = min(SINGLE_ROWS, data.X_test.shape[0])
    data.single = [data.X_test[row] for row in range(n_rows)]
    measures = {"load_seconds": spent(lambda: (contender.load(), contender.one(0)))}
    for row in range(min(n_rows, 100)):
        contender.one(row)
    each = sorted(spent(lambda row=row: contender.one(row)) for row in range(n_rows))
    measures["p50_seconds"], measures["p99_seconds"] = each[n_rows // 2], each[n_rows * 99 // 100]
    return measures


def main():
    name, folder, out, settings = sys.argv[1:]
    model_folder = os.path.join(out, "model")
    os.makedirs(model_folder)
    data, settings = Data(folder), json.loads(settings)
    is_speed = settings.pop("speed", False)
    contender = CONTENDERS[name](data, model_folder, settings)
    _, train, train_cpu = seconds(contender.train)
    measures = {
        "train_seconds": train,
        "train_cpu_seconds": train_cpu,
        "train_peak_bytes": peak_bytes(),
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    contender.save()
    measures["model_bytes"] = bytes_below(model_folder)
    if is_speed:
        measures.update(speed(contender, data))
    else:
        top, times = accuracy(contender)
        measures.update(times)
        np.save(os.path.join(out, "top5.npy"), top)
    with open(os.path.join(out, "measures.json"), "w") as file:
        json.dump(measures, file)


if __name__ == "__main__":
    main()
