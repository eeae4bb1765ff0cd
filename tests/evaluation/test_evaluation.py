"""The evaluation of a model: labels it has never seen, frequencies, confusions and calibration."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from ltls import LTLSClassifier, metrics
from ltls.evaluation import evaluation
from ltls.evaluation.evaluation import Evaluation, tables
from ltls.evaluation.metrics import AT_K

TRAINED = ["a"] * 6 + ["b"] * 3 + ["c"]
TRUTH = [["a"], ["b", "new"], ["c"], ["a"]]
TOPK = [["a", "b"], ["a", "b"], ["c", "a"], ["b", "c"]]


@pytest.fixture(scope="module")
def model():
    return LTLSClassifier(random_state=0).fit(np.eye(10), TRAINED)


@pytest.fixture
def found(model):
    return Evaluation.of(model.model_, model.fitted_.provenance, TRUTH, TOPK, [0.9, 0.8, 0.6, 0.7])


def test_metrics_are_those_of_the_functions(found):
    ids = {"a": 0, "b": 1, "c": 2, "new": 3}
    truth = np.zeros((4, 4), int)
    for row, labels in enumerate(TRUTH):
        truth[row, [ids[label] for label in labels]] = 1
    topk = np.array([[ids[label] for label in row] for row in TOPK])
    p = metrics.propensities_of([6, 3, 1, 0], n_rows=10)
    expected = {
        "precision": metrics.precision_at_k(truth, topk, 1),
        "recall": metrics.recall_at_k(truth, topk, 1),
        "ndcg": metrics.ndcg_at_k(truth, topk, 1),
        "psp": metrics.psp_at_k(truth, topk, p, 1),
        "macro_f1": metrics.macro_f1_at_k(truth, topk, 1),
        "coverage": metrics.coverage_at_k(truth, topk, 1),
    }
    assert {name: found.at(1)[name] for name in expected} == pytest.approx(expected)
    fewer = found.at(2)["precision"] * 2 / 5  # there are no more than two predictions
    assert found.at(5)["precision"] == pytest.approx(fewer)


def test_groups_have_a_third_of_the_training_labels_each(found):
    groups = {group.pop("group"): group for group in found.by_frequency([1, 2])}
    assert {name: group["labels"] for name, group in groups.items()} == {
        "head": 1,
        "middle": 1,
        "tail": 1,
        "unseen": 1,
    }
    assert groups["head"] == {
        "labels": 1,
        "least_frequency": 6,
        "most_frequency": 6,
        "occurrences": 2,
        "found": {"1": 0.5, "2": 0.5},
    }
    assert groups["middle"]["found"] == {"1": 0.0, "2": 1.0}
    assert groups["unseen"]["found"] == {"1": 0.0, "2": 0.0}


def test_confusions_and_calibration(found):
    assert set(found.confusions(5)) == {("b", "a", 1), ("new", "a", 1), ("a", "b", 1)}
    assert found.first_is_right().tolist() == [True, False, True, False]
    bins = found.calibration()
    assert bins == [(0.6, 1.0, 1), (0.7, 0.0, 1), (0.8, 0.0, 1), (0.9, 1.0, 1)]
    by_bins = sum(abs(said - right) * rows for said, right, rows in bins) / 4
    assert found.calibration_error() == pytest.approx(by_bins)
    found.confidence = None
    assert (found.calibration(), found.calibration_error()) == ([], None)


def test_figures_of_labels_are_those_of_scikit_learn(found):
    by_label = {row.pop("label"): row for row in found.by_label()}
    first = [row[0] for row in TOPK]
    truth = [[label in row for label in by_label] for row in TRUTH]
    said = [[label == best for label in by_label] for best in first]
    expected = precision_recall_fscore_support(truth, said, zero_division=0)
    names = ("precision", "recall", "f1", "rows")
    for number, row in enumerate(by_label.values()):
        assert [row[name] or 0 for name in names] == pytest.approx([e[number] for e in expected])
    assert next(iter(by_label)) == "a"
    assert by_label["new"]["precision"] is None


def test_mistakes_that_the_model_is_sure_of_come_first(found):
    found.texts = ["one", "two", "three", "four"]
    mistakes = found.mistakes(5)
    assert [(each["row"], each["text"]) for each in mistakes] == [(2, "two"), (4, "four")]
    assert mistakes[0]["labels"] == ["b", "new"]
    assert (mistakes[0]["predicted"], mistakes[0]["probability"]) == ("a", 0.8)
    assert len(found.mistakes(1)) == 1


def test_rows_without_predictions_are_wrong(model):
    found = Evaluation.of(model.model_, model.fitted_.provenance, [["a"], ["a"]], [["a"], []])
    assert found.at(1)["precision"] == 0.5
    assert found.confusions(3) == []


def test_a_metric_is_declared_once(found, monkeypatch):
    monkeypatch.setitem(AT_K, "half", ("half@k", lambda truth, topk, k, p: 0.5))
    measured = [{"k": 1, **found.at(1)}]
    of_metrics, of_groups, of_facts = tables(measured, found.by_frequency([1]), {"n_rows": 4000})
    assert (of_metrics[0][-1], of_metrics[1][-1]) == ("half@k", "0.5000")
    assert [len(row) for row in of_groups] == [5] * 5
    assert of_facts == [["n rows", "4,000"]]


def test_missing_values_are_a_dash():
    group = {"group": "tail", "labels": 1, "least_frequency": 1, "most_frequency": 2}
    _, [_, row], _ = tables([], [{**group, "occurrences": 0, "found": {"1": None}}], {})
    assert row == ["tail", "1", "1–2", "0", "–"]
    assert evaluation._number(None) == "–"
