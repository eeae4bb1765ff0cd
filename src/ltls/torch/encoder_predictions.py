"""What `EncoderClassifier` predicts: the predictions of the estimators, from texts or vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Floats, as_integer
from ..estimators.explain import Explanation
from ..estimators.predict import Predictions
from ..model.model import Model
from .devices import as_device, enough_memory
from .encoding import Encoder
from .hybrid import Stages


@dataclass(frozen=True)
class PartScore:
    """The log-probability of a label in one stage of an `EncoderClassifier`.

    Parameters
    ----------
    part : {"head", "vectors", "text"}
        The stage.
    weight : float
        The weight of the stage in the score of the label.
    log_probability : float
    """

    part: str
    weight: float
    log_probability: float


@dataclass(frozen=True)
class EncoderExplanation:
    """Why a label has its score for a row.

    Parameters
    ----------
    label : object
    score : float
        As from `EncoderClassifier.predict_topk`: the sum of weight · log_probability over the
        parts.
    parts : list of PartScore
        One per stage. A label that `partial_fit` has added is unknown to the head, which is then
        left out.
    text : Explanation or None
        What every word adds to the score of the part "text"; None if there is no such part.
    """

    label: Any
    score: float
    parts: list[PartScore]
    text: Explanation | None


class EncoderPredictions(Predictions):
    """The predicting half of `EncoderClassifier`."""

    device: Any
    batch_size: int
    mixed_precision: str
    text: Any
    encoder_: Encoder

    @property
    def _stages(self) -> Stages:
        (stages,) = self._model().parts
        found: Stages = stages
        return found

    @property
    def weights_(self) -> dict[str, float]:
        """The weight of each stage: "head", "vectors" and "text"."""
        return self._stages.weights

    @property
    def head_(self) -> Any:
        """The `TrellisSoftmax`, or an adaptive one; None if ``fine_tune=False``."""
        return self._stages.trained("head")

    @property
    def vectors_(self) -> Any:
        """The classifier of vectors, an `LTLSClassifier` or None."""
        return self._stages.trained("vectors")

    @property
    def text_(self) -> Any:
        """The classifier of texts, a `TextClassifier` or None."""
        return self._stages.trained("text")

    def encode(self, X: Any) -> Floats:
        """Return the vectors of rows, shape (n_rows, n_features)."""
        self._model()
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        device = as_device(self.device)
        less = f"use a smaller batch_size than {self.batch_size}, or a smaller max_length"
        with enough_memory("encoding", device, less):
            out = np.empty((len(X), self.encoder_.size(X[0], device)), np.float32)
            self.encoder_.vectors(X, self.batch_size, device, out, self.mixed_precision)
        return out

    def _rows(self, X: Any) -> tuple[Any, Model]:
        model = self._model()
        (stages,) = model.parts
        X = as_rows(X, self.encoder_.tokenizer, self.text, training=False)
        only_texts = stages.by_name.keys() == {"text"}
        return stages.rows(X, np.zeros((len(X), 0)) if only_texts else self.encode(X)), model

    def predict(self, X: Any, output: str = "auto") -> Any:
        """Return the best label of every row.

        Parameters
        ----------
        X
            As in `fit`.
        output : {"auto", "lists"}, default="auto"
            "lists" returns a list of labels per row, best first.

        Returns
        -------
        array of shape (n_rows,), matrix of shape (n_rows, n_classes), or list of lists
            For several labels per row, those with a score of at least `threshold_`: as lists if
            `fit` was given lists, else as an indicator matrix.
        """
        if output == "auto" and self._model().target_format == "lists":
            output = "lists"
        return super().predict(X, output)

    def explain(self, X: Any, k: int = 5) -> list[list[EncoderExplanation]]:
        """Explain the k best labels of every row by their log-probabilities in each stage.

        Parameters
        ----------
        X
            As in `fit`.
        k : int, default=5

        Returns
        -------
        list of list of EncoderExplanation
            One list per row, with an explanation for each label, best first.
        """
        rows, model = self._rows(X)
        (stages,) = model.parts
        texts, of_text = list(X), stages.trained("text")
        ids, scores = model.topk(rows, as_integer("k", k, at_least=1), self.n_jobs)
        log_probas = stages.log_probas(rows, ids)
        weights = stages.known_weights(log_probas)
        found = []
        for row, own in enumerate(ids.tolist()):
            words: dict[Any, Explanation] = {}
            if known := [each for each in own if of_text and each in of_text.model_.labels]:
                explained = of_text.explain([texts[row]], labels=known)[0]
                words = {each.label: each for each in explained}
            found.append(
                [
                    EncoderExplanation(
                        model.labels.values[each],
                        float(scores[row, at]),
                        [
                            PartScore(
                                name, float(weight[row, at]), float(log_probas[name][row, at])
                            )
                            for name, weight in weights.items()
                            if weight[row, at]
                        ],
                        words.get(each),
                    )
                    for at, each in enumerate(own)
                ]
            )
        return found


def as_rows(X: Any, tokenizer: Any, text: Any, training: bool = True) -> Any:
    """Return texts as a list, or rows as they are; empty texts can only be predicted."""
    if isinstance(X, str) or not hasattr(X, "__len__"):
        kind = "texts" if tokenizer is not None or text else "rows"
        raise TypeError(f"X must be a list or array of {kind}, got {type(X).__name__}: pass [x]")
    if not len(X):
        raise ValueError("X must have at least one row, got none")
    if tokenizer is None and not text:
        return X
    texts = list(X)
    for number, each in enumerate(texts):
        if not isinstance(each, str):
            hint = "" if tokenizer is not None else "; other rows need text=False"
            raise TypeError(f"X must be texts, got {type(each).__name__} as X[{number}]{hint}")
        if training and not each.strip():
            raise ValueError(f"X must be texts to learn from, got an empty one as X[{number}]")
    return texts
