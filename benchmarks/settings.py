"""P@1 of other settings than the defaults, on a fifth of the training rows that is held out.

    python benchmarks/settings.py --sets bibtex debtags -- rescore=0 rescore=0,normalize=False

Every argument is a setting of LTLSClassifier, or several with commas between them; the first line
of the table are the defaults.
"""

from __future__ import annotations

import argparse
import ast
import os
import time
from pathlib import Path

import numpy as np
import sets

from ltls import LTLSClassifier, readers
from ltls.metrics import precision_at_k


def parsed(text: str) -> dict[str, object]:
    settings = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            settings[name] = ast.literal_eval(value)
        except ValueError:
            settings[name] = value
    return settings


def held_out_precision(name: str, settings: dict[str, object]) -> tuple[float, float]:
    files = sets.find(Path(os.environ["LTLS_DATA"]), name)
    if files is None:
        raise SystemExit(f"{name} is not in the folder that LTLS_DATA names")
    train = readers.read(files[0])
    y = train.y if train.single_label else train.Y
    order = np.random.default_rng(0).permutation(train.X.shape[0])
    learned, judged = np.split(order, [len(order) * 4 // 5])
    start = time.process_time()
    model = LTLSClassifier(**{"random_state": 0, "n_jobs": -1, **settings})
    model.fit(train.X[learned], y[learned])
    seconds = time.process_time() - start
    labels, _ = model.predict_topk(train.X[judged], 1)
    return precision_at_k(y[judged], labels, 1), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=["bibtex", "stackex_cs", "banking77"])
    parser.add_argument("settings", nargs="*")
    options = parser.parse_args()
    print("|", " | ".join(["settings", *options.sets, "processor seconds"]), "|")
    print("|---" * (len(options.sets) + 2) + "|")
    for text in ["", *options.settings]:
        found = [held_out_precision(name, parsed(text)) for name in options.sets]
        cells = [text or "defaults", *(f"{precision:.4f}" for precision, _ in found)]
        print("|", " | ".join([*cells, f"{sum(seconds for _, seconds in found):.1f}"]), "|")


if __name__ == "__main__":
    main()
