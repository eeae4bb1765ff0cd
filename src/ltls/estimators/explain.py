"""Explanations in the user's words: labels, and names of features with their places in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..core.arrays import as_integer, check_unmasked
from ..features.blocks import dense_name
from ..features.rows import check_features
from ..model.explanation import LabelExplanation, explain_label, explain_row
from ..model.model import Model
from ..parts.base import Edge, PartExplanation

Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Contribution:
    """What a feature adds to the linear score of a label.

    `spans` are the places in the text, (start, end), that a feature of a text was found at.
    """

    feature: str
    value: float
    spans: tuple[Span, ...] = ()

    @property
    def visible_name(self) -> str:
        """The name of the feature, with the spaces of n-grams of characters made visible."""
        return self.feature.replace(" ", "␣") if self.feature.startswith("chars:") else self.feature

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        known: dict[str, Any] = {"feature": self.feature, "value": self.value}
        return known | ({"spans": self.spans} if self.spans else {})


@dataclass(frozen=True)
class Part:
    """What one part of a model says.

    `contributions` and `intercept` add up to `linear_score`, and `formula` gives `score` from it
    and from the numbers in `terms`. A trellis has the label's `path` and its `edges`; a part that
    is made of others has `parts`; neighbours have `rows`, the training rows for the label.
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
        """Return it as JSON has it."""
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
        Those that are not 0, the largest first.
    parts : list of Part
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

    def words(self, text: str) -> list[tuple[int, int, float]]:
        """Return the words of a text and what each adds to the linear score: (start, end, value).

        The contribution of an n-gram is shared out evenly among the characters of its spans.
        """
        values = np.zeros(len(text))
        for each in self.contributions:
            length = sum(end - start for start, end in each.spans)
            for start, end in each.spans:
                values[start:end] += each.value / length
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return [(start, end, float(values[start:end].sum())) for start, end in spans]

    def by_word(self, text: str) -> list[Contribution]:
        """Return the contributions, with those of character n-grams summed up by word of a text.

        They are called "letters of" the word. The value of an n-gram that occurs in several words
        is shared out evenly.
        """
        words = {match.span(): match[0] for match in re.finditer(r"\S+", text)}
        letters: dict[str, tuple[float, set[Span]]] = {}
        others = []
        for each in self.contributions:
            if not (words and each.spans and each.feature.startswith("chars:")):
                others.append(each)
                continue
            for start, end in each.spans:
                middle = (start + end) / 2
                place = min(words, key=lambda span: max(span[0] - middle, middle - span[1]))
                value, places = letters.get(words[place], (0.0, set()))
                value += each.value / len(each.spans)
                letters[words[place]] = value, {*places, place}
        merged = [
            Contribution(f"letters of {word}", value, tuple(sorted(places)))
            for word, (value, places) in letters.items()
        ]
        return sorted([*others, *merged], key=lambda each: -abs(each.value))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it.

        Labels that JSON has no type for become strings.
        """
        label = self.label if isinstance(self.label, (str, int, float)) else str(self.label)
        return {
            "label": label,
            "score": self.score,
            "probability": self.probability,
            "linear_score": self.linear_score,
            "intercept": self.intercept,
            "contributions": [each.to_dict() for each in self.contributions],
            "parts": [part.to_dict() for part in self.parts],
            "formula": self.formula,
        }


class ExplainMixin:
    """The explaining half of `LTLSClassifier`."""

    n_jobs: int | None
    _model: Callable[[], Model]

    def explain(
        self, X: Any, labels: Sequence[Any] | None = None, k: int = 5
    ) -> list[list[Explanation]]:
        """Explain which features speak for and against labels, exactly.

        Parameters
        ----------
        X : array or CSR matrix of shape (n_rows, n_features)
            For a `TextClassifier`, texts.
        labels : sequence of labels, optional
            The labels to explain, for every row; by default its k best ones.
        k : int, default=5

        Returns
        -------
        list of list of Explanation
            One list per row, with an explanation for each label, best first. It takes time
            proportional to the features of a row times log C, for every label.

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
            explained = explain_row(model, row, wanted, self.n_jobs)
            if ids is not None:
                explained.sort(key=lambda each: -each.score)
            found.append([_named(model, each, names) for each in explained])
        return found

    def global_explanation(self, label: Any, k: int = 20) -> Explanation:
        """Return the features that count most for a label, over all its paths.

        Parameters
        ----------
        label : label of `classes_`
        k : int, default=20
            How many features to return: those with the largest weights, positive or negative.

        Returns
        -------
        Explanation
            The value of a feature is what a feature of value 1 adds to the linear score. `score`
            is that of a row without features; it has no probability.

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
        explained = explain_label(model, int(_ids_of(model, [label], "label")[0]))
        return _named(model, explained, model.front_end.feature_names(), k)


def _ids_of(model: Model, labels: Sequence[Any], name: str = "labels") -> Any:
    if isinstance(labels, (str, bytes)):
        raise ValueError(f"labels must be a list of labels, got {labels!r}: use [{labels!r}]")
    check_unmasked("labels", labels)
    ids = []
    for label in labels:
        is_number = isinstance(label, np.generic) and label.dtype.kind not in "mM"
        plain = label.item() if is_number else label  # dates are labels as NumPy's own scalars
        if plain not in model.labels:
            raise ValueError(f"{name} must be of classes_, got {plain!r}")
        ids.append(model.labels.id(plain))
    if not ids:
        raise ValueError("labels must have at least one label, got none")
    return np.array(ids, np.int64)


def _named(model: Model, found: LabelExplanation, names: Any, k: int | None = None) -> Explanation:
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
        """Name the features that a training row has in common, and its labels."""
        memory = model.memory
        assert memory is not None
        own = memory.labels[memory.label_ptr[row["row"]] : memory.label_ptr[row["row"] + 1]]
        return {
            "labels": [model.labels.values[each] for each in own.tolist()],
            "cosine": row["cosine"],
            "shared": [name for name, _ in named(np.array(row["shared"], np.int64))],
        }

    def part(each: PartExplanation) -> Part:
        return Part(
            each.name,
            each.score,
            each.linear_score,
            each.intercept,
            contributions(each.features, each.contributions),
            each.formula,
            each.terms,
            each.path,
            each.edges,
            [part(own) for own in each.parts],
            [shared(row) for row in each.rows],
        )

    return Explanation(
        model.labels.values[found.label],
        found.score,
        found.probability,
        found.linear_score,
        found.intercept,
        contributions(found.features, found.contributions),
        [part(each) for each in found.parts],
        found.formula,
    )
