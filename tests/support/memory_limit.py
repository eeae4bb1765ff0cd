"""Training on a table under a memory limit; run as a program by tests."""

import resource
import sys
from pathlib import Path

from ltls import TextClassifier
from ltls.parts import label_weights
from ltls.readers import TableStream
from ltls.settings import Memory, Text, Trellises

label_weights._BLOCK_VALUES = 1 << 16  # label weights are trained on so many values at a time
SETTINGS = {
    "features": Text(n_features=1 << 12, ngram_range=(1, 1), char_ngram_range=None),
    "trellises": Trellises(width=4, n_trellises=1, epochs=1),
    "label_weights": True,
    "prototypes": False,
    "neighbours": False,
    "calibration": False,
    "memory": Memory(n_rows=1000),
    "random_state": 0,
}


def status(name):
    """A size of this process in bytes; getrusage would include the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def fit(path, streamed, chunk_size):
    rows = TableStream(path, "text", "label", chunk_size=chunk_size)
    model = TextClassifier(**SETTINGS)
    if streamed:
        return model.fit_stream(rows)
    texts, labels = [], []
    for some, targets in rows:
        texts += some
        labels += targets.labels
    return model.fit(texts, labels)


if __name__ == "__main__":
    path, small, way, chunk_size, room = sys.argv[1:]
    streamed = way == "stream"
    fit(small, streamed, int(chunk_size))  # import and allocate what the first fit needs
    before = status("VmHWM")
    if room != "none":
        limit = status("VmSize") + int(room)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        model = fit(path, streamed, int(chunk_size))
    except MemoryError:
        print("MemoryError")
    else:
        has_label_weights = any(
            part.name in ("views", "label_weights") for part in model.model_.parts
        )
        print(status("VmHWM") - before, model.fitted_.provenance.n_rows, has_label_weights)
