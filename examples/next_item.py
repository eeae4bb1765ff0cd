"""Recommend the next item: a row describes the past of a visitor, the class is the next item.

Visitors take random walks through a shop of 5,000 items, in which every item has three neighbours.
The features are the last two items. The most likely neighbour comes next in 60 % of all steps; no
model can be right more often than that.

    python examples/next_item.py
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ltls import LTLSClassifier

N_ITEMS, N_VISITS, LENGTH = 5_000, 20_000, 6
NEIGHBOUR_PROBABILITIES = (0.6, 0.3, 0.1)


def visits(rng: np.random.Generator) -> np.ndarray:
    """Return random walks through the shop, shape (N_VISITS, LENGTH)."""
    n_neighbours = len(NEIGHBOUR_PROBABILITIES)
    neighbours = rng.integers(N_ITEMS, size=(N_ITEMS, n_neighbours))
    walks = np.empty((N_VISITS, LENGTH), np.int64)
    walks[:, 0] = rng.zipf(1.3, N_VISITS) % N_ITEMS  # some items are popular
    for step in range(1, LENGTH):
        chosen = rng.choice(n_neighbours, N_VISITS, p=NEIGHBOUR_PROBABILITIES)
        walks[:, step] = neighbours[walks[:, step - 1], chosen]
    return walks


def training_rows(walks: np.ndarray) -> tuple[csr_array, np.ndarray]:
    """Return the last two items as features, and the item that follows them."""
    last, before, following = walks[:, 1:-1].ravel(), walks[:, :-2].ravel(), walks[:, 2:].ravel()
    columns = np.column_stack([last, N_ITEMS + before]).ravel()
    indptr = np.arange(0, len(columns) + 1, 2)
    values = np.ones(len(columns), np.float32)
    return csr_array((values, columns, indptr), shape=(len(last), 2 * N_ITEMS)), following


def main() -> None:
    walks = visits(np.random.default_rng(0))
    X, y = training_rows(walks[:-1000])
    model = LTLSClassifier(random_state=0).fit(X, y)
    X_test, y_test = training_rows(walks[-1000:])
    items, _ = model.predict_topk(X_test, k=3)
    correct = items == y_test[:, None]
    print(f"{len(y):,} rows, {len(model.classes_):,} items")
    best_possible = NEIGHBOUR_PROBABILITIES[0]
    print(f"next item: {correct[:, 0].mean():.2f} correct, at best {best_possible}")
    print(f"three best: {correct.any(axis=1).mean():.2f} contain the next item")

    # A service predicts one row at a time, in microseconds, from any thread.
    predictor = model.predictor(k=3)
    last, before = walks[-1, -1], walks[-1, -2]
    best, _ = predictor(np.array([last, N_ITEMS + before], np.int32), np.ones(2, np.float32))
    print(f"visitor at item {last}: {best.tolist()}")


if __name__ == "__main__":
    main()
