"""Which nodes of a model differ from the reference, on random or edge inputs, once they are imported and built untuned.

Runs of nodes are halved, as nodes that cannot be imported are found (``onnx_model/segments.py``). Each run is built by
itself and fed with the reference's own values, so that a wrong node does not make what follows it look wrong. Kernels
of equal tasks are compiled once, so all runs together take about three times as long as importing the model and
building it untuned.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, save_model

from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.conversion.packed_outputs import WHOLE
from autotune.importer.guarded_import import import_model
from autotune.importer.kernel_passes import inputs_of
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import true_inputs
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from autotune.measure.output_check import Expected
from autotune.options import Precision
from autotune.runtime.session import InferenceSession
from autotune.validation.arithmetic.edge_inputs import edge_feeds, lost
from autotune.validation.arithmetic.onnxruntime_session import Session
from autotune.validation.arithmetic.reference_engines import RUNTIME, Arrays
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import compare, runnable_inputs
from schedules.lower import BASELINE
from schedules.target import Target
from schedules.vocabulary.errors import AutotuneError, ModelError, UnsupportedError, VerificationError

MOST_RUNS = 64
"""Runs of nodes that are built at most: six wrong operators of a model of a thousand nodes. What is not decided by then
counts as wrong. Heuristic, not measured."""


MOST_S = 240.0
"""Seconds after which no further run of nodes is built; the rest counts as wrong then too. Heuristic, not measured."""


def untuned_plan(program: Program, target: Target) -> Plan:
    """Every task of ``program`` as TVM lowers it."""
    choices = (Choice(task.key, BASELINE, None) for task in program.tasks)
    return Plan(target, tuple(sorted(choices, key=lambda choice: choice.task)))


class NumbersCheck(AbstractContextManager["NumbersCheck"]):
    """An attempt for ``segments.split``: it raises an error where a part of the model gives wrong numbers.

    Args:
        model: flat (``flat_model.flatten``), with shapes as far as they can be inferred.
        path: the model's file.
        measurer: compiles the kernels.
        precision: of the products.
        seed: of the random inputs.

    Raises:
        ModelError: if the reference does not run the model.
    """

    def __init__(
        self, model: ModelProto, path: Path, target: Target, measurer: MeasurementBackend, precision: str, seed: int
    ) -> None:
        self._path, self._target, self._measurer, self._precision = path, target, measurer, precision
        self._runs = 0
        self._folder = tempfile.TemporaryDirectory(prefix="tune-wrong-nodes-")
        self._watched = _watched(model)
        feed = runnable_inputs(model, inputs_of(model), seed)
        name, self._values = _values(self._watched, feed)
        self._edges = list(_edge_values(self._watched, feed)) if name.startswith(RUNTIME) else []
        self._plain: dict[int, Arrays | None] = {}
        self._end = time.monotonic() + MOST_S  # the runs of the reference are not counted

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def __call__(self, part: ModelProto) -> None:
        """Build ``part`` untuned and compare its outputs.

        Raises:
            AutotuneError: if it cannot be imported, built or run, or its outputs differ.
        """
        self._runs += 1
        if self._runs > MOST_RUNS or time.monotonic() > self._end:
            raise VerificationError("too many or too large parts of the model are wrong to tell them apart")
        file = Path(self._folder.name) / f"part-{self._runs}.onnx"
        save_model(part, file)
        try:
            self._compare(file, part.graph.name or "the segment")
        finally:
            file.unlink()

    def _compare(self, file: Path, name: str) -> None:
        # In a process of its own: an operator may crash there, and what libraries print stays there.
        _, program = import_model(file, {}, self._target, precision=Precision.parse(self._precision))
        if program.frame is not None:
            raise UnsupportedError(f"{name}: {WHOLE}")
        out = file.with_suffix("")
        build_artifact(out, program, untuned_plan(program, self._target), self._path, self._measurer)
        feed = {spec.name: self._values[spec.name] for spec in program.inputs}
        session = InferenceSession(out)
        for spec, ours in zip(program.outputs, session.run(None, feed), strict=True):
            theirs = self._values[spec.name]
            verdict = compare("the reference", [ours], [theirs])
            if not verdict.passed and (ours.shape != theirs.shape or Expected(theirs).mismatch(ours)):
                raise VerificationError(f"{spec.name} differs: {verdict.difference}")
        for number, values in enumerate(self._edges):
            feed = {spec.name: values[spec.name] for spec in program.inputs}
            for spec, ours in zip(program.outputs, session.run(None, feed), strict=True):
                if not lost(ours, values[spec.name]).any():
                    continue
                plain = self._plain_values(number)
                if plain is not None and lost(ours, values[spec.name], plain[spec.name]).any():
                    raise VerificationError(f"{spec.name} has numbers where the reference gives NaN or infinity")

    def _plain_values(self, number: int) -> Arrays | None:
        """The values for edge inputs without ONNX Runtime's optimiser; where both differ, anything is right.

        None if they cannot be computed.
        """
        if number not in self._plain:
            feed = {value.name: self._edges[number][value.name] for value in true_inputs(self._watched.graph)}
            began = time.monotonic()
            self._plain[number] = None
            with suppress(ThirdPartyError, AutotuneError), third_party():
                outputs = Session(self._watched, optimised=False).run(feed)
                self._plain[number] = _named(self._watched, feed, outputs)
            self._end += time.monotonic() - began
        return self._plain[number]


def _edge_values(watched: ModelProto, feed: Arrays) -> Iterator[Arrays]:
    """Yield the values for each of the edge inputs made of ``feed`` that the reference runs."""
    for _, changed in edge_feeds(feed):
        with suppress(ModelError):
            yield _values(watched, changed)[1]


def _watched(model: ModelProto) -> ModelProto:
    """Return ``model`` with all values of known shape that nodes make as outputs."""
    watched, scope = ModelProto(), Scope(model)
    watched.CopyFrom(model)
    declared = {value.name: value for value in model.graph.value_info}
    outputs = {value.name for value in model.graph.output}
    inner_names = [name for node in model.graph.node for name in node.output if name and name not in outputs]
    watched.graph.output.extend(declared[name] for name in inner_names if name in declared and name in scope.shapes)
    return watched


def _values(watched: ModelProto, feed: Arrays) -> tuple[str, Arrays]:
    """Return the reference's name, and its values for ``feed``: the outputs and the inputs."""
    name, outputs = reference_outputs(watched, feed)
    return name, _named(watched, feed, outputs)


def _named(watched: ModelProto, feed: Arrays, outputs: Sequence[Any]) -> Arrays:
    names = [value.name for value in watched.graph.output]
    return {**feed, **dict(zip(names, map(np.asarray, outputs), strict=True))}
