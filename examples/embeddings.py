"""Classify texts by their embeddings: from texts to vectors to labels.

The texts are the docstrings of Python's standard library, and the label of each is the module that
it comes from. Vectors are a truncated SVD of TF-IDF, for which nothing has to be installed or
downloaded, or those of an encoder, which is loaded from a folder or by its name on Hugging Face:

    python examples/embeddings.py
    python examples/embeddings.py --model2vec minishlab/potion-base-8M
    python examples/embeddings.py --sentence-transformer sentence-transformers/all-MiniLM-L6-v2
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from ltls import LTLSClassifier

N_DIMENSIONS, FEWEST_TEXTS = 256, 5
SKIPPED = {"dist-packages", "idlelib", "site-packages", "test", "tests"}
Encoder = Callable[[Sequence[str]], Any]


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the docstring of every class and function with the name of its module."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        names = file.relative_to(library).with_suffix("").parts
        if SKIPPED.intersection(names):
            continue
        module = ".".join(names).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                text = ast.get_docstring(node)
                if text:
                    yield text, module


def encoder(options: argparse.Namespace, texts: Sequence[str]) -> Encoder:
    """Return what turns texts into vectors; `texts` are those that an SVD is computed from."""
    if options.model2vec:
        from model2vec import StaticModel

        return StaticModel.from_pretrained(options.model2vec).encode
    if options.sentence_transformer:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(options.sentence_transformer).encode
    tfidf = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    svd = TruncatedSVD(N_DIMENSIONS, random_state=0)
    return make_pipeline(tfidf, svd, Normalizer()).fit(texts).transform


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model2vec", metavar="MODEL")
    parser.add_argument("--sentence-transformer", metavar="MODEL")
    options = parser.parse_args()

    found = list(docstrings())
    counts = Counter(module for _, module in found)
    texts, modules = zip(*(pair for pair in found if counts[pair[1]] >= FEWEST_TEXTS), strict=True)
    y, test = np.array(modules), np.arange(len(texts)) % 5 == 0
    train = [text for text, held_out in zip(texts, test, strict=True) if not held_out]
    encode = encoder(options, train)
    X = np.asarray(encode(texts), np.float32)

    model = LTLSClassifier(random_state=0).fit(X[~test], y[~test])
    print(f"{len(train):,} vectors of {X.shape[1]} numbers, {len(model.classes_)} labels")
    print(f"plan: {model.plan_.split(';')[0]}")
    centroid = NearestCentroid().fit(X[~test], y[~test])
    print(f"nearest centroid: {centroid.score(X[test], y[test]):.2f} of {test.sum()} are right")
    print(f"ltls: {model.score(X[test], y[test]):.2f}")

    for text in ("Parse an address header", "Return the widget's geometry", "Open a zip archive"):
        vectors = np.asarray(encode([text]), np.float32)
        best, probabilities = model.predict_topk(vectors, k=3, proba=True)
        answers = zip(best[0], probabilities[0], strict=True)
        print(f"{text!r}:", ", ".join(f"{label} {share:.0%}" for label, share in answers))

    # A label that was never declared is learned from its vectors.
    new = ["Brew a cup of coffee", "Grind the coffee beans", "Steam the milk of a coffee"]
    model.partial_fit(np.asarray(encode(new), np.float32), ["coffee"] * len(new))
    print("new label:", model.predict(np.asarray(encode(["A cup of coffee"]), np.float32))[0])


if __name__ == "__main__":
    main()
