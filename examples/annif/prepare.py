"""Write a vocabulary and documents for Annif.

``python prepare.py train.tsv.xz test.tsv.xz`` reads lines with a title, a tab and ids
of subjects, and writes vocabulary.tsv, train.tsv and test.tsv.
"""

import lzma
import sys
from itertools import islice
from pathlib import Path

N_ROWS = {"train.tsv": 50_000, "test.tsv": 2_000}
URI = "<http://www.yso.fi/onto/yso/{}>"


def main():
    known = set()
    for given, (name, n_rows) in zip(sys.argv[1:], N_ROWS.items(), strict=True):
        documents = []
        with lzma.open(given, "rt", encoding="utf-8") as lines:
            for line in islice(lines, n_rows):
                title, _, subjects = line.rstrip("\n").rpartition("\t")
                known.update(subjects.split())
                uris = " ".join(map(URI.format, subjects.split()))
                documents.append(f"{title}\t{uris}\n")
        Path(name).write_text("".join(documents), "utf-8")
    rows = (f"{URI.format(subject)}\t{subject}\n" for subject in sorted(known))
    Path("vocabulary.tsv").write_text("".join(rows), "utf-8")


if __name__ == "__main__":
    main()
