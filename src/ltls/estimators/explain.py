"""Explanations with labels, names of features, and positions of features in texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from ..core.arrays import as_integer, check_unmasked
from ..features.blocks import dense_name
from ..features.ngrams import Span
from ..features.rows import check_features
from ..model.explanation import explain_label, explain_row
from ..model.model import Model
from ..parts.base import Edge, PartExplanation

_SHOWN = 10  # contributions of an explanation that is printed


def other_features(number: int) -> str:
    """Return the line for the features that are not shown, such as "3 other features"."""
    return f"{number} other feature{'s' if number > 1 else ''}"


@dataclass(frozen=True)
class Contribution:
    """What a feature adds to the linear score of a label.

    Parameters
    ----------
    feature : str
        The name of the feature; x0, x1 and so on for features without names.
    value : float
        What the feature adds.
    spans : tuple of (int, int)
        The (start, end) positions of the feature in the text; empty if it is not from a text.
    """

    feature: str
    value: float
    spans: tuple[Span, ...] = ()

    @property
    def visible_name(self) -> str:
        """The name of the feature; spaces in character n-grams are shown as ␣."""
        return self.feature.replace(" ", "␣") if self.feature.startswith("chars:") else self.feature

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        known: dict[str, Any] = {"feature": self.feature, "value": self.value}
        return known | ({"spans": self.spans} if self.spans else {})


@dataclass(frozen=True)
class Part:
    """The score of a label in one part of a model.

    Parameters
    ----------
    part : str
        The name of the part.
    score : float
        The score of the label in the part, times the weight of the part.
    linear_score : float
        The sum of `contributions` and `intercept`.
    intercept : float
    contributions : list of Contribution
        Non-zero contributions, largest first.
    formula : str
        How `score` follows from `linear_score` and the numbers in `terms`.
    terms : dict of str to float
        The numbers of the formula by name.
    path : int or None
        For a trellis: the path of the label.
    edges : list of Edge
        The edges of that path.
    parts : list of Part
        For a part that consists of others, such as views: these.
    rows : list of dict
        For neighbours: the training rows that support the label, as dicts of `row` (its number
        among those that are stored), `labels`, `cosine` and `shared` (names of features).
    """

    part: str
    score: float
    linear_score: float
    intercept: float
    contributions: list[Contribution]
    formula: str
    terms: dict[str, float] = field(default_factory=dict)
    path: int | None = None
    edges: list[Edge] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        names = ("part", "score", "linear_score", "intercept", "formula", "terms")
        known = {name: getattr(self, name) for name in names}
        known["contributions"] = [each.to_dict() for each in self.contributions]
        if self.path is not None:
            known |= {"path": self.path, "edges": [dict(vars(edge)) for edge in self.edges]}
        if self.parts:
            known["parts"] = [part.to_dict() for part in self.parts]
        return known | ({"rows": self.rows} if self.rows else {})


@dataclass(frozen=True)
class Explanation:
    """Why a label has its score for a row.

    Parameters
    ----------
    label : object
    score : float
        The score of the label, as from `LTLSClassifier.predict_topk`.
    probability : float or None
        None if the loss has no probabilities.
    linear_score : float
        The sum of `contributions` and `intercept`, over all parts.
    intercept : float
    contributions : list of Contribution
        Non-zero contributions, largest first.
    parts : list of Part
        One for every part of the model.
    formula : str
        How `score` follows from the scores of the parts.
    """

    label: Any
    score: float
    probability: float | None
    linear_score: float
    intercept: float
    contributions: list[Contribution]
    parts: list[Part]
    formula: str

    def __str__(self) -> str:
        """Return label, probability, score and the largest contributions; `repr` has all."""
        sure = "" if self.probability is None else f"probability {self.probability:.3f}, "
        shown = self.contributions[:_SHOWN]
        lines = [f"{self.label}: {sure}score {self.score:.4g}"]
        lines += [f"  {each.value:+10.4f}  {each.visible_name}" for each in shown]
        if more := self.contributions[_SHOWN:]:
            value = sum(each.value for each in more)
            lines.append(f"  {value:+10.4f}  {other_features(len(more))}")
        return "\n".join(lines)

    def words(self, text: str) -> list[tuple[int, int, float]]:
        """Return (start, end, value) for every word: its position and what it adds to the score.

        Values are contributions to the linear score; that of an n-gram is divided evenly among the
        characters of its spans. `text` must be the text that was explained.
        """
        values = np.zeros(len(text))
        for each in self.contributions:
            length = sum(end - start for start, end in each.spans)
            for start, end in each.spans:
                values[start:end] += each.value / length
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return [(start, end, float(values[start:end].sum())) for start, end in spans]

    def by_word(self, text: str) -> list[Contribution]:
        """Return the contributions, with those of character n-grams added to their word.

        A word that is no feature itself has the name "letters of" the word. The contribution of an
        n-gram that occurs in several words is divided evenly among them.
        """
        words = {match.span(): match[0].lower() for match in re.finditer(r"\w+", text)}
        names: dict[str, str] = {}
        sums: dict[str, tuple[float, set[Span]]] = {}
        others = []

        def add(word: str, value: float, spans: Iterable[Span]) -> None:
            before, places = sums.get(word, (0.0, set()))
            sums[word] = before + value, {*places, *spans}

        for each in self.contributions:
            own = {words.get(span) for span in each.spans}
            word = own.pop() if len(own) == 1 else None
            if words and each.spans and each.feature.startswith("chars:"):
                for start, end in each.spans:
                    middle = (start + end) / 2
                    place = min(words, key=lambda span: max(span[0] - middle, middle - span[1]))
                    add(words[place], each.value / len(each.spans), [place])
            elif word is not None and names.setdefault(word, each.feature) == each.feature:
                add(word, each.value, each.spans)
            else:
                others.append(each)
        merged = [
            Contribution(names.get(word, f"letters of {word}"), value, tuple(sorted(places)))
            for word, (value, places) in sums.items()
        ]
        return sorted([*others, *merged], key=lambda each: -abs(each.value))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict.

        Labels that JSON cannot represent become strings.
        """
        label = self.label if isinstance(self.label, (str, int, float)) else str(self.label)
        contributions = [each.to_dict() for each in self.contributions]
        parts = [part.to_dict() for part in self.parts]
        return {**vars(self), "label": label, "contributions": contributions, "parts": parts}


class ExplainMixin:
    """The explanation methods of `LTLSClassifier`."""

    n_jobs: int | None
    _model: Callable[[], Model]

    def explain(
        self, X: Any, labels: Sequence[Any] | None = None, k: int = 5
    ) -> list[list[Explanation]]:
        """Explain the scores of labels by the exact contribution of every feature.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            Or texts, or rows of a table; see `fit`.
        labels : sequence of labels, optional
            Labels to explain for every row. By default, the k best labels of each row.
        k : int, default=5
            Number of labels to explain per row, if `labels` is not given.

        Returns
        -------
        list of list of Explanation
            One list per row, with an explanation for each label, best first.

        Examples
        --------
        >>> from ltls import TextClassifier
        >>> from ltls.settings import Text
        >>> texts = ["the card is lost", "lost my card", "what is the fee", "a fee was charged"]
        >>> model = TextClassifier(features=Text(char_ngram_range=None), random_state=0)
        >>> model = model.fit(texts, ["card", "card", "fee", "fee"])
        >>> [[best]] = model.explain(["my lost card"], k=1)
        >>> best.label
        'card'
        >>> sorted(each.feature for each in best.contributions if each.value > 0)[:2]
        ['card', 'lost']
        """
        model, k = self._model(), as_integer("k", k, at_least=1)
        ids = None if labels is None else _ids_of(model, labels)
        features = check_features(self, model.front_end.matrix(X, self.n_jobs), reset=False)
        found = []
        for number, names in enumerate(model.front_end.places(X)):
            row = model.columns.rows(features[[number]])
            wanted = ids
            if wanted is None:
                wanted = model.topk(row, min(k, len(model.labels)), self.n_jobs)[0][0]
            proba = [None] * len(wanted)
            if model.probabilistic:
                proba = model.proba_of(row, wanted[None, :], self.n_jobs)[0].tolist()
            every = zip(explain_row(model, row, wanted, self.n_jobs), wanted, proba, strict=True)
            explained = [_named(model, *each, names) for each in every]
            if ids is not None:
                explained.sort(key=lambda each: -each.score)
            found.append(explained)
        return found

    def global_explanation(self, label: Any, k: int = 20) -> Explanation:
        """Return the features with the largest weights for a label, over all its paths.

        Parameters
        ----------
        label : object
            One of `classes_`.
        k : int, default=20
            Number of features to return, by magnitude of their weights.

        Returns
        -------
        Explanation
            Contributions are those of features of value 1. `score` is that of a row without
            features; `probability` is None.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = LTLSClassifier(random_state=0).fit(X, ["ant", "bee", "cat", "dog"])
        >>> model.global_explanation("cat", k=1).contributions[0].feature
        'x2'
        """
        model, k = self._model(), as_integer("k", k, at_least=1)
        [at] = _ids_of(model, [label], "label")
        return _named(model, explain_label(model, at), at, None, model.front_end.feature_names(), k)


def _ids_of(model: Model, labels: Sequence[Any], name: str = "labels") -> Any:
    if isinstance(labels, (str, bytes)):
        raise ValueError(f"labels must be a list of labels, got {labels!r}: use [{labels!r}]")
    check_unmasked("labels", labels)
    ids = []
    for label in labels:
        is_number = isinstance(label, np.generic) and label.dtype.kind not in "mM"
        plain = label.item() if is_number else label  # dates are labels as NumPy's own scalars
        if plain not in model.labels:
            raise ValueError(f"{name} must be in classes_, got {plain!r}")
        ids.append(model.labels.id(plain))
    if not ids:
        raise ValueError("labels must have at least one label, got none")
    return np.array(ids, np.int64)


def _named(
    model: Model,
    explained: PartExplanation,
    label: Any,
    probability: float | None,
    names: Any,
    k: int | None = None,
) -> Explanation:
    """Return an explanation with the names of labels and features."""

    def named(columns: Any) -> list[tuple[str, Any]]:
        features = model.columns.features_of(columns).tolist()
        return [name(at) if at >= 0 else ("unknown features", ()) for at in features]

    def name(feature: int) -> tuple[str, Any]:
        number = feature - (model.columns.n_features - model.columns.n_beside)
        if number >= 0 and feature not in names and model.columns.n_beside:
            return dense_name(number), ()
        found: tuple[str, Any] = names[feature]
        return found

    def contributions(columns: Any, values: Any) -> list[Contribution]:
        order = np.argsort(-np.abs(values), kind="stable")
        order = order[values[order] != 0][:k]
        pairs = zip(named(columns[order]), values[order].tolist(), strict=True)
        return [Contribution(name, value, tuple(spans)) for (name, spans), value in pairs]

    def shared(row: dict[str, Any]) -> dict[str, Any]:
        """Name the labels of a stored row, and the features that it shares with the row."""
        return {
            "row": row["row"],
            "labels": [model.labels.values[each] for each in row["labels"]],
            "cosine": row["cosine"],
            "shared": [name for name, _ in named(np.array(row["shared"], np.int64))],
        }

    def made(kind: Any, each: PartExplanation, **others: Any) -> Any:
        others["contributions"] = contributions(each.features, each.contributions)
        others["parts"] = [
            made(Part, own, part=own.name, rows=list(map(shared, own.rows))) for own in each.parts
        ]
        names = [own.name for own in fields(kind) if own.name not in others]
        return kind(**others, **{name: getattr(each, name) for name in names})

    label = model.labels.values[label]
    found: Explanation = made(Explanation, explained, label=label, probability=probability)
    return found
