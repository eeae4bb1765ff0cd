"""Tables 1, 2 and 3 of the paper beside ours, learned with the paper's settings.

The data sets are looked for in the folder that LTLS_DATA names; `datasets.find` says under which
names. Most of the paper's are not public any more; those that are there are run.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from benchmarks import machine, tables
from benchmarks.datasets import find, load
from ltls import LTLSClassifier, presets
from ltls.metrics import precision_at_k

ORDERS = 5  # seeded orders of the training rows: the preset does not shuffle
MANY_ORDERS = {"bibtex": 50}  # small, and orders differ much
CONSTANTS = (0.01, 0.1, 1, 10, 100, 1000)  # C of the regressions
LARGE = 50_000  # examples; such a set may take hours, and runs only when --only names it

# Examples, features, classes; then precision@1, prediction time [s] and model size [M] of every
# model. † is a model with L1, * one that cannot fit the data.
PAPER = {
    1: """LTLS LOMtree FastXML
sector   8658    55197  105   | 0.8845  0.14  5.91 | 0.8210 0.16  17.00 | 0.8490 0.25   7.00
aloi.bin 100000  636911 1000  | 0.8224  1.00  102  | 0.8947 1.59  106   | 0.9550 10.99  992
LSHTC1   83805   347255 12294 | †0.0950 0.65  260  | 0.1056 6.84  744   | 0.2166 6.33   308
imageNet 1261404 1000   1000  | *0.0075 15.03 390  | 0.0537 37.70 35    | 0.0648 139.00 914
Dmoz     345068  833484 11947 | †0.2304 5.24  197  | 0.2127 28.00 1800  | 0.3840 57.10  1500""",
    2: """LTLS LEML FastXML
bibtex       5991  1837  159  | 0.2719  0.07 264.0 | 0.6401 0.22  8.6    | 0.6414 0.09 27.0
rcv1_regions 20835 47237 225  | 0.8964  0.52 6.15  | 0.9628 2.52  205.00 | 0.9328 0.82 14.60
Eur-Lex      15643 5000  3956 | *0.0559 0.24 1.79  | 0.6782 42.24 78.00  | 0.6730 1.00 324.50
LSHTCwiki 2355436 2085167 320338 | 0.2240 5.43 769 | 0.2846 2896.00 10400 | 0.7828 164.80 8900""",
}
# Edges, and precision@1 of the oracle, of LR and of LTLS.
PAPER_3 = {
    "sector": "28 0.2362 0.2248 0.8945",
    "aloi.bin": "42 0.0275 0.0274 0.8224",
    "LSHTC1": "56 0.1463 0.0966 0.0950",
    "imageNet": "42 0.0697 0.0340 0.0075",
    "Dmoz": "61 0.3507 0.2376 0.2304",
    "bibtex": "34 0.7126 0.2220 0.2719",
    "rcv1_regions": "34 0.8644 0.6576 0.8964",
    "Eur-Lex": "52 0.6672 0.1262 0.0579",
    "LSHTCwiki": "81 0.2520 0.0314 0.2240",
}
SETTINGS: dict[str, dict[str, Any]] = {  # of the authors' own code
    "sector": {"epochs": 7},
    "aloi.bin": {"epochs": 20},
    "LSHTC1": {"epochs": 16, "l1": 2.3},
    "imageNet": {"epochs": 1},
    "Dmoz": {"epochs": 9, "l1": 1.75},
    "bibtex": {"epochs": 4},
    "rcv1_regions": {"epochs": 7, "ranking_multiplier": 3},
    "Eur-Lex": {"epochs": 7, "ranking_multiplier": 3},
    "LSHTCwiki": {"epochs": 9, "ranking_multiplier": 4},
}
# Other cuts of a paper's data set: sector's held-out part as training rows with its real test part,
# and bibtex cut at the paper's counts, though not as the paper cut it.
STAND_INS = {"sector": ["sectorpart"], "bibtex": ["bibtex5991"]}
Results = dict[str, dict[str, Any]]


def paper_rows(number: int) -> list[tuple[str, list[int], dict[str, list[str]]]]:
    """Return name, counts and figures of every model for the data sets of table 1 or 2."""
    head, *lines = PAPER[number].splitlines()
    rows = []
    for line in lines:
        start, *figures = (part.split() for part in line.split("|"))
        models = dict(zip(head.split(), figures, strict=True))
        rows.append((start[0], [int(count) for count in start[1:]], models))
    return rows


def cuts(name: str) -> list[str]:
    """Return a data set's name and those of its stand-ins."""
    return [name, *STAND_INS.get(name, [])]


def learn(
    X: sp.csr_matrix, Y: sp.csr_matrix, seed: int, settings: dict[str, Any]
) -> LTLSClassifier:
    # One label in every row is a multi-class problem, for which the authors' update differs.
    y = Y.indices if (np.diff(Y.indptr) == 1).all() else Y
    order = np.random.default_rng(seed).permutation(X.shape[0])
    return presets.paper(**settings, verbose=X.shape[0] > LARGE).fit(X[order], y[order])


def run(name: str, files: list[Path], settings: dict[str, Any]) -> dict[str, Any]:
    machine.say(f"{name}: reading")
    X, Y, X_test, Y_test = load(files)
    precisions = []
    for seed in range(MANY_ORDERS.get(name, ORDERS)):
        model = learn(X, Y, seed, settings)
        precisions.append(precision_at_k(Y_test, model.predict_topk(X_test, 1)[0]))
        machine.say(f"{name}: order {seed}, P@1 {precisions[-1]:.4f}")
    edges = model.trellis_.n_edges
    predict_seconds = machine.seconds(lambda: model.predict_topk(X_test, 1), 3)
    machine.say(f"{name}: logistic regression for {edges} labels, {len(CONSTANTS)} constants")
    known = most_frequent(Y, edges)
    return {
        "rows": X.shape[0],
        "edges": edges,
        "precision": statistics.mean(precisions[:ORDERS]),
        "precisions": precisions[:ORDERS],
        "precisions_of_more_orders": precisions[ORDERS:],
        "predict_seconds": predict_seconds,
        "model_bytes": 4 * edges * X.shape[1],
        "oracle": float((np.diff(Y_test[:, known].indptr) > 0).mean()),
        "lr": regression(X, Y, X_test, Y_test, known),
    }


# Table 3: a model of E edges has the size of E binary models, which one can spend on the most
# frequent labels instead. The oracle is the best that this could give.


def most_frequent(Y: sp.csr_matrix, n_labels: int) -> Any:
    """Return the most frequent labels; of equally frequent ones, the smaller ids."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return np.argsort(-counts, kind="stable")[: min(n_labels, np.count_nonzero(counts))]


def regression(X: Any, Y: Any, X_test: Any, Y_test: Any, labels: Any) -> float:
    """Return P@1 of one logistic regression a label, with the best C on a fifth of the rows."""
    rows, others = train_test_split(np.arange(X.shape[0]), test_size=0.2, random_state=0)

    def precision(c: float, part: Any, X_part: Any, Y_part: Any) -> float:
        odds = np.full((X_part.shape[0], len(labels)), -np.inf)
        for j, label in enumerate(labels):
            target = Y[part][:, [label]].toarray().ravel()
            if target.min() == target.max():
                odds[:, j] = np.inf if target.all() else -np.inf  # nothing to tell apart
                continue
            # The dual has one unknown per row, the primal one per feature.
            dual = X.shape[0] < X.shape[1]
            model = LogisticRegression(
                C=c, solver="liblinear", dual=dual, max_iter=1000, random_state=0
            )
            odds[:, j] = model.fit(X[part], target).decision_function(X_part)
        return precision_at_k(Y_part, labels[odds.argmax(axis=1)][:, None])

    best = max(CONSTANTS, key=lambda c: precision(c, rows, X[others], Y[others]))
    return precision(best, np.arange(X.shape[0]), X_test, Y_test)


def run_all(folder: Path, only: list[str] | None) -> tuple[dict[str, str], Results]:
    """Run the selected data sets that exist; return the state of every one, and the results."""
    states: dict[str, str] = {}
    ours: Results = {}
    for name, (n_examples, _, _), _ in (row for number in PAPER for row in paper_rows(number)):
        for own in cuts(name):
            files = find(folder, own)
            selected = own in only if only else n_examples <= LARGE
            here = "run" if selected else f"there, not run (--only {own} runs it)"
            states[own] = here if files else "absent"
            machine.say(f"{own}: {states[own]}")
            if files and selected:
                ours[own] = run(own, files, SETTINGS[name])
    return states, ours


def main() -> None:
    parser = machine.parser(__doc__)
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        choices=[own for name in SETTINGS for own in cuts(name)],
        help=f"run this set and no other; may be repeated; sets above {LARGE:,} rows need it",
    )
    parser.add_argument("--output", type=Path, default=machine.RESULTS)
    args = parser.parse_args()
    states, ours = run_all(machine.data_folder(), args.only)
    if not ours:
        sys.exit("nothing was run, nothing is written")
    theirs = {"tables_1_2": [*paper_rows(1), *paper_rows(2)], "table_3": PAPER_3}
    about = machine.description("numpy", "scipy", "scikit-learn")
    result = {"about": about, "states": states, "settings": SETTINGS, "ours": ours, "paper": theirs}
    machine.write("paper", result, args.output)
    print("\n".join([*tables.paper(result), "", *tables.paper_baselines(result)]))


if __name__ == "__main__":
    main()
