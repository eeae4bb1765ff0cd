"""New labels during training: learn from a stream in which new classes keep appearing.

Every day brings a digit that the model has never seen, and no other. A new class takes a free path.
When none is left, the trellis grows, which changes no existing score. Rows of the days before are
replayed, so that the model does not forget them.

    python examples/online_labels.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from ltls import LTLSClassifier
from ltls.settings import Trellises


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X / 16, y, random_state=0)
    names = np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    model = LTLSClassifier(trellises=Trellises(width=4, n_trellises=3), random_state=0)
    rng = np.random.default_rng(0)
    for day in range(10):
        today = rng.permutation(np.flatnonzero(y_train == day))
        model.partial_fit(X_train[today], names[y_train[today]])
        known = y_test <= day
        accuracy = model.score(X_test[known], names[y_test[known]])
        trellis = model.trellis_
        print(
            f"day {day}: {len(model.classes_):2} classes, {trellis.n_edges} edges, "
            f"accuracy {accuracy:.2f}"
        )


if __name__ == "__main__":
    main()
