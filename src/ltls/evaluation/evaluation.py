"""The evaluation of a model on labelled rows: metrics, confusions, calibration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..model.fitted import FittedModel
from . import metrics

# What `Evaluation.at` returns, in the words of a table.
METRIC_NAMES = {
    "precision": "P@k",
    "recall": "R@k",
    "ndcg": "nDCG@k",
    "psp": "PSP@k",
    "macro_f1": "macro-F1@k",
    "coverage": "coverage@k",
}

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

_GROUPS = ("head", "middle", "tail")


@dataclass
class Evaluation:
    """The true labels of rows and the predictions of a model.

    Parameters
    ----------
    labels : list
        All labels in the order of their ids: those of the model, then those it has never seen.
    n_known : int
        How many of them the model knows.
    truth : csr_matrix of shape (n_rows, n_labels)
        1 where a row has a label.
    topk : array of int of shape (n_rows, k)
        The ids of the predicted labels, best first, −1 for none.
    confidence : array of shape (n_rows,), or None
        The predicted probability of the first label.
    counts : array of int of shape (n_known,), or None
        How many training rows had each label.
    n_trained : int
        The number of training rows.
    """

    labels: list[Hashable]
    n_known: int
    truth: sp.csr_matrix
    topk: Ints
    confidence: Floats | None
    counts: Ints | None
    n_trained: int

    @classmethod
    def of(
        cls,
        model: FittedModel,
        true_labels: Sequence[Sequence[Hashable]],
        topk: Sequence[Sequence[Hashable]],
        confidence: Sequence[float] | None = None,
    ) -> Evaluation:
        """Return the evaluation of a model's predictions.

        Parameters
        ----------
        model : FittedModel
            The model; `model_` of an estimator.
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
        >>> estimator = LTLSClassifier(epochs=20, random_state=0).fit(X, ["a", "b"])
        >>> labels, _ = estimator.predict_topk(X, 1)
        >>> evaluation = Evaluation.of(estimator.model_, [["a"], ["c"]], labels.tolist())
        >>> evaluation.at(1)["precision"]
        0.5
        """
        labels = list(model.labels.values)
        ids = {label: number for number, label in enumerate(labels)}
        for row in true_labels:
            for label in row:
                if label not in ids:
                    ids[label] = len(labels)
                    labels.append(label)
        indptr = np.cumsum([0, *map(len, true_labels)])
        columns = np.array([ids[label] for row in true_labels for label in row], np.int64)
        ones = np.ones(len(columns), np.float32)
        truth = sp.csr_matrix((ones, columns, indptr), shape=(len(true_labels), len(labels)))
        truth.sum_duplicates()
        predicted = np.full((len(topk), max(map(len, topk))), -1, np.int64)
        for ids_of_row, row in zip(predicted, topk, strict=True):
            ids_of_row[: len(row)] = [ids[label] for label in row]
        return cls(
            labels,
            len(model.labels),
            truth,
            predicted,
            None if confidence is None else np.asarray(confidence, np.float64),
            model.counts,
            model.n_rows,
        )

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.truth.shape[0])

    @property
    def frequency(self) -> Ints:
        """The training frequency of each label; its frequency in these rows if that is unknown."""
        counts = self.counts
        if counts is None:
            counts = np.bincount(self.truth.indices, minlength=len(self.labels))
        return np.pad(counts, (0, len(self.labels) - len(counts)))

    def at(self, k: int) -> dict[str, float | None]:
        """Return precision, recall, nDCG, propensity-scored precision, macro-F1 and coverage at k.

        Propensity-scored precision is None if the training frequencies of labels are unknown.
        """
        found = self.topk[:, : min(k, self.topk.shape[1])]
        topk = np.pad(found, ((0, 0), (0, k - found.shape[1])), constant_values=-1)
        psp = None
        if self.counts is not None:
            propensity = metrics.propensities_of(self.frequency, self.n_trained)
            psp = metrics.psp_at_k(self.truth, topk, propensity, k)
        return {
            "precision": metrics.precision_at_k(self.truth, topk, k),
            "recall": metrics.recall_at_k(self.truth, topk, k),
            "ndcg": metrics.ndcg_at_k(self.truth, topk, k),
            "psp": psp,
            "macro_f1": metrics.macro_f1_at_k(self.truth, topk, k),
            "coverage": metrics.coverage_at_k(self.truth, topk, k),
        }

    def found(self, k: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return the true labels of all rows, and whether each is among the first k predictions."""
        rows = np.repeat(np.arange(self.n_rows), np.diff(self.truth.indptr))
        labels = self.truth.indices.astype(np.int64)
        return labels, (self.topk[rows, :k] == labels[:, None]).any(axis=1)

    def by_frequency(self, cutoffs: Sequence[int]) -> list[dict[str, Any]]:
        """Return the recall of frequent and of rare labels.

        Head, middle and tail labels each have a third of the label occurrences of the training
        set; labels that were not in it, if there are any, are a group of their own.
        """
        order = np.argsort(-self.frequency, kind="stable")
        before = np.cumsum(self.frequency[order]) - self.frequency[order]
        group = np.empty(len(order), np.int64)
        group[order] = np.minimum(3 * before // max(int(self.frequency.sum()), 1), 2)
        group[self.n_known :] = 3
        hits = {k: self.found(k) for k in cutoffs}
        report = []
        for number, name in enumerate([*_GROUPS, "unseen"]):
            members = np.flatnonzero(group == number)
            if not len(members):
                continue
            inside = {k: group[labels] == number for k, (labels, _) in hits.items()}
            counts = self.frequency[members]
            report.append(
                {
                    "group": name,
                    "labels": len(members),
                    "least_frequency": int(counts.min()),
                    "most_frequency": int(counts.max()),
                    "occurrences": int(inside[cutoffs[0]].sum()),
                    "found": {
                        str(k): float(found[inside[k]].mean()) if inside[k].any() else None
                        for k, (_, found) in hits.items()
                    },
                }
            )
        return report

    def confusions(self, n: int) -> list[tuple[Hashable, Hashable, int]]:
        """Return the n most frequent pairs (true label, wrong first prediction), with counts.

        A row whose first prediction is wrong counts once for each of its labels.
        """
        best = self.topk[:, 0]
        right = np.asarray(self.truth[np.arange(self.n_rows), np.maximum(best, 0)]).ravel() > 0
        wrong = ~right & (best >= 0)
        pairs: Counter[tuple[int, int]] = Counter()
        for row in np.flatnonzero(wrong):
            start, end = self.truth.indptr[row : row + 2]
            pairs.update((int(label), int(best[row])) for label in self.truth.indices[start:end])
        return [
            (self.labels[true], self.labels[said], count)
            for (true, said), count in pairs.most_common(n)
        ]

    def calibration(self, n_bins: int = 10) -> list[tuple[float, float, int]]:
        """Return mean probability, accuracy and number of rows, by bins of probability."""
        if self.confidence is None:
            return []
        best = np.maximum(self.topk[:, 0], 0)
        right = np.asarray(self.truth[np.arange(self.n_rows), best]).ravel() > 0
        bins = np.minimum((self.confidence * n_bins).astype(int), n_bins - 1)
        return [
            (float(self.confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
            for inside in (bins == number for number in range(n_bins))
            if inside.any()
        ]

    def calibration_error(self) -> float | None:
        """Return the expected calibration error: mean distance of probability and accuracy."""
        bins = self.calibration()
        if not bins:
            return None
        return sum(abs(said - right) * rows for said, right, rows in bins) / self.n_rows
