"""Small fitted models of every kind, and rows for them."""

import functools
import pickle
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from ltls import LTLSClassifier, RandomCodebook, TableCodebook, TextClassifier, presets
from ltls.settings import Memory, Numbers, Propensity, Text, Trellises, Views
from tests.fuzz import seeds
from tests.fuzz.seeds import N_LABELS, N_ROWS, SMALL, numbers, rows, several

FEW_ROWS = Memory(n_rows=10)


def indicator(owners):
    return np.eye(N_LABELS, N_LABELS + 1, dtype=int)[owners]


def wide(n_features=5000):
    """Return the rows of a few of very many features."""
    X, _ = rows()
    places = np.linspace(0, n_features - 1, X.shape[1]).astype(int)
    return csr_array((X.data, places[X.indices], X.indptr), shape=(N_ROWS, n_features))


def blocks():
    """Return the rows as sparse and dense features."""
    X, _ = rows()
    return [X[:, :-4], X[:, -4:].toarray()]


def many(y, **settings):
    """Return a model of enough rows to choose and to calibrate, most of which it does not keep."""
    X, owners = rows()
    model = LTLSClassifier(memory=FEW_ROWS, random_state=0, **settings)
    return model.fit(csr_array(vstack([X] * 20)), 20 * y(owners))


def streamed(y):
    X, owners = rows()
    model = LTLSClassifier(trellises=SMALL, random_state=0)
    return model.fit_stream([(X[i : i + 25], y(owners)[i : i + 25]) for i in range(0, N_ROWS, 25)])


def grown(**settings):
    """Return a fitted model after a batch with new labels and new features."""
    wider, owners = wide(), rows()[1]
    model = LTLSClassifier(trellises=SMALL, random_state=0, **settings)
    model.fit(wider[owners < 6], owners[owners < 6])
    return model.partial_fit(wider[N_ROWS // 2 :], owners[N_ROWS // 2 :])


def words(**settings):
    features = Text(**{"char_ngram_range": None, **settings})
    model = TextClassifier(features=features, trellises=SMALL, memory=FEW_ROWS, random_state=0)
    return model.fit(seeds.texts(), seeds.names(rows()[1]))


def trellises(**settings):
    return Trellises(**{"width": 2, "n_trellises": 2, "epochs": 2, **settings})


NUMPY = {"width": np.int64(3), "learning_rate": np.float32(0.5), "shuffle": np.bool_(False)}
MODELS = {
    **seeds.MODELS,
    "default": numbers,
    "default several": lambda: numbers(several),
    "default dense": lambda: numbers(X=rows()[0].toarray()),
    "label matrix": lambda: numbers(X=rows()[0].toarray(), label_matrix=True),
    "label matrix, several": lambda: numbers(several, X=rows()[0].toarray(), label_matrix=True),
    "blocks, several": lambda: numbers(several, X=blocks(), prototypes=True, neighbours=True),
    "blocks, standardized": lambda: numbers(X=blocks(), features=Numbers(standardize=True)),
    "paper": lambda: presets.paper(epochs=2).fit(*rows()),
    "paper several": lambda: presets.paper(epochs=2, l1=0.1).fit(rows()[0], several(rows()[1])),
    "separation": lambda: numbers(trellises=trellises(loss="separation")),
    "softmax, several": lambda: numbers(
        several, trellises=trellises(loss="softmax"), label_weights=False, calibration=False
    ),
    "logistic": lambda: numbers(several, trellises=trellises(loss="logistic", l1=0.01)),
    "indicator": lambda: numbers(indicator),
    "indicator, sparse": lambda: numbers(lambda owners: csr_array(indicator(owners))),
    "wide": lambda: numbers(X=wide(), trellises=trellises(density=0.5)),
    "calibrated, one label": lambda: many(seeds.names, trellises=SMALL),
    "chosen": lambda: many(seeds.names, prototypes=True, neighbours=True, views=True),
    "propensity": lambda: many(several, propensity=Propensity(strength=0.5)),
    "one cluster": lambda: numbers(views=Views(n_views=1, cluster_size=N_LABELS)),
    "one cluster, pruned": lambda: numbers(
        trellises=trellises(density=0.5), views=Views(n_views=2, cluster_size=1000)
    ),
    "learned": lambda: numbers(trellises=trellises(assignment="learned", n_trellises=1)),
    "random codebook": lambda: numbers(
        trellises=trellises(assignment=RandomCodebook(20, 1), n_trellises=1)
    ),
    "codebooks": lambda: numbers(
        trellises=trellises(assignment=[TableCodebook(N_LABELS, range(N_LABELS))] * 2)
    ),
    "dates": lambda: numbers(lambda owners: np.datetime64("2024-02-28", "D") + owners),
    "stream": lambda: streamed(seeds.names),
    "stream, several": lambda: streamed(several),
    "grown": grown,
    "grown views": lambda: grown(views=Views(n_views=2, cluster_size=2), prototypes=True),
    "words": lambda: words(stop_words=["is"], tokenizer=r"\w+", ngram_range=(np.int64(1), 3)),
    "numbers of NumPy": lambda: numbers(trellises=trellises(**NUMPY)),
    "names": lambda: with_names(),
    "a generator": lambda: numbers().set_params(random_state=np.random.RandomState(0)),
    "class weights": lambda: numbers(seeds.names, class_weight={seeds.NAMES[0]: 2.0}),
    "no intercept": lambda: numbers(features=Numbers(fit_intercept=False, normalize=False)),
}


def with_names():
    pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")

    frame = pd.DataFrame(rows()[0].toarray()).rename(columns="column {}".format)
    return LTLSClassifier(trellises=SMALL, random_state=0).fit(frame, rows()[1])


@functools.cache
def _pickled(name):
    return pickle.dumps(MODELS[name]())


def model_of(name):
    """Return a fitted model of a kind, which may be changed."""
    return pickle.loads(_pickled(name))


def rows_for(model, n_rows=9):
    """Return rows for a model: some that it was trained on, and one without features."""
    front_end, n_features = model.model_.front_end, model.n_features_in_
    if front_end.name == "text":
        return [*seeds.texts()[:n_rows], ""]
    if front_end.name == "table":
        return [*seeds.table()[:n_rows], dict.fromkeys(seeds.table()[0])]
    X = rows()[0] if n_features == rows()[0].shape[1] else wide(n_features)
    empty = csr_array((1, n_features), dtype=np.float32)
    X = csr_array(vstack([X[:n_rows], empty]))
    if hasattr(model, "feature_names_in_"):
        pd = pytest.importorskip("pandas", reason="needs pandas: run make test-all")

        return pd.DataFrame(X.toarray(), columns=model.feature_names_in_)
    return X.toarray() if model.model_.columns.standardizer is not None else X


def targets_for(model, n_rows=10):
    """Return as many targets as `rows_for` returns rows, with a new label among them."""
    labels = [model.model_.labels.values[i % 3] for i in range(n_rows - 1)]
    new = labels[0] + np.timedelta64(99, "D") if isinstance(labels[0], np.datetime64) else "new"
    if model.model_.target_format in ("dense", "sparse"):
        return indicator(np.arange(n_rows) % N_LABELS)
    return [[label] for label in [*labels, new]] if model.multilabel_ else [*labels, new]


@contextmanager
def memory_limited(n_bytes):
    """Let this process allocate no more than some bytes."""
    resource = pytest.importorskip("resource", reason="needs limits of memory")
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        pytest.skip("the system does not tell the memory of a process")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
