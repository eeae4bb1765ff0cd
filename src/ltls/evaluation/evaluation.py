"""The evaluation of a model on labelled rows: metrics, confusions, calibration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Bools, Doubles, Ints
from ..model.model import Model, Provenance
from . import metrics

_GROUPS = ("head", "middle", "tail", "unseen")
_BINS = 10  # of probabilities


@dataclass
class Evaluation:
    """The true labels of rows and the predictions of a model.

    Parameters
    ----------
    labels : list
        All labels in the order of their ids: first those of the model, then unknown ones.
    n_known : int
        Number of labels of the model.
    truth : csr_matrix of shape (n_rows, n_labels)
        1 where a row has a label.
    topk : array of int of shape (n_rows, k)
        The ids of the predicted labels, best first, −1 for none.
    confidence : array of shape (n_rows,), or None
        The predicted probability of the first label.
    frequency : array of int of shape (n_labels,)
        Number of training rows of each label.
    n_trained : int
        The number of training rows.
    texts : list of str, or None
        The text of every row, which `mistakes` returns.
    """

    labels: list[Hashable]
    n_known: int
    truth: sp.csr_matrix
    topk: Ints
    confidence: Doubles | None
    frequency: Ints
    n_trained: int
    texts: list[str] | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        provenance: Provenance,
        true_labels: Sequence[Sequence[Hashable]],
        topk: Sequence[Sequence[Hashable]],
        confidence: Sequence[float] | None = None,
    ) -> Evaluation:
        """Return the evaluation of a model's predictions.

        Parameters
        ----------
        model : Model
            The model; `model_` of an estimator.
        provenance : Provenance
            Its training data; `fitted_.provenance` of an estimator.
        true_labels : list of lists
            The true labels of every row.
        topk : list of lists
            The predicted labels of every row, best first.
        confidence : list of float, optional
            The predicted probability of the first label of every row.

        Examples
        --------
        >>> import numpy as np
        >>> from ltls import LTLSClassifier
        >>> from ltls.evaluation.evaluation import Evaluation
        >>> X = np.eye(2, dtype=np.float32)
        >>> estimator = LTLSClassifier(random_state=0).fit(X, ["a", "b"])
        >>> trained_on = estimator.fitted_.provenance
        >>> truth, topk = [["a"], ["c"]], estimator.predict_topk(X, 1)[0].tolist()
        >>> Evaluation.of(estimator.model_, trained_on, truth, topk).at(1)["precision"]
        0.5
        """
        labels = list(
            dict.fromkeys([*model.labels.values, *(x for row in true_labels for x in row)])
        )
        ids = {label: number for number, label in enumerate(labels)}
        indptr = np.cumsum([0, *map(len, true_labels)])
        columns = np.array([ids[label] for row in true_labels for label in row], np.int64)
        ones = np.ones(len(columns), np.float32)
        truth = sp.csr_matrix((ones, columns, indptr), shape=(len(true_labels), len(labels)))
        truth.sum_duplicates()
        predicted = np.full((len(topk), max(map(len, topk))), -1, np.int64)
        for ids_of_row, row in zip(predicted, topk, strict=True):
            ids_of_row[: len(row)] = [ids[label] for label in row]
        n_known = len(model.labels)
        return cls(
            labels,
            n_known,
            truth,
            predicted,
            None if confidence is None else np.asarray(confidence, np.float64),
            np.pad(provenance.counts, (0, len(labels) - n_known)),
            provenance.n_rows,
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.truth.shape[0])

    def at(self, k: int) -> dict[str, float]:
        """Return the metrics of `metrics.AT_K` at cutoff k, by name."""
        found = self.topk[:, :k]
        topk = np.pad(found, ((0, 0), (0, k - found.shape[1])), constant_values=-1)
        propensity = metrics.propensities_of(self.frequency, self.n_trained)
        return {
            name: metric(self.truth, topk, k, propensity)
            for name, (_, metric) in metrics.AT_K.items()
        }

    def found(self, k: int) -> tuple[Ints, Bools]:
        """Return the true labels of all rows, and whether each is among the first k predictions."""
        rows = np.repeat(np.arange(self.n_rows), np.diff(self.truth.indptr))
        labels = self.truth.indices.astype(np.int64)
        return labels, (self.topk[rows, :k] == labels[:, None]).any(axis=1)

    def by_frequency(self, cutoffs: Sequence[int]) -> list[dict[str, Any]]:
        """Return the recall of frequent and of rare labels.

        Head, middle and tail labels each have a third of the label occurrences of the training set;
        unseen labels, which do not occur in it, are a fourth group.
        """
        order = np.argsort(-self.frequency, kind="stable")
        before = np.cumsum(self.frequency[order]) - self.frequency[order]
        group = np.empty(len(order), np.int64)
        group[order] = np.minimum(3 * before // max(int(self.frequency.sum()), 1), 2)
        group[self.n_known :] = 3
        hits = {str(k): self.found(k)[1] for k in cutoffs}
        groups = []
        for number, name in enumerate(_GROUPS):
            members = np.flatnonzero(group == number)
            if not len(members):
                continue
            inside = group[self.truth.indices] == number
            groups.append(
                {
                    "group": name,
                    "labels": len(members),
                    "least_frequency": int(self.frequency[members].min()),
                    "most_frequency": int(self.frequency[members].max()),
                    "occurrences": int(inside.sum()),
                    "found": {
                        k: float(found[inside].mean()) if inside.any() else None
                        for k, found in hits.items()
                    },
                }
            )
        return groups

    def first_is_right(self) -> Bools:
        """Return, for every row, whether its first prediction is one of its labels."""
        best = np.maximum(self.topk[:, 0], 0)
        right = np.asarray(self.truth[np.arange(self.n_rows), best]).ravel() > 0
        return right & (self.topk[:, 0] >= 0)

    def confusions(self, n: int) -> list[tuple[Hashable, Hashable, int]]:
        """Return the n most frequent pairs (true label, wrong first prediction), with counts.

        A row whose first prediction is wrong counts once for each of its labels.
        """
        pairs: Counter[tuple[int, int]] = Counter()
        for row in np.flatnonzero(~self.first_is_right() & (self.topk[:, 0] >= 0)):
            start, end = self.truth.indptr[row : row + 2]
            said = int(self.topk[row, 0])
            pairs.update((int(label), said) for label in self.truth.indices[start:end])
        return [
            (self.labels[true], self.labels[said], count)
            for (true, said), count in pairs.most_common(n)
        ]

    def by_label(self) -> list[dict[str, Any]]:
        """Return precision, recall and F1 of the first predictions, by label.

        Labels that neither occur nor are predicted are left out. Frequent labels come first.
        """
        n_labels, first = len(self.labels), self.topk[:, 0]
        actual = np.bincount(self.truth.indices, minlength=n_labels)
        predicted = np.bincount(first[first >= 0], minlength=n_labels)
        right = np.bincount(first[self.first_is_right()], minlength=n_labels)
        shown = np.flatnonzero(actual + predicted)
        return [
            {
                "label": self.labels[i],
                "precision": float(right[i] / predicted[i]) if predicted[i] else None,
                "recall": float(right[i] / actual[i]) if actual[i] else None,
                "f1": float(2 * right[i] / (actual[i] + predicted[i])),
                "rows": int(actual[i]),
                "predicted": int(predicted[i]),
            }
            for i in shown[np.argsort(-actual[shown], kind="stable")]
        ]

    def mistakes(self, n: int) -> list[dict[str, Any]]:
        """Return n rows whose first prediction is wrong, highest probability first.

        Without probabilities, return the first such rows.
        """
        wrong = np.flatnonzero(~self.first_is_right() & (self.topk[:, 0] >= 0))
        if self.confidence is not None:
            wrong = wrong[np.argsort(-self.confidence[wrong], kind="stable")]
        return [
            {
                "row": int(row) + 1,
                "text": "" if self.texts is None else self.texts[row],
                "labels": [self.labels[i] for i in self.truth[row].indices],
                "predicted": self.labels[self.topk[row, 0]],
                "probability": None if self.confidence is None else float(self.confidence[row]),
            }
            for row in wrong[:n]
        ]

    def calibration(self) -> list[tuple[float, float, int]]:
        """Return the mean probability, accuracy and number of rows of every bin of probability."""
        if self.confidence is None:
            return []
        right = self.first_is_right()
        bins = np.minimum((self.confidence * _BINS).astype(int), _BINS - 1)
        return [
            (float(self.confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
            for inside in (bins == number for number in range(_BINS))
            if inside.any()
        ]

    def calibration_error(self) -> float | None:
        """Return the expected calibration error, None without probabilities."""
        if self.confidence is None:
            return None
        return metrics.calibration_error(self.first_is_right(), self.confidence, _BINS)


def tables(
    measured: list[dict[str, Any]], groups: list[dict[str, Any]], facts: dict[str, Any]
) -> list[list[list[str]]]:
    """Return the tables of an evaluation; the first two have a header.

    Parameters
    ----------
    measured : list of dict
        `Evaluation.at` for several cutoffs, each with its "k".
    groups : list of dict
        `Evaluation.by_frequency`.
    facts : dict
        Names and values.
    """
    cutoffs = list(groups[0]["found"])
    of_metrics = [["k", *(title for title, _ in metrics.AT_K.values())]]
    of_metrics += [
        [str(row["k"]), *(_number(row[name]) for name in metrics.AT_K)] for row in measured
    ]
    of_groups = [["labels", "count", "in training", "in file", *(f"R@{k}" for k in cutoffs)]]
    of_groups += [
        [
            group["group"],
            f"{group['labels']:,}",
            f"{group['least_frequency']:,}–{group['most_frequency']:,}",
            f"{group['occurrences']:,}",
            *(_number(group["found"][k]) for k in cutoffs),
        ]
        for group in groups
    ]
    of_facts = [
        [name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)]
        for name, value in facts.items()
    ]
    return [of_metrics, of_groups, of_facts]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
