import importlib.util

import numpy as np
import pytest
from serving import in_thread

from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.serve import Settings
from ltls.settings import Table, Trellises, Views

NEEDED = ("starlette", "uvicorn", "msgspec", "prometheus_client")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
SUBJECTS = {"card": ["card", "visa"], "fee": ["fee", "charge"], "été": ["login", "mot de passé"]}
TEXTS = [
    (f"{opening} {word} {closing}", label)
    for label, words in SUBJECTS.items()
    for word in words
    for opening in ("my", "the", "About a")
    for closing in ("please", "is gone")
]
N_FEATURES = 12
ORDERS = [
    {
        "item": ["green tea", "black tea", "milk"][n % 3],
        "price": n,
        "shop": "north" if n % 2 else None,
    }
    for n in range(24)
]


@pytest.fixture(autouse=True, scope="session")
def _packages():
    if MISSING:
        pytest.skip(f"needs {', '.join(MISSING)}: run make test-all")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Model files: texts, features (integer labels), named features, several labels, margins,
    mixed columns, also with vectors, and views of many labels.
    """
    folder = tmp_path_factory.mktemp("models")
    texts, labels = map(list, zip(*TEXTS, strict=True))
    TextClassifier(random_state=0).fit(texts, labels).save(folder / "tickets.ltls")
    X = np.eye(N_FEATURES, dtype=np.float32)
    y = 10 * np.arange(N_FEATURES)
    narrow = Trellises(epochs=20, width=2)
    LTLSClassifier(random_state=0, trellises=narrow).fit(X, y).save(folder / "codes.ltls")
    named = LTLSClassifier(random_state=0).fit(X[:4, :4], list("abcd"))
    named.model_.front_end.given_names = ["height", "width", "depth", "größe"]
    named.save(folder / "boxes.ltls")
    Y = np.eye(N_FEATURES, dtype=int)[:, :6] + np.eye(N_FEATURES, dtype=int, k=-1)[:, :6]
    LTLSClassifier(random_state=0).fit(X, Y).save(folder / "tags.ltls")
    margins = LTLSClassifier(random_state=0, trellises=Trellises(loss="separation"))
    margins.fit(X, y).save(folder / "margins.ltls")
    columns = Table(text="item", number="price", category="shop")
    orders = TableClassifier(features=columns, random_state=0)
    orders.fit(ORDERS, [f"{row['item']} {row['price'] > 11}" for row in ORDERS])
    orders.save(folder / "orders.ltls")
    beside = TableClassifier(features=Table(text="item", vectors="vector"), random_state=0)
    rows = [{"item": row["item"], "vector": [n % 2, -n % 2]} for n, row in enumerate(ORDERS)]
    beside.fit(rows, [f"{row['item']} {row['vector'][0]}" for row in rows])
    beside.save(folder / "parcels.ltls")
    words = [f"w{n} v{n % 40}" for n in range(100)] * 10
    views = TextClassifier(random_state=0, views=Views(n_views=2, cluster_size=10))
    views.fit(words, [f"label {n}" for n in range(100)] * 10).save(folder / "words.ltls")
    return folder


@pytest.fixture(scope="session")
def models(folder):
    return {path.stem: path for path in sorted(folder.glob("*.ltls"))}


@pytest.fixture(scope="session")
def serving(models):
    """Start a server of one of the models, with these settings."""

    def start(name="tickets", **settings):
        return in_thread(Settings(models={name: models[name]}, **{"reload": 0, **settings}))

    return start


@pytest.fixture(scope="session")
def server(models):
    """A server of all models."""
    with in_thread(Settings(models=models, max_rows=64, reload=0)) as server:
        yield server
