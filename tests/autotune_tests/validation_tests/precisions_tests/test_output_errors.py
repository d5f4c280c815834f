"""How far outputs are from fp32: the measure itself, and what bf16 operands cost a small model."""

import math

import numpy as np
import pytest

from autotune.importer.load import load_model
from autotune.interface import TensorSpec
from autotune.options import Precision
from autotune.validation.precisions.calibration_inputs import calibration_inputs
from autotune.validation.precisions.output_errors import OutputErrors, relative_error
from tests.models.catalog import cached

X = np.array([3.0, 4.0])


@pytest.mark.parametrize(
    ("ours", "theirs", "error"),
    [
        ([[X]], [[X]], 0.0),
        ([[1.1 * X]], [[X]], 0.1),
        ([[X + np.array([0.0, 0.5])], [X]], [[X], [X]], 0.5 / math.sqrt(50)),
        ([[X, 1.2 * X]], [[X, X]], 0.2),
        ([[X, np.array([1])]], [[X, np.array([2])]], 0.0),
        ([[np.array([np.nan, 4.0])]], [[X]], math.inf),
        ([[np.array([7.0, 4.4])]], [[np.array([np.nan, 4.0])]], 0.1),
        ([[np.zeros(2)]], [[np.zeros(2)]], 0.0),
        ([[X]], [[np.zeros(2)]], math.inf),
    ],
)
def test_the_measure(ours, theirs, error):
    assert relative_error(ours, theirs) == pytest.approx(error)


@pytest.fixture(scope="module")
def judge():
    model = load_model(cached("tiny_cnn"), {})
    (value,) = model.graph.input
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    return OutputErrors(model, calibration_inputs([TensorSpec(value.name, shape, "float32")], None, 0))


def test_bf16_costs_what_its_eight_bits_say(judge):
    """An operand is off by up to 2⁻⁹; this model's sums cancel, which makes its outputs off by some per cent."""
    assert 2**-12 < judge.of_products(Precision(None)) < 2**-5
    assert judge.of_products(Precision()) == 0.0


def test_errors_of_products_add_up_in_squares(judge):
    alone = [judge.of_products(Precision(frozenset({number}))) for number in range(judge.products)]
    assert judge.of_products(Precision(None)) == pytest.approx(math.sqrt(sum(e**2 for e in alone)), rel=0.35)


def test_openvino_is_a_right_engine(judge):
    """In fp32 or, where this CPU has it, in bf16."""
    assert judge.of_openvino(1) < 2**-5
