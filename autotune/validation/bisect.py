"""The first difference of an artifact: the first wrong kernel, or the first ONNX node that is imported wrongly.

Two searches, one after the other:

1. Every kernel call of the artifact is made alone, on the right inputs, and compared with the untuned build of the same
   task. Right inputs: one wrong kernel does not make all that follow it look wrong.
2. If all kernels are right, the import is not. The model is cut after its first k nodes, built untuned and compared
   with the reference; whatever a cut leaves open is an output, so "some output differs" stays true once it is true, and
   k is found by halving.

Kernels are told by the ONNX nodes that they compute: a kernel's output is matched with the reference's tensors by its
sorted values, which no layout changes, and its nodes are those between that tensor and those of its inputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray

from autotune.artifact.apply_plan import apply_plan
from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.backends.cpu.libraries import open_library, set_threads
from autotune.backends.cpu.linking import compile_kernels, link_kernels
from autotune.graph.flat import Flat, FlatCall, Source
from autotune.graph.flattening import read_flat
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplified
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measurer import MeasurementBackend, symbol_of
from autotune.measure.output_check import Expected, aligned, numpy_dtype, poison
from autotune.options import Precision
from autotune.runtime.session import InferenceSession
from autotune.validation.arithmetic.reference_engines import Arrays
from autotune.validation.arithmetic.wrong_nodes import untuned_plan
from autotune.validation.bisect_names import Names
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import compare, random_inputs, runnable_inputs
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import UsageError

Array = NDArray[Any]


@dataclass(frozen=True)
class Culprit:
    """The first place where results differ.

    Attributes:
        kind: ``kernel`` if a kernel of the artifact differs from its untuned build, ``import`` if the program itself is
            not the model.
        nodes: the ONNX nodes it computes, as in the simplified model; may be empty for a kernel that only converts.
        message: how it differs.
        kernel: the kernel's symbol; empty for ``import``.
        task: the kernel's task; empty for ``import``.
        config: what the kernel was built from, as JSON; empty for ``import``.
        number, count: its place among so many kernel calls or nodes.
    """

    kind: str
    nodes: tuple[str, ...]
    message: str
    number: int
    count: int
    kernel: str = ""
    task: str = ""
    config: str = ""

    def line(self) -> str:
        """For people."""
        nodes = ", ".join(self.nodes) or "no node of its own"
        if self.kind == "kernel":
            return (
                f"kernel call {self.number} of {self.count} is wrong: {self.task} ({self.kernel}, {self.config}), "
                f"which computes {nodes}: {self.message}"
            )
        return f"node {self.number} of {self.count} is imported wrongly: {nodes}: {self.message}"


def bisect(artifact: Path, model: Path, seed: int = 0) -> Culprit | None:
    """The first kernel or node of ``artifact`` that differs from ``model``, or None if nothing does.

    Raises:
        UsageError: if the artifact is not of this model.
    """
    opened = read_artifact(artifact)
    shapes = {spec.name: spec.shape for spec in opened.inputs if spec.shape}
    checked = load_model(model, shapes)
    simple = simplified(checked, opened.target)
    program = import_program(_copy(simple), opened.target, Precision.parse(opened.precision))
    feed = runnable_inputs(checked, opened.inputs, seed)
    set_threads(opened.target.threads)
    with LocalMeasurer(opened.target) as measurer, tempfile.TemporaryDirectory(prefix="tune-bisect-") as name:
        return _wrong_kernel(opened, program, simple, feed, measurer, Path(name)) or _wrong_node(
            simple, opened.target, feed, model, measurer, Path(name)
        )


def wrong_tasks(artifact: Path, program: Program, seed: int, measurer: MeasurementBackend) -> set[str]:
    """Keys of the tasks whose kernel in ``artifact``, built of ``program``, differs from the untuned build."""
    opened = read_artifact(artifact)
    feed = random_inputs(opened.inputs, seed)
    set_threads(opened.target.threads)
    with tempfile.TemporaryDirectory(prefix="tune-bisect-") as name:
        return {wrong.task.key for wrong in _wrong_calls(opened, program, feed, measurer, Path(name))}


def _wrong_kernel(
    artifact: Artifact,
    program: Program,
    simple: onnx.ModelProto,
    feed: Arrays,
    measurer: MeasurementBackend,
    folder: Path,
) -> Culprit | None:
    """The first kernel call that differs from the untuned build's."""
    wrong = next(_wrong_calls(artifact, program, feed, measurer, folder), None)
    if wrong is None:
        return None
    nodes = Names(simple, feed).of_call(wrong.flat, wrong.written, wrong.number)
    config, count = artifact.plan.config(wrong.task.key).to_json(), len(artifact.steps.calls)
    symbol = symbol_of(wrong.task.key)
    return Culprit("kernel", nodes, wrong.message, wrong.position, count, symbol, wrong.task.name, config)


@dataclass(frozen=True)
class _WrongCall:
    """A kernel call that differs from the untuned build's.

    Attributes:
        position: of the call in the artifact, from 1.
        number: of the call in ``flat``, whose calls write ``written``.
    """

    task: Task
    message: str
    position: int
    number: int
    flat: Flat
    written: Sequence[Array]


def _wrong_calls(
    artifact: Artifact, program: Program, feed: Arrays, measurer: MeasurementBackend, folder: Path
) -> Iterator[_WrongCall]:
    """The kernel calls of ``artifact`` that differ from the untuned build's, in its order."""
    plan = untuned_plan(program, artifact.target)
    ready = apply_plan(program, plan)
    flat = read_flat(ready, {})
    known = {symbol_of(task.key): task for task in program.tasks}
    strange = next((step.symbol for step in artifact.steps.calls if step.symbol not in known), None)
    if strange is not None:
        raise UsageError(
            f"{artifact.path} has a kernel {strange} that this model has not; give the model it was made of"
        )
    link_kernels(compile_kernels(program, plan, measurer), folder / "untuned.so")
    inputs = [np.ascontiguousarray(feed[spec.name]) for spec in artifact.inputs]
    values = _Values(flat, inputs)
    values.compute(open_library(folder / "untuned.so"))
    yield from _compared(artifact, flat, values, known)


class _Values:
    """The values that every call of the untuned program writes."""

    def __init__(self, flat: Flat, inputs: Sequence[Array]) -> None:
        self._flat = flat
        self._inputs = inputs
        self.written: list[Array] = []

    def compute(self, library: Any) -> None:
        """Make all calls."""
        for call in self._flat.calls:
            arguments = self.arguments(call)
            self.written.append(_called(library[call.symbol], arguments, call))

    def arguments(self, call: FlatCall) -> list[Array]:
        """The inputs of a call, in memory that kernels can read."""
        return [_dense(self._array(use.source).reshape(use.shape)) for use in call.arguments]

    def _array(self, source: Source) -> Array:
        held = {"input": self._inputs, "weight": self._flat.weights, "arena": self.written}
        return held[source.place][source.index]


def _dense(array: Array) -> Array:
    dense = aligned(array.shape, array.dtype)
    dense[...] = array
    return dense


def _called(kernel: Any, arguments: Sequence[Array], call: FlatCall) -> Array:
    output = aligned(call.shape, numpy_dtype(call.dtype))
    poison(output)
    kernel(*(tvm.runtime.from_dlpack(array) for array in (*arguments, output)))
    return output


def _compared(artifact: Artifact, flat: Flat, values: _Values, known: Mapping[str, Task]) -> Iterator[_WrongCall]:
    """Make the artifact's calls on the right inputs, in its order.

    Its calls are those of the program without concatenations that vanished, and on several lanes in another order; so a
    call is matched with the first of the same kernel that it agrees with.
    """
    library = open_library(artifact.library)
    left = list(range(len(flat.calls)))
    for position, step in enumerate(artifact.steps.calls, start=1):
        wrong: tuple[int, str] | None = None
        for number in [number for number in left if flat.calls[number].symbol == step.symbol]:
            call = flat.calls[number]
            arguments = values.arguments(call)
            for index, operand in enumerate(step.operands[:-1]):
                if operand.place == "weight":
                    arguments[index] = _dense(artifact.weights[operand.index].reshape(operand.shape))
            got = _called(library[step.symbol], arguments, call)
            mismatch = Expected(values.written[number], call.dtype).mismatch(got)
            if not mismatch:
                left.remove(number)
                break
            wrong = wrong or (number, mismatch)
        else:
            if wrong is None:
                raise UsageError(f"{artifact.path} calls {step.symbol} more often than this model; give its own model")
            left.remove(wrong[0])
            yield _WrongCall(known[step.symbol], wrong[1], position, wrong[0], flat, values.written)


def _wrong_node(
    simple: onnx.ModelProto, target: Target, feed: Arrays, model: Path, measurer: LocalMeasurer, folder: Path
) -> Culprit | None:
    """The first node after which an untuned build of the nodes so far differs from the reference."""
    count = len(simple.graph.node)
    message = _prefix_differs(simple, count, target, feed, model, measurer, folder)
    if not message:
        return None
    right, wrong = 0, count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        difference = _prefix_differs(simple, middle, target, feed, model, measurer, folder)
        if difference:
            wrong, message = middle, difference
        else:
            right = middle
    node = simple.graph.node[wrong - 1]
    return Culprit("import", (f"{node.name} ({node.op_type})",), message, wrong, count)


def _prefix_differs(
    simple: onnx.ModelProto,
    count: int,
    target: Target,
    feed: Arrays,
    model: Path,
    measurer: LocalMeasurer,
    folder: Path,
) -> str:
    """Return the difference of the first ``count`` nodes, built untuned, from the reference; empty if there is none."""
    cut = first_nodes(simple, count)
    program = import_program(_copy(cut), target)
    out = folder / f"first-{count}"
    build_artifact(out, program, untuned_plan(program, target), model, measurer)
    mine = {spec.name: feed[spec.name] for spec in program.inputs}
    reference, theirs = reference_outputs(cut, mine)
    ours = InferenceSession(out).run(None, mine)
    for spec, got, want in zip(program.outputs, ours, theirs, strict=True):
        verdict = compare(reference, [got], [want])
        if not verdict.passed and (got.shape != want.shape or Expected(want).mismatch(got)):
            return f"{spec.name} differs from {reference}: {verdict.difference}"
    return ""


def first_nodes(model: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """``model`` cut after ``count`` nodes: what later nodes read of them, and outputs they make, are its outputs."""
    cut = _copy(model)
    graph = cut.graph
    types = {value.name: value for value in (*graph.value_info, *graph.output)}
    produced = [name for node in graph.node[:count] for name in node.output if name]
    read = {name for node in graph.node[count:] for name in node.input}
    read |= {value.name for value in graph.output}
    outputs = [types[name] for name in produced if name in read and name in types]
    kept = list(graph.node[:count])
    del graph.node[:]
    graph.node.extend(kept)
    del graph.output[:]
    graph.output.extend(outputs)
    return cut


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
