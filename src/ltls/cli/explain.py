"""``ltls explain``: which features count for and against the best labels of a row."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from rich.tree import Tree

from ..io.files import check_model_file
from . import options
from .labels import WrittenLabels
from .output import BAR, bar, check_output, printable, text_output, warn
from .source import Source

if TYPE_CHECKING:
    from ..estimators.classifier import LTLSClassifier
    from ..estimators.explain import Explanation, Part

_FOR, _AGAINST = "green", "red"
# The colours of the page of `ltls serve`: ink on paper; against is red, for is green.
_THEME = TerminalTheme(
    (255, 255, 255),
    (27, 31, 36),
    [(27, 31, 36), (216, 67, 21), (0, 137, 123), *[(87, 96, 106)] * 5],
)
_INK = "#1b1f24"
_DARK = {"#ffffff": "#14171a", _INK: "#e6e9ec", "#d84315": "#ff7043", "#00897b": "#26a69a"}
_DARK |= {"#b8b8b8": "#57606a"}  # pale edges of a picture


def explain(
    model: options.ModelFile,
    row: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help='A text; for a model of features, a row such as "3:0.5 17:1", numbered as in '
            "the training file or else from 0; for a model of tables, a JSON object. - reads "
            "standard input.",
        ),
    ],
    number: Annotated[
        int | None,
        options.option(
            "none", "Explain this row, counted from 1, of the file TEXT.", "--row", min=1
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of labels.")] = 5,
    label: Annotated[
        list[str] | None,
        options.option("the k best ones", "A label to explain; may be repeated."),
    ] = None,
    encoding: options.Encoding = None,
    n_features: Annotated[
        int, typer.Option("--features", min=1, help="Number of features to print per label.")
    ] = 10,
    html: Annotated[Path | None, options.option("none", "Write an HTML page.")] = None,
    as_json: Annotated[bool, options.flag("Print JSON, with all features.", "--json")] = False,
    verify: options.Verify = True,
) -> None:
    """Explain the best labels of a text or a row.

    Prints, for every label, the features for it (green) and against it (red) with their
    contributions to its linear score; character n-grams are summed by word. The scores of the parts
    of the model and the nearest training rows follow. --json prints a list of objects with label,
    score, probability, linear_score, intercept, contributions, parts and formula; contributions and
    intercept add up to linear_score.
    """
    check_model_file(model)
    if encoding is not None and number is None:
        raise ValueError("--encoding is that of a file: give --row, too")
    if html is not None:
        check_output(html, model)
    from ..estimators.load import load  # slow; not needed to reject wrong options

    estimator = load(model, verify=verify)
    if number is not None:
        X, given = _row_of_file(estimator, Path(row), number, encoding), f"{row}, row {number}"
    else:
        given = sys.stdin.read().rstrip("\n") if row == "-" else row
        if row != "-" and os.path.isfile(row):
            warn(f"{row} is explained as a text; --row N explains a row of the file")
        X = _read(estimator, given)
    text = _text_of(estimator, X)
    wanted = None if not label else [_label(estimator, each) for each in label]
    [explained] = estimator.explain(X, wanted, k)
    if html is not None:
        recorder = Console(record=True, file=io.StringIO(), width=120, highlight=False)
        show(recorder, text or given, explained, n_features)
        style, end, body = recorder.export_html(theme=_THEME).partition("</style>")
        style += f":root {{ color-scheme: light dark }}\nsvg {{ fill: {_INK} }}\n"
        picture = _picture(estimator, X, explained).replace("#000000", _INK)
        body = body.replace("</body>", f"{_themed(picture)}</body>")
        with text_output(html) as stream:
            stream.write(f"{_themed(style)}{end}{body}")
    if as_json:
        print(json.dumps([each.to_dict() for each in explained], ensure_ascii=False))
    elif html is None:
        show(Console(highlight=False), text, explained, n_features)


def _themed(written: str) -> str:
    """Return styles whose colours follow the theme of the system."""
    for light, dark in _DARK.items():
        written = written.replace(light, f"light-dark({light}, {dark})")
    return written


def _read(estimator: LTLSClassifier, given: str) -> Any:
    """Return a row as the estimator takes it: a text, a JSON object, or pairs of features."""
    front_end, n_features = estimator.model_.front_end, estimator.n_features_in_
    try:
        return front_end.read([given], n_features)
    except ValueError:
        pass  # not a text model
    try:
        item = json.loads(given)
    except (ValueError, RecursionError):
        item = _pairs(given, estimator)
    columns = front_end.columns
    if columns and isinstance(item, dict):  # a table row may have other columns
        item = {name: value for name, value in item.items() if name in columns.names}
    try:
        return front_end.read([item], n_features)
    except ValueError as error:
        raise ValueError(f"{given[:40]!r} is not a row for this model: {error}") from None


def _pairs(given: str, estimator: LTLSClassifier) -> dict[str, Any]:
    """Return features by name, or indices and values, from pairs such as 3:0.5."""
    names = estimator.model_.front_end.describe().get("feature_names") or ()
    base = 0 if estimator.fitted_.provenance.zero_based is not False else 1
    pairs = [pair.rpartition(":") for pair in given.split()]
    try:
        values = [float(value) for *_, value in pairs]
        if names and all(name in names for name, *_ in pairs):
            return {name: value for (name, *_), value in zip(pairs, values, strict=True)}
        indices = [range(estimator.n_features_in_)[int(name) - base] for name, *_ in pairs]
        if any(int(name) < base for name, *_ in pairs):
            raise ValueError
        return {"indices": indices, "values": values}
    except (ValueError, IndexError):
        last = estimator.n_features_in_ - 1 + base
        raise ValueError(
            f"a row must be a JSON object, or index:value pairs such as {last}:0.5 with indices "
            f"from {base} to {last}, got {given[:40]!r}"
        ) from None


def _row_of_file(estimator: LTLSClassifier, path: Path, number: int, encoding: str | None) -> Any:
    """Return a row of a file, counted from 1."""
    n_before = 0
    source = Source(paths=[path], encoding=encoding, model=estimator)
    for X, _ in source.batches(labelled=False):
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if number <= n_before + n_rows:
            return X[number - 1 - n_before : number - n_before]
        n_before += n_rows
    raise ValueError(
        f"--row must be at most {n_before}, the number of rows in {path}, got {number}"
    )


def _text_of(estimator: LTLSClassifier, X: Any) -> str:
    """Return the text of the only row, to mark features in it; empty if there is none."""
    if isinstance(X[0], str):
        return X[0]
    columns = estimator.model_.front_end.columns
    return "\n".join(X[0][name] or "" for name in columns.text) if columns else ""


def _label(estimator: LTLSClassifier, given: str) -> Any:
    """Return the label of the model that is written like this."""
    label = WrittenLabels(estimator.model_.labels).find(given)
    if label is None:
        raise ValueError(f"--label must be a label of the model, got {given!r}")
    return label


def _picture(estimator: LTLSClassifier, X: Any, explained: list[Explanation]) -> str:
    """Return the first trellis with the paths of the labels as SVG, empty if it is too large."""
    try:
        from ..plot.trellis import MAX_EDGES, path_picture
    except ImportError:
        return ""
    if estimator.trellis_.n_edges > MAX_EDGES:
        return ""
    paths = [_first_path(each.parts) for each in explained]
    h = estimator.edge_scores(X)[0, : estimator.trellis_.n_edges]
    known = [path for path in dict.fromkeys(paths) if path is not None]
    return path_picture(estimator.trellis_, known, h)


def _first_path(parts: list[Part]) -> int | None:
    found = (p.path if p.path is not None else _first_path(p.parts) for p in parts)
    return next((path for path in found if path is not None), None)


def show(console: Console, text: str, explained: list[Explanation], n: int) -> None:
    """Print explanations with their n largest contributions and bars in proportion to these."""
    from ..estimators.explain import other_features

    shown = []
    for each in explained:
        merged = each.by_word(text)
        shown.append([(one.visible_name, one.value) for one in merged[:n]])
        if rest := merged[n:]:
            shown[-1].append((other_features(len(rest)), sum(one.value for one in rest)))
    longest = max((abs(value) for own in shown for _, value in own), default=0.0) or 1.0
    for each, own in zip(explained, shown, strict=True):
        sure = "" if each.probability is None else f", probability {each.probability:.3f}"
        console.print(Text(printable(str(each.label)), "bold"), f" score {each.score:.4g}{sure}")
        if text:
            console.print(Text("  ") + _coloured(text, each))
        width = max((len(printable(name)) for name, _ in own), default=0)
        for name, value in own:
            # What speaks against a label is on the left, for who sees no colours.
            left, right = bar(-value / longest), bar(value / longest)
            line = f"  {value:+10.4f}  {printable(name):{width}}  {left:>{BAR}}│{right}"
            console.print(Text(line, _FOR if value > 0 else _AGAINST))
        for name in ("intercept", "linear_score"):  # of every row, and the sum
            console.print(f"  {getattr(each, name):+10.4f}  {name.replace('_', ' ')}")
        console.print(_tree(Tree("", hide_root=True), each.parts))


def _tree(tree: Tree, parts: list[Part]) -> Tree:
    """Return a tree of the scores of parts, of their own parts, and of neighbours."""
    for part in parts:
        branch = tree.add(Text(printable(f"{part.part}  {part.score:+.4f} = {part.formula}")))
        for row in part.rows:
            labels, shared = (", ".join(map(str, row[name])) for name in ("labels", "shared"))
            line = f"cosine {row['cosine']:.3f} with a row of {labels}: {shared}"
            branch.add(Text(printable(line)))
        _tree(branch, part.parts)
    return tree


def _coloured(text: str, explanation: Explanation) -> Text:
    """Return a text whose words are coloured by what they add to the score."""
    words = explanation.words(text)
    largest = max((abs(value) for _, _, value in words), default=0.0)
    result = Text(printable(text))
    if result.plain != text:  # positions have shifted
        return result
    for start, end, value in words:
        if abs(value) >= 0.1 * largest > 0:
            strength = "bold " if abs(value) >= 0.5 * largest else ""
            result.stylize(strength + (_FOR if value > 0 else _AGAINST), start, end)
    return result
