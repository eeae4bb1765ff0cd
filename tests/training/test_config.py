"""The training configuration mirrors the parameters of the estimator."""

from dataclasses import fields

import pytest

from ltls import LTLSClassifier, TableCodebook, TextClassifier
from ltls.structure.policies import POLICIES
from ltls.training.config import FIXED, TrainConfig


def test_every_field_is_a_parameter_with_the_same_default():
    parameters = LTLSClassifier().get_params(deep=False)
    for field in fields(TrainConfig):
        if field.name != "keep_on_interrupt":
            assert parameters[field.name] == field.default
    missing = set(parameters) - {field.name for field in fields(TrainConfig)}
    assert missing == {"random_state", "warm_start"}
    assert set(FIXED) <= set(parameters)


def test_parameters_of_subclasses_are_ignored():
    parameters = TextClassifier(width=3, min_df=2).get_params(deep=False)
    config = TrainConfig.from_parameters(parameters, keep_on_interrupt=False)
    assert config == TrainConfig(width=3, keep_on_interrupt=False)


def test_a_policy_is_looked_up_by_name():
    for name, policy in POLICIES.items():
        assert TrainConfig(assignment=name).policy is policy
    assert TrainConfig(assignment=TableCodebook(3)).policy is None


@pytest.mark.parametrize(
    ("normalize", "sparse", "expected"),
    [("auto", True, True), ("auto", False, False), (True, False, True), (False, True, False)],
)
def test_rows_are_scaled_to_unit_length_if_they_are_sparse(normalize, sparse, expected):
    assert TrainConfig(normalize=normalize).use_unit_length(sparse) is expected
