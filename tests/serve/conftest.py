import importlib.util

import numpy as np
import pytest
from serving import in_thread

from ltls import LTLSClassifier, TableClassifier, TextClassifier
from ltls.serve import Settings

NEEDED = ("fastapi", "uvicorn", "httptools", "prometheus_client")
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
    """Model files: text, features (integer labels), named features, several labels, margins,
    and mixed columns.
    """
    folder = tmp_path_factory.mktemp("models")
    texts, labels = map(list, zip(*TEXTS, strict=True))
    TextClassifier(random_state=0, epochs=10).fit(texts, labels).save(folder / "tickets.ltls")
    X = np.eye(N_FEATURES, dtype=np.float32)
    y = 10 * np.arange(N_FEATURES)
    model = LTLSClassifier(random_state=0, epochs=20, width=2)
    model.fit(X, y).save(folder / "codes.ltls")
    named = LTLSClassifier(random_state=0, epochs=20).fit(X[:4, :4], list("abcd"))
    named._set_feature_names(["height", "width", "depth", "größe"])
    named.save(folder / "boxes.ltls")
    Y = np.eye(N_FEATURES, dtype=int)[:, :6] + np.eye(N_FEATURES, dtype=int, k=-1)[:, :6]
    LTLSClassifier(random_state=0, epochs=10).fit(X, Y).save(folder / "tags.ltls")
    margins = LTLSClassifier(random_state=0, epochs=5, loss="separation", label_weights=False)
    margins.fit(X, y).save(folder / "margins.ltls")
    orders = TableClassifier("item", "price", "shop", random_state=0, epochs=10)
    orders.fit(ORDERS, [f"{row['item']} {row['price'] > 11}" for row in ORDERS])
    orders.save(folder / "orders.ltls")
    return folder


@pytest.fixture(scope="session")
def models(folder):
    return {path.stem: path for path in sorted(folder.glob("*.ltls"))}


@pytest.fixture(scope="session")
def server(models):
    """A server of all models."""
    with in_thread(Settings(models=models, max_rows=64, reload=0)) as server:
        yield server
