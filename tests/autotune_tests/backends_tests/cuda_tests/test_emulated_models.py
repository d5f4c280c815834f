"""Whole models against ONNX Runtime, every kernel run from its CUDA source on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.plan import Choice, Plan
from autotune.artifact.precision_choice import precision_of
from autotune.graph.flattening import flatten
from autotune.graph.steps import Operand
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplified, simplify
from autotune.measure.measurer import symbol_of
from autotune.options import Precision
from autotune.validation.reference_runs import Reference, reference_outputs
from autotune.validation.verify import compare, random_inputs
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from tests.autotune_tests.importer_tests.onnx_cases import recurrent, written
from tests.models.catalog import cached
from tests.models.quantised import qdq_cnn, quantise
from tests.schedules_tests.templates_tests.cuda_tests.emulator import Emulated

TARGET = Target.cuda("sm_90")
Kernel = Callable[[list[NDArray[Any]], NDArray[Any]], NDArray[Any]]
"""Arguments and output, as it was before → output."""

QUICK = ("tiny_cnn", "tiny_encoder")
SLOW = (
    "tiny_odd",
    "tiny_strided",
    "tiny_grouped",
    "tiny_branches",
    "tiny_gated",
    "tiny_mlp",
    "tiny_unet",
    "tiny_wide_deep",
    "tiny_siamese",
    "squeezenet",
)


def run(
    program: Program, feed: dict[str, NDArray[Any]], elsewhere: Mapping[str, Kernel] = MappingProxyType({})
) -> list[NDArray[Any]]:
    """The program's outputs, by the first guess of every task.

    Args:
        elsewhere: symbol → what runs in place of the emulated kernel.
    """
    plan = Plan(
        TARGET, tuple(Choice(t.key, (*program.spaces[t.key].initial, BASELINE)[0], None) for t in program.tasks)
    )
    ready = apply_plan(program, plan)
    steps = flatten(ready, {})
    kernels = {
        symbol_of(task.key): Emulated(
            lower(load_program(program.programs[task.key]), plan.config(task.key), TARGET), TARGET
        )
        for task in program.tasks
        if symbol_of(task.key) not in elsewhere
    } | dict(elsewhere)
    arena = np.full(steps.arena_bytes, 0xFF, np.uint8)  # NaN
    inputs = [feed[spec.name] for spec in program.inputs]

    def view(operand: Operand) -> NDArray[Any]:
        if operand.place != "arena":
            return (inputs if operand.place == "input" else steps.weights)[operand.index].reshape(operand.shape)
        size = math.prod(operand.shape) * np.dtype(operand.dtype).itemsize
        return arena[operand.index : operand.index + size].view(operand.dtype).reshape(operand.shape)

    for call in steps.calls:
        *arguments, output = [view(operand) for operand in call.operands]
        output[...] = kernels[call.symbol](arguments, output)
    return [view(operand).copy() for operand in steps.outputs]


def check(
    model: onnx.ModelProto,
    program: Program,
    rtol: float,
    atol: float,
    elsewhere: Mapping[str, Kernel] = MappingProxyType({}),
) -> None:
    feed = random_inputs(program.inputs, 0)
    _, expected = reference_outputs(model, feed)
    for ours, theirs in zip(run(program, feed, elsewhere), expected, strict=True):
        assert ours.dtype == theirs.dtype
        scale = float(np.sqrt(np.mean(np.square(theirs, dtype=np.float64))))
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol * scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_float32(name: str) -> None:
    model = load_model(cached(name), {})
    check(model, import_program(simplify(model), TARGET), 1e-3, 1e-4)


def check_precision(name: str, text: str) -> None:
    """A float32 model with products of 16 bits is as far from ONNX Runtime as rounded operands make it."""
    model = load_model(cached(name), {})
    program = import_program(simplify(model), TARGET, Precision.parse(text))
    assert "cuda_tensor" in {task.template for task in program.tasks}
    feed = random_inputs(program.inputs, 0)
    reference = Reference(model)
    _, expected = reference.outputs(feed)
    allowance = reference.allowance(feed, text)
    assert allowance is not None
    for number, (ours, theirs) in enumerate(zip(run(program, feed), expected, strict=True)):
        assert ours.dtype == theirs.dtype
        allowed = max(float(np.abs(sample[number] - theirs).max()) for sample in allowance.samples)
        assert 0 < np.abs(ours - theirs).max() < 2 * allowed


@pytest.mark.parametrize("text", ["bf16", "fp16", "tf32"])
def test_a_shorter_precision_uses_tensor_cores(text: str) -> None:
    check_precision("tiny_mlp", text)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["bf16", "fp16", "tf32"])
@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_encoder", "tiny_grouped", "tiny_gated", "tiny_branches"])
def test_models_of_a_shorter_precision(name: str, text: str) -> None:
    check_precision(name, text)


def test_only_chosen_products_are_rounded_to_tf32() -> None:
    program = import_program(simplify(load_model(cached("tiny_mlp"), {})), TARGET, Precision.parse("tf32:1"))
    kinds = [(task.template, precision_of(task)) for task in program.tasks if "dense" in task.name]
    assert sorted(kinds) == [("cuda_gemm", "fp32")] * (len(kinds) - 1) + [("cuda_tensor", "tf32")]


def check_quantised(path: Path) -> None:
    """Products of bytes are summed as integers, and outputs are as right as rounding before quantisers leaves them."""
    model = load_model(path, {})
    program = import_program(simplified(model, TARGET), TARGET)
    products = {task for task in program.tasks if "conv2d" in task.name or "dense" in task.name}
    assert products
    assert all("int8" in task.dtypes for task in products)
    assert "cuda_tensor" in {task.template for task in products}
    feed, reference = random_inputs(program.inputs, 0), Reference(model)
    name, expected = reference.outputs(feed)
    verdict = compare(name, run(program, feed), expected, lambda: reference.allowance(feed))
    assert verdict.passed, verdict


def test_a_quantised_model_multiplies_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(qdq_cnn(size=8), path)
    check_quantised(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["u8s8", "s8s8", "u8u8", "qoperator", "dynamic"])
@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_mlp", "tiny_encoder"])
def test_quantised_models(name: str, kind: str, tmp_path: Path) -> None:
    check_quantised(quantise(onnx.load(cached(name)), kind, tmp_path / "model.onnx"))


def check_recurrence(kind: str, direction: str, tmp_path: Path, one_kernel: bool, **more: Any) -> None:
    """A recurrent node of random weights against ONNX Runtime."""
    model, _ = recurrent(kind, direction, **{"hidden": 5, "batch": 2, "steps": 3, **more})
    plain = load_model(written(model, tmp_path), {})
    program = import_program(simplify(plain), TARGET)
    assert ("cuda_recurrent" in {task.template for task in program.tasks}) == one_kernel
    check(plain, program, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("kind", "direction", "more"),
    [
        ("LSTM", "bidirectional", {"states": True}),
        ("GRU", "bidirectional", {"states": True, "linear_before_reset": 1}),
    ],
)
def test_all_steps_of_a_recurrence_in_one_kernel(kind, direction, more, tmp_path):
    check_recurrence(kind, direction, tmp_path, True, **more)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("sizes", [{"hidden": 40, "batch": 1}, {"hidden": 64, "batch": 8}, {"steps": 1}])
@pytest.mark.parametrize(("kind", "more"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1})])
def test_recurrences_in_one_kernel(kind, more, direction, states, sizes, tmp_path):
    check_recurrence(kind, direction, tmp_path, True, states=states, **sizes, **more)


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("LSTM", {"clip": 0.3}),
        ("LSTM", {"kept_lengths": (1, 3)}),
        ("LSTM", {"peepholes": True}),
        ("LSTM", {"input_forget": 1}),
        ("GRU", {}),
        ("GRU", {"clip": 0.3}),
        ("RNN", {"states": True}),
    ],
)
def test_recurrences_of_other_forms_are_right_step_by_step(kind, more, direction, tmp_path):
    check_recurrence(kind, direction, tmp_path, False, **more)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_sequence_without_steps_next_to_an_entire_one(direction, tmp_path):
    """Constant lengths of all steps or none leave one kernel, whose results are chosen from."""
    check_recurrence("GRU", direction, tmp_path, True, kept_lengths=(3, 0), linear_before_reset=1)


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 tensor as float16."""
    short = onnx.ModelProto()
    short.CopyFrom(model)
    for tensor in short.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    for value in (*short.graph.input, *short.graph.output, *short.graph.value_info):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return short


def test_float16_products_are_for_tensor_cores() -> None:
    program = import_program(simplify(halved(load_model(cached("tiny_cnn"), {}))), TARGET)
    products = [task for task in program.tasks if "conv" in task.name or "dense" in task.name]
    assert products
    # The last layer has few outputs, whose sums threads share.
    assert {(task.template, task.dtypes[0]) for task in products} == {
        ("cuda_tensor", "float16"),
        ("cuda_reduce", "float16"),
    }
    on_cpu = import_program(simplify(halved(load_model(cached("tiny_cnn"), {}))), Target("llvm", "generic"))
    assert "float16" not in {task.dtypes[0] for task in on_cpu.tasks if "conv" in task.name}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_grouped", "tiny_gated", "tiny_encoder"])
def test_float16(name: str) -> None:
    """A model of 16-bit floats runs on tensor cores and is as right as its numbers."""
    model = load_model(cached(name), {})
    program = import_program(simplify(halved(model)), TARGET)
    assert "cuda_tensor" in {task.template for task in program.tasks}
    feed = random_inputs(program.inputs, 0)
    _, expected = reference_outputs(model, {name: array.astype(np.float32) for name, array in feed.items()})
    for ours, theirs in zip(run(program, feed), expected, strict=True):
        assert ours.dtype == np.float16
        np.testing.assert_allclose(ours.astype(np.float32), theirs, rtol=0.03, atol=0.01)
