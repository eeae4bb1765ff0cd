"""Tag texts: several labels a text, strings in, strings out.

Learns from Python's own standard library to say which module a docstring speaks about: a label is a
module, or the package it is in.

    python examples/text_tagging.py
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ltls import TextClassifier

PACKAGES = ("asyncio", "email", "json", "logging", "tkinter", "unittest", "urllib", "xml")


def docstrings() -> Iterator[tuple[str, list[str]]]:
    """Yield the documentation of every class and function, with its package and module."""
    library = Path(sysconfig.get_path("stdlib"))
    for package in PACKAGES:
        for file in sorted(library.joinpath(package).rglob("*.py")):
            if "test" in file.parts or "tests" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    text = ast.get_docstring(node)
                    if text:
                        yield text, [package, f"{package}.{file.stem}"]


def main() -> None:
    texts, tags = zip(*docstrings(), strict=True)
    held_out = range(0, len(texts), 5)
    rest = [i for i in range(len(texts)) if i % 5]
    model = TextClassifier(random_state=0).fit([texts[i] for i in rest], [tags[i] for i in rest])
    print(f"{len(rest):,} texts, {len(model.classes_)} tags")

    best = model.predict_topk([texts[i] for i in held_out], k=1)[0][:, 0]
    right = sum(tag in tags[i] for tag, i in zip(best, held_out, strict=True))
    print(f"P@1 on {len(held_out)} held-out texts: {right / len(held_out):.2f}")

    for question in ("Parse an address header", "Return the widget's geometry", "Log a message"):
        answers, _ = model.predict_topk([question], k=2)
        print(f"{question!r}: {', '.join(answers[0])}")


if __name__ == "__main__":
    main()
