"""Every form of an operator against ONNX Runtime: many one-node cases at once, rewritten and, some of them, built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autotune.importer.load import load_model
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import run_ours

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """One node; inputs that are None are left out, and names in ``constants`` are initialisers.

    Attributes:
        inputs: in the operator's order.
        constants: positions of those that are initialisers.
        outputs: how many are asked for.
    """

    kind: str
    inputs: Sequence[Array | None]
    constants: Sequence[int] = ()
    outputs: int = 1
    opset: int = 18
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ["" if array is None else f"{array.dtype}{list(array.shape)}" for array in self.inputs]
        values = {index: np.asarray(self.inputs[index]).tolist() for index in self.constants if _is_short(self, index)}
        return f"{self.kind} {self.opset} {shapes} {values} {dict(self.attributes)}"


def _is_short(case: Case, index: int) -> bool:
    array = case.inputs[index]
    return array is not None and array.size < 12


def model_of_cases(cases: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One model of all, which have one opset, and its inputs; names of case k begin with ``k_``.

    A transposition follows every case, so the model declares no shape that the case makes.
    """
    (opset,) = {case.opset for case in cases}
    nodes, inputs, weights, outputs, feed = [], [], [], [], {}
    for number, case in enumerate(cases):
        names = ["" if array_or_none is None else f"{number}_x{k}" for k, array_or_none in enumerate(case.inputs)]
        for index, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
            if array is None:
                continue
            if index in case.constants:
                weights.append(numpy_helper.from_array(np.asarray(array), name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
                feed[name] = array
        names_made = [f"{number}_y{k}" for k in range(case.outputs)]
        nodes.append(helper.make_node(case.kind, names, names_made, f"{number}_{case.kind}", **case.attributes))
        seen = [f"{number}_z{k}" for k in range(case.outputs)]
        nodes += [helper.make_node("Transpose", [one], [other]) for one, other in zip(names_made, seen, strict=True)]
        outputs += [onnx.ValueInfoProto(name=name) for name in seen]
    graph = helper.make_graph(nodes, "cases", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 21 else 10)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    del model.graph.output[:]
    model.graph.output.extend(inferred.graph.output)
    return model, feed


def by_opset(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases of one opset together."""
    groups: dict[int, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.opset, []).append(case)
    return list(groups.values())


def reference(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Any]:
    """What ONNX Runtime makes without its optimiser; ONNX's reference where it lacks the operator.

    Raises:
        Exception: of either, where the model cannot run.
    """
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    try:
        data = model.SerializeToString()
        return list(onnxruntime.InferenceSession(data, settings, ["CPUExecutionProvider"]).run(None, dict(feed)))
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "NotImplemented" not in type(error).__name__:
            raise
        return list(ReferenceEvaluator(model).run(None, dict(feed)))


def rewritten(model: onnx.ModelProto, feed: Mapping[str, Array], folder: Path) -> list[Any]:
    """What ONNX Runtime makes of the model once the importer has rewritten it."""
    path = folder / "case.onnx"
    path.write_bytes(model.SerializeToString())
    simple = simplify(load_model(path), activations="")
    for index in reversed(range(len(simple.opset_import))):
        if simple.opset_import[index].domain == OWN_DOMAIN:
            del simple.opset_import[index]
    return reference(simple, feed)


def far(ours: Any, theirs: Any, rtol: float = 1e-4, atol: float = 1e-5) -> str:
    """What differs between two outputs; empty if nothing does. Whole numbers must be equal."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    if theirs.dtype.kind in "fV":
        wide = np.float64 if theirs.dtype == np.float64 else np.float32
        a, b = ours.astype(wide), theirs.astype(wide)
        same = np.isclose(a, b, rtol, atol, equal_nan=True)
    else:
        a, b = ours, theirs
        same = a == b
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0]) if same.ndim else ()
    return f"{int((~same).sum())} of {same.size} differ, at {at} {a[at]} instead of {b[at]}"


def wrong(cases: Sequence[Case], folder: Path, built: bool = False, **tolerance: float) -> list[str]:
    """What is wrong with which of the cases that ONNX Runtime or ONNX's reference can run.

    Args:
        built: compare what kernels make, not what ONNX Runtime makes of the rewritten model.
    """
    complaints: list[str] = []
    for group in by_opset(cases):
        complaints += _wrong(group, folder, built, tolerance)
    return complaints


def _wrong(cases: Sequence[Case], folder: Path, built: bool, tolerance: Mapping[str, float]) -> list[str]:
    model, feed = model_of_cases(cases)
    try:
        theirs = reference(model, feed)
    except Exception as error:
        return _halves(cases, folder, built, tolerance) if len(cases) > 1 else _unless_invalid(cases[0], error)
    try:
        ours = run_ours(model, folder, feed) if built else rewritten(model, feed, folder)
    except Exception as error:
        if len(cases) > 1:
            return _halves(cases, folder, built, tolerance)
        return [f"{cases[0]}: {type(error).__name__}: {str(error)[:300]}"]
    owners = [case for case in cases for _ in range(case.outputs)]
    texts = [(case, far(a, b, **tolerance)) for case, a, b in zip(owners, ours, theirs, strict=True)]
    return [f"{case}: {text}" for case, text in texts if text]


def _halves(cases: Sequence[Case], folder: Path, built: bool, tolerance: Mapping[str, float]) -> list[str]:
    half = len(cases) // 2
    return [text for part in (cases[:half], cases[half:]) for text in _wrong(part, folder, built, tolerance)]


def _unless_invalid(case: Case, error: Exception) -> list[str]:
    """Nothing: a case that no reference can run says nothing of ours."""
    return []
