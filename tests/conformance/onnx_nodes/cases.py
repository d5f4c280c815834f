"""The node cases of ``onnx.backend.test``, as models that a static compiler can be given."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.backend.test.loader import load_node_model_tests

from tests.conformance.onnx_nodes.shaping import shaping_inputs

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One test of the suite.

    Attributes:
        operator: what it tests; for a case whose model is an operator's function body, that operator.
        model: as the suite has it, or with ``constants`` turned into initialisers.
        inputs: by name; without the constants.
        outputs: what is expected, in order; anything but arrays cannot be an output of ours.
        constants: names of inputs that were made constant because their values decide shapes.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float
    constants: tuple[str, ...]


@cache
def node_cases() -> tuple[Case, ...]:
    """Every node case of the installed ``onnx``, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's generators divide by zero on purpose
        tests = sorted(load_node_model_tests(), key=lambda test: str(test.name))
    whole = {test.name: test for test in tests if "_expanded" not in test.name}
    return tuple(_case(test, whole.get(test.name.split("_expanded")[0], test)) for test in tests)


def _case(test: Any, whole: Any) -> Case:
    """``test``, and the test of which it is the expansion, or itself."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    arrays, outputs = test.data_sets[0]
    names = [value.name for value in model.graph.input]
    inputs = {name: _array(value) for name, value in zip(names, arrays, strict=False)}
    shaping = dict.fromkeys((*shaping_inputs(model.graph), *shaping_inputs(whole.model.graph)))
    fixed = tuple(name for name in shaping if isinstance(inputs.get(name), np.ndarray))
    for name in fixed:
        value = next(value for value in model.graph.input if value.name == name)
        model.graph.input.remove(value)
        model.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
    return Case(
        test.name,
        whole.model.graph.node[0].op_type,
        model,
        inputs,
        tuple(map(_array, outputs)),
        float(test.rtol),
        float(test.atol),
        fixed,
    )


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value
