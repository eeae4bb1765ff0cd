"""Recommend the next item: a row is what someone did before, the class is what they did next.

Visitors walk at random through a shop of 5,000 items in which every item has three neighbours. The
features are the last two items, so no model can be right more often than the walk is predictable.

    python examples/next_item.py
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ltls import LTLSClassifier

N_ITEMS, N_VISITS, LENGTH = 5_000, 20_000, 6
HABITS = (0.6, 0.3, 0.1)  # how often each neighbour comes next


def visits(rng: np.random.Generator) -> np.ndarray:
    """Return walks through the shop, shape (N_VISITS, LENGTH)."""
    neighbours = rng.integers(N_ITEMS, size=(N_ITEMS, len(HABITS)))
    walks = np.empty((N_VISITS, LENGTH), np.int64)
    walks[:, 0] = rng.zipf(1.3, N_VISITS) % N_ITEMS  # some items are popular
    for step in range(1, LENGTH):
        chosen = rng.choice(len(HABITS), N_VISITS, p=HABITS)
        walks[:, step] = neighbours[walks[:, step - 1], chosen]
    return walks


def rows(walks: np.ndarray) -> tuple[csr_array, np.ndarray]:
    """Return the last two items as features, and the item after them."""
    last, before = walks[:, 1:-1].ravel(), walks[:, :-2].ravel()
    columns = np.column_stack([last, N_ITEMS + before]).ravel()
    indptr = np.arange(0, len(columns) + 1, 2)
    values = np.ones(len(columns), np.float32)
    return csr_array((values, columns, indptr), shape=(len(last), 2 * N_ITEMS)), walks[
        :, 2:
    ].ravel()


def main() -> None:
    walks = visits(np.random.default_rng(0))
    X, y = rows(walks[:-1000])
    model = LTLSClassifier(n_trellises=2, embedding_dim=0, epochs=5, random_state=0).fit(X, y)
    X_new, y_new = rows(walks[-1000:])
    items, _ = model.predict_topk(X_new, k=3)
    right = items == y_new[:, None]
    print(f"{len(y):,} steps, {len(model.classes_):,} items, {model.trellis_.n_edges} edges each")
    print(f"next item: {right[:, 0].mean():.2f} of the answers are right, at best {HABITS[0]}")
    print(f"three best: {right.any(axis=1).mean():.2f} hold it")

    # A service answers one visitor at a time, in microseconds, from any thread.
    predictor = model.predictor(k=3)
    last, before = walks[-1, -1], walks[-1, -2]
    best, _ = predictor(np.array([last, N_ITEMS + before], np.int32), np.ones(2, np.float32))
    print(f"visitor at item {last}: {best.tolist()}")


if __name__ == "__main__":
    main()
