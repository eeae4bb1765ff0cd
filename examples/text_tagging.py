"""Tag texts: several labels per text.

The texts are the docstrings of Python's standard library, and their labels are the module that a
docstring comes from and the package of that module.

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
    """Yield the docstring of every class and function, with its package and module."""
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
    train = [i for i in range(len(texts)) if i % 5]
    model = TextClassifier(random_state=0).fit([texts[i] for i in train], [tags[i] for i in train])
    print(f"{len(train):,} texts, {len(model.classes_)} tags")

    best = model.predict_topk([texts[i] for i in held_out], k=1)[0][:, 0]
    correct = sum(tag in tags[i] for tag, i in zip(best, held_out, strict=True))
    print(f"P@1 on {len(held_out)} held-out texts: {correct / len(held_out):.2f}")

    for text in ("Parse an address header", "Return the widget's geometry", "Log a message"):
        predicted, _ = model.predict_topk([text], k=2)
        print(f"{text!r}: {', '.join(predicted[0])}")


if __name__ == "__main__":
    main()
