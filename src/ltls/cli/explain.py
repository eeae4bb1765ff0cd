"""``ltls explain``: the features that speak for and against the best labels of a row."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text
from scipy.sparse import csr_array

from ..estimators.classifier import LTLSClassifier
from ..estimators.explain import Explanation
from ..estimators.load import load
from ..estimators.table_classifier import TableClassifier
from .explain_page import page
from .labels import WrittenLabels
from .options import ModelFile, Verify, option
from .output import check_output, text_output
from .printable import printable
from .rows import batches, takes_text
from .source import Source

_FOR, _AGAINST = "green", "red"


def explain(
    model: ModelFile,
    row: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help='The text; for a model of features, a row such as "3:0.5 17:1", whose features '
            "count as in the training file, or from 0 if there was none; for one of tables, a JSON "
            "object. - reads it from standard input.",
        ),
    ],
    number: Annotated[
        int | None,
        option("none", "Explain this row of a file, counted from 1; TEXT is the file.", "--row"),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of labels.")] = 5,
    label: Annotated[
        list[str] | None,
        option("the k best ones", "A label to explain; may be repeated.", "--label"),
    ] = None,
    n_features: Annotated[
        int, typer.Option("--features", min=1, help="Number of features to print per label.")
    ] = 10,
    html: Annotated[Path | None, option("none", "Write a page.", "--html")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with all features.")] = False,
    verify: Verify = True,
) -> None:
    """Explain the best labels of a text or a row.

    Every label has the features that speak for it (green) and against it (red), with what they add
    to its linear score. --json prints a list of objects with label, score, probability,
    linear_score, intercept, contributions, parts and formula; contributions and intercept add up
    to linear_score.
    """
    check_output(html, model)
    estimator = load(model, verify=verify)
    if number is not None:
        if number < 1:
            raise ValueError(f"--row must be at least 1, got {number}")
        X, shown = _row_of_file(estimator, Path(row), number)
        given = f"{row}, row {number}"
    else:
        given = sys.stdin.read().rstrip("\n") if row == "-" else row
        X, shown = _input(estimator, given)
    wanted = None if not label else [_label(estimator, each) for each in label]
    [explained] = estimator.explain(X, wanted, k)
    if html is not None:
        with text_output(html) as stream:
            stream.write(
                page(shown or given, explained, n_features, _picture(estimator, X, explained))
            )
    if as_json:
        print(json.dumps([each.to_dict() for each in explained], ensure_ascii=False))
    elif html is None:
        _show(shown, explained, n_features)


def _input(estimator: LTLSClassifier, given: str) -> tuple[Any, str]:
    """Return a row as the estimator takes it, and the text that its n-grams are places of."""
    if takes_text(estimator):
        return [given], given
    if not isinstance(estimator, TableClassifier):
        return _row(estimator, given), ""
    columns = estimator.vectorizer_.columns
    names = ", ".join(columns.names)
    try:
        row = json.loads(given)
    except ValueError as error:
        raise ValueError(
            f"a row of this model must be a JSON object with {names}, got {given[:40]!r}: {error}"
        ) from None
    if not isinstance(row, dict):
        raise ValueError(
            f"a row of this model must be a JSON object with {names}, got {given[:40]!r}"
        )
    try:
        cells = columns.read(row)
    except ValueError as error:
        raise ValueError(f"{given[:40]!r}: {error}") from None
    return [row], columns.joined_text(cells)


def _row_of_file(estimator: LTLSClassifier, path: Path, number: int) -> tuple[Any, str]:
    """Return a row of a file, counted from 1, and the text that its n-grams are places of."""
    n_before = 0
    for X, _ in batches(Source(paths=[path]), estimator, labelled=False):
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if number > n_before + n_rows:
            n_before += n_rows
            continue
        one = X[number - 1 - n_before : number - n_before]
        if takes_text(estimator):
            return one, one[0]
        if isinstance(estimator, TableClassifier):
            columns = estimator.vectorizer_.columns
            return one, columns.joined_text(columns.read(one[0]))
        return one, ""
    raise ValueError(
        f"--row must be at most {n_before}, the number of rows of {path}, got {number}"
    )


def _row(estimator: LTLSClassifier, given: str) -> csr_array:
    """Return a row of features from pairs of a number or a name and a value."""
    names = {str(name): at for at, name in enumerate(getattr(estimator, "feature_names_in_", ()))}
    base = 0 if estimator.model_.zero_based is not False else 1
    x = np.zeros((1, estimator.n_features_in_))
    for pair in given.split():
        name, colon, value = pair.rpartition(":")
        try:
            at = names[name] if name in names else int(name) - base
            if not colon or at < 0:
                raise ValueError
            x[0, at] = float(value)
        except (ValueError, IndexError):
            raise ValueError(
                f"a row must be pairs such as 3:0.5 of the features {base} to "
                f"{estimator.n_features_in_ - 1 + base}, got {pair!r}"
            ) from None
    return csr_array(x)


def _label(estimator: LTLSClassifier, given: str) -> Any:
    """Return the label of a model that is written like this."""
    label = WrittenLabels(estimator.model_.labels).find(given)
    if label is None:
        raise ValueError(f"--label must be a label of the model, got {given!r}")
    return label


def _picture(estimator: LTLSClassifier, X: Any, explained: list[Explanation]) -> str | None:
    """Return the first trellis with the paths of the labels as SVG, if it can be drawn."""
    try:
        from ..plot.trellis import MAX_EDGES, path_picture
    except ImportError:
        return None
    if estimator.trellis_.n_edges > MAX_EDGES:
        return None
    paths = [part.path for each in explained for part in each.parts[:1] if part.path is not None]
    h = estimator.edge_scores(X)[0, : estimator.trellis_.n_edges]
    return path_picture(estimator.trellis_, list(dict.fromkeys(paths)), h)


def _show(text: str, explained: list[Explanation], n: int) -> None:
    console = Console(highlight=False)
    for each in explained:
        sure = "" if each.probability is None else f", probability {each.probability:.3f}"
        console.print(Text(printable(str(each.label)), "bold"), end="")
        console.print(f"  score {each.score:.4g}{sure}")
        if text:
            console.print(Text("  ") + coloured(text, each))
        for contribution in each.contributions[:n]:
            color = _FOR if contribution.value > 0 else _AGAINST
            line = f"  {contribution.value:+10.4f}  {printable(contribution.visible_name)}"
            console.print(Text(line, color))
        rest = each.contributions[n:]
        if rest:
            total = sum(one.value for one in rest)
            console.print(f"  {total:+10.4f}  {len(rest)} other features")
        console.print(f"  {each.intercept:+10.4f}  intercept")
        console.print(f"  {each.linear_score:+10.4f}  linear score\n")


def coloured(text: str, explanation: Explanation) -> Text:
    """Return a text whose words are coloured by what they add to the score."""
    words = explanation.words(text)
    largest = max((abs(value) for _, _, value in words), default=0.0)
    result = Text(printable(text))
    if result.plain != text:  # places are others
        return result
    for start, end, value in words:
        if abs(value) >= 0.1 * largest > 0:
            strength = "bold " if abs(value) >= 0.5 * largest else ""
            result.stylize(strength + (_FOR if value > 0 else _AGAINST), start, end)
    return result
