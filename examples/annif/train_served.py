"""Train yso.ltls on train.tsv, for the http backend: it sends texts as they are."""

from pathlib import Path

from ltls import TextClassifier

lines = Path("train.tsv").read_text("utf-8").splitlines()
texts, subjects = zip(*(line.rsplit("\t", 1) for line in lines), strict=True)
labels = [row.split() for row in subjects]
TextClassifier(random_state=0, n_jobs=-1).fit(texts, labels).save("yso.ltls")
